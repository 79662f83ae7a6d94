"""`geoemu simulate partition-growth`: topics whose partitions grow. Tests the checks of its programs, and that the runs
contain everything that they check. tests/swarm/test_mutants.py tests which defects the checks detect."""

from __future__ import annotations

from tests.swarm.faults import ClockJump, KillClient, PauseClient
from tests.swarm.generator.kinds import draw
from tests.swarm.runner import run_seed
from tests.swarm.workloads.partition_growth import growth
from tests.swarm.workloads.partition_growth.environment import LIST, ONE, PARTITIONS, PATTERN
from tests.swarm.workloads.partition_growth.ledger import Ledger, Published, Standing
from tests.swarm.workloads.partition_growth.producers import java_hash
from tests.swarm.workloads.partition_growth.program import PartitionGrowthProgram

NAME = growth.WORKLOAD.name
BASE = "persistent://public/default/orders"
FIRST, SECOND = f"{BASE}-partition-0", f"{BASE}-partition-1"


def ledger(*, since: float | None = 1.0, in_order: bool = True) -> Ledger:
    """Return a ledger with one subscription of the partitions."""
    made = Ledger()
    made.standing["billing"] = Standing(lambda topic: topic.startswith(f"{BASE}-partition-"), in_order, since)
    return made


def publish(
    into: Ledger,
    number: int,
    *,
    topic: str = FIRST,
    key: str = "k",
    value: bytes = b"v",
    at: float = 2.0,
    taken: bool = True,
) -> None:
    into.sent["w", number] = Published(topic, "w", number, key, value, at)
    if taken:
        into.taken.add(("w", number))


def give(into: Ledger, number: int, *, topic: str = FIRST, key: str = "k") -> None:
    into.standing["billing"].give(topic, "w", number, key)


def test_a_subscription_must_receive_messages_acknowledged_after_its_creation() -> None:
    reported = ledger()
    publish(reported, 0, at=0.5)
    publish(reported, 1, taken=False)
    publish(reported, 2, topic=f"{BASE}x")
    publish(reported, 3)
    assert [one.number for one in reported.missing("billing")] == [3]
    assert not reported.is_given
    give(reported, 3)
    assert reported.is_given
    assert list(reported.lost()) == []


def test_a_subscription_need_not_receive_messages_of_an_earlier_incarnation_of_a_topic() -> None:
    reported = ledger(since=None)
    publish(reported, 0)
    assert reported.is_given
    reported = ledger()
    publish(reported, 0)
    publish(reported, 1, at=4.0)
    reported.deleted[FIRST] = 3.0
    assert [one.number for one in reported.missing("billing")] == [1]


def test_what_was_given_from_another_partition_is_not_what_was_published() -> None:
    reported = ledger()
    publish(reported, 0)
    give(reported, 0, topic=SECOND)
    assert "was sent to w/0" in next(reported.strangers())
    assert [one.number for one in reported.missing("billing")] == [0]


def test_messages_of_another_topic_and_messages_that_no_client_sent_are_violations() -> None:
    reported = ledger()
    publish(reported, 0, topic=f"{BASE}x")
    give(reported, 0, topic=f"{BASE}x")
    give(reported, 1)
    assert [sentence.split(" received ")[1][:3] for sentence in reported.strangers()] == ["w/0", "w/1"]


def test_a_key_keeps_its_order_within_a_partition_and_a_second_time_is_no_disorder() -> None:
    reported = ledger()
    for number in (0, 1, 0, 2):
        give(reported, number)
    give(reported, 5, topic=SECOND)
    give(reported, 4, key="other")
    assert list(reported.disorder()) == []
    give(reported, 8)
    give(reported, 7)
    assert len(list(reported.disorder())) == 1


def test_a_shared_subscription_promises_no_order() -> None:
    reported = ledger(in_order=False)
    for number in (1, 0):
        give(reported, number)
    assert list(reported.disorder()) == []


def test_a_table_agrees_with_the_newest_value_or_with_none_where_the_key_was_taken_out() -> None:
    reported = ledger()
    publish(reported, 0, value=b"old")
    publish(reported, 1, value=b"new")
    publish(reported, 2, key="gone", value=b"there")
    publish(reported, 3, key="gone", value=b"")
    assert reported.disagreement(BASE, {"k": b"new"}) == ""
    assert "has b'old' for k" in reported.disagreement(BASE, {"k": b"old"})
    assert "has b'there' for gone" in reported.disagreement(BASE, {"k": b"new", "gone": b"there"})


def test_the_newest_value_of_a_key_that_moved_or_was_not_acknowledged_is_unknown() -> None:
    reported = ledger()
    publish(reported, 0, value=b"before")
    publish(reported, 1, topic=SECOND, value=b"after")
    publish(reported, 2, key="unsure", taken=False)
    assert reported.disagreement(BASE, {"k": b"before"}) == reported.disagreement(BASE, {"k": b"after"}) == ""
    assert reported.disagreement(BASE, {"k": b"another"})


def test_keys_are_hashed_as_java_hashes_them() -> None:
    """`"polygenelubricants".hashCode()` is the smallest int; without its sign it is 0."""
    assert [java_hash(key) for key in ("", "a", "ac", "polygenelubricants")] == [0, 97, 3_106, 0]


def test_every_program_reports_that_it_completed() -> None:
    """Every program reports its result: no check detects a program that is still waiting."""
    for seed in range(1, 6):
        outcome = run_seed(NAME, seed)
        assert outcome.violation is None, (seed, outcome.violation)
        said = [
            operation.outcome
            for operation in outcome.operations
            if operation.workload == growth.WORKLOAD.seed_name
        ]
        assert said == ["accepted"] * len(outcome.plan.acts), (seed, said)


def test_runs_contain_everything_that_is_checked() -> None:
    plans = [draw(NAME, seed) for seed in range(60)]
    acts = [act for plan in plans for act in plan.acts if isinstance(act, PartitionGrowthProgram)]
    assert all(act.growth for act in acts)
    readings = [one for act in acts for one in act.readings]
    assert {one.of for one in readings} == {PARTITIONS, LIST, PATTERN, ONE}
    assert {one.type_ for one in readings} == {"EXCLUSIVE", "SHARED", "FAILOVER"}
    assert any(one.away for one in readings)
    assert any(one.paused_seconds for one in readings)
    assert any(not one.queue for one in readings)
    assert any(act.remakings for act in acts)
    assert any(act.keeps_table for act in acts)
    assert any(len(plan.topology.clusters) > 1 for plan in plans)
    assert {fault.op for plan in plans for fault in plan.faults} >= {"kill", "cut", "pause"}
    assert not any(
        isinstance(fault, ClockJump | KillClient | PauseClient) for plan in plans for fault in plan.faults
    )
