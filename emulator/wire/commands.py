"""What clients ask a broker for, as values: the handshake, lookups, schemas, producers, transactions.

Each value has `read`: BaseCommand bytes -> value, ProtocolError (closing the connection) for bytes that are none.
Commands of consumers are in `consumer_commands`; SEND, ACK and FLOW, of which there are many, in `codec`.

Numbers that clients choose (request, producer, consumer ids) are u64. Text that a client left out is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, Self, cast

from emulator.model.values import AccessMode, Schema, SchemaType
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import decode_command

PROTOCOL_VERSION: Final = 21
"""The newest version of Pulsar's binary protocol that is spoken here."""
HANDSHAKE_REQUEST_ID: Final = 2**64 - 1
"""Request id of an ERROR that answers no request: the handshake failed."""


class Request(Protocol):
    """Whatever is answered by its number."""

    @property
    def request_id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT: the first command of every connection."""

    client_version: str
    protocol_version: int
    auth_method_name: str
    auth_data: bytes

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).connect
        return cls(body.client_version, body.protocol_version, body.auth_method_name, body.auth_data)


@dataclass(frozen=True, slots=True)
class AuthResponse:
    """AUTH_RESPONSE: what was asked for in an AUTH_CHALLENGE."""

    method: str
    data: bytes

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).authResponse.response
        return cls(body.auth_method_name, body.auth_data)


def read_nothing(command: bytes) -> None:
    """PING and PONG say nothing but that somebody is there."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """LOOKUP: which broker has this topic?"""

    request_id: int
    topic: str
    listener_name: str
    """Which of the broker's advertised addresses is wanted; empty for the usual one."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).lookupTopic
        return cls(body.request_id, body.topic, body.advertised_listener_name)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """PARTITIONED_METADATA: how many partitions has this topic?"""

    request_id: int
    topic: str
    may_create: bool
    """Whether the client would have the topic created if there is none."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).partitionMetadata
        return cls(body.request_id, body.topic, body.metadata_auto_creation_enabled)


def schema_of(
    holder: pb.CommandProducer
    | pb.CommandSubscribe
    | pb.CommandGetOrCreateSchema
    | pb.CommandGetSchemaResponse,
) -> Schema | None:
    """The schema that a command brings; None when it brings none. Most clients bring none for plain bytes; the Go
    client says type 0 when its application asks for a schema of bytes, and that is a schema like others."""
    if not holder.HasField("schema"):
        return None
    said = holder.schema
    properties = {pair.key: pair.value for pair in said.properties}
    return Schema(SchemaType(said.type), said.schema_data, properties)


def write_schema(target: pb.Schema, name: str, schema: Schema) -> None:
    """Inverse of `schema_of`. `name`: for people."""
    target.name = name
    target.type = cast(pb.Schema.Type, int(schema.type))
    target.schema_data = schema.data
    for key, value in schema.properties.items():
        target.properties.add(key=key, value=value)


@dataclass(frozen=True, slots=True)
class GetSchema:
    """GET_SCHEMA."""

    request_id: int
    topic: str
    version: bytes
    """Empty: the newest."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).getSchema
        return cls(body.request_id, body.topic, body.schema_version)


@dataclass(frozen=True, slots=True)
class GetOrCreateSchema:
    """GET_OR_CREATE_SCHEMA."""

    request_id: int
    topic: str
    schema: Schema | None

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).getOrCreateSchema
        return cls(body.request_id, body.topic, schema_of(body))


@dataclass(frozen=True, slots=True)
class CreateProducer:
    """PRODUCER."""

    request_id: int
    topic: str
    producer_id: int
    producer_name: str
    """Empty: the broker shall choose one."""
    epoch: int
    """How often the client has created this producer again; higher replaces lower."""
    access_mode: AccessMode
    topic_epoch: int | None
    """The epoch that it says it was granted (PIP-68). None: it has none."""
    queue_priority: int
    """Where it wants to stand in line, the highest first (PIP-440)."""
    schema: Schema | None
    initial_subscription_name: str
    """A subscription to create with the producer; empty for none."""
    metadata: dict[str, str]
    """What the client says about itself; for people."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).producer
        return cls(
            body.request_id,
            body.topic,
            body.producer_id,
            body.producer_name,
            body.epoch,
            AccessMode(body.producer_access_mode),
            body.topic_epoch if body.HasField("topic_epoch") else None,
            body.queue_priority,
            schema_of(body),
            body.initial_subscription_name,
            {pair.key: pair.value for pair in body.metadata},
        )


@dataclass(frozen=True, slots=True)
class CloseProducer:
    """CLOSE_PRODUCER, which both sides send."""

    request_id: int
    producer_id: int

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).close_producer
        return cls(body.request_id, body.producer_id)


@dataclass(frozen=True, slots=True)
class NumberedRequest:
    """A request of which nothing but its number matters here, because it is refused."""

    request_id: int

    @classmethod
    def reader(cls, body_name: str) -> Callable[[bytes], NumberedRequest]:
        """`read` for the command whose body has this field name in BaseCommand."""

        def read(command: bytes) -> NumberedRequest:
            return cls(getattr(decode_command(command), body_name).request_id)

        return read
