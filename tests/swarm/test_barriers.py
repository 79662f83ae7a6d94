"""Faults that begin when a region has reached a state of a protocol."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from emulator.model.protocol_events import PROTOCOL_EVENTS
from tests.swarm.faults import AtState, Kill
from tests.swarm.generator.kinds import draw
from tests.swarm.plan import Plan, with_settings
from tests.swarm.runner import Outcome, run_plan, run_seed

pytestmark = pytest.mark.long


@cache
def killed_at(event: str, count: int) -> Outcome:
    """Run three regions, the first of which is killed at a state for half a second."""
    plan: Plan = draw("failover", 1)
    first = plan.regions[0]
    consumers = tuple(replace(one, replicated=True, region=first, moves=()) for one in plan.consumers[:1])
    fault = AtState(0.0, 0.5, first, event, count, Kill(0.0, 0.5, first))
    topology = with_settings(plan.topology, snapshot_interval_ms=200)
    return run_plan(
        replace(plan, topology=topology, consumers=consumers, readers=(), faults=(fault,), break_seconds=6.0)
    )


def facts_of(outcome: Outcome) -> list[tuple[float, str, str | None]]:
    return [(one.at_ms, one.op, one.detail) for one in outcome.events if one.outcome == "fact"]


@pytest.mark.parametrize("event", ["snapshot_started", "snapshot_response", "snapshot_round", "update_sent"])
def test_a_region_is_killed_at_the_moment_of_its_state(event: str) -> None:
    outcome = killed_at(event, 2)
    assert outcome.violation is None
    assert outcome.reached == [event]
    facts = facts_of(outcome)
    (state,) = [
        index for index, (_, op, detail) in enumerate(facts) if op == "step" and "has counted" in str(detail)
    ]
    killed_ms, op, _ = facts[state + 1]
    assert op == "kill"
    assert killed_ms == facts[state][0], "no time is between the event and the fault"
    assert [op for _, op, _ in facts].count("start") == 1


def test_the_same_seed_with_a_state_is_the_same_run() -> None:
    assert killed_at("update_sent", 2).digest == killed_at.__wrapped__("update_sent", 2).digest


def test_a_state_that_is_not_reached_begins_no_fault() -> None:
    outcome = killed_at("takeover", 1)
    assert outcome.violation is None
    assert outcome.reached == []
    assert not any(op == "kill" for _, op, _ in facts_of(outcome))


def test_a_wait_continues_after_a_restart_and_counts_from_zero() -> None:
    plan = draw("failover", 1)
    first = plan.regions[0]
    waiting = AtState(0.0, 0.5, first, "snapshot_started", 3, Kill(0.0, 0.5, first))
    topology = with_settings(plan.topology, snapshot_interval_ms=200)
    before = AtState(0.0, 0.3, first, "snapshot_started", 2, Kill(0.0, 0.3, first))
    outcome = run_plan(replace(plan, topology=topology, faults=(before, waiting), break_seconds=10.0))
    assert outcome.violation is None
    assert [detail for _, op, detail in facts_of(outcome) if op == "step" and "counted" in str(detail)] == [
        f"{first} has counted 2 more snapshot_started",
        f"{first} has counted 3 more snapshot_started",
    ]


def test_seeds_draw_states_of_all_protocols() -> None:
    plans = [draw("barriers", seed) for seed in range(60)]
    faults = [fault for plan in plans for fault in plan.faults if isinstance(fault, AtState)]
    assert {fault.event for fault in faults} == PROTOCOL_EVENTS.keys() - {"frame_fault"}, (
        "a fault is no protocol"
    )
    assert {fault.fault.op for fault in faults} >= {"kill", "pause", "cut", "hold", "reset"}
    assert str(faults[0]).count(faults[0].event) == 1


def test_faults_at_states_violate_nothing() -> None:
    outcomes = [run_seed("barriers", seed) for seed in range(1, 9)]
    assert [outcome.violation for outcome in outcomes] == [None] * len(outcomes)
    assert sum(len(outcome.reached) for outcome in outcomes) > len(outcomes)
