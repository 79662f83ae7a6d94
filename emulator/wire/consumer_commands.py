"""What consumers ask a broker for, as values with `read`, like `commands`. ACK and FLOW are in `codec`.

A position is signed, as everywhere in this package: (-1, -1) says earliest, (2**63 - 1, …) latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from emulator.model.values import Position, Schema
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import decode_command
from emulator.wire.commands import schema_of

_SIGN: Final = 2**63


def _signed(number: int) -> int:
    return number - 2**64 if number >= _SIGN else number


def _position(message_id: pb.MessageIdData) -> Position:
    return Position(_signed(message_id.ledgerId), _signed(message_id.entryId))


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE."""

    request_id: int
    topic: str
    subscription: str
    type_number: int
    """0 Exclusive, 1 Shared, 2 Failover, 3 Key_Shared."""
    consumer_id: int
    consumer_name: str
    priority_level: int
    durable: bool
    start_message_id: Position | None
    """Where a new subscription begins; None leaves it to `from_earliest`."""
    from_earliest: bool
    read_compacted: bool
    replicated: bool | None
    """Whether the position is carried to other regions. None: as it was; to say False does not end it."""
    may_create_topic: bool
    epoch: int | None
    is_sticky: bool
    """Key_Shared: it names the ranges of hashes that it wants."""
    hash_ranges: tuple[tuple[int, int], ...]
    may_reorder: bool
    """Key_Shared: it does not mind when the order of a key breaks as consumers come and go."""
    schema: Schema | None
    """What it reads by. None: bytes."""
    metadata: dict[str, str]
    """What the client says about itself; for people."""
    subscription_properties: dict[str, str]
    """What it says about a subscription that is new."""
    rollback_seconds: int
    """A new subscription begins with what was published so long ago; 0: where the rest says."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).subscribe
        return cls(
            request_id=body.request_id,
            topic=body.topic,
            subscription=body.subscription,
            type_number=body.subType,
            consumer_id=body.consumer_id,
            consumer_name=body.consumer_name,
            priority_level=body.priority_level,
            durable=body.durable,
            start_message_id=_position(body.start_message_id) if body.HasField("start_message_id") else None,
            from_earliest=body.initialPosition == pb.CommandSubscribe.Earliest,
            read_compacted=body.read_compacted,
            replicated=(
                body.replicate_subscription_state if body.HasField("replicate_subscription_state") else None
            ),
            may_create_topic=body.force_topic_creation,
            epoch=body.consumer_epoch if body.HasField("consumer_epoch") else None,
            is_sticky=body.keySharedMeta.keySharedMode == pb.STICKY,
            hash_ranges=tuple((one.start, one.end) for one in body.keySharedMeta.hashRanges),
            may_reorder=body.keySharedMeta.allowOutOfOrderDelivery,
            schema=schema_of(body),
            metadata={pair.key: pair.value for pair in body.metadata},
            subscription_properties={pair.key: pair.value for pair in body.subscription_properties},
            rollback_seconds=body.start_message_rollback_duration_sec,
        )


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """CLOSE_CONSUMER, GET_LAST_MESSAGE_ID, CONSUMER_STATS: a consumer, and nothing else to say."""

    request_id: int
    consumer_id: int

    @classmethod
    def read_close(cls, command: bytes) -> Self:
        body = decode_command(command).close_consumer
        return cls(body.request_id, body.consumer_id)

    @classmethod
    def read_last_message_id(cls, command: bytes) -> Self:
        body = decode_command(command).getLastMessageId
        return cls(body.request_id, body.consumer_id)

    @classmethod
    def read_stats(cls, command: bytes) -> Self:
        body = decode_command(command).consumerStats
        return cls(body.request_id, body.consumer_id)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE."""

    request_id: int
    consumer_id: int
    force: bool
    """Even if other consumers are attached."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).unsubscribe
        return cls(body.request_id, body.consumer_id, body.force)


@dataclass(frozen=True, slots=True)
class Redeliver:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES. It is not answered."""

    consumer_id: int
    ids: tuple[Position, ...]
    """None given: everything the consumer has not acknowledged."""
    epoch: int | None

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).redeliverUnacknowledgedMessages
        ids = tuple([_position(message_id) for message_id in body.message_ids])
        return cls(body.consumer_id, ids, body.consumer_epoch if body.HasField("consumer_epoch") else None)


@dataclass(frozen=True, slots=True)
class Seek:
    """SEEK: to a message, or to a time when there is none."""

    request_id: int
    consumer_id: int
    message_id: Position | None
    ack_set: tuple[int, ...]
    """Of the batch at `message_id`: the messages from which on it is to be delivered; empty: all."""
    publish_time_ms: int

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).seek
        message_id = _position(body.message_id) if body.HasField("message_id") else None
        ack_set = tuple(body.message_id.ack_set)
        return cls(body.request_id, body.consumer_id, message_id, ack_set, body.message_publish_time)
