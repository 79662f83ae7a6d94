"""Commands of producers and schemas. SEND and its receipt are in `wire.codec_hot`."""

from dataclasses import field
from typing import Annotated

from emulator.errors import ServerError
from emulator.model.values import AccessMode, Schema
from emulator.wire.command_types import CommandType
from emulator.wire.commands.connections import HANDSHAKE_REQUEST_ID
from emulator.wire.commands.spec import Command, command


@command(CommandType.PRODUCER)
class CreateProducer(Command):
    request_id: int
    topic: str
    producer_id: int
    epoch: int
    """Number of times that the client has re-created this producer; a higher epoch replaces a lower one."""
    access_mode: Annotated[AccessMode, "producer_access_mode"]
    is_name_given: Annotated[bool, "user_provided_producer_name"]
    producer_name: str = ""
    """Producer name; empty: the broker generates one."""
    topic_epoch: int | None = None
    """Topic epoch that the client was granted before (PIP-68)."""
    queue_priority: int = 0
    """Priority in the wait queue, highest first (PIP-440)."""
    schema: Schema | None = None
    initial_subscription_name: str = ""
    """Subscription created with the producer; empty: none."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Properties of the producer, informational."""
    encrypts: Annotated[bool, "encrypted"] = False
    is_compact_stream: Annotated[bool, "compact_stream"] = False
    """Between regions: a SEND that names no previous entry follows the entry with the id before its own, and a receipt
    may confirm several entries."""


def create_producer(
    request_id: int, topic: str, producer_id: int, name: str, *, is_compact_stream: bool = False
) -> CreateProducer:
    """Return the request for a named producer with shared access."""
    return CreateProducer(
        *(request_id, topic, producer_id, 0, AccessMode.SHARED),
        is_name_given=True,
        producer_name=name,
        is_compact_stream=is_compact_stream,
    )


@command(CommandType.PRODUCER_SUCCESS)
class ProducerSuccess(Command):
    request_id: int
    producer_name: str
    last_sequence_id: int
    """Last sequence id that is stored for this producer name; -1: none."""
    schema_version: bytes
    """Version of the producer's schema; empty: no schema."""
    is_ready: Annotated[bool, "producer_ready"]
    """False: the producer is in the wait queue; another response with this request id follows (PIP-68)."""
    topic_epoch: int | None = None
    """Topic epoch granted for exclusive access (PIP-68)."""
    accepts_runs: bool = False
    """Between regions: a SEND may contain a run of messages."""


@command(CommandType.CLOSE_PRODUCER)
class CloseProducer(Command):
    """The end of a producer. From a broker: the client creates it again and resends messages without a receipt."""

    request_id: int
    producer_id: int


def close_producer(producer_id: int) -> CloseProducer:
    return CloseProducer(HANDSHAKE_REQUEST_ID, producer_id)


@command(CommandType.SEND_ERROR)
class SendError(Command):
    """The rejection of one SEND."""

    producer_id: int
    sequence_id: int
    error: ServerError
    message: str


# Schemas.


@command(CommandType.GET_SCHEMA)
class GetSchema(Command):
    request_id: int
    topic: str
    version: Annotated[bytes, "schema_version"] = b""
    """Schema version; empty: the newest."""


@command(CommandType.GET_SCHEMA_RESPONSE)
class GetSchemaResponse(Command):
    """Clients read the error TopicNotFound as "no schema"."""

    request_id: int
    error: Annotated[ServerError | None, "error_code"] = None
    message: Annotated[str | None, "error_message"] = None
    schema: Schema | None = None
    schema_name: Annotated[str, "schema.name"] = ""
    version: Annotated[bytes | None, "schema_version"] = None


@command(CommandType.GET_OR_CREATE_SCHEMA)
class GetOrCreateSchema(Command):
    request_id: int
    topic: str
    schema: Schema | None


@command(CommandType.GET_OR_CREATE_SCHEMA_RESPONSE)
class GetOrCreateSchemaResponse(Command):
    request_id: int
    error: Annotated[ServerError | None, "error_code"] = None
    message: Annotated[str | None, "error_message"] = None
    version: Annotated[bytes | None, "schema_version"] = None
    """Schema version; empty: no schema."""
