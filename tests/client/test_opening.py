"""Opening producers and consumers while the region comes and goes. Found by the swarm; under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.topic.topic import Topic
from emulator.client import Message
from emulator.client.consumer import QueuedConsumer
from emulator.errors import StorageError
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"


def topic_of(w: World) -> Topic:
    broker = w.regions["us"].broker
    assert broker is not None
    return broker.directory.serving[TOPIC]


@pytest.mark.world("us", "eu")
async def test_a_producer_goes_on_where_the_region_says_however_often_opening_was_tried(world: World) -> None:
    """The response to its first attempt was lost: it then started at 0, and its messages were dropped as duplicates."""
    first = await world.client("us").producer(TOPIC, name="p")
    for _ in range(3):
        await first.send(b"old")
    await first.client.close()
    opening = asyncio.ensure_future(world.client("us", place="eu").producer(TOPIC, name="p"))
    await world.simulation.until(lambda: "p" in topic_of(world).producers)
    world.cut("us", "eu")
    await asyncio.sleep(6)
    world.heal()
    again = await opening
    assert again.last_sequence_id == 2
    assert (await again.send(b"new")).entry >= 3


@pytest.mark.world("us", "eu")
async def test_what_ends_in_the_breath_in_which_it_was_granted_is_opened_again(world: World) -> None:
    """PRODUCER_SUCCESS and CLOSE_PRODUCER arrived in one read: the client believed for ever that it was connected."""
    far = world.client("us", place="eu")
    await world.client("us").subscribe(TOPIC, "other")
    opening = [
        asyncio.ensure_future(far.producer(TOPIC)),
        asyncio.ensure_future(far.subscribe(TOPIC, "s")),
    ]
    topic = topic_of(world)
    subscriptions = topic.subscriptions
    await world.simulation.until(
        lambda: bool(topic.producers) and "s" in subscriptions and bool(subscriptions["s"].consumers),
        every_seconds=0.001,
    )
    world.hold("us", "eu", one_way=True)
    topic.failed(StorageError("lost", definite=False))
    await asyncio.sleep(0.1)
    world.heal()
    producer, consumer = await asyncio.gather(*opening)
    async with asyncio.timeout(5):
        await producer.send(b"x")
        assert (await consumer.receive()).payload == b"x"


async def test_nobody_hears_of_a_connection_that_failed_when_nobody_waited_any_more(world: World) -> None:
    """The simulation fails with anything that asyncio would have logged."""
    world.kill("us")
    waiting = asyncio.ensure_future(world.client("us").producer(TOPIC))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(5)


async def test_a_wait_that_is_cancelled_as_a_message_comes_does_not_cost_the_message(world: World) -> None:
    """Applications poll with `receive` and a deadline."""
    client = world.client("us")
    consumer = await client.subscribe(TOPIC, "s")
    producer = await client.producer(TOPIC)
    waiting = asyncio.ensure_future(consumer.receive())
    put = consumer._queue.put

    def put_as_time_is_up(source: QueuedConsumer, message: Message) -> None:
        put(source, message)
        waiting.cancel()

    consumer._queue.put = put_as_time_is_up  # type: ignore[method-assign]
    await producer.send(b"x")
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    consumer._queue.put = put  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        assert (await consumer.receive()).payload == b"x"


@pytest.mark.world("us", "eu")
async def test_whoever_stops_waiting_for_a_subscription_leaves_no_consumer_behind(world: World) -> None:
    """An exclusive subscription would be busy for as long as the client lives."""
    far = world.client("us", place="eu")
    await far.producer(TOPIC)
    opening = asyncio.ensure_future(far.subscribe(TOPIC, "s"))
    subscriptions = topic_of(world).subscriptions
    await world.simulation.until(
        lambda: "s" in subscriptions and bool(subscriptions["s"].consumers), every_seconds=0.001
    )
    assert not opening.done(), "its response is on its way"
    opening.cancel()
    await asyncio.wait([opening])
    await world.simulation.until(lambda: not subscriptions["s"].consumers)
    await world.client("us").subscribe(TOPIC, "s")


@pytest.mark.world("us", "eu")
async def test_a_consumer_that_is_closed_on_its_way_back_leaves_nobody_behind(world: World) -> None:
    far = world.client("us", place="eu")
    consumer = await far.subscribe(TOPIC, "s")
    topic_of(world).failed(StorageError("lost", definite=False))
    await world.simulation.until(
        lambda: TOPIC in _serving(world) and bool(_serving(world)[TOPIC].subscriptions["s"].consumers),
        every_seconds=0.001,
    )
    await consumer.close()
    await world.simulation.until(lambda: not topic_of(world).subscriptions["s"].consumers)


def _serving(w: World) -> dict[str, Topic]:
    broker = w.regions["us"].broker
    assert broker is not None
    return broker.directory.serving
