"""The details of a replicated subscription: what every region knows of its position, and how old that is."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.explain.topics import explain
from emulator.cli.details import COLUMNS, details_as_lines
from emulator.client import Client, Consumer, InitialPosition
from emulator.model.explanations import Explanation
from emulator.model.subscription_details import SubscriptionDetails
from tests.broker.regions import Regions, regions, until

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

TOPIC = "persistent://public/default/orders"
FROM_THE_START = InitialPosition.EARLIEST


def details(world: Regions, region: str, name: str = "orders s") -> SubscriptionDetails:
    found = explain(world.running[region], "subscription", name)
    assert Explanation.from_json(found.to_json()) == found
    assert found.subscription is not None
    return found.subscription


async def consumed(us: Client, count: int) -> Consumer:
    """Publish messages and acknowledge them in a replicated subscription of us."""
    consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
    producer = await us.producer(TOPIC)
    for _ in range(count):
        await producer.send(b"x")
        await consumer.acknowledge(await asyncio.wait_for(consumer.receive(), 5), confirmed=True)
    return consumer


def is_stored_in_eu(world: Regions) -> bool:
    sent = details(world, "us").sent
    return bool(sent) and sent[0].is_stored_there


async def test_both_regions_state_the_same_position_from_their_side() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await consumed(us, 10)
        await until(lambda: is_stored_in_eu(world) and not details(world, "us").cached_snapshots)
        await until(lambda: "s" in world.running["eu"].directory.serving[TOPIC].subscriptions)
        await until(lambda: bool(details(world, "eu").received))
        here, there = details(world, "us"), details(world, "eu")
        (sent,), (received,) = here.sent, there.received
        assert (sent.region, received.region) == ("eu", "us")
        assert sent.position == received.position
        assert received.outcome == "applied"
        assert here.newest_snapshot is not None
        assert here.newest_snapshot.elsewhere.keys() == {"eu"}
        assert here.newest_snapshot.is_reached
        assert 0 <= (here.newest_snapshot.age_ms or 0) < 10_000
        assert 0 <= sent.age_ms < 10_000
        assert here.updates_sent >= 1
        assert there.updates_applied >= 1
        assert (here.acknowledged_entries, here.partial_batches) == (0, 0)


async def test_acknowledgements_beyond_a_hole_and_parts_of_batches_are_counted() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        for _ in range(6):
            await producer.send(b"x")
        messages = [await asyncio.wait_for(consumer.receive(), 5) for _ in range(6)]
        await consumer.acknowledge(messages[1], messages[2], messages[4], confirmed=True)
        topic = world.running["us"].directory.serving[TOPIC]
        topic.subscriptions["s"].cursor.keep_open(messages[5].id.entry, 1, 4)
        one = details(world, "us")
        assert one.acknowledged_entries >= 3  # markers between the messages are acknowledged, too
        assert one.acknowledged_ranges >= 2
        assert one.partial_batches == 1
        sync = topic.subscriptions.replicated
        assert sync is not None
        await until(lambda: bool(sync.snapshots.completed))
        assert details(world, "us").cause == "snapshot-not-reached"


async def test_after_a_restart_the_newest_updates_are_found_in_the_log() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await consumed(us, 5)
        await until(lambda: is_stored_in_eu(world))
        await until(lambda: "s" in world.running["eu"].directory.serving[TOPIC].subscriptions)
        await until(lambda: bool(details(world, "eu").received))
        await world.crash("us")
        await world.running["eu"].directory.serving[TOPIC].subscriptions["s"].persisted()
        before = details(world, "eu").received[0]
        await world.crash("eu")
        await world.start("eu")
        await until(lambda: TOPIC in world.running["eu"].directory.serving)
        await until(lambda: bool(details(world, "eu").received))
        after = details(world, "eu").received[0]
        assert (after.region, after.position, after.written_ms) == ("us", before.position, before.written_ms)
        assert (after.age_ms, after.outcome) == (None, "found in the log when the topic was loaded")


async def test_the_output_fits_into_80_columns() -> None:
    here = "us-east-of-everything"
    async with regions(here, "eu-central-and-more", "ap") as world, world.client(here) as us:
        await consumed(us, 5)
        await until(lambda: len(details(world, here).sent) == 2)
        lines = details_as_lines(details(world, here))
        assert max(map(len, lines)) <= COLUMNS, lines
        assert sum(line.startswith("  sent") for line in lines) == 2


async def test_the_bound_of_a_fail_over_is_zero_when_the_other_region_has_everything() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await consumed(us, 10)
        await until(lambda: is_stored_in_eu(world) and details(world, "us").sent[0].redelivered_at_most == 0)
        world.cut("us", "eu")
        await until(lambda: not world.running["us"].peers["eu"].connected)
        producer = await us.producer(TOPIC)
        for _ in range(7):
            await producer.send(b"x")
            await consumer.acknowledge(await asyncio.wait_for(consumer.receive(), 5), confirmed=True)
        assert details(world, "us").sent[0].redelivered_at_most == 7
