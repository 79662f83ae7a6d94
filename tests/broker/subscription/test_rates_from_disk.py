"""Dispatch rates with messages from a slow disk: permits are counted when a message is sent."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import Consumer, InitialPosition
from emulator.config.broker_settings import BrokerSettings
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import World
from tests.swarm.checkers.limits import Allowance, too_fast

TOPIC = "persistent://public/default/slow"
RATE = 20
ENTRY_BYTES = 2_000
"""And what belongs to it."""
SLOW = DiskFaults(
    commit_seconds=(0.001, 0.001),
    stall_probability=0.0,
    stall_seconds=(0.0, 0.0),
    read_seconds=(0.3, 0.3),
    id_jump_probability=0.0,
)


async def _times(consumer: Consumer, w: World, count: int) -> list[float]:
    times = []
    for _ in range(count):
        await consumer.receive()
        times.append(w.simulation.now)
    return times


BY_MESSAGES = {"dispatchThrottlingRateInMsg": RATE, "ratePeriodInSecond": 1}
BY_BYTES = {
    "dispatchThrottlingRateInMsg": -1,
    "dispatchThrottlingRateInByte": 20 * ENTRY_BYTES,
    "ratePeriodInSecond": 1,
}


@pytest.mark.parametrize(("rate", "over"), [(BY_MESSAGES, 0), (BY_BYTES, 60)], ids=["messages", "bytes"])
@pytest.mark.parametrize("subscriptions", [1, 3])
@pytest.mark.world("us", disk=SLOW, settings=BrokerSettings(region_tail_bytes=1))
async def test_dispatch_never_exceeds_the_rate_by_more_than_one_period(
    world: World, subscriptions: int, rate: dict[str, int], over: int
) -> None:
    """Neither the time that passes during a read, nor concurrent reads of several subscriptions, exceed it."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    await asyncio.gather(*(producer.send(bytes(ENTRY_BYTES)) for _ in range(60)))
    answer = await world.ask_admin(
        "us", "POST", "/admin/v2/persistent/public/default/slow/dispatchRate", rate
    )
    assert answer.status == 204
    consumers = [
        await client.subscribe(TOPIC, f"s-{number}", initial_position=InitialPosition.EARLIEST)
        for number in range(subscriptions)
    ]
    received = await asyncio.gather(*(_times(one, world, 60) for one in consumers))
    assert too_fast([at for times in received for at in times], Allowance(RATE, 1), over) == ""


async def test_no_subscription_starves_the_others_of_the_topic_rate(world: World) -> None:
    """Each of them always has more to dispatch than the rate allows."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    await asyncio.gather(*(producer.send(b"%d" % number) for number in range(200)))
    rate = {"dispatchThrottlingRateInMsg": 3, "ratePeriodInSecond": 1}
    answer = await world.ask_admin(
        "us", "POST", "/admin/v2/persistent/public/default/slow/dispatchRate", rate
    )
    assert answer.status == 204
    consumers = [
        await client.subscribe(TOPIC, f"s-{number}", initial_position=InitialPosition.EARLIEST)
        for number in range(3)
    ]
    await asyncio.sleep(20)
    counts = [len(one.waiting) for one in consumers]
    assert sum(counts) >= 60
    assert min(counts) >= 15, counts
