"""Dispatch rates with messages from a slow disk: permits are counted when a message is sent."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import Consumer, InitialPosition
from emulator.config.region import BrokerSettings
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import World, world
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
def test_over_any_time_no_more_is_handed_out_than_that_time_and_one_period_allow(
    subscriptions: int, rate: dict[str, int], over: int
) -> None:
    """Neither the time that passes during a read, nor concurrent reads of several subscriptions, exceed it."""
    with world("us", disk=SLOW, settings=BrokerSettings(region_tail_bytes=1)) as w:

        async def scenario() -> list[float]:
            client = w.client("us")
            producer = await client.producer(TOPIC)
            await asyncio.gather(*(producer.send(bytes(ENTRY_BYTES)) for _ in range(60)))
            answer = await w.ask_admin(
                "us", "POST", "/admin/v2/persistent/public/default/slow/dispatchRate", rate
            )
            assert answer.status == 204
            consumers = [
                await client.subscribe(TOPIC, f"s-{number}", initial_position=InitialPosition.EARLIEST)
                for number in range(subscriptions)
            ]
            came = await asyncio.gather(*(_times(one, w, 60) for one in consumers))
            return [at for times in came for at in times]

        assert too_fast(w.play(scenario()), Allowance(RATE, 1), over) == ""


def test_no_subscription_keeps_the_rate_of_the_topic_from_the_others() -> None:
    """Each of them always has more to dispatch than the rate allows."""
    with world("us") as w:

        async def scenario() -> list[int]:
            client = w.client("us")
            producer = await client.producer(TOPIC)
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(200)))
            rate = {"dispatchThrottlingRateInMsg": 3, "ratePeriodInSecond": 1}
            answer = await w.ask_admin(
                "us", "POST", "/admin/v2/persistent/public/default/slow/dispatchRate", rate
            )
            assert answer.status == 204
            consumers = [
                await client.subscribe(TOPIC, f"s-{number}", initial_position=InitialPosition.EARLIEST)
                for number in range(3)
            ]
            await asyncio.sleep(20)
            return [len(one.waiting) for one in consumers]

        counts = w.play(scenario())
        assert sum(counts) >= 60
        assert min(counts) >= 15, counts
