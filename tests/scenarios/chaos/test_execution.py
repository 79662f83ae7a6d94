"""The step `chaos` in virtual time, on regions that take every requested state."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.run.history_events import read_events
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.chaos.plan import plan_chaos
from emulator.scenarios.rehearsal import step_text
from tests.scenarios.virtual import TOPOLOGY, ScenarioHarness


class Lines:
    """Records what an observer receives."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str, str | None]] = []

    def __call__(self, seconds: float, text: str, failure: str | None) -> None:
        self.seen.append((round(seconds, 2), text.partition("  (")[0], failure))


@pytest.fixture
def harness(tmp_path: Path) -> ScenarioHarness:
    return ScenarioHarness(tmp_path)


def run(harness: ScenarioHarness, chaos: str, control: ChaosControl) -> str | None:
    result = harness.run(f"begin: fast\nchaos: {chaos}\nfinish: fast", chaos=control)
    return result.failure


@pytest.mark.parametrize("profile", ["mild", "harsh"])
@pytest.mark.parametrize("seed", range(5))
def test_every_fault_begins_and_ends_at_its_time_and_nothing_is_left(
    harness: ScenarioHarness, profile: str, seed: int
) -> None:
    lines = Lines()
    assert (
        run(harness, f"{{for: 60s, seed: {seed}, profile: {profile}}}", ChaosControl(observe=lines)) is None
    )
    plan = plan_chaos(TOPOLOGY, seed, profile, 60)  # type: ignore[arg-type]
    planned = sorted((step_text(step), at) for at, step in plan.events())
    injected = sorted((text, at) for at, text, _ in lines.seen if at < 60)
    assert [text for text, _ in injected] == [text for text, _ in planned]
    for (_, done), (_, at) in zip(injected, planned, strict=True):
        assert (
            at + 0.49 <= done <= at + 1.01
        )  # a change takes half a second, and an end follows its beginning
    assert [line for line in lines.seen if line[0] >= 60] == []
    assert set(harness.runtime.states.values()) == {"running"}


def test_the_seed_of_a_step_without_one_is_that_of_the_caller(harness: ScenarioHarness) -> None:
    mine, named = Lines(), Lines()
    run(harness, "{for: 60s}", ChaosControl(seed=33, observe=mine))
    run(harness, "{for: 60s, seed: 33}", ChaosControl(seed=4, observe=named))
    assert mine.seen == named.seen


def test_a_fault_that_fails_ends_no_other_and_fails_the_run_at_the_end(harness: ScenarioHarness) -> None:
    seed, plan, verb = next(
        (seed, plan, verb)
        for seed in range(100)
        for plan in [plan_chaos(TOPOLOGY, seed, "mild", 60)]
        for one in plan.faults
        for verb in one.fault.begin
        if verb in ("kill", "stop", "restart", "pause")
    )
    harness.runtime.fails[verb] = "it is not possible today"
    lines = Lines()
    failure = run(harness, f"{{for: 60s, seed: {seed}}}", ChaosControl(observe=lines))
    assert failure is not None
    assert "random faults failed, the first" in failure
    assert "it is not possible today" in failure
    assert {text for _, text, problem in lines.seen if problem is None} >= {
        step_text(one.fault.begin) for one in plan.faults if verb not in one.fault.begin
    }
    assert set(harness.runtime.states.values()) == {"running"}
    facts = read_events(harness.runtime.run_dir / "history" / "scenario.jsonl")
    assert next(one.error for one in facts if one.op == "note" and one.error) == "it is not possible today"


def test_an_early_end_repairs_the_regions_and_goes_on_with_the_next_step(harness: ScenarioHarness) -> None:
    control = ChaosControl()
    down: list[str] = []

    def stop_when_a_region_is_down(seconds: float, text: str, failure: str | None) -> None:
        if not control.stop.is_set() and set(harness.runtime.states.values()) != {"running"}:
            down.append(text)
            control.stop.set()

    object.__setattr__(control, "observe", stop_when_a_region_is_down)
    assert run(harness, "{for: 600s, profile: harsh, seed: 3}", control) is None
    assert down
    assert set(harness.runtime.states.values()) == {"running"}
    assert harness.actors["fast"].requests[-2:] == ["finish", "leave"]


def test_an_actor_that_ends_by_itself_fails_the_step_after_the_repair(harness: ScenarioHarness) -> None:
    def end_early(seconds: float, text: str, failure: str | None) -> None:
        if set(harness.runtime.states.values()) != {"running"}:
            harness.actors["fast"].problem = "fast ended with exit code 3"

    failure = run(harness, "{for: 60s, profile: harsh, seed: 3}", ChaosControl(observe=end_early))
    assert failure is not None
    assert "fast ended with exit code 3" in failure
    assert set(harness.runtime.states.values()) == {"running"}
