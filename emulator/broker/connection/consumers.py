"""SUBSCRIBE, FLOW and the other commands of a consumer, except ACK (`acknowledgements.py`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from emulator.broker.authorization import ProtectedResource
from emulator.broker.connection import schemas
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.subscription.received_updates import status_follows_upstream
from emulator.broker.subscription.subscription import Subscription, check_subscription_name
from emulator.broker.topic import reading
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.dispatch.types import ConsumerState, KeySharing, SubscriptionType
from emulator.core.policies.consuming import (
    AUTO_SUBSCRIPTION_CREATION,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_TYPES_ENABLED,
)
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.values import Position, SchemaType
from emulator.wire.commands import (
    ConsumerRequest,
    ConsumerStatsResponse,
    LastMessageIdResponse,
    MessageIdData,
    Redeliver,
    Seek,
    Subscribe,
    Success,
    Unsubscribe,
    close_consumer,
)

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection
    from emulator.broker.topic.reading import Readable
    from emulator.broker.topic.topic import Topic

OBEYS = (AUTO_SUBSCRIPTION_CREATION, SUBSCRIBE_RATE, SUBSCRIPTION_TYPES_ENABLED)
"""Policies that this module enforces (PO1)."""
_NAMES = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}

NAME_LENGTH_MAX: Final = 4_096
"""Maximum length of the name of a consumer, which Key_Shared hashes a hundred times, and of a subscription, which is
part of stored keys."""
PROPERTIES_LENGTH_MAX: Final = 65_536
"""Maximum length of all properties of a subscription, which are stored with its cursor."""


async def subscribe(connection: ClientConnection, command: Subscribe) -> None:
    if command.consumer_id in connection.consumers.opening:
        raise ProtocolError(ServerError.ServiceNotReady, "already being created on this connection")
    if command.consumer_id not in connection.consumers.open:
        connection.consumers.check_count(command.consumer_id)
        connection.consumers.opening[command.consumer_id] = command
        try:
            if not await _subscribe(connection, command):
                return
        finally:
            connection.consumers.end_opening(command)
    connection.answer(Success(command.request_id).encode())


async def _subscribe(connection: ClientConnection, command: Subscribe) -> bool:
    """Attach a consumer, and create its subscription if needed. Return False, and do not attach it, when the client
    closed the consumer or disconnected meanwhile."""
    type_ = _check_options(command)
    if command.replicated:
        components = connection.region.environment.components.replication
        components.check_replicable(command.subscription, durable=command.durable)
    mode = OpenMode.CREATE if command.may_create_topic else OpenMode.EXISTING
    topic = await connection.region.directory.acquire(command.topic, mode)
    connection.region.topic_rules.check_open_to_clients(topic.full_name, command.subscription)
    _check_rate(topic, connection.address.rpartition(":")[0], command)
    await schemas.check_consumer_schema(connection, topic, command.schema)
    while True:
        if connection.consumers.opening.get(command.consumer_id) is not command or not connection.is_open:
            return False
        if topic.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
        if command.read_compacted and not topic.keeps_messages:
            raise ProtocolError(
                ServerError.NotAllowedError, "readCompacted only allowed on persistent topics"
            )
        _check_policies(topic, command, type_)
        subscription = await _find_or_create(topic, command)
        if await _wait_until_free(subscription, type_):
            break
    if connection.consumers.opening.get(command.consumer_id) is not command or not connection.is_open:
        return False
    name = command.consumer_name or f"consumer-{command.consumer_id}"
    sharing = KeySharing(command.is_sticky, command.hash_ranges, bool(command.may_reorder))
    state = ConsumerState(name, command.priority_level, key_sharing=sharing)
    consumer = ConnectedConsumer(
        connection,
        command.consumer_id,
        subscription,
        state,
        command.epoch,
        reads_compacted=command.read_compacted,
    )
    consumer.metadata = command.metadata
    consumer.takes_any_schema = command.schema is not None and command.schema.type is SchemaType.AUTO_CONSUME
    if topic.client_limits.consumers or topic.client_limits.consumers_per_subscription:
        present = sum(len(one.consumers) for one in topic.subscriptions.values())
        topic.client_limits.check_consumers(present, len(subscription.consumers), topic.full_name)
    connection.consumers.add(consumer, type_)
    return True


def _check_options(command: Subscribe) -> SubscriptionType:
    """Return the subscription type of a command. ProtocolError for unsupported options, and for names or properties
    that are too long."""
    type_ = SubscriptionType(command.type_number)
    if command.read_compacted and type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
        raise ProtocolError(
            ServerError.NotAllowedError, "readCompacted only allowed on failover or exclusive subscriptions"
        )
    check_subscription_name(command.subscription)
    longest = max(len(command.subscription), len(command.consumer_name))
    if longest > NAME_LENGTH_MAX:
        sentence = f"a name of {longest:,} characters; {NAME_LENGTH_MAX:,} are allowed"
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    properties_length = sum(len(key) + len(value) for key, value in command.subscription_properties.items())
    if properties_length > PROPERTIES_LENGTH_MAX:
        sentence = f"subscription properties of {properties_length:,} characters; {PROPERTIES_LENGTH_MAX:,} are allowed"
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    return type_


def _check_rate(topic: Topic, host: str, command: Subscribe) -> None:
    """Raise ProtocolError for a consumer that subscribes too often. An admitted attempt counts even if it is
    rejected later; one that exceeds the rate does not."""
    rate = topic.policies[SUBSCRIBE_RATE]
    consumer = (host, command.consumer_name, command.consumer_id)
    now_ms = asyncio.get_running_loop().time() * 1000
    if not topic.subscriptions.subscribe_limiter.admit(consumer, rate, now_ms):
        raise ProtocolError(
            ServerError.NotAllowedError,
            "Subscribe limited by subscribe rate limit per consumer. "
            f"It is {rate.messages} in {rate.period_seconds} s of {topic.full_name}",
        )


def _check_policies(topic: Topic, command: Subscribe, type_: SubscriptionType) -> None:
    """Raise ProtocolError for a subscription that the topic's policies do not allow."""
    enabled = topic.policies[SUBSCRIPTION_TYPES_ENABLED]
    if enabled and _NAMES[type_] not in enabled:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"Topic[{topic.full_name}] doesn't support {_NAMES[type_]} sub type! It has {', '.join(enabled)}",
        )
    is_new = command.durable and command.subscription not in topic.subscriptions
    if is_new and not topic.policies[AUTO_SUBSCRIPTION_CREATION]:
        raise ProtocolError(
            ServerError.SubscriptionNotFound,
            f"Subscription does not exist: {command.subscription}, and {topic.full_name} has none created on use",
        )


