"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, and the schemas of producers and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from emulator.core.schemas.versions import version_bytes, version_number
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import Schema, SchemaType, TopicName
from emulator.wire.commands import (
    GetOrCreateSchema,
    GetOrCreateSchemaResponse,
    GetSchema,
    GetSchemaResponse,
    error_fields,
)

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection
    from emulator.broker.topic.topic import Topic

WITHOUT_SCHEMA = (
    "Producers cannot connect or send message without a schema to topics with a schema when "
    "SchemaValidationEnforced is enabled"
)


async def register_producer_schema(
    connection: ClientConnection, topic: TopicName, schema: Schema | None
) -> bytes:
    """Return the version of a producer's schema, registered if it is new; empty without a schema or for AUTO_CONSUME.
    ProtocolError when the schema is missing, incompatible or must not be registered; StorageError."""
    if not is_registered(schema):
        check_without_schema(connection, topic)
        return b""
    schemas = connection.region.schemas
    may_add = connection.peer is not None or schemas.may_register(topic)
    return version_bytes(await schemas.register(topic, schema, may_add=may_add))


def is_registered(schema: Schema | None) -> TypeGuard[Schema]:
    """Whether a producer with this schema has to register it."""
    return schema is not None and schema.type is not SchemaType.AUTO_CONSUME


def check_without_schema(connection: ClientConnection, topic: TopicName) -> None:
    """Raise ProtocolError for a client's producer without a schema if the topic requires one."""
    if connection.peer is None and connection.region.schemas.requires_schema(topic):
        raise ProtocolError(ServerError.IncompatibleSchema, WITHOUT_SCHEMA)


async def check_consumer_schema(connection: ClientConnection, topic: Topic, schema: Schema | None) -> None:
    """Register a consumer's schema if the topic has no schema, message or other user; otherwise check that it is
    compatible. Consumers of bytes can read every schema. ProtocolError; StorageError."""
    if schema is None or schema.type in (SchemaType.AUTO_CONSUME, SchemaType.NONE):
        return
    schemas = connection.region.schemas
    if schemas.newest(topic.name) is None and _is_idle(topic):
        await schemas.register(topic.name, schema, may_add=schemas.may_register(topic.name))
    else:
        await schemas.check_consumer(topic.name, schema)


def _is_idle(topic: Topic) -> bool:
    """Whether a topic has no message, no producer of a client, and no consumer that requires a schema."""
    if topic.state.last_data is not None or any(
        one.source_region is None for one in topic.producers.values()
    ):
        return False
    consumers = (one for each in topic.subscriptions.values() for one in each.consumers.values())
    return all(one.takes_any_schema for one in consumers)


async def get_schema(connection: ClientConnection, command: GetSchema) -> None:
    """Send a schema. For clients, TopicNotFound means "no schema": it is sent in a response, not raised."""
    schemas, topic = connection.region.schemas, connection.region.check_topic(command.topic)
    if command.version:
        found = await schemas.at(topic, version_number(command.version))
    else:
        found = schemas.newest(topic)
    if found is None or found.schema is None:
        none = ProtocolError(ServerError.TopicNotFound, "Topic not found or no-schema")
        connection.answer(GetSchemaResponse(command.request_id, **error_fields(none)).encode())
    else:
        version = version_bytes(found.number)
        connection.answer(
            GetSchemaResponse(
                command.request_id, schema=found.schema, schema_name=topic.topic, version=version
            ).encode()
        )


async def get_or_create_schema(connection: ClientConnection, command: GetOrCreateSchema) -> None:
    region = connection.region
    topic = region.check_topic(command.topic)
    if not region.directory.exists(str(topic)) and not region.partitioned.count(topic):
        raise ProtocolError(ServerError.TopicNotFound, f"Topic not found: {topic}")
    version = await register_producer_schema(connection, topic, command.schema)
    connection.answer(GetOrCreateSchemaResponse(command.request_id, version=version).encode())
