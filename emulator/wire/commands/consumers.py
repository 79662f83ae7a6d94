"""Commands of consumers. MESSAGE, ACK and FLOW are in `wire.codec_hot`."""

from dataclasses import field
from typing import Annotated

from emulator.errors import ServerError
from emulator.model.values import Position, Schema
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.commands.connections import HANDSHAKE_REQUEST_ID
from emulator.wire.commands.spec import Command, MessageIdData, command, common_fields


@command(CommandType.SUBSCRIBE)
class Subscribe(Command):
    request_id: int
    topic: str
    subscription: str
    type_number: Annotated[int, "subType"]
    """Subscription type: 0 Exclusive, 1 Shared, 2 Failover, 3 Key_Shared."""
    consumer_id: int
    consumer_name: str
    priority_level: int
    initial_position: Annotated[int, "initialPosition"]
    durable: bool = True
    start_message_id: MessageIdData | None = None
    """Start of a new subscription; None: `initial_position`."""
    read_compacted: bool = False
    replicated: Annotated[bool | None, "replicate_subscription_state"] = None
    """Replicate the position to other regions. None and False leave a replicated subscription as it is."""
    may_create_topic: Annotated[bool, "force_topic_creation"] = True
    epoch: Annotated[int | None, "consumer_epoch"] = None
    key_shared_mode: Annotated[int | None, "keySharedMeta.keySharedMode"] = None
    hash_ranges: Annotated[tuple[tuple[int, int], ...], "keySharedMeta.hashRanges"] = ()
    """Key_Shared: hash ranges, 0 to 65,535, both ends included; empty: the broker assigns them."""
    may_reorder: Annotated[bool | None, "keySharedMeta.allowOutOfOrderDelivery"] = None
    """Key_Shared: the consumer accepts that the order of a key breaks when consumers change."""
    schema: Schema | None = None
    """Schema of the consumer; None: bytes."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Properties of the consumer, informational."""
    subscription_properties: dict[str, str] = field(default_factory=dict)
    """Properties of a new subscription."""
    rollback_seconds: Annotated[int, "start_message_rollback_duration_sec"] = 0
    """Seconds before now at which a new subscription starts; 0: not set."""

    @property
    def from_earliest(self) -> bool:
        return self.initial_position == pb.CommandSubscribe.Earliest

    @property
    def is_sticky(self) -> bool:
        """Whether a Key_Shared consumer chooses its hash ranges."""
        return self.key_shared_mode == pb.STICKY


STICKY = pb.STICKY
AUTO_SPLIT = pb.AUTO_SPLIT


@common_fields
class ConsumerRequest(Command):
    """A request that names a consumer and nothing else."""

    request_id: int
    consumer_id: int


@command(CommandType.CLOSE_CONSUMER)
class CloseConsumer(ConsumerRequest):
    """The end of a consumer. From a broker: the client subscribes again."""


def close_consumer(consumer_id: int) -> CloseConsumer:
    return CloseConsumer(HANDSHAKE_REQUEST_ID, consumer_id)


@command(CommandType.GET_LAST_MESSAGE_ID)
class GetLastMessageId(ConsumerRequest): ...


@command(CommandType.GET_LAST_MESSAGE_ID_RESPONSE)
class LastMessageIdResponse(Command):
    request_id: int
    last: Annotated[MessageIdData, "last_message_id"]
    """Id of the last message; (-1, -1): there is none."""
    mark_delete: Annotated[Position | None, "consumer_mark_delete_position"] = None
    """Mark-delete position of the consumer that sent the request."""


@command(CommandType.CONSUMER_STATS)
class ConsumerStats(ConsumerRequest): ...


@command(CommandType.CONSUMER_STATS_RESPONSE)
class ConsumerStatsResponse(Command):
    request_id: int
    consumer_name: Annotated[str, "consumerName"]
    subscription_type: Annotated[str, "type"]
    address: str
    available_permits: Annotated[int, "availablePermits"]
    unacknowledged_messages: Annotated[int, "unackedMessages"]
    is_blocked: Annotated[bool, "blockedConsumerOnUnackedMsgs"]
    backlog_entries: Annotated[int, "msgBacklog"]


@command(CommandType.UNSUBSCRIBE)
class Unsubscribe(Command):
    request_id: int
    consumer_id: int
    force: bool = False
    """Unsubscribe even if other consumers are attached."""


@command(CommandType.REDELIVER_UNACKNOWLEDGED_MESSAGES)
class Redeliver(Command):
    """A request for redelivery, which has no response."""

    consumer_id: int
    ids: Annotated[tuple[Position, ...], "message_ids"] = ()
    """Entries to redeliver; empty: all that the consumer has not acknowledged."""
    epoch: Annotated[int | None, "consumer_epoch"] = None


@command(CommandType.SEEK)
class Seek(Command):
    """A seek to a message, or to a publish time if no message is given."""

    request_id: int
    consumer_id: int
    message_id: MessageIdData | None = None
    """Target message; its ack set contains the messages of the batch to deliver, empty: all."""
    publish_time_ms: Annotated[int | None, "message_publish_time"] = None


@command(CommandType.ACK_RESPONSE)
class AckResponse(Command):
    """The response to an ACK: it is durable, or was rejected."""

    consumer_id: int
    request_id: int
    error: ServerError | None = None
    message: str | None = None


@command(CommandType.ACTIVE_CONSUMER_CHANGE)
class ActiveConsumerChange(Command):
    consumer_id: int
    is_active: bool


@command(CommandType.REACHED_END_OF_TOPIC)
class ReachedEndOfTopic(Command):
    """Notification that the consumer has received all messages of a terminated topic."""

    consumer_id: int