async def _find_or_create(topic: Topic, command: Subscribe) -> Subscription:
    subscription = topic.subscriptions.get(command.subscription)
    if subscription is None and command.rollback_seconds and topic.keeps_messages:
        begin = await _rollback_start(topic, command)
        subscription = topic.subscriptions.get(command.subscription)  # maybe created meanwhile
        if topic.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
    else:
        source = topic.compacted if command.read_compacted else topic.reading
        begin = topic.state.readable_end
        if topic.keeps_messages:
            start = command.start_message_id
            begin = reading.begin_of(
                source, None if start is None else start.position, from_earliest=command.from_earliest
            )
    if subscription is None:
        topic.client_limits.check_subscriptions(len(topic.subscriptions), topic.full_name)
        cursor = topic.region.environment.components.subscriptions.cursor(begin - 1)
        cursor.set_properties(command.subscription_properties)
        subscription = topic.subscriptions.create(command.subscription, cursor, durable=command.durable)
    elif subscription.durable != command.durable:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"subscription {command.subscription} exists and is {'' if subscription.durable else 'not '}durable",
        )
    elif command.subscription_properties and not subscription.cursor.properties:
        subscription.move(lambda cursor: cursor.set_properties(command.subscription_properties))
    # An absent `replicated` keeps the stored value, and so does False (upstream does the same).
    if command.replicated and topic.keeps_messages and _may_enable_replication(topic, subscription):
        topic.subscriptions.replicate(subscription)
    return subscription


def _may_enable_replication(topic: Topic, subscription: Subscription) -> bool:
    """Whether SUBSCRIBE may enable replication. Clients repeat it each time they connect, which must not override an
    administrator's decision to disable it, nor the region's."""
    is_allowed = not subscription.cursor.replication_disabled or status_follows_upstream(topic.region)
    return topic.subscriptions.are_replicable and is_allowed


async def _rollback_start(topic: Topic, command: Subscribe) -> int:
    source = topic.compacted if command.read_compacted else topic.reading
    since_ms = topic.region.environment.wall_clock_ms() - 1_000 * command.rollback_seconds
    return await reading.published_from(source, max(since_ms, 0))


async def _wait_until_free(subscription: Subscription, type_: SubscriptionType) -> bool:
    """Wait until the subscription is durable. For an exclusive consumer, remove other consumers whose connection is
    dead. Return False when the subscription ended meanwhile: it was deleted, or its last reader left."""
    try:
        await subscription.persisted()
    except StorageError:
        if not subscription.closed:
            raise
        await subscription.lifetime.ended()
        return False
    if type_ is SubscriptionType.EXCLUSIVE:
        for old in list(subscription.consumers.values()):
            if await old.connection.is_alive():
                break
            old.connection.forget_consumer(old)
            old.connection.abort()
    return not subscription.closed


def _find_consumer(connection: ClientConnection, consumer_id: int) -> ConnectedConsumer:
    consumer = connection.consumers.open.get(consumer_id)
    if consumer is None:
        raise ProtocolError(ServerError.ConsumerNotFound, f"no consumer {consumer_id} on this connection")
    return consumer


