"""Producers that are closed, or whose connection ends, while their topic is being created."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from emulator.broker.connection.connection import ClientConnection
from emulator.broker.topic_directory.loaded_topic import LoadState
from emulator.errors import StorageError
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import simple_frame
from tests.broker.connection.test_shared_appends import RawClient
from tests.broker.regions import regions, until

TOPIC = "persistent://public/default/orders"


def store_of(client: RawClient) -> MemoryStore:
    store = client.world.running["us"].store
    assert isinstance(store, MemoryStore)
    return store


def producer(request_id: int = 1) -> bytes:
    body = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body))


def close_producer(request_id: int = 2) -> bytes:
    body = pb.CommandCloseProducer(producer_id=1, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=body))


@contextlib.asynccontextmanager
async def creating(*frames: bytes) -> AsyncIterator[tuple[RawClient, ClientConnection]]:
    """A client that has requested a producer, and sent further frames, while the log of the topic is not durable."""
    async with regions("us") as world:
        client = RawClient(0, world)
        await client.open()
        store_of(client).hold()
        client.connection.data_received(b"".join((producer(), *frames)))
        assert client.connection.producers.opening or frames
        try:
            yield client, client.connection
        finally:
            store_of(client).release()
            client.socket.close()


async def test_a_producer_that_is_closed_meanwhile_is_not_opened() -> None:
    async with creating(close_producer()) as (client, connection):
        store_of(client).release()
        directory = client.world.running["us"].directory
        await until(lambda: directory.state_of(TOPIC) is LoadState.SERVING)
        await until(lambda: not connection.flow_control._requests.size_bytes)
        assert not directory.serving[TOPIC].producers
        assert not connection.producers.opening
        assert not connection.producers.open


async def test_a_producer_that_is_closed_and_requested_again_is_opened_once() -> None:
    async with creating(close_producer(), producer(request_id=3)) as (client, connection):
        store_of(client).release()
        await until(lambda: bool(connection.producers.open))
        assert connection.producers.open[1].request.request_id == 3
        assert len(client.world.running["us"].directory.serving[TOPIC].producers) == 1
        assert not connection.producers.opening


async def test_a_connection_that_ends_meanwhile_leaves_no_producer() -> None:
    async with creating() as (client, connection):
        connection.abort()
        await until(lambda: not connection.is_open)
        store_of(client).release()
        directory = client.world.running["us"].directory
        await until(lambda: directory.state_of(TOPIC) is LoadState.SERVING)
        await until(lambda: not connection.flow_control._requests.size_bytes)
        assert not directory.serving[TOPIC].producers


async def test_a_topic_that_cannot_be_created_rejects_the_producer_and_releases_its_memory() -> None:
    async with creating() as (client, connection):
        store_of(client).fail_next_group(StorageError("the disk is full", definite=True))
        store_of(client).release()
        await until(lambda: not connection.flow_control._requests.size_bytes)
        assert not connection.producers.opening
        assert connection.is_open
        connection.data_received(producer(request_id=4))
        await until(lambda: bool(connection.producers.open))
