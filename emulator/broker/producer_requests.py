"""PRODUCER and CLOSE_PRODUCER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.broker.producer import Producer, source_region_of
from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from emulator.broker.connection import ClientConnection
    from emulator.broker.topic import Topic

LIVENESS_SECONDS = 2.0
"""How long the old holder of a name has to show that it lives before a newcomer replaces it."""


def create(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.producer
    if ("producer", request.producer_id) in connection.opening:
        raise_not_ready(connection, request.request_id)
        return
    connection.opening.add(("producer", request.producer_id))
    connection.request(request.request_id, _create, connection, request)


def raise_not_ready(connection: ClientConnection, request_id: int) -> None:
    connection.send_error(
        request_id, ProtocolError(ServerError.ServiceNotReady, "already being created on this connection")
    )


async def _create(connection: ClientConnection, request: pb.CommandProducer) -> None:
    key = ("producer", request.producer_id)
    try:
        _check_access_mode(request)
        topic = await connection.region.topic(request.topic)
        name = request.producer_name or connection.region.new_producer_name()
        await _make_room(connection, request, topic, name)
        # What a former life of this producer sent counts even if it is not durable yet: told a lower number, the client
        # would send other messages under numbers that are taken, and have them acknowledged as duplicates.
        await topic.issued_so_far()
        while isinstance(topic.producers.get(name), Producer):  # somebody came while we waited
            await _make_room(connection, request, topic, name)
            await topic.issued_so_far()
        if key not in connection.opening or not connection.is_open:
            return  # The client gave up meanwhile: leave nothing behind.
        if topic.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
        producer = Producer(connection, request.producer_id, topic, name, request.epoch)
        connection.add_producer(producer)
    finally:
        connection.opening.discard(key)
    _succeed(connection, request.request_id, producer)


def _check_access_mode(request: pb.CommandProducer) -> None:
    if request.producer_access_mode != pb.Shared:
        mode = pb.ProducerAccessMode.Name(request.producer_access_mode)
        raise ProtocolError(ServerError.NotAllowedError, f"access mode {mode} is not offered yet")


async def _make_room(
    connection: ClientConnection, request: pb.CommandProducer, topic: Topic, name: str
) -> None:
    """One live producer per name. Older incarnations of the same client, dead connections and earlier connections of
    a peer's replicator give way; a living stranger does not."""
    old = topic.producers.get(name)
    if not isinstance(old, Producer):
        return
    if old.connection is connection and old.producer_id == request.producer_id:
        old.connection.forget_producer(old)
        return
    if source_region_of(name) is not None:
        # It is told: this request may be the late one, of an earlier connection whose bytes a healed link let through,
        # and then the one that has to give way is the one that lives and must come back.
        old.connection.close_producer(old)
        return
    if await old.connection.is_alive(LIVENESS_SECONDS) and topic.producers.get(name) is old:
        raise ProtocolError(
            ServerError.ProducerBusy,
            f"Producer with name '{name}' is already connected to topic {topic.full_name}",
        )
    if topic.producers.get(name) is old:
        old.connection.forget_producer(old)
        old.connection.abort()


def _succeed(connection: ClientConnection, request_id: int, producer: Producer) -> None:
    answer = pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS)
    success = answer.producer_success
    success.request_id = request_id
    success.producer_name = producer.producer_name
    success.schema_version = b""
    success.producer_ready = True
    success.last_sequence_id = -1
    if producer.topic.deduplicates and producer.source_region is None:
        success.last_sequence_id = producer.topic.deduplication.last_sequence_id(producer.producer_name)
    connection.send(answer)


def close(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.close_producer
    connection.opening.discard(("producer", request.producer_id))
    producer = connection.producers.get(request.producer_id)
    if producer is None:
        connection.send_success(request.request_id)
        return
    connection.request(request.request_id, _close, connection, producer, request.request_id)


async def _close(connection: ClientConnection, producer: Producer, request_id: int) -> None:
    """Receipts of everything sent before go out first."""
    await producer.topic.issued_so_far()
    connection.forget_producer(producer)
    connection.send_success(request_id)
