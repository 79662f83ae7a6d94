"""SUBSCRIBE and what a consumer may ask for afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from emulator.broker.commands.schemas import check_schema
from emulator.broker.subscription.consumer import Consumer
from emulator.broker.subscription.subscription import Subscription, check_subscription_name
from emulator.broker.topic import positions
from emulator.broker.topic_slot import Wish
from emulator.core.dispatch import ConsumerState, KeySharing, SubscriptionType
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model import Position
from emulator.wire import answers
from emulator.wire.commands import AUTO_CONSUME
from emulator.wire.consumer_commands import ConsumerRequest, Redeliver, Seek, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from emulator.broker.commands.connection import ClientConnection
    from emulator.broker.topic.topic import Topic


async def subscribe(connection: ClientConnection, command: Subscribe) -> None:
    key = ("consumer", command.consumer_id)
    if key in connection.opening:
        raise ProtocolError(ServerError.ServiceNotReady, "already being created on this connection")
    if command.consumer_id not in connection.consumers:
        connection.opening[key] = command
        try:
            if not await _subscribe(connection, command):
                return
        finally:
            connection.no_longer_opening(key, command)
    connection.answer(answers.success(command.request_id))


async def _subscribe(connection: ClientConnection, command: Subscribe) -> bool:
    """False when the client gave up meanwhile; then nothing is left behind."""
    type_ = _checked(command)
    key = ("consumer", command.consumer_id)
    wish = Wish.CREATE if command.may_create_topic else Wish.EXISTING
    topic = await connection.region.directory.acquire(command.topic, wish)
    while True:
        if connection.opening.get(key) is not command or not connection.is_open:
            return False
        if topic.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
        subscription = _find_or_create(topic, command)
        if await _is_free(subscription, type_):
            break
    if connection.opening.get(key) is not command or not connection.is_open:
        return False
    name = command.consumer_name or f"consumer-{command.consumer_id}"
    sharing = KeySharing(command.is_sticky, command.hash_ranges, command.may_reorder)
    state = ConsumerState(name, command.priority_level, key_sharing=sharing)
    consumer = Consumer(connection, command.consumer_id, subscription, state, command.epoch)
    consumer.metadata = command.metadata
    connection.add_consumer(consumer, type_)
    return True


def _checked(command: Subscribe) -> SubscriptionType:
    """ProtocolError for what is asked of a consumer and not offered."""
    type_ = SubscriptionType(command.type_number)
    if command.read_compacted and type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
        raise ProtocolError(
            ServerError.NotAllowedError, "readCompacted only allowed on failover or exclusive subscriptions"
        )
    if command.schema_type != AUTO_CONSUME:
        check_schema(command.schema_type)
    check_subscription_name(command.subscription)
    return type_


def _find_or_create(topic: Topic, command: Subscribe) -> Subscription:
    subscription = topic.subscriptions.get(command.subscription)
    if subscription is None:
        begin = positions.begin_of(topic, command.start_message_id, from_earliest=command.from_earliest)
        cursor = topic.region.environment.parts.cursor(begin - 1)
        subscription = topic.create_subscription(command.subscription, cursor, durable=command.durable)
    elif subscription.durable != command.durable:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"subscription {command.subscription} exists and is {'' if subscription.durable else 'not '}durable",
        )
    # Three states: absent keeps what is stored, and False does not clear it (upstream does the same).
    if command.replicated and command.durable:
        topic.replicate_subscription(subscription)
    return subscription


async def _is_free(subscription: Subscription, type_: SubscriptionType) -> bool:
    """Wait until the subscription is durable and a dead connection does not keep a place in it that only one may have.
    False when the subscription ceased to be meanwhile: it was deleted, or went with its last reader."""
    try:
        await subscription.persisted()
    except StorageError:
        if not subscription.closed:
            raise
        await subscription.ended()
        return False
    if type_ is SubscriptionType.EXCLUSIVE:
        for old in list(subscription.consumers.values()):
            if await old.connection.is_alive():
                break
            old.connection.forget_consumer(old)
            old.connection.abort()
    return not subscription.closed


def _consumer(connection: ClientConnection, consumer_id: int) -> Consumer:
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        raise ProtocolError(ServerError.ConsumerNotFound, f"no consumer {consumer_id} on this connection")
    return consumer


async def close(connection: ClientConnection, command: ConsumerRequest) -> None:
    connection.opening.pop(("consumer", command.consumer_id), None)
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is not None:
        connection.forget_consumer(consumer)
        # A client that closes in an orderly way keeps the acknowledgements it sent.
        await consumer.subscription.flush()
    connection.answer(answers.success(command.request_id))


async def unsubscribe(connection: ClientConnection, command: Unsubscribe) -> None:
    consumer = _consumer(connection, command.consumer_id)
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not command.force:
        raise ProtocolError(
            ServerError.MetadataError, "Unconnected or shared consumer attempting to unsubscribe"
        )
    connection.forget_consumer(consumer)
    subscription.close_consumers()
    try:
        await subscription.delete()
    except StorageError:
        # For all that its client knows it is still subscribed, and would wait for messages for ever. It is told behind
        # the error: before that a client takes it for part of the end that it asked for.
        sent_away = answers.close_consumer(consumer.consumer_id)
        asyncio.get_running_loop().call_soon(connection.answer, sent_away)
        raise
    connection.answer(answers.success(command.request_id))


def redeliver(connection: ClientConnection, command: Redeliver) -> None:
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is not None:
        consumer.subscription.redeliver(consumer, command.ids or None, command.epoch)


async def seek(connection: ClientConnection, command: Seek) -> None:
    """CLOSE_CONSUMER to every consumer, then SUCCESS. The other way round the C++ client lands at the seek before this
    one, and the Go client asks for a consumer that is gone."""
    subscription = _consumer(connection, command.consumer_id).subscription
    if command.message_id is not None:
        next_entry_id = positions.sought(subscription.topic, command.message_id)
    else:
        next_entry_id = await positions.published_from(subscription.topic, command.publish_time_ms)
    await subscription.seek(next_entry_id)
    connection.answer(answers.success(command.request_id))


def get_last_message_id(connection: ClientConnection, command: ConsumerRequest) -> None:
    subscription = _consumer(connection, command.consumer_id).subscription
    topic = subscription.topic
    last, batch_index = positions.last_message(topic)
    mark_delete = Position(topic.ledger_id, subscription.cursor.mark_delete)
    partition = topic.name.partition_index
    connection.answer(answers.last_message_id(command.request_id, last, partition, batch_index, mark_delete))


def stats(connection: ClientConnection, command: ConsumerRequest) -> None:
    consumer = _consumer(connection, command.consumer_id)
    subscription = consumer.subscription
    connection.answer(
        answers.consumer_stats(
            command.request_id,
            consumer_name=consumer.state.name,
            subscription_type=subscription.dispatcher.type.name.title(),
            address=connection.address,
            available_permits=max(0, consumer.state.permits),
            unacknowledged_messages=consumer.state.unacked_messages,
            backlog_entries=subscription.backlog(),
        )
    )
