"""Switches to upstream's behaviour of replicated subscriptions, each beside the default."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator.broker.admin import stats
from emulator.broker.region import Region
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.topic import Topic
from emulator.client import InitialPosition
from emulator.core.replication.schedule import SnapshotSettings
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import SnapshotCache
from emulator.model.values import Position
from tests.broker.regions import Regions, regions, until
from tests.core.replication.test_subscription_updates import snapshot_at

TOPIC = "persistent://public/default/orders"
EARLIEST = InitialPosition.EARLIEST


def topic_in(region: Region) -> Topic:
    return region.directory.serving[TOPIC]


def replication(region: Region) -> ReplicatedSubscriptions:
    found = topic_in(region).subscriptions.replicated
    assert found is not None
    return found


def reported_backlog(region: Region) -> int:
    found: int = stats.topic_stats(topic_in(region))["subscriptions"]["s"]["msgBacklog"]
    return found


def has(world: Regions, region: str) -> Callable[[], bool]:
    return lambda: "s" in getattr(world.running[region].directory.serving.get(TOPIC), "subscriptions", ())


# snapshot_cache


@pytest.mark.parametrize(("drops_oldest", "reached"), [(True, None), (False, 1)])
def test_a_cache_that_drops_the_oldest_has_nothing_for_a_slow_consumer(
    drops_oldest: bool, reached: int | None
) -> None:
    cache = SnapshotCache(10, drops_oldest=drops_oldest)
    for entry in range(1, 1_000):
        cache.add(snapshot_at(entry))
    assert len(cache) == 10
    found = cache.pop_newest_reached(5)
    assert (found and found.local_position.entry) == reached


async def test_the_cache_follows_the_switch() -> None:
    async with (
        regions("us", "eu", compatibility={"snapshot_cache": "upstream"}) as world,
        world.client("us") as client,
    ):
        await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        cache = replication(world.running["us"])._machines["s"].cache
        for entry in range(100, 200):
            cache.add(snapshot_at(entry))
        assert cache.snapshots[0].local_position.entry == 170


# markers_in_backlog


@pytest.mark.parametrize(("switch", "counts"), [("upstream", True), ("proposal", False)])
async def test_markers_count_as_backlog_in_a_region_without_consumers(switch: str, counts: bool) -> None:
    async with (
        regions("us", "eu", compatibility={"markers_in_backlog": switch}) as world,
        world.client("us") as client,
    ):
        consumer = await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        producer = await client.producer(TOPIC)
        for _ in range(3):
            await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive())
        await until(has(world, "eu"))
        eu = world.running["eu"]
        await until(lambda: topic_in(eu).subscriptions["s"].backlog() == 0)
        assert (reported_backlog(eu) > 0) == counts


# snapshot_timeout


@pytest.mark.parametrize(("growth", "timeouts"), [(1, [1_000] * 4), (8, [2_000, 4_000, 8_000, 8_000])])
def test_the_timeout_grows_up_to_its_maximum(growth: int, timeouts: list[int]) -> None:
    controller = SnapshotController(
        "a", frozenset("b"), SnapshotSettings(timeout_ms=1_000, timeout_growth_max=growth)
    )
    found, now_ms = [], 0
    for _ in timeouts:
        controller.tick(now_ms, f"s{now_ms}", last_data_position=Position(1, now_ms))
        now_ms += controller.backoff.timeout_ms
        controller.tick(now_ms, f"t{now_ms}", last_data_position=Position(1, now_ms))
        controller.abort_pending()
        found.append(controller.backoff.timeout_ms)
        now_ms += 10_000
    assert found == timeouts


async def test_the_switch_fixes_the_timeout() -> None:
    async with (
        regions("us", "eu", compatibility={"snapshot_timeout": "upstream"}) as world,
        world.client("us") as client,
    ):
        await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        controller = replication(world.running["us"]).snapshots.controller
        assert controller.schedule.settings.timeout_growth_max == 1


# dead_region


@pytest.mark.parametrize(("new_messages_only", "requests"), [(True, 0), (False, 1)])
def test_a_lost_connection_requires_a_snapshot_unless_only_messages_do(
    new_messages_only: bool, requests: int
) -> None:
    settings = SnapshotSettings(new_messages_only=new_messages_only)
    controller = SnapshotController("a", frozenset("b"), settings)
    end = Position(1, 0)
    controller.tick(0, "s", last_data_position=end)
    controller.pending.clear()
    controller._covered = end
    controller.link_lost("b")
    assert len(controller.tick(5_000, "t", last_data_position=end)) == requests


@pytest.mark.parametrize(("switch", "partial"), [("upstream", 0), ("proposal", 60_000)])
async def test_partial_snapshots_have_no_effect_with_the_switch(switch: str, partial: int) -> None:
    async with (
        regions("us", "eu", compatibility={"dead_region": switch}, partial_snapshots_after="1m") as world,
        world.client("us") as client,
    ):
        await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        controller = replication(world.running["us"]).snapshots.controller
        assert controller.absence.partial_after_ms == partial
