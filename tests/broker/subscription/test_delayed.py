"""Delayed delivery through a whole region, in virtual time (INV-29)."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from emulator.client import ClientError, Consumer, ConsumerType, InitialPosition
from emulator.core.policies.consuming import DELAYED_DELIVERY, Delays
from emulator.model.stored_keys import NamespacePath, TopicPoliciesPath
from emulator.simulation.world import World
from tests.broker.regions import broker_of
from tests.broker.subscription.test_subscription import TOPIC, subscription_of

BOTH = pytest.mark.parametrize("type_", [ConsumerType.SHARED, ConsumerType.KEY_SHARED])


def now_ms(w: World, region: str = "us") -> int:
    return w.regions[region].host.wall_clock_ms()


async def subscribed(
    w: World, type_: ConsumerType = ConsumerType.SHARED, region: str = "us", **more: int
) -> Consumer:
    client = w.client(region)
    return await client.subscribe(TOPIC, "s", type_=type_, initial_position=InitialPosition.EARLIEST, **more)


async def receive(w: World, consumer: Consumer, region: str = "us") -> tuple[bytes, int]:
    """Return each message with its arrival time by the region's clock."""
    message = await consumer.receive()
    await consumer.acknowledge(message)
    return message.payload, now_ms(w, region)


@BOTH
@pytest.mark.within(90)
async def test_each_message_is_delivered_at_its_time_and_not_before(
    world: World, type_: ConsumerType
) -> None:
    consumer, producer = await subscribed(world, type_), await world.client("us").producer(TOPIC)
    begin = now_ms(world)
    dues = {b"c": begin + 3_000, b"a": begin + 1_000, b"d": begin + 60_000, b"b": begin + 2_000}
    for payload, due in dues.items():
        await producer.send(payload, deliver_at_ms=due)
    await producer.send(b"now")
    await producer.send(b"past", deliver_at_ms=5)
    assert {(await consumer.receive()).payload for _ in range(2)} == {b"now", b"past"}
    await world.simulation.until(lambda: subscription_of(world, "s").dispatcher.delayed_entries == 4)
    for payload in (b"a", b"b", b"c", b"d"):
        received, at = await receive(world, consumer)
        assert received == payload
        assert dues[payload] <= at < dues[payload] + 100


@pytest.mark.within(60)
async def test_an_exclusive_consumer_gets_everything_at_once(world: World) -> None:
    consumer = await subscribed(world, ConsumerType.EXCLUSIVE)
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"late", deliver_at_ms=now_ms(world) + 3_600_000)
    assert (await consumer.receive()).payload == b"late"


@pytest.mark.within(90)
async def test_delayed_messages_survive_a_kill_and_hold_mark_delete_back(world: World) -> None:
    consumer, producer = await subscribed(world), await world.client("us").producer(TOPIC)
    due = now_ms(world) + 20_000
    await producer.send(b"late", deliver_at_ms=due)
    await producer.send(b"now")
    await consumer.acknowledge(await consumer.receive(), confirmed=True)
    assert subscription_of(world, "s").cursor.mark_delete == -1
    world.kill("us")
    world.start("us")
    received, at = await receive(world, consumer)
    assert received == b"late"
    assert at >= due


@pytest.mark.world("us", "eu")
@pytest.mark.within(90)
async def test_delivery_times_apply_in_every_region(world: World) -> None:
    await world.ready()
    producer = await world.client("us").producer(TOPIC)
    there = await subscribed(world, region="eu")
    due = now_ms(world, "eu") + 5_000
    await producer.send(b"late", deliver_at_ms=due)
    await producer.send(b"now")
    assert (await there.receive()).payload == b"now"
    received, at = await receive(world, there, "eu")
    assert received == b"late"
    assert at >= due


