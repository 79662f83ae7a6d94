"""The users of a region decide whether a subscription is replicated; an update from another region may enable it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from emulator.broker.admin.server import Admin
from emulator.broker.explain.topics import explain
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.topic import Topic
from emulator.client import EARLIEST, Client
from emulator.core.replication.subscription_updates import update_for
from emulator.model.explanations import Explanation, with_conflicts
from emulator.model.markers import SubscriptionUpdate
from emulator.model.values import Position
from emulator.runtimes.admin_client import HttpResponse, call_url
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.markers import encode_marker
from tests.broker.connection.raw import raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.replication.test_replication import TOPIC, drained
from tests.broker.subscription.test_replicated_subscriptions import FROM_THE_START, backlog, consume

STATUS = "/admin/v2/persistent/public/default/orders/subscription/s/replicatedSubscriptionStatus"


def topic(world: Regions, region: str) -> Topic:
    return world.running[region].directory.serving[TOPIC]


def subscription(world: Regions, region: str, name: str = "s") -> Subscription:
    return topic(world, region).subscriptions[name]


def is_replicated(world: Regions, region: str, name: str = "s") -> bool:
    return subscription(world, region, name).cursor.replicated


def refused(world: Regions, region: str) -> int:
    """Return the number of updates that the region did not apply."""
    sync = topic(world, region).subscriptions.replicated
    assert sync is not None
    return int(sync.summary()["updates_not_applied"])


async def ask(world: Regions, region: str, method: str, target: str, body: Any = None) -> HttpResponse:
    admin = Admin(world.running[region], {})
    port = await admin.start()
    try:
        return await call_url(f"http://127.0.0.1:{port}", method, target, body)
    finally:
        admin.close()


async def switch(world: Regions, region: str, on: bool, target: str = STATUS) -> None:
    """Set the status as an administrator of the region does."""
    assert (await ask(world, region, "POST", target, on)).status == 204


async def begun(world: Regions, us: Client, *others: str) -> None:
    """Subscription `s` is replicated in us, and exists at the first message in the other regions."""
    await (await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)).close()
    for other in others:
        client = world.client(other)
        await client.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        await client.close()


async def consume_in(client: Client, count: int = 3) -> None:
    """Publish and acknowledge."""
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
    for _ in range(count):
        await producer.send(b"x")
    await consume(consumer, count)
    await producer.close()
    await consumer.close()


async def idle(world: Regions) -> None:
    """Everything is replicated, and `us` takes no snapshot."""
    sync = topic(world, "us").subscriptions.replicated
    assert sync is not None
    await until(lambda: drained(world) and sync.snapshots._timer is None)


@contextlib.asynccontextmanager
async def conflicting() -> AsyncIterator[Regions]:
    """The positions of `us` are not applied in eu, where `s` is not replicated."""
    async with regions("us", "eu") as world, world.client("us") as us:
        await begun(world, us, "eu")
        await consume_in(us)
        await until(lambda: refused(world, "eu") >= 1 and drained(world))
        yield world


@contextlib.asynccontextmanager
async def local_beside_replicated(*others: str) -> AsyncIterator[Regions]:
    """In `us` two subscriptions consumed five messages: `other` is replicated to eu, `s` is not replicated."""
    async with regions("us", "eu", *others) as world, world.client("us") as us:
        other = await us.subscribe(TOPIC, "other", initial_position=FROM_THE_START, replicated=True)
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        for _ in range(5):
            await producer.send(b"x")
        await consume(other, 5)
        await consume(consumer, 5)
        await until(lambda: backlog(world, "eu", "other") == 0)
        await idle(world)
        yield world


async def test_an_update_neither_moves_nor_replicates_a_subscription_that_is_not_replicated() -> None:
    """A local subscription of another region that happens to have the same name stays local."""
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        local = await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        for number in range(3):
            await producer.send(b"%d" % number)
        await consume(consumer, 3)
        await until(lambda: refused(world, "eu") >= 1)
        assert not is_replicated(world, "eu")
        assert backlog(world, "eu") == 3
        assert await consume(local, 3) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("names", [("us", "eu"), ("us", "eu", "ap")], ids=["two regions", "three regions"])
async def test_a_subscription_whose_replication_was_disabled_stays_disabled(names: tuple[str, ...]) -> None:
    """Across updates, a restart, a kill, and consumers that ask for replication when they connect again."""
    async with regions(*names) as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"0")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)
        assert is_replicated(world, "eu")
        await switch(world, "eu", False)
        for again in ("update", "restart", "kill"):
            if again == "restart":
                await world.stop("eu")
                await world.start("eu")
            elif again == "kill":
                await world.crash("eu")
                await world.start("eu")
            await until(lambda: TOPIC in world.running["eu"].directory.serving)
            before = refused(world, "eu")
            await producer.send(again.encode())
            await consume(consumer, 1)
            await until(lambda before=before: refused(world, "eu") > before)  # type: ignore[misc]
            assert not is_replicated(world, "eu"), again
        assert backlog(world, "eu") == 3
        async with world.client("eu") as eu:
            moved = await eu.subscribe(TOPIC, "s", replicated=True)
            assert not is_replicated(world, "eu")
            assert await consume(moved, 3) == [b"update", b"restart", b"kill"]
        if "ap" in names:
            assert is_replicated(world, "ap")
            await until(lambda: backlog(world, "ap") == 0)


async def test_disabled_replication_is_not_enabled_by_a_deletion_elsewhere() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"0")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0 and backlog(world, "ap") == 0)
        await switch(world, "eu", False)
        await consumer.unsubscribe()
        async with world.client("ap") as ap:
            on = await ap.subscribe(TOPIC, "s", replicated=True)
            await producer.send(b"1")
            await consume(on, 1)
            await until(lambda: "s" in topic(world, "us").subscriptions and backlog(world, "us") == 0)
            assert is_replicated(world, "us")
            await until(lambda: refused(world, "eu") >= 1)
            assert not is_replicated(world, "eu")
            assert backlog(world, "eu") == 1


async def test_an_update_decided_before_replication_was_disabled_is_not_written() -> None:
    """The update waits until the cursor is durable; meanwhile the subscription is turned off."""
    async with conflicting() as world:
        here = topic(world, "us")
        sync, one = here.subscriptions.replicated, here.subscriptions["s"]
        assert sync is not None
        snapshot = sync.snapshots.controller.last_completed
        assert snapshot is not None
        update = update_for("s", snapshot.snapshot)
        writing = sync._send_when_durable(one, sync._machines["s"], update)
        here.subscriptions.disable_replication(one)
        before = here.state.readable_end
        await writing
        await here.issued_so_far()
        assert here.state.readable_end == before


async def test_a_subscription_without_replication_writes_no_markers() -> None:
    """The last replicated one was turned off while messages arrive."""
    async with regions("us", "eu", snapshot_interval_ms=10) as world, world.client("us") as us:
        await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        sync = topic(world, "us").subscriptions.replicated
        assert sync is not None
        while sync.snapshots.controller.counters.started < 2:
            await producer.send(b"x")
        await switch(world, "us", False)
        started = sync.snapshots.controller.counters.started
        assert not sync.snapshots.controller.pending
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while loop.time() < begin + 0.1:
            await producer.send(b"x")
        assert sync.snapshots.controller.counters.started == started


# Turned on.


async def test_a_subscription_enabled_in_an_idle_topic_is_replicated() -> None:
    """The last completed snapshot is still valid, and another subscription has used it."""
    async with local_beside_replicated() as world:
        await switch(world, "us", True)
        await until(lambda: backlog(world, "eu") == 0)
        assert is_replicated(world, "eu")


async def test_a_subscription_without_consumers_is_replicated_past_trailing_markers() -> None:
    """The markers were written after its last consumer left, and the snapshot is among them."""
    async with regions("us", "eu") as world, world.client("us") as us:
        await (await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)).close()
        await consume_in(us)
        other = await us.subscribe(TOPIC, "other", initial_position=FROM_THE_START, replicated=True)
        await consume(other, 3)
        await until(lambda: backlog(world, "eu", "other") == 0)
        await idle(world)
        await switch(world, "us", True)
        await until(lambda: backlog(world, "eu") == 0)


async def test_a_position_in_the_middle_is_replicated() -> None:
    """Uses the snapshots that were completed while it was not replicated."""
    async with regions("us", "eu") as world, world.client("us") as us:
        other = await us.subscribe(TOPIC, "other", initial_position=FROM_THE_START, replicated=True)
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        for _ in range(3):
            for _ in range(5):
                await producer.send(b"x")
            await consume(other, 5)
            await until(lambda: backlog(world, "eu", "other") == 0)
            await idle(world)
        await consume(consumer, 11)
        await switch(world, "us", True)
        await until(lambda: backlog(world, "eu") is not None and backlog(world, "eu") <= 5)  # type: ignore[operator]


async def test_after_a_restart_the_snapshots_in_the_log_are_still_used() -> None:
    """A third region is gone, so no new snapshot can be completed."""
    async with local_beside_replicated("ap") as world:
        await world.crash("ap")
        await world.stop("us")
        await world.start("us")
        await until(lambda: TOPIC in world.running["us"].directory.serving)
        await switch(world, "us", True)
        await until(lambda: backlog(world, "eu") == 0)


@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "after a restart"])
async def test_an_enabled_subscription_applies_the_positions_that_it_refused(restarts: bool) -> None:
    """The other region sent its position once, and has no newer one to send."""
    async with conflicting() as world:
        await idle(world)
        if restarts:
            await world.stop("eu")
            await world.start("eu")
            await until(lambda: TOPIC in world.running["eu"].directory.serving)
        assert backlog(world, "eu") == 3
        await switch(world, "eu", True)
        await until(lambda: backlog(world, "eu") == 0)


async def test_a_position_refused_before_a_seek_is_not_applied() -> None:
    """The users of the region have since chosen another position."""
    async with conflicting() as world:
        await idle(world)
        await subscription(world, "eu").seek(1)
        await switch(world, "eu", True)
        assert not subscription(world, "eu").cursor.unapplied
        assert backlog(world, "eu") == 2


async def test_an_update_that_is_not_applied_stores_at_most_the_known_regions() -> None:
    """A remote region may name as many as fit into an entry."""
    async with conflicting() as world:
        there = topic(world, "eu")
        assert there.subscriptions.replicated is not None
        invented = [(f"region-{number}", Position(1, 1)) for number in range(10_000)]
        update = SubscriptionUpdate("s", (("eu", there.reading.last_position), *invented))
        data, info = encode_marker(update, 0)
        there.subscriptions.replicated.received.stored(StoredEntry(9, data, info), update, "us", None)
        (unapplied,) = subscription(world, "eu").cursor.unapplied.values()
        assert unapplied == (there.reading.last_position.entry, ("eu",))
        assert backlog(world, "eu") == 3


# Not durable.


async def test_a_non_durable_consumer_cannot_enable_replication() -> None:
    async with regions("us", "eu") as world, raw_client(world) as us:
        refusal = await us.subscribe(topic="orders", durable=False, replicate_subscription_state=True)
        assert refusal.error.error == pb.NotAllowedError
        assert "is not durable; only durable subscriptions can be replicated" in refusal.error.message
        assert TOPIC not in world.running["us"].directory.serving


async def test_a_readers_subscription_is_not_replicated_over_http() -> None:
    """No other region creates it, where it would stay for ever."""
    async with regions("us", "eu") as world, world.client("us") as us:
        reader = await us.reader(TOPIC, EARLIEST)
        (name,) = topic(world, "us").subscriptions
        target = STATUS.replace("/s/", f"/{name}/")
        answer = await ask(world, "us", "POST", target, True)
        assert (answer.status, "not durable" in answer.json()["reason"]) == (405, True)
        assert (await ask(world, "us", "POST", target, False)).status == 204
        producer = await us.producer(TOPIC)
        await producer.send(b"x")
        await reader.receive()
        assert not is_replicated(world, "us", name)


@pytest.mark.parametrize("choice", ["proposal", "upstream"])
async def test_an_update_leaves_a_readers_subscription_alone(choice: str) -> None:
    chosen = {"replicated_subscription_status": choice}
    async with (
        regions("us", "eu", compatibility=chosen) as world,
        raw_client(world) as reader,
        world.client("eu") as eu,
    ):
        earliest = pb.CommandSubscribe.Earliest
        await reader.subscribe(topic="orders", subscription="s", durable=False, initialPosition=earliest)
        on = await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        await on.close()
        await consume_in(eu)
        await until(lambda: refused(world, "us") >= 1)
        assert not is_replicated(world, "us")
        assert backlog(world, "us") == 3


# Upstream's rule.


async def test_with_the_upstream_rule_the_position_is_applied_and_the_status_unchanged() -> None:
    chosen = {"replicated_subscription_status": "upstream"}
    async with regions("us", "eu", compatibility=chosen) as world, world.client("us") as us:
        await begun(world, us, "eu")
        await consume_in(us)
        await until(lambda: backlog(world, "eu") == 0)
        assert not is_replicated(world, "eu")
        await switch(world, "us", False)
        await us.subscribe(TOPIC, "s", replicated=True)
        assert is_replicated(world, "us")


# Explanations and stats.


def explained(world: Regions) -> dict[str, Explanation]:
    """By region, as `geoemu explain subscription orders s` shows it."""
    said = [explain(region, "subscription", "orders s") for region in world.running.values()]
    return {one.region: one for one in with_conflicts(said)}


async def test_a_conflict_is_explained_on_both_sides_until_it_ends() -> None:
    """Also while the link is down: the conflict is read from the regions, not from the link."""
    async with regions("us", "eu") as world, world.client("us") as us:
        await begun(world, us, "eu")
        before = explained(world)
        assert "eu does not apply its positions: the subscription is not replicated in eu" in before["us"].why
        assert before["eu"].why.startswith("positions of us are not applied here")
        await consume_in(us)
        await until(lambda: refused(world, "eu") >= 1)
        world.cut("us", "eu")
        after = explained(world)
        assert "eu does not apply its positions" in after["us"].why
        assert after["us"].waits_for[-1] == "replication of the subscription to be turned on in eu"
        assert after["eu"].why.count("positions of us are not applied here") == 1
        alone = explain(world.running["eu"], "subscription", "orders s")
        assert "positions of us are not applied here" in alone.why
        world.heal("us", "eu")
        await switch(world, "eu", True)
        assert not any("appl" in one.why for one in explained(world).values())


async def test_a_subscription_that_no_other_region_has_is_no_conflict() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        await begun(world, us, "eu")
        await world.crash("ap")
        said = explained(world)
        assert said["us"].why.count("does not apply") == 1
        assert said["eu"].why.count("are not applied here") == 1
        assert len(set(said["eu"].waits_for)) == len(said["eu"].waits_for)


async def test_the_region_that_does_not_apply_updates_reports_the_conflict() -> None:
    async with conflicting() as world:
        target = "/geoemu/v1/replication-conflicts"
        assert (await ask(world, "us", "GET", target)).json() == []
        (conflict,) = (await ask(world, "eu", "GET", target)).json()
        assert conflict == {"topic": TOPIC, "subscription": "s", "source": "us", "region": "eu"}
        (row,) = (await ask(world, "eu", "GET", "/geoemu/v1/topics")).json()
        assert row["subscriptions"]["s"]["not_applied"].keys() == {"us"}
        assert row["snapshots"]["updates_not_applied"] >= 1
        assert await metric(world, "eu", "geoemu_subscription_updates_not_applied_total") >= 1
        await switch(world, "eu", True)
        assert (await ask(world, "eu", "GET", target)).json() == []


async def metric(world: Regions, region: str, name: str, label: str = "") -> float:
    """Return the sum of a metric's series that contain `label`; -1 without any."""
    text = (await ask(world, region, "GET", "/metrics")).body.decode()
    found = [line for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return sum(float(line.rpartition(" ")[2]) for line in found) if found else -1


async def rises(world: Regions, region: str, name: str, label: str = "", over: float = 0) -> None:
    async with asyncio.timeout(10):
        while await metric(world, region, name, label) <= over:
            pass


async def test_metrics_count_snapshots_when_a_third_region_does_not_answer() -> None:
    """First it does not respond, and then it is dead."""
    async with regions("us", "eu", "ap", snapshot_timeout_ms=100) as world, world.client("us") as us:
        await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"x")
        await rises(world, "us", "geoemu_snapshots_completed_total")
        assert await metric(world, "us", "geoemu_snapshots_aborted_total") == 0
        assert await metric(world, "us", "geoemu_snapshots_superseded_total") == 0
        timed_out = "pulsar_replicated_subscriptions_timedout_snapshots_total"
        before = await metric(world, "us", timed_out)
        started = await metric(world, "us", "geoemu_snapshots_started_total")
        world.cut("us", "ap", "held")
        await producer.send(b"x")
        await rises(world, "us", "geoemu_snapshots_started_total", over=started)
        await rises(world, "us", timed_out, over=before)
        while await metric(world, "us", "pulsar_replicated_subscriptions_pending_snapshots") < 1:
            await producer.send(b"x")
        await switch(world, "us", False)
        assert await metric(world, "us", "geoemu_snapshots_aborted_total") >= 1
        await switch(world, "us", True)
        await world.crash("ap")
        await producer.send(b"x")
        await rises(world, "us", "geoemu_snapshots_skipped_total", 'reason="disconnected"')
