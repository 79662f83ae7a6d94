"""`relativeToPublishRate`: consumers and replicators get the publish rate plus the configured rate."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import ConsumerType, InitialPosition
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"
TARGET = "/admin/v2/persistent/public/default/orders"
PER_SECOND = 20
SECONDS = 40


def rate(*, relative: bool) -> dict[str, object]:
    return {
        "dispatchThrottlingRateInMsg": 1,
        "dispatchThrottlingRateInByte": -1,
        "ratePeriodInSecond": 1,
        "relativeToPublishRate": relative,
    }


async def limit(w: World, segment: str, *, relative: bool) -> None:
    answer = await w.ask_admin("us", "POST", f"{TARGET}/{segment}", rate(relative=relative))
    assert answer.status == 204, answer.body


async def publish_steadily(w: World) -> None:
    producer = await w.client("us").producer(TOPIC)
    for _ in range(SECONDS * PER_SECOND):
        await producer.send(b"x")
        await asyncio.sleep(1 / PER_SECOND)


@pytest.mark.parametrize(("relative", "least", "most"), [(True, 0.7, 1.0), (False, 0.0, 0.1)])
@pytest.mark.parametrize("segment", ["dispatchRate", "subscriptionDispatchRate"])
async def test_consumers_receive_at_the_relative_rate(
    world: World, segment: str, relative: bool, least: float, most: float
) -> None:
    consumer = await world.client("us").subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
    await limit(world, segment, relative=relative)
    await publish_steadily(world)
    assert least <= len(consumer.waiting) / (SECONDS * PER_SECOND) <= most


@pytest.mark.parametrize(("relative", "least", "most"), [(True, 0.7, 1.0), (False, 0.0, 0.1)])
@pytest.mark.world("us", "eu")
async def test_a_replicator_sends_at_the_relative_rate(
    world: World, relative: bool, least: float, most: float
) -> None:
    consumer = await world.client("eu").subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
    await limit(world, "replicatorDispatchRate", relative=relative)
    await publish_steadily(world)
    assert least <= len(consumer.waiting) / (SECONDS * PER_SECOND) <= most


async def test_a_backlog_is_sent_slowly_when_publishing_ends(world: World) -> None:
    """The rate follows the publish rate down as well as up."""
    producer = await world.client("us").producer(TOPIC)
    for _ in range(200):
        await producer.send(b"x")
    await asyncio.sleep(60)
    await limit(world, "subscriptionDispatchRate", relative=True)
    client = world.client("us")
    consumer = await client.subscribe(
        TOPIC, "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
    )
    await asyncio.sleep(20)
    assert len(consumer.waiting) < 150
