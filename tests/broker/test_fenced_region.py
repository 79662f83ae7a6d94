"""A region whose log got another owner while it was frozen: it notices before it acknowledges, disconnects its clients
and exits. Under virtual time, on a simulated remote log; tests/storage/test_kafka_owners.py is the same on Kafka."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from emulator.broker.region import FLUSH_SECONDS
from emulator.client import ClientError, InitialPosition
from emulator.simulation.host import HostState
from emulator.simulation.remote_log import CLOSE_SECONDS, RemoteFaults, RemoteStore
from emulator.simulation.stored_messages import fencing_violations
from emulator.simulation.world import World
from emulator.storage.faulty import FaultyFencedStore
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
SLOW = RemoteFaults(commit_seconds=(0.2, 0.2))


async def replaced(w: World, region: str = "us") -> None:
    """Freeze the region, and wait until another owner serves in its place."""
    w.pause(region)
    w.replace(region)
    await w.simulation.until(lambda: w.regions[region].is_up)


async def gone(w: World, region: str = "us") -> None:
    """Wait until the former owner has exited."""
    await w.simulation.until(lambda: not w.regions[region].running_former_hosts, within_seconds=5)
    assert w.regions[region].former_hosts[0].state is HostState.DOWN


@pytest.mark.world("us", disk=SLOW)
async def test_a_region_that_was_replaced_acknowledges_nothing_that_is_not_stored(world: World) -> None:
    """Some publishes were in flight when it was frozen, others reach it after it woke up. Each message with a receipt
    is stored; the old owner stores nothing after the new one's entries; the client continues at the new one."""
    producer = await world.client("us").producer(TOPIC, name="p")
    sent = [producer.send_nowait(b"%d" % number) for number in range(3)]
    await sent[0]
    sent += [producer.send_nowait(b"%d" % number) for number in range(3, 6)]
    await asyncio.sleep(0.05)
    await replaced(world)
    other = await world.client("us").producer(TOPIC, name="other")
    await other.send(b"new")
    world.resume("us")
    sent += [producer.send_nowait(b"%d" % number) for number in range(6, 9)]
    await gone(world)
    await asyncio.gather(*sent)
    consumer = await world.client("us").subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    found = [(await consumer.receive()).payload for _ in range(10)]
    assert [payload for payload in found if payload != b"new"] == [b"%d" % n for n in range(9)]
    assert len(world.remote_log("us").entries(TOPIC)) == 10
    assert list(fencing_violations("us", world.remote_log("us"))) == []


@pytest.mark.world("us", disk=RemoteFaults())
async def test_a_region_that_was_replaced_and_has_nothing_to_write_ends_too(world: World) -> None:
    """It checks from time to time. Its consumer continues at the new owner."""
    client = world.client("us")
    consumer = await client.subscribe(TOPIC, "s")
    await replaced(world)
    world.resume("us")
    await gone(world)
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"x")
    assert (await consumer.receive()).payload == b"x"


@pytest.mark.world("us", disk=SLOW)
async def test_an_acknowledgement_is_not_confirmed_by_a_region_that_was_replaced(world: World) -> None:
    """The new owner would redeliver the message, so the broker must not confirm the acknowledgement."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    await producer.send(b"x")
    message = await consumer.receive()
    await replaced(world)
    world.resume("us")
    with pytest.raises(ClientError):
        await consumer.acknowledge(message, confirmed=True)
    assert (await consumer.receive()).payload == b"x"


@pytest.mark.world("us", disk=RemoteFaults(commit_seconds=(0.001, 0.001)))
async def test_a_fenced_region_with_something_left_to_write_ends_in_order(world: World) -> None:
    """Its last write was fenced, and `stop` failed: links and clients were not closed properly, and the exit code was
    that of a region that could not start."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s")
    await producer.send(b"x")
    message = await consumer.receive()
    former = broker_of(world)
    world.replace("us")
    await world.simulation.until(lambda: world.regions["us"].is_up)
    await consumer.acknowledge(message)
    subscription = former.directory.serving[TOPIC].subscriptions["s"]
    await world.simulation.until(lambda: subscription.cursor.mark_delete == 0, every_seconds=0.001)
    assert isinstance(former.store, FaultyFencedStore)
    store = former.store._store
    assert isinstance(store, RemoteStore)
    store.poll_owner()
    await gone(world)
    assert former.end.is_fenced
    assert former.clients.connections == {}
    assert (await consumer.receive()).payload == b"x"


@pytest.mark.world("us", disk=RemoteFaults())
async def test_a_region_stops_although_its_log_is_unavailable(world: World) -> None:
    """Unwritten data is not waited for longer than the store itself."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s")
    await producer.send(b"x")
    message = await consumer.receive()
    world.remote_log("us").make_unreachable()
    await consumer.acknowledge(message)
    subscription = broker_of(world).directory.serving[TOPIC].subscriptions["s"]
    await world.simulation.until(lambda: subscription.cursor.mark_delete == 0, every_seconds=0.001)
    begin = world.simulation.now
    await world.regions["us"].host.ask(broker_of(world).stop())
    assert world.simulation.now - begin <= FLUSH_SECONDS + CLOSE_SECONDS + 0.1


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(limit, marks=pytest.mark.world("us", disk=RemoteFaults(gives_up_seconds=limit)))
        for limit in (None, 0.5)
    ],
)
async def test_publishes_wait_while_the_log_is_unavailable(world: World, limit: float | None) -> None:
    """With a store that gives up, the client sends them again; either way they are stored once."""
    producer = await world.client("us").producer(TOPIC, name="p")
    await producer.send(b"0")
    log = world.remote_log("us")
    log.make_unreachable()
    sent = [producer.send_nowait(b"%d" % number) for number in range(1, 5)]
    done, _ = await asyncio.wait(sent, timeout=10)
    assert not done
    log.make_reachable()
    await asyncio.gather(*sent)
    assert len(log.entries(TOPIC)) == 5


@pytest.mark.world("us", disk=RemoteFaults(gives_up_seconds=0.5))
@pytest.mark.parametrize("seed", range(5))
async def test_a_lost_response_does_not_store_a_publish_twice(world: World, seed: int) -> None:
    """The outcome is unknown; the region reads its log again before it accepts the resent message."""
    log = world.remote_log("us")
    producer = await world.client("us").producer(TOPIC, name="p")
    await producer.send(b"0")
    faults, log.faults = log.faults, replace(log.faults, lost_answer_probability=1.0)
    sent = producer.send_nowait(b"1")
    await asyncio.wait([sent], timeout=2)
    assert not sent.done()
    log.faults = faults
    await sent
    await producer.send(b"2")
    assert len(log.entries(TOPIC)) == 3
