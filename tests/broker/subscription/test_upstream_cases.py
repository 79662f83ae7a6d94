"""Cases of upstream's tests of replicated subscriptions, and upstream's defects, in running regions; and the list of
all tests for them."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from pathlib import Path

import pytest

from emulator.broker.subscription.snapshots import MarkerWriter, TopicSnapshots
from emulator.client import EARLIEST, InitialPosition
from emulator.core.policies.replicated_subscriptions import SNAPSHOT_SCHEDULE
from emulator.core.replication.progress import ReplicatorState
from emulator.model.stored_keys import NamespacePath
from tests.broker.regions import regions, until
from tests.broker.replication.test_replication import TOPIC, drained
from tests.broker.subscription.test_replicated_status import STATUS as STATUS_OF_S
from tests.broker.subscription.test_replicated_status import ask
from tests.broker.subscription.test_replicated_subscriptions import backlog, consume, no_snapshot_is_due

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

FROM_THE_START = InitialPosition.EARLIEST
TESTS = Path(__file__).parents[2]
CORE = "core/replication/test_snapshots.py"
CACHE = "core/replication/test_subscription_updates.py"
HERE = "broker/subscription/test_upstream_cases.py"
STATUS = "broker/subscription/test_replicated_status.py"
REPLICATED = "broker/subscription/test_replicated_subscriptions.py"
GROWTH = "broker/replication/test_partitions_added.py"
POLICIES = "broker/subscription/test_replication_policies.py"

DEFECTS = {
    "1: the position does not follow while a backlog is left (#10054)": (
        f"{HERE}::test_the_position_follows_while_a_backlog_is_left"
    ),
    "2: an evicting cache loses every usable snapshot (#24300)": (
        f"{CACHE}::test_a_consumer_far_behind_still_reaches_a_snapshot"
    ),
    "3: mark-delete passed the snapshot before it was cached (#16651)": (
        f"{CACHE}::test_a_snapshot_that_arrives_after_everything_was_acknowledged_sends_an_update"
    ),
    "4: markers without traffic (#6437, #11922)": f"{REPLICATED}::test_without_traffic_nothing_is_written",
    "4: markers although nothing is replicated (#21495)": (
        f"{HERE}::test_without_replicated_subscriptions_publishing_costs_nothing"
    ),
    "4: requests to a peer that never responds (#23839)": (
        f"{CORE}::test_a_peer_that_never_responds_gets_one_request_per_growing_timeout"
    ),
    "5: a request from a region without a replicator (#25266)": (
        f"{CORE}::test_a_request_from_a_region_we_do_not_replicate_to_is_ignored"
    ),
    "5: the replicator to the asker is closed (#11382)": f"{HERE}::test_a_request_wakes_a_replicator_that_rests",
    "6: a snapshot counts as complete before it is stored (#26119)": (
        f"{CORE}::test_a_snapshot_whose_marker_is_not_durable_is_not_completed"
    ),
    "7: a deleted subscription returns with the next update (#8066)": (
        f"{HERE}::test_a_deleted_subscription_returns_at_the_position_of_the_next_update"
    ),
    "7: a backward seek stays local": f"{HERE}::test_a_backward_seek_rewinds_no_other_region",
    "8: messages of open transactions are skipped": (
        "broker/transactions/test_across_regions.py::"
        "test_an_update_never_takes_a_cursor_past_an_open_transaction"
    ),
    "8: local messages are skipped": f"{REPLICATED}::test_an_update_leaves_messages_that_never_left_their_region",
    "9: a repeated first response completes the second round": (
        f"{CORE}::test_a_repeated_response_of_the_first_round_never_completes_the_second"
    ),
    "9: regions change between rounds": f"{CORE}::test_a_change_of_regions_aborts_what_is_under_way",
}
"""Defect of upstream -> the test that it does not occur here."""
CASES = {
    "ReplicatedSubscriptionTest.testReplicatedSubscriptionAcrossTwoRegions": (
        f"{HERE}::test_the_other_region_receives_the_other_half"
    ),
    "…AcrossTwoRegionsGetLastMessage": f"{HERE}::test_a_reader_ends_before_trailing_markers",
    "testReplicatedSubscribeAndSwitchToStandbyCluster": f"{HERE}::test_the_position_follows_while_a_backlog_is_left",
    "testReplicationSnapshotStopWhenNoTraffic": f"{CORE}::test_no_traffic_no_snapshots",
    "testReplicatedSubscriptionRestApi1": (
        f"{STATUS}::test_a_subscription_whose_replication_was_disabled_stays_disabled"
    ),
    "testReplicatedSubscriptionRestApi3, ReplicatedSubscriptionConfigTest.testDisableReplicatedSubscriptions": (
        f"{HERE}::test_a_region_that_replicates_no_subscriptions_ignores_clients_and_refuses_administrators"
    ),
    "testReplicatedSubscriptionRestApi2, testGetReplicatedSubscriptionStatus": (
        f"{HERE}::test_each_partition_has_its_status"
    ),
    "testReplicatedSubscriptionWhenReplicatorProducerIsClosed": (
        f"{HERE}::test_a_request_wakes_a_replicator_that_rests"
    ),
    "testWriteMarkerTaskOfReplicateSubscriptions": (
        f"{STATUS}::test_a_subscription_without_replication_writes_no_markers"
    ),
    "testReplicatedSubscriptionWithCompaction": (
        "broker/compaction/test_compaction.py::"
        "test_a_log_with_markers_of_replicated_subscriptions_is_compacted"
    ),
    "testReplicatedSubscriptionOneWay": (
        f"{CORE}::test_a_peer_that_never_responds_gets_one_request_per_growing_timeout"
    ),
    "TransactionalReplicateSubscriptionTest": (
        "broker/transactions/test_across_regions.py::"
        "test_an_update_never_takes_a_cursor_past_an_open_transaction"
    ),
    "SnapshotBuilderTest.testBuildSnapshotWith2Clusters": f"{CORE}::test_two_regions_need_one_round",
    "…With3Clusters": f"{CORE}::test_three_regions_need_two_rounds_and_keep_the_positions_of_the_first",
    "…testBuildTimeout": f"{CORE}::test_a_snapshot_times_out_only_after_the_configured_time",
    "SnapshotCacheTest.testSnapshotCache": (
        f"{CACHE}::test_the_newest_snapshot_that_was_reached_is_taken_with_all_older_ones"
    ),
    "…Pruning": f"{CACHE}::test_a_full_cache_drops_the_one_whose_neighbours_are_closest_together",
    "…KeepingEqualDistance": f"{CACHE}::test_snapshots_stay_spread_over_a_long_backlog",
    "…StressTest": f"{CACHE}::test_first_and_last_are_never_dropped",
    "ControllerTest.testSnapshotRequestWhenReplicatorRemovedConcurrentlyDoesNotThrow": (
        f"{CORE}::test_a_request_from_a_region_we_do_not_replicate_to_is_ignored"
    ),
    "ReplicatedSubscriptionConfigTest": f"{POLICIES}::test_every_durable_subscription_is_replicated_by_policy",
    "ReplicatorTest.testIncrementPartitionsOfTopicWithReplicatedSubscription": f"{GROWTH}::"
    "test_a_consumer_that_fails_over_after_a_growth_receives_every_message_of_the_new_partitions",
    "regression with #26119": f"{CORE}::test_a_snapshot_whose_marker_is_not_durable_is_not_completed",
}
"""Test of upstream -> the test of the same case here."""


@pytest.mark.parametrize(("case", "test"), [*DEFECTS.items(), *CASES.items()])
def test_every_case_of_upstream_has_a_test(case: str, test: str) -> None:
    path, _, name = test.partition("::")
    module = ast.parse((TESTS / path).read_text())
    functions = [one.name for one in module.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert name in functions, case


def test_every_listed_defect_of_upstream_has_a_test() -> None:
    assert {defect.partition(":")[0] for defect in DEFECTS} == {str(number) for number in range(1, 10)}


async def test_the_other_region_receives_the_other_half() -> None:
    """6 messages, 3 acknowledged here: the other region delivers exactly the other 3."""
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        for number in range(3):
            await producer.send(b"%d" % number)
        await consume(consumer, 3)
        await until(lambda: backlog(world, "eu") == 0)
        for number in range(3, 6):
            await producer.send(b"%d" % number)
        await consumer.close()
        other = await eu.subscribe(TOPIC, "s", replicated=True)
        assert await consume(other, 3) == [b"3", b"4", b"5"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(other.receive(), 0.2)


async def test_the_position_follows_while_a_backlog_is_left() -> None:
    """Half of the messages are acknowledged, and the rest waits: not everything is redelivered."""
    async with regions("us", "eu", snapshot_interval_ms=20) as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        sync = world.running["us"].directory.serving[TOPIC].subscriptions.replicated
        assert sync is not None
        counters = sync.snapshots.controller.counters
        for _ in range(10):
            completed = counters.completed
            await producer.send(b"x")
            await until(lambda completed=completed: counters.completed > completed)
        await consume(consumer, 5)
        await until(lambda: backlog(world, "eu") == 5)


async def test_a_reader_ends_before_trailing_markers() -> None:
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        for number in range(6):
            await producer.send(b"%d" % number)
        await consume(consumer, 6)
        await until(lambda: backlog(world, "eu") == 0 and drained(world))
        reader = await eu.reader(TOPIC, EARLIEST)
        assert await reader.has_message()
        last = await reader.last_message_id()
        messages = [await asyncio.wait_for(reader.receive(), 5) for _ in range(6)]
        assert [message.payload for message in messages] == [b"%d" % number for number in range(6)]
        assert not await reader.has_message()
        assert last == messages[-1].id, "a marker would make clients wait for a message that never arrives"


async def test_a_deleted_subscription_returns_at_the_position_of_the_next_update() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"0")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)
        await world.running["eu"].directory.serving[TOPIC].subscriptions["s"].delete()
        assert backlog(world, "eu") is None
        await producer.send(b"1")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)


async def test_a_backward_seek_rewinds_no_other_region() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"0")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)
        await consumer.seek(EARLIEST)
        assert await consume(consumer, 1) == [b"0"]
        await producer.send(b"1")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0 and backlog(world, "us") == 0)


async def test_a_request_wakes_a_replicator_that_rests() -> None:
    """The replicator from eu to us is inactive; its response is required for the snapshot of us."""
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"0")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0 and drained(world) and no_snapshot_is_due(world))
        replicator = world.running["eu"].directory.serving[TOPIC].replicators["us"]
        replicator.rest()
        assert replicator.lifecycle.state is ReplicatorState.RESTING
        await producer.send(b"1")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)


async def test_each_partition_has_its_status() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        names = [f"{TOPIC}-partition-{index}" for index in range(2)]
        for name in names:
            await us.subscribe(name, "s", initial_position=FROM_THE_START, replicated=True)
        serving = world.running["us"].directory.serving
        subscriptions = serving[names[1]].subscriptions
        subscriptions.disable_replication(subscriptions["s"])
        assert [serving[name].subscriptions["s"].cursor.replicated for name in names] == [True, False]


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of the calls of snapshots and of written markers."""
    calls: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def counting(self: object, *args: object) -> object:
            calls[name] += 1
            return original(self, *args)

        monkeypatch.setattr(owner, name, counting)

    for name in ("_tick", "_set_timer"):
        count(TopicSnapshots, name)
    count(MarkerWriter, "write")
    return calls