@pytest.mark.within(60)
async def test_a_consumer_without_permits_gets_due_messages_with_its_next_permits(world: World) -> None:
    consumer = await subscribed(world, receiver_queue_size=1)
    producer = await world.client("us").producer(TOPIC)
    due = now_ms(world) + 1_000
    for payload in (b"1", b"2", b"3"):
        await producer.send(payload, deliver_at_ms=due)
    await world.simulation.until(lambda: now_ms(world) > due + 5_000)
    assert [(await receive(world, consumer))[0] for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.within(60)
async def test_policies_disable_and_limit_delays_of_running_clients(world: World) -> None:
    consumer, producer = await subscribed(world), await world.client("us").producer(TOPIC)
    policies, place = broker_of(world).policies, NamespacePath("public/default")
    await producer.send(b"late", deliver_at_ms=now_ms(world) + 3_600_000)
    await world.simulation.until(lambda: subscription_of(world, "s").dispatcher.delayed_entries == 1)
    await policies.set(place, DELAYED_DELIVERY, Delays(False, 1, 0))
    assert (await receive(world, consumer))[0] == b"late", "no message is delayed any more"
    topic = TopicPoliciesPath(TOPIC)
    await policies.set(topic, DELAYED_DELIVERY, Delays(True, 1, 1_000))
    with pytest.raises(ClientError, match="exceeds the maximum of 1000"):
        await producer.send(b"too late", deliver_at_ms=now_ms(world) + 60_000)
    await producer.send(b"soon", deliver_at_ms=now_ms(world) + 900)
    assert (await receive(world, consumer))[0] == b"soon"


@pytest.mark.within(60)
async def test_stats_count_delayed_messages(world: World) -> None:
    await subscribed(world)
    producer = await world.client("us").producer(TOPIC)
    for _ in range(3):
        await producer.send(b"late", deliver_at_ms=now_ms(world) + 3_600_000)
    await world.simulation.until(lambda: subscription_of(world, "s").dispatcher.delayed_entries == 3)
    path = "/admin/v2/persistent/public/default/orders/stats"
    stats = (await world.ask_admin("us", "GET", path)).json()
    assert stats["subscriptions"]["s"]["msgDelayed"] == 3


@pytest.mark.within(120)
async def test_three_thousand_delayed_messages_are_delivered_in_the_order_of_their_times(
    world: World,
) -> None:
    producer = await world.client("us").producer(TOPIC, pending_messages_max=10_000)
    begin = now_ms(world) + 5_000
    dues = [begin + number * 7_919 % 10_000 for number in range(3_000)]
    await asyncio.gather(*(producer.send_nowait(b"%d" % due, deliver_at_ms=due) for due in dues))
    consumer = await subscribed(world)
    received = [int((await receive(world, consumer))[0]) for _ in dues]
    assert received == sorted(dues)


@pytest.mark.within(60)
async def test_extreme_delivery_times_are_handled(world: World) -> None:
    """The smallest number means at once, the largest never."""
    consumer, producer = await subscribed(world), await world.client("us").producer(TOPIC)
    await producer.send(b"never", deliver_at_ms=2**63 - 1)
    for payload, when in ((b"least", -(2**63)), (b"less", -1), (b"zero", 0)):
        await producer.send(payload, deliver_at_ms=when)
    assert {(await receive(world, consumer))[0] for _ in range(3)} == {b"least", b"less", b"zero"}
    place = NamespacePath("public/default")
    await broker_of(world).policies.set(place, DELAYED_DELIVERY, Delays(True, 3_600_000, 0))
    await world.simulation.until(lambda: subscription_of(world, "s").dispatcher.delayed_entries == 1)
    await consumer.close()
    again = await subscribed(world)
    await broker_of(world).policies.set(place, DELAYED_DELIVERY, Delays(False, 1, 0))
    assert (await receive(world, again))[0] == b"never"


@pytest.mark.within(60)
async def test_a_clock_that_is_set_back_delays_messages_and_never_delivers_early(world: World) -> None:
    consumer, producer = await subscribed(world), await world.client("us").producer(TOPIC)
    subscription, ahead_ms, back_ms = subscription_of(world, "s"), 1_000, 3_000
    began, due = world.simulation.now, now_ms(world) + ahead_ms
    await producer.send(b"late", deliver_at_ms=due)
    await world.simulation.until(lambda: subscription.dispatcher.delayed_entries == 1)
    world.regions["us"].host.wall_clock_ms.jump(-back_ms)
    assert (await receive(world, consumer))[1] >= due
    # The clock has a resolution of milliseconds.
    assert world.simulation.now - began > (ahead_ms + back_ms - 1) / 1000


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.within(300)
async def test_after_kills_and_redeliveries_no_message_is_early_and_all_are_delivered(
    world: World, seed: int
) -> None:
    """Consumers that return messages and leave, and a region that is killed twice."""
    chance, received = random.Random(seed), set[bytes]()
    producer = await world.client("us").producer(TOPIC)
    begin = now_ms(world)
    dues = {b"%d" % number: begin + chance.randrange(20_000) for number in range(60)}

    async def consume(consumer: Consumer) -> None:
        while len(received) < len(dues):
            message = await consumer.receive()
            assert now_ms(world) >= dues[message.payload], "early"
            if chance.random() < 0.3:
                consumer.negative_acknowledge(message)
                continue
            received.add(message.payload)
            with contextlib.suppress(ClientError):  # it may have happened all the same
                await consumer.acknowledge(message, confirmed=True)

    consumers = [await subscribed(world) for _ in range(3)]
    consuming = [asyncio.ensure_future(consume(one)) for one in consumers]
    for payload, due in dues.items():
        await producer.send(payload, deliver_at_ms=due)
    for at in (4_000, 9_000):
        await world.simulation.until(lambda at=at: now_ms(world) > begin + at)
        world.kill("us")
        world.start("us")
    await consumers[0].close()
    await world.simulation.until(lambda: len(received) == len(dues), within_seconds=120)
    for one in consuming:
        one.cancel()
    outcomes = await asyncio.gather(*consuming, return_exceptions=True)
    assert not [one for one in outcomes if isinstance(one, AssertionError)]
