"""Producers and consumers while connections and regions fail; under virtual time. The swarm found many of the cases."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.topic.topic import Topic
from emulator.client import Client, ClientError, ClientSettings, Message
from emulator.client.consumer import QueuedConsumer
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import StorageError
from emulator.simulation.world import World
from tests.client.topics import ORDERS, region

SEND_TIMEOUT = ClientSettings(send_timeout_seconds=5.0)


def serving(w: World) -> dict[str, Topic]:
    return region(w).directory.serving


# Opening.


@pytest.mark.world("us", "eu")
async def test_a_producer_continues_the_region_s_sequence_ids_after_repeated_attempts(world: World) -> None:
    """The response to its first attempt was lost: it then started at 0, and its messages were dropped as duplicates."""
    first = await world.client("us").producer(ORDERS, name="p")
    for _ in range(3):
        await first.send(b"old")
    await first.client.close()
    opening = asyncio.ensure_future(world.client("us", location="eu").producer(ORDERS, name="p"))
    await world.simulation.until(lambda: "p" in serving(world)[ORDERS].producers)
    world.cut("us", "eu")
    await asyncio.sleep(6)
    world.heal()
    again = await opening
    assert again.last_sequence_id == 2
    assert (await again.send(b"new")).entry >= 3


@pytest.mark.world("us", "eu")
async def test_a_producer_or_consumer_closed_with_its_success_response_is_opened_again(world: World) -> None:
    """PRODUCER_SUCCESS and CLOSE_PRODUCER arrived in one read: the client believed for ever that it was connected."""
    far = world.client("us", location="eu")
    await world.client("us").subscribe(ORDERS, "other")
    opening = [asyncio.ensure_future(far.producer(ORDERS)), asyncio.ensure_future(far.subscribe(ORDERS, "s"))]
    topic = serving(world)[ORDERS]
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


async def test_a_failed_connection_after_a_cancelled_wait_is_not_logged(world: World) -> None:
    """The simulation fails with anything that asyncio would have logged."""
    world.kill("us")
    waiting = asyncio.ensure_future(world.client("us").producer(ORDERS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(5)


async def test_a_receive_that_is_cancelled_as_a_message_arrives_does_not_lose_it(client: Client) -> None:
    """Applications poll with `receive` and a deadline."""
    consumer = await client.subscribe(ORDERS, "s")
    producer = await client.producer(ORDERS)
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
async def test_a_cancelled_subscribe_leaves_no_consumer(world: World) -> None:
    """An exclusive subscription would be busy for as long as the client lives."""
    far = world.client("us", location="eu")
    await far.producer(ORDERS)
    opening = asyncio.ensure_future(far.subscribe(ORDERS, "s"))
    subscriptions = serving(world)[ORDERS].subscriptions
    await world.simulation.until(
        lambda: "s" in subscriptions and bool(subscriptions["s"].consumers), every_seconds=0.001
    )
    assert not opening.done(), "its response is on its way"
    opening.cancel()
    await asyncio.wait([opening])
    await world.simulation.until(lambda: not subscriptions["s"].consumers)
    await world.client("us").subscribe(ORDERS, "s")


@pytest.mark.world("us", "eu")
async def test_a_consumer_that_is_closed_while_it_reconnects_leaves_none(world: World) -> None:
    far = world.client("us", location="eu")
    consumer = await far.subscribe(ORDERS, "s")
    serving(world)[ORDERS].failed(StorageError("lost", definite=False))
    await world.simulation.until(
        lambda: ORDERS in serving(world) and bool(serving(world)[ORDERS].subscriptions["s"].consumers),
        every_seconds=0.001,
    )
    await consumer.close()
    await world.simulation.until(lambda: not serving(world)[ORDERS].subscriptions["s"].consumers)


@pytest.mark.world("us", "eu", settings=BrokerSettings(keep_alive_interval_ms=1_000))
async def test_a_consumer_reconnects_although_another_one_has_its_place_for_a_while(world: World) -> None:
    """Another consumer, or its own former connection: a region notices late that a connection is gone. Other clients
    also retry."""
    consumer = await world.client("us", location="eu").subscribe(ORDERS, "billing")
    world.cut("us", "eu")
    await asyncio.sleep(10)  # both have found out
    other = await world.client("us").subscribe(ORDERS, "billing")
    world.heal()
    await asyncio.sleep(10)
    await other.close()
    await (await world.client("us").producer(ORDERS)).send(b"after all")
    assert (await consumer.receive()).payload == b"after all"


# Sending again.


@pytest.mark.world("us", "eu")
async def test_a_rejected_resend_is_not_definite(world: World) -> None:
    """The receipt of a message in a transaction is lost; when it is sent again its transaction is over."""
    client = world.client("us", location="eu")
    producer = await client.producer(ORDERS)
    transaction = await client.new_transaction(timeout_seconds=2)
    await producer.send(b"first", transaction=transaction)
    topic = serving(world)[ORDERS]
    before = topic.state.readable_end
    world.hold("us", "eu", one_way=True)
    sending = producer.send_nowait(b"second", transaction=transaction)
    while topic.state.readable_end == before:
        await asyncio.sleep(0.001)
    world.cut("us", "eu")
    await asyncio.sleep(5)
    world.heal()
    with pytest.raises(ClientError) as refusal:
        await sending
    assert not refusal.value.definite


async def test_a_rejected_first_send_is_definite(client: Client) -> None:
    producer = await client.producer(ORDERS)
    transaction = await client.new_transaction(timeout_seconds=2)
    await producer.send(b"first", transaction=transaction)
    await asyncio.sleep(5)
    with pytest.raises(ClientError) as refusal:
        await producer.send(b"second", transaction=transaction)
    assert refusal.value.definite


@pytest.mark.world("us", "eu")
async def test_each_message_times_out_at_its_own_deadline(world: World) -> None:
    loop = asyncio.get_running_loop()
    producer = await world.client("us", location="eu", settings=SEND_TIMEOUT).producer(ORDERS)
    await producer.send(b"answered, and no reason to give up what follows any sooner")
    await asyncio.sleep(3)
    world.hold("us", "eu")
    began = loop.time()
    first = producer.send_nowait(b"first")
    await asyncio.sleep(2)
    second = producer.send_nowait(b"second")
    for waiting, seconds in ((first, 5), (second, 7)):
        with pytest.raises(ClientError, match="no receipt in time") as refusal:
            await waiting
        assert not refusal.value.definite
        assert loop.time() - began == pytest.approx(seconds)
    world.heal()
    await producer.send(b"third")


async def test_a_message_with_a_receipt_does_not_time_out_later(world: World) -> None:
    producer = await world.client("us", settings=SEND_TIMEOUT).producer(ORDERS)
    for _ in range(20):
        await producer.send(b"in time")
        await asyncio.sleep(1)
