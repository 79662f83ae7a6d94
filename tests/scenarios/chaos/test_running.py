"""Random faults on a run whose clients are the user's programs: preconditions, and the wait for replication."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.errors import Refused
from emulator.run.history_events import read_events
from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.chaos.execution import ChaosResult
from emulator.scenarios.chaos.plan import plan_chaos
from emulator.scenarios.chaos.running import disturb_run
from emulator.scenarios.region_queries import TopicStatus
from tests.scenarios.virtual import ORDERS, TOPOLOGY, PretendedRuntime, in_virtual_time, now

PLAN = plan_chaos(TOPOLOGY, 3, "harsh", 30)


def disturb(runtime: PretendedRuntime, backlog_at: Callable[[float], int]) -> ChaosResult:
    """Run the plan on regions whose topic has `backlog_at(seconds)` entries to replicate and grows by ten a second."""

    async def read_topics(region: RegionStatus) -> list[TopicStatus]:
        peers = [name for name in runtime.states if name != region.name]
        backlog = backlog_at(now())
        return [TopicStatus(ORDERS, dict.fromkeys(peers, backlog), {}, {}, last_entry=int(now() * 10))]

    work = disturb_run(runtime, PLAN, ChaosControl(), 20, read_topics)
    return in_virtual_time(work)


def test_replication_has_caught_up_when_every_backlog_is_newer_than_the_faults(tmp_path: Path) -> None:
    runtime = PretendedRuntime(tmp_path)
    result = disturb(runtime, lambda seconds: 20)
    assert result.failures == ()
    assert result.begun == len(PLAN.faults)
    facts = list(read_events(tmp_path / "history" / "chaos.jsonl"))
    assert {"kill", "skew"} <= {fact.op for fact in facts}
    assert not [fact for fact in facts if fact.error]


def test_a_backlog_from_before_is_reported_and_makes_the_verdict_unknown(tmp_path: Path) -> None:
    result = disturb(PretendedRuntime(tmp_path), lambda seconds: 1000)
    assert len(result.failures) == 1
    assert "1000 entries" in result.failures[0]
    assert "within 20 s" in result.failures[0]
    (failed,) = (fact for fact in read_events(tmp_path / "history" / "chaos.jsonl") if fact.op == "step")
    assert failed.error == result.failures[0]


def test_a_region_that_does_not_run_is_named_before_anything_happens(tmp_path: Path) -> None:
    runtime = PretendedRuntime(tmp_path)
    runtime.states["us-west"] = "paused"
    with pytest.raises(Refused, match=r"us-west is paused: .*`geoemu resume us-west`"):
        disturb(runtime, lambda seconds: 0)
    assert runtime.requests == []
    assert not (tmp_path / "history").exists()
