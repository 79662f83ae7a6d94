"""SUBSCRIBE and what a consumer may ask for afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.broker import positions
from emulator.broker.subscription import Consumer, Subscription, check_subscription_name
from emulator.core.cursor import Cursor
from emulator.core.dispatch import ConsumerState, SubscriptionType
from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from emulator.broker.connection import ClientConnection
    from emulator.broker.topic import Topic

LIVENESS_SECONDS = 2.0
"""How long the present exclusive consumer has to show that it lives before a newcomer replaces it."""


def subscribe(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.subscribe
    key = ("consumer", request.consumer_id)
    if key in connection.opening:
        problem = ProtocolError(ServerError.ServiceNotReady, "already being created on this connection")
        connection.send_error(request.request_id, problem)
        return
    if request.consumer_id in connection.consumers:
        connection.send_success(request.request_id)
        return
    connection.opening.add(key)
    connection.request(request.request_id, _subscribe, connection, request)


async def _subscribe(connection: ClientConnection, request: pb.CommandSubscribe) -> None:
    key = ("consumer", request.consumer_id)
    try:
        type_ = _type_of(request)
        check_subscription_name(request.subscription)
        topic = await connection.region.topic(request.topic, create=request.force_topic_creation)
        subscription = await _find_or_create(topic, request)
        await _make_room(subscription, type_)
        if key not in connection.opening or not connection.is_open:
            return  # The client gave up meanwhile: leave nothing behind.
        if topic.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
        state = ConsumerState(
            request.consumer_name or f"consumer-{request.consumer_id}", request.priority_level
        )
        epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
        consumer = Consumer(connection, request.consumer_id, subscription, state, epoch)
        # SUCCESS first: nothing may be delivered to a consumer whose client does not know it yet, and nothing
        # is, because a new consumer has no permits.
        connection.consumers[request.consumer_id] = consumer
        try:
            subscription.attach(consumer, type_)
        except ProtocolError:
            del connection.consumers[request.consumer_id]
            raise
    finally:
        connection.opening.discard(key)
    connection.send_success(request.request_id)


def _type_of(request: pb.CommandSubscribe) -> SubscriptionType:
    type_ = SubscriptionType(request.subType)
    if type_ is SubscriptionType.KEY_SHARED:
        raise ProtocolError(ServerError.NotAllowedError, "subscription type Key_Shared is not offered yet")
    if request.read_compacted and type_ is SubscriptionType.SHARED:
        raise ProtocolError(
            ServerError.NotAllowedError, "readCompacted only allowed on failover or exclusive subscriptions"
        )
    return type_


async def _find_or_create(topic: Topic, request: pb.CommandSubscribe) -> Subscription:
    subscription = topic.subscriptions.get(request.subscription)
    if subscription is None:
        cursor = _initial_cursor(topic, request)
        subscription = topic.create_subscription(request.subscription, cursor, durable=request.durable)
    elif subscription.durable != request.durable:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"subscription {request.subscription} exists and is {'' if subscription.durable else 'not '}durable",
        )
    # Tri-state: absent keeps what is stored, false does not clear it (facts 6.2).
    if request.replicate_subscription_state and request.durable:
        topic.replicate_subscription(subscription)
    await subscription.persisted()
    return subscription


def _initial_cursor(topic: Topic, request: pb.CommandSubscribe) -> Cursor:
    if request.HasField("start_message_id"):
        next_entry_id = positions.start_of(topic, request.start_message_id)
    elif request.initialPosition == pb.CommandSubscribe.Earliest:
        next_entry_id = topic.log.first_entry_id
    else:
        next_entry_id = topic.end_entry_id
    return Cursor(next_entry_id - 1)


async def _make_room(subscription: Subscription, type_: SubscriptionType) -> None:
    """A dead connection must not keep a place that only one may have."""
    if type_ is not SubscriptionType.EXCLUSIVE:
        return
    for old in list(subscription.consumers.values()):
        if await old.connection.is_alive(LIVENESS_SECONDS):
            return
        old.connection.forget_consumer(old)
        old.connection.abort()


def _consumer(connection: ClientConnection, consumer_id: int) -> Consumer:
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        raise ProtocolError(ServerError.ConsumerNotFound, f"no consumer {consumer_id} on this connection")
    return consumer


def close(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.close_consumer
    connection.opening.discard(("consumer", request.consumer_id))
    connection.request(request.request_id, _close, connection, request)


async def _close(connection: ClientConnection, request: pb.CommandCloseConsumer) -> None:
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is not None:
        connection.forget_consumer(consumer)
        # A client that closes in an orderly way keeps the acknowledgements it sent.
        await consumer.subscription.flush()
    connection.send_success(request.request_id)


def unsubscribe(connection: ClientConnection, command: pb.BaseCommand) -> None:
    connection.request(command.unsubscribe.request_id, _unsubscribe, connection, command.unsubscribe)


async def _unsubscribe(connection: ClientConnection, request: pb.CommandUnsubscribe) -> None:
    consumer = _consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not request.force:
        raise ProtocolError(
            ServerError.MetadataError, "Unconnected or shared consumer attempting to unsubscribe"
        )
    await subscription.delete()
    for other in list(subscription.consumers.values()):
        if other is consumer:
            connection.forget_consumer(consumer)
        else:
            other.connection.close_consumer(other)
    connection.send_success(request.request_id)


def redeliver(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.redeliverUnacknowledgedMessages
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        return
    ids = [(id_.ledgerId, id_.entryId) for id_ in request.message_ids]
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    consumer.subscription.redeliver(consumer, ids or None, epoch)


def seek(connection: ClientConnection, command: pb.BaseCommand) -> None:
    connection.request(command.seek.request_id, _seek, connection, command.seek)


async def _seek(connection: ClientConnection, request: pb.CommandSeek) -> None:
    """SUCCESS, then CLOSE_CONSUMER: every client reconnects, as it does with a real broker."""
    subscription = _consumer(connection, request.consumer_id).subscription
    if request.HasField("message_id"):
        next_entry_id = positions.sought(subscription.topic, request.message_id)
    else:
        next_entry_id = await positions.published_from(subscription.topic, request.message_publish_time)
    await subscription.seek(next_entry_id)
    connection.send_success(request.request_id)
    subscription.close_consumers()


def get_last_message_id(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.getLastMessageId
    connection.request(request.request_id, _get_last_message_id, connection, request)


async def _get_last_message_id(connection: ClientConnection, request: pb.CommandGetLastMessageId) -> None:
    subscription = _consumer(connection, request.consumer_id).subscription
    topic = subscription.topic
    answer = pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    response = answer.getLastMessageIdResponse
    response.request_id = request.request_id
    positions.write_last_message_id(topic, response.last_message_id)
    mark_delete = subscription.cursor.mark_delete
    response.consumer_mark_delete_position.ledgerId = topic.log.ledger_id
    response.consumer_mark_delete_position.entryId = mark_delete % 2**64
    connection.send(answer)


def stats(connection: ClientConnection, command: pb.BaseCommand) -> None:
    connection.request(command.consumerStats.request_id, _stats, connection, command.consumerStats)


async def _stats(connection: ClientConnection, request: pb.CommandConsumerStats) -> None:
    consumer = _consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    answer = pb.BaseCommand(type=pb.BaseCommand.CONSUMER_STATS_RESPONSE)
    response = answer.consumerStatsResponse
    response.request_id = request.request_id
    response.consumerName = consumer.state.name
    response.availablePermits = max(0, consumer.state.permits)
    response.unackedMessages = consumer.state.unacked_messages
    response.type = subscription.dispatcher.type.name.title()
    response.msgBacklog = subscription.backlog()
    response.address = connection.address
    connection.send(answer)
