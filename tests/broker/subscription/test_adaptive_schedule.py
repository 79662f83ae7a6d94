"""The adaptive schedule of snapshots, in virtual time: what a fail-over redelivers, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.topic import Topic
from emulator.client import Client, InitialPosition
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.simulation.world import World, simple_topology
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
REGIONS = ("us", "eu", "ap")
PER_SECOND = 200
ADAPTIVE = BrokerSettings(snapshot_schedule="adaptive")
EARLIEST = InitialPosition.EARLIEST


@contextmanager
def world(settings: BrokerSettings = ADAPTIVE, *, latency_ms: float = 5.0, seed: int = 0) -> Iterator[World]:
    topology = simple_topology(REGIONS, settings=settings, link=LinkShape(latency_ms=latency_ms))
    with World(topology, seed) as made:
        yield made


def topic_in(of: World, region: str) -> Topic:
    return broker_of(of, region).directory.serving[TOPIC]


def replication(of: World, region: str) -> ReplicatedSubscriptions:
    found = topic_in(of, region).subscriptions.replicated
    assert found is not None
    return found


class Load:
    """A producer of 200 messages a second, and a consumer that acknowledges each at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.acknowledged: set[bytes] = set()
        self.published = 0

    async def run(self, seconds: float) -> None:
        consumer = await self._client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        producer = await self._client.producer(TOPIC)

        async def consume() -> None:
            while True:
                message = await consumer.receive()
                await consumer.acknowledge(message)
                self.acknowledged.add(message.payload)

        consuming = asyncio.ensure_future(consume())
        for number in range(round(seconds * PER_SECOND)):
            await producer.send(b"%d" % number)
            self.published += 1
            await asyncio.sleep(1 / PER_SECOND)
        consuming.cancel()


async def redelivered(of: World, load: Load, region: str) -> int:
    """Return how many acknowledged messages a consumer in the region receives."""
    consumer = await of.client(region).subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
    count = 0
    while True:
        try:
            message = await asyncio.wait_for(consumer.receive(), 5)
        except TimeoutError:
            return count
        count += message.payload in load.acknowledged


@pytest.mark.parametrize("part", range(6))
def test_a_fail_over_redelivers_at_most_300_ms_worth_for_a_tenth_more_entries(part: int) -> None:
    """Region us is killed under 200 messages a second; the periodic schedule would redeliver up to 1 s worth. The kills
    are at every part of the 0.25 s in which the messages pay for a snapshot."""
    with world(seed=part) as w:

        async def main() -> None:
            load = Load(w.client("us"))
            await load.run(6 + part * 0.045)
            entries = topic_in(w, "us").log.next_entry_id
            w.kill("us")
            assert await redelivered(w, load, "eu") <= 0.3 * PER_SECOND
            assert entries <= 1.1 * load.published + 10

        w.play(main())


def test_the_position_follows_at_once_when_traffic_pauses() -> None:
    """Within 0.2 s; by the periodic schedule within 1 s. And then every region is quiet."""
    with world() as w:

        async def main() -> None:
            load = Load(w.client("us"))
            await load.run(1.3)
            began = w.simulation.now
            await w.simulation.until(lambda: _backlog(w, "eu") == _backlog(w, "ap") == 0, within_seconds=1)
            assert w.simulation.now - began < 0.25
            await w.quiet()

        w.play(main())


def _backlog(of: World, region: str) -> int:
    subscription = topic_in(of, region).subscriptions.get("s")
    return -1 if subscription is None else subscription.backlog()


def test_regions_without_consumers_take_few_snapshots() -> None:
    with world() as w:

        async def main() -> None:
            load = Load(w.client("us"))
            await load.run(10)
            started = {name: replication(w, name).snapshots.controller.counters.started for name in REGIONS}
            assert started["us"] > 25
            assert max(started["eu"], started["ap"]) <= 3

        w.play(main())


def test_three_regions_need_one_round_under_steady_load() -> None:
    with world() as w:

        async def main() -> None:
            load = Load(w.client("us"))
            await load.run(4)
            counters = replication(w, "us").snapshots.controller.counters
            markers = topic_in(w, "us").log.next_entry_id - load.published
            assert markers < 6 * counters.completed + 20, "5 with one round, 8 with two"

        w.play(main())


def test_a_consumer_with_a_backlog_has_fewer_snapshots_and_still_advances() -> None:
    """Snapshots at the end of the log are useless for a consumer that is far behind it."""
    with world() as w:

        async def main() -> None:
            client = w.client("us")
            consumer = await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
            producer = await client.producer(TOPIC)
            await producer.send(b"first")
            await consumer.acknowledge(await consumer.receive())
            for number in range(10 * PER_SECOND):
                await producer.send(b"%d" % number)
                await asyncio.sleep(1 / PER_SECOND)
            assert replication(w, "us").snapshots.controller.counters.started < 10
            for _ in range(10 * PER_SECOND):
                await consumer.acknowledge(await consumer.receive())
            await w.simulation.until(lambda: _backlog(w, "eu") == 0, within_seconds=2)

        w.play(main())
