"""PRODUCER and CLOSE_PRODUCER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.broker.commands.schemas import check_schema
from emulator.broker.subscription.subscription import check_subscription_name
from emulator.broker.topic.producer import Producer
from emulator.broker.topic_directory import Wish
from emulator.core.admission import Peer, Publisher
from emulator.errors import ProtocolError, ServerError
from emulator.wire import answers
from emulator.wire.commands import AccessMode, CloseProducer, CreateProducer

if TYPE_CHECKING:
    from emulator.broker.commands.connection import ClientConnection
    from emulator.broker.topic.topic import Topic


async def create(connection: ClientConnection, command: CreateProducer) -> None:
    key = ("producer", command.producer_id)
    if key in connection.opening:
        raise ProtocolError(ServerError.ServiceNotReady, "already being created on this connection")
    connection.opening[key] = command
    try:
        _check(command)
        topic = await connection.region.directory.acquire(command.topic, Wish.CREATE)
        await _create_initial_subscription(topic, command.initial_subscription_name)
        name = command.producer_name or connection.region.new_producer_name()
        publisher_of = connection.region.environment.parts.publisher_of
        publisher = publisher_of(connection.peer, name, connection.address)
        await _make_room(connection, command, topic, name, publisher)
        # What a former life of this producer sent counts even if it is not durable yet: told a lower number, the client
        # would send other messages under numbers that are taken, and have them acknowledged as duplicates.
        await topic.issued_so_far()
        while name in topic.producers:  # another one came while we waited
            await _make_room(connection, command, topic, name, publisher)
            await topic.issued_so_far()
        if connection.opening.get(key) is not command or not connection.is_open:
            return  # The client gave up meanwhile: leave nothing behind.
        if topic.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
        producer = Producer(connection, command.producer_id, topic, name, publisher, command.epoch)
        producer.metadata = command.metadata
        connection.add_producer(producer)
    finally:
        connection.no_longer_opening(key, command)
    last_sequence_id = -1
    if producer.source_region is None:
        last_sequence_id = topic.state.last_sequence_id(name)
    connection.answer(answers.producer_success(command.request_id, name, last_sequence_id))


def _check(command: CreateProducer) -> None:
    """ProtocolError for what is asked of a producer and not offered."""
    if command.access_mode is not AccessMode.SHARED:
        mode = command.access_mode.name.replace("_", " ").title().replace(" ", "")
        raise ProtocolError(ServerError.NotAllowedError, f"access mode {mode} is not offered yet")
    check_schema(command.schema_type)


async def _create_initial_subscription(topic: Topic, name: str) -> None:
    """So that nothing published from now on is lost to it: dead letter topics want this. It begins at the first entry
    that there is; one that exists stays as it is."""
    if not name:
        return
    check_subscription_name(name)
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        cursor = topic.region.environment.parts.cursor(topic.log.first_entry_id - 1)
        subscription = topic.create_subscription(name, cursor)
    await subscription.persisted()


async def _make_room(
    connection: ClientConnection, command: CreateProducer, topic: Topic, name: str, publisher: Publisher
) -> None:
    """One live producer per name. Older incarnations of the same client, dead connections and earlier connections of
    a peer's replicator give way; a living stranger does not."""
    old = topic.producers.get(name)
    if old is None:
        return
    if old.connection is connection and old.producer_id == command.producer_id:
        old.connection.forget_producer(old)
        return
    if isinstance(publisher, Peer):
        # It is told: this request may be the late one, of an earlier connection whose bytes a healed link let through,
        # and then the one that has to give way is the one that lives and must come back.
        old.connection.close_producer(old)
        return
    if await old.connection.is_alive() and topic.producers.get(name) is old:
        raise ProtocolError(
            ServerError.ProducerBusy,
            f"Producer with name '{name}' is already connected to topic {topic.full_name}",
        )
    if topic.producers.get(name) is old:
        old.connection.forget_producer(old)
        old.connection.abort()


async def close(connection: ClientConnection, command: CloseProducer) -> None:
    """Receipts of everything sent before go out first."""
    connection.opening.pop(("producer", command.producer_id), None)
    producer = connection.producers.get(command.producer_id)
    if producer is not None:
        await producer.topic.issued_so_far()
        connection.forget_producer(producer)
    connection.answer(answers.success(command.request_id))