def _log_of(consumer: ConnectedConsumer) -> Readable:
    """Return the log to which the consumer's positions refer, even while another consumer is the active one."""
    topic = consumer.subscription.topic
    return topic.compacted if consumer.reads_compacted else topic.reading


async def close(connection: ClientConnection, command: ConsumerRequest) -> None:
    connection.consumers.opening.pop(command.consumer_id, None)
    consumer = connection.consumers.open.get(command.consumer_id)
    if consumer is not None:
        connection.consumers.forget(consumer)
        # A client that closes in an orderly way keeps the acknowledgements it sent.
        await consumer.subscription.flush()
    connection.answer(Success(command.request_id).encode())


async def unsubscribe(connection: ClientConnection, command: Unsubscribe) -> None:
    consumer = _find_consumer(connection, command.consumer_id)
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not command.force:
        raise ProtocolError(
            ServerError.MetadataError, "Unconnected or shared consumer attempting to unsubscribe"
        )
    connection.consumers.forget(consumer)
    subscription.close_consumers()
    try:
        await subscription.delete()
    except StorageError:
        # The client considers itself still subscribed, and would wait for messages for ever. CLOSE_CONSUMER must
        # follow the error: a client that receives it earlier takes it for the response to its own request.
        close_command = close_consumer(consumer.consumer_id).encode()
        asyncio.get_running_loop().call_soon(connection.answer, close_command)
        raise
    connection.answer(Success(command.request_id).encode())


def flow(connection: ClientConnection, command: tuple[int, int]) -> None:
    """Add permits to a consumer; no effect if there is none. `command`: (consumer id, permits)."""
    consumer_id, permits = command
    consumer = connection.consumers.open.get(consumer_id)
    if consumer is not None:
        consumer.subscription.flow(consumer, permits)


def redeliver(connection: ClientConnection, command: Redeliver) -> None:
    consumer = connection.consumers.open.get(command.consumer_id)
    if consumer is not None:
        consumer.subscription.redeliver(consumer, command.ids or None, command.epoch)


async def seek(connection: ClientConnection, command: Seek) -> None:
    """Move the cursor: send CLOSE_CONSUMER to every consumer, then SUCCESS. In the other order the C++ client would
    seek to the previous seek's position, and the Go client would use a closed consumer."""
    consumer = _find_consumer(connection, command.consumer_id)
    subscription, source = consumer.subscription, _log_of(consumer)
    if not subscription.topic.keeps_messages:  # as upstream: there is only one position
        connection.answer(Success(command.request_id).encode())
        return
    target = command.message_id
    if target is not None:
        next_entry_id = reading.start_of(source, target.position)
    else:
        next_entry_id = await reading.published_from(source, command.publish_time_ms or 0)
    if target is not None and target.position == (source.ledger_id, next_entry_id):
        await subscription.seek(next_entry_id, target.ack_set)
    else:
        await subscription.seek(next_entry_id, ())
    connection.answer(Success(command.request_id).encode())


async def get_last_message_id(connection: ClientConnection, command: ConsumerRequest) -> None:
    consumer = _find_consumer(connection, command.consumer_id)
    subscription, topic = consumer.subscription, consumer.subscription.topic
    if not topic.keeps_messages:
        raise ProtocolError(
            ServerError.NotAllowedError, f"{topic.full_name} is not persistent: it has no last message"
        )
    last, batch_index = await reading.last_message(_log_of(consumer))
    mark_delete = Position(topic.ledger_id, subscription.cursor.mark_delete)
    partition = topic.name.partition_index
    connection.answer(
        LastMessageIdResponse(
            command.request_id, MessageIdData(*last, batch_index, partition), mark_delete
        ).encode()
    )


def stats(connection: ClientConnection, command: ConsumerRequest) -> None:
    consumer = _find_consumer(connection, command.consumer_id)
    subscription = consumer.subscription
    connection.answer(
        ConsumerStatsResponse(
            command.request_id,
            consumer_name=consumer.state.name,
            subscription_type=subscription.dispatcher.type.name.title(),
            address=connection.address,
            available_permits=max(0, consumer.state.permits),
            unacknowledged_messages=consumer.state.unacked_messages,
            is_blocked=consumer.state.unacked_messages
            >= subscription.topic.subscriptions.limits.unacked_messages_per_consumer_max,
            backlog_entries=subscription.backlog(),
        ).encode()
    )


def topic_of_flow(connection: ClientConnection, command: tuple[int, int]) -> ProtectedResource:
    return _topic_of(connection, command[0])


def topic_of(connection: ClientConnection, command: Any) -> ProtectedResource:
    return _topic_of(connection, command.consumer_id)


def _topic_of(connection: ClientConnection, consumer_id: int) -> ProtectedResource:
    consumer = connection.consumers.open.get(consumer_id)
    return ProtectedResource("topic", consumer.subscription.topic.full_name if consumer is not None else "?")