@pytest.mark.parametrize("schedule", ["periodic", "adaptive"])
async def test_without_replicated_subscriptions_publishing_costs_nothing(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No marker, no timer, no check of what subscriptions would gain: whatever the schedule."""
    async with regions("us", "eu") as world, world.client("us") as us:
        await world.running["us"].policies.set(NamespacePath("public/default"), SNAPSHOT_SCHEDULE, schedule)
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        calls = counted(monkeypatch)
        for _ in range(50):
            await producer.send(b"x")
        await consume(consumer, 50)
        await until(lambda: drained(world))
        assert dict(calls) == {}
        for region in world.running.values():
            topic = region.directory.serving[TOPIC]
            assert topic.state.stored_end == 50
            assert topic.subscriptions.replicated is not None
            assert topic.subscriptions.replicated.snapshots._timer is None


async def test_a_region_that_replicates_no_subscriptions_ignores_clients_and_refuses_administrators() -> None:
    """Its log gets no marker of its own, and it does not respond to those of other regions."""
    off = {"eu": {"replicated_subscriptions": False, "replicate_subscription_state": True}}
    async with (
        regions("us", "eu", of_region=off) as world,
        world.client("us") as us,
        world.client("eu") as eu,
    ):
        consumer = await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        await (await eu.producer(TOPIC)).send(b"0")
        await consume(consumer, 1)
        there = world.running["eu"].directory.serving[TOPIC]
        assert not there.subscriptions["s"].cursor.replicated
        refused = await ask(world, "eu", "POST", STATUS_OF_S, True)
        assert refused.status == 405
        assert b"eu does not replicate subscriptions: replicated_subscriptions is off" in refused.body
        creation = "/admin/v2/persistent/public/default/orders/subscription/t?replicated=true"
        assert (await ask(world, "eu", "PUT", creation)).status == 405
        assert list(there.subscriptions) == ["s"]
        replicated = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        await (await us.producer(TOPIC)).send(b"1")
        await consume(replicated, 2)
        await until(lambda: there.state.readable_end >= 3)  # both messages and a request of us
        entries = await there.reading.read(0, 1_000, 10_000_000)
        assert [
            entry.info.marker_type for entry in entries if entry.hidden and entry.info.replicated_from is None
        ] == []
        here = world.running["us"].directory.serving[TOPIC].subscriptions.replicated
        assert here is not None
        assert here.snapshots.controller.last_completed is None
