"""A region whose disk fails for some writes and not for others. Found by the swarm; under virtual time."""

from __future__ import annotations

import asyncio
import json

import pytest

from emulator.client import InitialPosition
from emulator.errors import StorageError
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import World
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
SLOW = DiskFaults(commit_seconds=(0.5, 0.5))


@pytest.mark.world("us", disk=SLOW)
async def test_an_append_under_way_is_awaited_before_a_topic_is_loaded_again(world: World) -> None:
    """A cursor could not be written while an append was under way: the append became durable after the topic was loaded
    again, unnoticed, and the client's resent messages were stored twice."""
    client = world.client("us")
    producer = await client.producer(TOPIC, name="p")
    sent = producer.send_nowait(b"once")
    await world.simulation.until(lambda: broker_of(world).directory.serving[TOPIC].publishing.issued > 0)
    broker_of(world).topic_failed(TOPIC, StorageError("a cursor was not written", definite=False))
    await sent
    await producer.send(b"next")
    assert len(world.regions["us"].medium.entries(TOPIC)) == 2
    consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    assert [(await consumer.receive()).payload for _ in range(2)] == [b"once", b"next"]


@pytest.mark.world("us", disk=SLOW)
async def test_a_cursor_under_way_is_awaited_before_a_topic_is_loaded_again(world: World) -> None:
    """Otherwise the older one of two cursors would be written last."""
    client = world.client("us")
    consumer = await client.subscribe(TOPIC, "s")
    producer = await client.producer(TOPIC)
    await asyncio.gather(*(producer.send_nowait(b"%d" % number) for number in range(3)))
    first = await consumer.receive()
    acknowledged = asyncio.ensure_future(consumer.acknowledge(first, confirmed=True))
    await world.simulation.until(
        lambda: (
            broker_of(world).directory.serving[TOPIC].subscriptions["s"].stored_cursor._writer._in_flight
            is not None
        )
    )
    broker_of(world).topic_failed(TOPIC, StorageError("an append failed", definite=False))
    await world.simulation.until(lambda: not consumer.session.is_connected)
    await asyncio.wait([acknowledged])
    await world.simulation.until(lambda: consumer.session.is_connected)
    assert (await consumer.receive()).payload == b"1"


@pytest.mark.within(60)
async def test_a_cursor_that_could_not_be_written_can_be_written_later(world: World) -> None:
    """After a failed put, a key is refused until it is read. The broker never read it, and the topic failed for
    ever."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s")
    world.regions["us"].medium.fill()
    subscribing = asyncio.ensure_future(client.subscribe(TOPIC, "new"))
    await asyncio.sleep(2)
    world.regions["us"].medium.make_room()
    await subscribing
    await producer.send(b"x")
    message = await consumer.receive()
    await world.simulation.until(lambda: consumer.session.is_connected)
    await consumer.acknowledge(message, confirmed=True)


@pytest.mark.world("us", disk=SLOW)
async def test_a_request_behind_a_failed_write_is_answered(world: World) -> None:
    """The request whose write failed got a response; the one that waited for the next write never did."""
    client = world.client("us")
    await client.producer(TOPIC)
    await client.subscribe(TOPIC, "s")
    subscription = broker_of(world).directory.serving[TOPIC].subscriptions["s"]
    world.regions["us"].medium.fill()
    subscription.cursor.set_replicated(True)
    waiting = [asyncio.ensure_future(subscription.persisted()) for _ in range(2)]
    done, _ = await asyncio.wait(waiting, timeout=10)
    assert len(done) == 2
    assert all(isinstance(one.exception(), StorageError) for one in done)


@pytest.mark.world("us", disk=SLOW)
async def test_a_producer_waits_for_the_pending_publishes_of_its_former_incarnation(world: World) -> None:
    """The producer received the last durable sequence id while a higher one was being written. It continued from that
    one, and its new message was acknowledged as a duplicate of the old."""
    host = world.client_host("first-life", "us")
    first = world.client_on(host, ("us",))

    async def run_program() -> None:
        producer = await first.producer(TOPIC, name="p")
        await producer.send(b"old")

    host.start(run_program())
    await world.simulation.until(lambda: TOPIC in broker_of(world).directory.serving)
    await world.simulation.until(lambda: broker_of(world).directory.serving[TOPIC].publishing.issued > 0)
    host.kill()
    again = await world.client("us").producer(TOPIC, name="p")
    assert again.last_sequence_id == 0
    await again.send(b"new")
    assert len(world.regions["us"].medium.entries(TOPIC)) == 2


async def test_an_admin_request_names_no_store_that_works(world: World) -> None:
    """Every failure was reported as one of the configuration store, even if the disk of the region's log failed."""
    topic = "/admin/v2/persistent/public/default/orders"
    world.regions["us"].medium.faults = DiskFaults(failure_probability=1.0)
    reply = await world.ask_admin("us", "PUT", topic)
    assert (reply.status, json.loads(reply.body)["reason"]) == (
        503,
        "a storage operation failed: the disk failed while writing",
    )
