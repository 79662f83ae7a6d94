"""A subscription from its first consumer to its end, on simulated disks and in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.subscription.subscription import Subscription
from emulator.client import EARLIEST, ClientError, ConsumerType, InitialPosition
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.errors import ProtocolError, ServerError
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.stored_messages import Disks
from emulator.simulation.world import World
from spark_jobs.evidence.cursors import DecodedCursor
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
SLOW = DiskFaults(commit_seconds=(0.5, 0.5))


def subscription_of(w: World, name: str) -> Subscription:
    return broker_of(w).directory.serving[TOPIC].subscriptions[name]


def on_disk(w: World, name: str) -> DecodedCursor:
    return Disks({"us": w.regions["us"].medium}).cursors()["us", TOPIC, name]


async def a_moment_later(w: World) -> None:
    """Advance the clock, so that messages published from here on have a later time."""
    clock = w.regions["us"].host.wall_clock_ms
    before = clock()
    await w.simulation.until(lambda: clock() > before)


async def test_a_reader_continues_at_the_time_that_it_sought(world: World) -> None:
    """The reader is disconnected and comes back with its original start position, which must not count."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    for number in range(3):
        await producer.send(b"%d" % number)
        await a_moment_later(world)
    reader = await client.reader(TOPIC, start=EARLIEST)
    messages = [await reader.receive() for _ in range(3)]
    await reader.seek(messages[1].publish_time_ms)
    assert (await reader.receive()).payload == b"1"
    await reader.close()
    assert not broker_of(world).directory.serving[TOPIC].subscriptions


@pytest.mark.within(120)
async def test_a_reader_that_never_returns_after_a_seek_is_removed(world: World) -> None:
    """After a minute."""
    client = world.client("us")
    await (await client.producer(TOPIC)).send(b"x")
    reader = await client.reader(TOPIC, start=EARLIEST)
    topic = broker_of(world).directory.serving[TOPIC]
    (subscription,) = topic.subscriptions.values()
    seeking = asyncio.ensure_future(subscription.seek(0))
    await reader.close()
    await seeking
    await world.simulation.until(lambda: not topic.subscriptions, within_seconds=70)


@pytest.mark.within(120)
async def test_the_broker_stores_the_position_of_two_seeks_while_the_reader_is_disconnected(
    world: World,
) -> None:
    """The second seek, by an administrator, ended the subscription, and the reader came back at another position."""
    client = world.client("us")
    await (await client.producer(TOPIC)).send(b"x")
    reader = await client.reader(TOPIC, start=EARLIEST)
    topic = broker_of(world).directory.serving[TOPIC]
    (subscription,) = topic.subscriptions.values()
    seeking = asyncio.ensure_future(subscription.seek(0))
    await reader.close()
    await seeking
    await subscription.seek(0)
    assert list(topic.subscriptions.values()) == [subscription]
    assert not subscription.closed
    await world.simulation.until(lambda: not topic.subscriptions, within_seconds=70)


@pytest.mark.world("us", disk=SLOW)
async def test_a_seek_whose_client_disconnects_delays_no_other_consumer(world: World) -> None:
    """The others were neither disconnected nor served until another event happened."""
    client = world.client("us")
    consumer = await client.subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
    await (await client.producer(TOPIC)).send(b"x")
    await consumer.acknowledge(await consumer.receive(), confirmed=True)
    subscription = subscription_of(world, "s")
    seeking = asyncio.ensure_future(subscription.seek(0))
    await world.simulation.until(lambda: subscription.seeks > 0)
    seeking.cancel()
    assert (await consumer.receive()).payload == b"x"


async def test_no_consumer_attaches_to_a_closed_subscription(world: World) -> None:
    """It would wait for messages for ever."""
    consumer = await world.client("us").subscribe(TOPIC, "s")
    subscription = subscription_of(world, "s")
    (present,) = subscription.consumers.values()
    await consumer.unsubscribe()
    newcomer = ConnectedConsumer(present.connection, 9, subscription, ConsumerState("new"), None)
    with pytest.raises(ProtocolError) as caught:
        subscription.attach(newcomer, SubscriptionType.EXCLUSIVE)
    assert caught.value.code is ServerError.ServiceNotReady


