"""A dead third region is reported within one snapshot timeout: metric, explanation, status row and log (PIP-33)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from emulator.broker.admin.exposition import MetricFamily
from emulator.broker.admin.region_metrics import families_of
from emulator.broker.admin.request import AdminContext, AdminRequest
from emulator.broker.admin.resources.replication import blocked_snapshots
from emulator.broker.explain.topics import explain
from emulator.broker.region import Region
from emulator.broker.subscription.blocked_snapshots import BlockedSnapshots
from emulator.client import Client, Consumer, InitialPosition
from emulator.simulation.world import World
from tests.broker.regions import FAST, broker_of, regions, until

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

TOPIC = "persistent://public/default/orders"
TIMEOUT_MS = 400


async def metrics_of(region: Region) -> dict[str, MetricFamily]:
    return {family.name: family for family in await families_of(region)}


async def value(region: Region, name: str, **labels: str) -> float | None:
    family = (await metrics_of(region)).get(name)
    samples = [] if family is None else family.samples
    return next((one for known, one, _ in samples if labels.items() <= dict(known).items()), None)


async def rows(region: Region) -> list[dict[str, object]]:
    context = AdminContext(region, {})
    found = await blocked_snapshots(AdminRequest(context, {}, {}, None, ""))
    assert isinstance(found, list)
    return found


async def consumed(us: Client, count: int) -> Consumer:
    consumer = await us.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True)
    producer = await us.producer(TOPIC)
    for _ in range(count):
        await producer.send(b"x")
        await consumer.acknowledge(await asyncio.wait_for(consumer.receive(), 5), confirmed=True)
    return consumer


@pytest.mark.world("us", "eu", "ap", settings=replace(FAST, snapshot_timeout_ms=TIMEOUT_MS))
async def test_a_dead_third_region_is_reported_within_one_timeout_and_its_return_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "emulator.broker.subscription.blocked_snapshots")
    us, loop = broker_of(world, "us"), asyncio.get_running_loop()
    await consumed(world.client("us"), 3)
    sync = us.directory.serving[TOPIC].subscriptions.replicated
    assert sync is not None
    await until(lambda: bool(sync.snapshots.completed) and not sync.snapshots.blocked_ms())
    assert await rows(us) == []
    assert caplog.text == ""
    died = loop.time()
    world.kill("ap")
    await until(lambda: "ap blocks snapshots" in caplog.text)
    assert loop.time() - died < TIMEOUT_MS / 1000 + 1
    (row,) = await rows(us)
    assert (row["region"], row["blocked_by"], row["topics"], row["topic"]) == ("us", "ap", 1, TOPIC)
    assert str(row["cause"]) == "snapshot-link-to-down"
    assert "link to ap is down" in explain(us, "snapshot", "orders").why
    blocked = await value(us, "geoemu_snapshots_blocked_seconds", remote_cluster="ap")
    assert blocked is not None
    assert blocked > 0
    assert await value(us, "geoemu_snapshots_blocked_seconds", remote_cluster="eu") == 0
    world.start("ap")
    back = loop.time()
    await until(lambda: "ap does not block snapshots any more" in caplog.text)
    await until(lambda: not sync.snapshots.blocked_ms())
    assert loop.time() - back < 2
    assert await rows(us) == []
    assert caplog.text.count("ap blocks snapshots") <= 2, "once in us, and once in eu if it takes snapshots"


async def test_a_short_interruption_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "emulator.broker.subscription.blocked_snapshots")
    blocked = BlockedSnapshots()
    blocked.update("t", {"eu": 0}, 60_000)
    blocked.update("u", {"eu": 0, "ap": 5}, 60_000)
    blocked.update("t", {}, 60_000)
    blocked.update("u", {"ap": 10}, 60_000)
    blocked.update("u", {}, 60_000)
    assert not blocked._timers
    assert not blocked._topics
    assert caplog.text == ""


async def test_several_topics_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "emulator.broker.subscription.blocked_snapshots")
    blocked = BlockedSnapshots()
    for number in range(1_000):
        blocked.update(f"t{number}", {"eu": 10}, 5)
    await until(lambda: "1000 topics" in caplog.text)
    for number in range(1_000):
        blocked.update(f"t{number}", {"eu": 20}, 5)
    for number in range(1_000):
        blocked.update(f"t{number}", {}, 5)
    assert len(caplog.records) == 2


async def test_updates_lag_and_the_bound_of_a_fail_over_are_metrics() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await consumed(us, 10)
        here, there = world.running["us"], world.running["eu"]
        await until(lambda: "s" in there.directory.serving[TOPIC].subscriptions)
        await until(lambda: there.directory.serving[TOPIC].subscriptions["s"].backlog() == 0)
        sync = here.directory.serving[TOPIC].subscriptions.replicated
        assert sync is not None
        replicator = here.directory.serving[TOPIC].replicators["eu"]
        bound = sync.records.redelivered_at_most
        subscription = here.directory.serving[TOPIC].subscriptions["s"]
        await until(lambda: bound(subscription, "eu", replicator.progress.confirmed) == 0)
        to_eu, s = {"remote_cluster": "eu"}, {"subscription": "s"}
        assert (await value(here, "geoemu_subscription_updates_sent_total", **s) or 0) >= 1
        assert (await value(there, "geoemu_subscription_updates_applied_total", **s) or 0) >= 1
        assert await value(here, "geoemu_failover_redelivered_messages", **s, **to_eu) == 0
        assert await value(here, "geoemu_snapshot_age_seconds") is not None
        await until(lambda: replicator.backlog == 0)
        assert await value(here, "geoemu_replication_lag_messages", **to_eu) == 0
        assert await value(here, "geoemu_replication_lag_milliseconds", **to_eu) == 0
        world.cut("us", "eu")
        await until(lambda: not here.peers["eu"].connected)
        producer = await us.producer(TOPIC)
        for _ in range(7):
            await producer.send(b"x")
            await consumer.acknowledge(await asyncio.wait_for(consumer.receive(), 5), confirmed=True)
        assert await value(here, "geoemu_replication_lag_messages", **to_eu) == 7
        assert (await value(here, "geoemu_failover_redelivered_messages", **s, **to_eu) or 0) >= 7
        assert (await value(here, "geoemu_replication_lag_milliseconds", **to_eu) or -1) >= 0
