"""The plan of random faults: what holds for every seed, topology, profile and duration."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.config.topology import Topology
from emulator.runtimes.fault_table import FAULTS
from emulator.scenarios.chaos.plan import PROFILES, SECONDS_MAX, SECONDS_MIN, ChaosPlan, plan_chaos
from emulator.scenarios.chaos.workload import (
    built_in_workload,
    chaos_object,
    plan_as_scenario,
    under_chaos,
)
from emulator.scenarios.scenario import parse_scenario
from tests.scenarios.chaos.topologies import topology_of

TOPOLOGIES = st.integers(1, 6).map(topology_of)
SEEDS = st.integers(0, 2**40)
SECONDS = st.floats(SECONDS_MIN, 300)
PROFILE_NAMES = st.sampled_from(sorted(PROFILES))


@given(TOPOLOGIES, SEEDS, PROFILE_NAMES, SECONDS, st.booleans())
def test_the_same_arguments_give_the_same_plan(
    topology: Topology, seed: int, profile: str, seconds: float, lose: bool
) -> None:
    first, second = (plan_chaos(topology, seed, profile, seconds, lose=lose) for _ in range(2))  # type: ignore[arg-type]
    assert first == second


@given(TOPOLOGIES, SEEDS, PROFILE_NAMES, SECONDS)
def test_every_fault_ends_in_time_and_shares_no_claim_with_an_active_one(
    topology: Topology, seed: int, profile: str, seconds: float
) -> None:
    plan = plan_chaos(topology, seed, profile, seconds)  # type: ignore[arg-type]
    for one in plan.faults:
        assert 0 <= one.begins <= one.ends < seconds
        assert "lose" not in one.fault.begin
        assert one.fault.end is not None or one.begins == one.ends
    for one, other in combinations(plan.faults, 2):
        if one.begins <= other.ends and other.begins <= one.ends:
            assert one.fault.claims.isdisjoint(other.fault.claims)


@given(TOPOLOGIES, SEEDS, SECONDS)
def test_mild_plans_have_one_fault_on_one_region_or_link_at_a_time(
    topology: Topology, seed: int, seconds: float
) -> None:
    plan = plan_chaos(topology, seed, "mild", seconds)
    for one, other in combinations(plan.faults, 2):
        assert one.ends < other.begins or other.ends < one.begins
    for one in plan.faults:
        assert len([claim for claim in one.fault.claims if claim[0] == "region"]) <= 1
        assert "skew" not in one.fault.begin


def test_harsh_plans_overlap_faults_and_take_several_regions_at_once() -> None:
    plans = [plan_chaos(topology_of(3), seed, "harsh", 60) for seed in range(20)]
    assert any(_overlaps(plan) for plan in plans)
    assert any(
        len([claim for claim in one.fault.claims if claim[0] == "region"]) > 1
        for plan in plans
        for one in plan.faults
    )
    assert any("skew" in one.fault.begin for plan in plans for one in plan.faults)


def _overlaps(plan: ChaosPlan) -> bool:
    return any(one.ends > other.begins for one, other in zip(plan.faults, plan.faults[1:], strict=False))


def test_a_minute_has_several_faults_and_seeds_differ() -> None:
    plans = [plan_chaos(topology_of(3), seed, "mild", 60) for seed in range(50)]
    assert all(len(plan.faults) >= 4 for plan in plans)
    assert len({str(plan.faults) for plan in plans}) == 50


@given(SEEDS, PROFILE_NAMES)
def test_the_loss_of_a_region_is_the_only_fault_without_an_end_and_later_faults_spare_the_region(
    seed: int, profile: str
) -> None:
    plan = plan_chaos(topology_of(3), seed, profile, 60, lose=True)  # type: ignore[arg-type]
    (loss,) = (one for one in plan.faults if "lose" in one.fault.begin)
    region = loss.fault.begin["lose"]
    for one in plan.faults:
        if one is not loss and any(region in claim[1:] for claim in one.fault.claims):
            assert one.ends < loss.begins


def test_every_row_of_the_catalogue_with_a_draw_takes_part() -> None:
    drawn = {
        verb
        for seed in range(200)
        for one in plan_chaos(topology_of(3), seed, "harsh", 60).faults
        for verb in one.fault.begin
    }
    assert drawn == {verb for verb, row in FAULTS.items() if row.draw is not None}
    assert "lose" not in drawn


@pytest.mark.parametrize("seconds", [0, SECONDS_MIN / 2, SECONDS_MAX * 2, float("nan")])
def test_durations_out_of_range_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="between 2 and 604800 seconds"):
        plan_chaos(topology_of(2), 1, "mild", seconds)


@given(TOPOLOGIES, SEEDS, PROFILE_NAMES, st.booleans())
def test_every_plan_is_a_scenario_file_with_the_same_times(
    topology: Topology, seed: int, profile: str, lose: bool
) -> None:
    plan = plan_chaos(topology, seed, profile, 30, lose=lose)  # type: ignore[arg-type]
    text = plan_as_scenario(built_in_workload(topology), plan, "geoemu chaos")
    scenario = parse_scenario(text, topology)
    waits = [step.action.time for step in scenario.steps if step.verb == "wait"]  # type: ignore[union-attr]
    assert sum(waits) == pytest.approx(30)
    ends = [one for one in plan.faults if one.fault.end is not None]
    others = {"begin", "wait", "finish", "drain"}
    assert len([step for step in scenario.steps if step.verb not in others]) == len(plan.faults) + len(ends)


def test_the_chaos_step_replaces_the_steps_of_a_workload() -> None:
    topology = topology_of(3)
    step = chaos_object(7, "harsh", 60, lose=False)
    scenario = under_chaos(built_in_workload(topology), topology, step)
    assert [step.text for step in scenario.steps] == [
        "begin: all",
        "chaos: {for: 60s, profile: harsh, seed: 7}",
        "finish: {actors: producers, within: 90s}",
        "drain: 60s",
    ]
