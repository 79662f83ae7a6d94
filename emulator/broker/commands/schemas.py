"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, and what becomes of a schema that a producer or consumer brings.

No topic has a schema yet. A schema that was accepted and never compared would let incompatible messages through, so one
is refused. Clients whose messages are plain bytes bring none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import ProtocolError, ServerError
from emulator.wire import answers
from emulator.wire.commands import GetOrCreateSchema, GetSchema

if TYPE_CHECKING:
    from emulator.broker.commands.connection import ClientConnection


def check_schema(schema_type: str) -> None:
    """ProtocolError for any schema; the empty type is none."""
    if schema_type:
        raise ProtocolError(
            ServerError.IncompatibleSchema,
            f"schema of type {schema_type}: schemas are not offered yet; send and receive bytes",
        )


def get_schema(connection: ClientConnection, command: GetSchema) -> None:
    """Clients read TopicNotFound as "no schema": an answer, and no refusal."""
    none = ProtocolError(ServerError.TopicNotFound, "topic has no schema")
    connection.answer(answers.schema_failed(command.request_id, none))


def refuse_get_schema(command: GetSchema, problem: ProtocolError) -> bytes:
    return answers.schema_failed(command.request_id, problem)


def get_or_create_schema(connection: ClientConnection, command: GetOrCreateSchema) -> None:
    check_schema(command.schema_type)
    connection.answer(answers.schema_version(command.request_id, b""))


def refuse_get_or_create_schema(command: GetOrCreateSchema, problem: ProtocolError) -> bytes:
    return answers.schema_version_failed(command.request_id, problem)