@pytest.mark.world("us", disk=SLOW)
@pytest.mark.within(60)
async def test_a_subscription_made_while_one_of_its_name_is_deleted_is_a_new_one(world: World) -> None:
    """The new subscription waits for the end of the old one, and inherits nothing from it."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    for number in range(3):
        await producer.send(b"%d" % number)
    old = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    await old.receive()
    await old.acknowledge(await old.receive(), confirmed=True)
    deleting = asyncio.ensure_future(old.unsubscribe())
    new = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    assert [(await new.receive()).payload for _ in range(3)] == [b"0", b"1", b"2"]
    await deleting
    world.kill("us")
    assert (on_disk(world, "s").mark_delete, on_disk(world, "s").acked_ranges) == (-1, [])


@pytest.mark.world("us", disk=SLOW)
@pytest.mark.within(60)
async def test_an_unsubscribe_whose_client_disconnects_frees_the_name(world: World) -> None:
    """The deletion was abandoned half-way: the closed subscription kept the name, and the next consumer kept the whole
    region busy for ever."""
    client, hasty = world.client("us"), world.client_host("hasty", "us")
    await (await client.producer(TOPIC)).send(b"x")

    async def unsubscribes() -> None:
        other = world.client_on(hasty, ("us",))
        await (await other.subscribe(TOPIC, "s")).unsubscribe()

    hasty.start(unsubscribes())
    subscriptions = broker_of(world).directory.serving[TOPIC].subscriptions
    await world.simulation.until(lambda: "s" in subscriptions and subscriptions["s"].closed)
    hasty.kill()
    again = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    assert (await again.receive()).payload == b"x"


@pytest.mark.world("us", disk=SLOW)
@pytest.mark.within(60)
async def test_two_concurrent_deletions_do_not_delete_a_new_subscription_of_the_name(
    world: World,
) -> None:
    """The second deletion was still running when the name was free: it deleted the subscription that was created
    meanwhile."""
    client = world.client("us")
    await (await client.subscribe(TOPIC, "s")).close()
    old = subscription_of(world, "s")
    host, over = world.regions["us"].host, []

    async def delete() -> None:
        await old.delete()
        over.append(1)

    host.start(delete())
    await world.simulation.until(lambda: old.closed)
    again = asyncio.ensure_future(client.subscribe(TOPIC, "s"))
    await asyncio.sleep(0.2)
    host.start(delete())
    await again
    await world.simulation.until(lambda: len(over) == 2)
    assert subscription_of(world, "s") is not old
    assert on_disk(world, "s")


@pytest.mark.within(60)
async def test_an_unsubscribe_that_fails_unexpectedly_gets_its_response(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a failure is a bug. The client waited for ever, and so did each new consumer of the subscription."""
    client = world.client("us")
    consumer = await client.subscribe(TOPIC, "s")

    async def broken() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(subscription_of(world, "s"), "delete_stored", broken)
    with pytest.raises(ClientError, match="a bug"):
        await consumer.unsubscribe()
    await (await client.producer(TOPIC)).send(b"x")
    assert (await consumer.receive()).payload == b"x", "the topic was loaded again"


@pytest.mark.within(60)
async def test_a_consumer_whose_unsubscribe_failed_receives_messages_again(world: World) -> None:
    """Its region had removed it, and the consumer did not know."""
    client, disk = world.client("us"), world.regions["us"].medium
    consumer = await client.subscribe(TOPIC, "s")
    disk.faults = replace(disk.faults, failure_probability=1.0)
    with pytest.raises(ClientError):
        await consumer.unsubscribe()
    disk.repair()
    await (await client.producer(TOPIC)).send(b"x")
    assert (await consumer.receive()).payload == b"x"


@pytest.mark.within(120)
async def test_scattered_acknowledgements_survive_a_kill(world: World) -> None:
    """Holes in several parts of the cursor."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    for _ in range(10):
        await asyncio.gather(*(producer.send_nowait(b"x") for _ in range(500)))
    consumer = await client.subscribe(
        TOPIC, "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
    )
    for number in range(5000):
        message = await consumer.receive()
        if number % 100:
            await consumer.acknowledge(message)
    cursor = subscription_of(world, "s").cursor
    await world.simulation.until(lambda: cursor.unacked_count(5000) == 50)
    await subscription_of(world, "s").persisted()
    world.kill("us")
    cursor = on_disk(world, "s")
    assert [one for one in range(5000) if not cursor.is_done(one, -1)] == list(range(0, 5000, 100))


async def test_a_seek_after_the_close_changes_nothing(world: World) -> None:
    """The topic was closed while the position for a time was searched: after the reload it has the old cursor."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    for number in range(5):
        await producer.send(b"%d" % number)
        await consumer.acknowledge(await consumer.receive())
    former = subscription_of(world, "s")
    await former.persisted()
    broker_of(world).directory.serving[TOPIC].close("it is unloaded")
    with pytest.raises(ProtocolError) as refusal:
        await former.seek(0)
    assert refusal.value.code is ServerError.ServiceNotReady
    assert former.cursor.mark_delete == 4
