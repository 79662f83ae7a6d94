"""The step `plan` of scenarios under virtual time; the verdict compares each plan with what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.broker.explain import delivery, failover
from emulator.config.loading import load_topology
from emulator.core.replication.failover_plan import PlannedFigures
from emulator.errors import ConfigurationError
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.run_folder import write_evidence
from emulator.simulation.scenarios.run import SimulatedScenario, prepare_scenario, run_scenario
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run

ROOT = Path(__file__).parents[2]
TOPOLOGY = load_topology(ROOT / "topology.yaml")
ORDERS = "persistent://public/default/orders"
BEGIN = """
begin: all
wait_until: {subscription: billing, exists_in: us-west}
wait_until: {consumer: billing, received: 100}
"""
QUIET = """
wait_until: {consumer: billing, received: 400, within: 20s}
finish: producers
plan: {subscription: billing, from: us-east, to: us-west, quiet: true}
move: {consumer: billing, to: us-west}
drain: 30s
"""


def scenario_of(
    tmp_path: Path,
    steps: str,
    *,
    messages: int = 200,
    batching: str = "true",
    consumer: str = "",
    partitions: str = "",
) -> SimulatedScenario:
    lines = "\n".join(f"  - {line.strip()}" for line in steps.splitlines() if line.strip())
    path = tmp_path / "scenario.yaml"
    path.write_text(f"""
name: story
topic: {ORDERS}
{partitions}
actors:
  producers:
    - {{name: east, region: us-east, rate_per_second: 100, messages: {messages}, batching: {batching}}}
    - {{name: central, region: eu-central, rate_per_second: 100, messages: {messages}, batching: {batching}}}
  consumers:
    - {{name: billing, region: us-east, subscription: billing, replicated: true{consumer}}}
steps:
{lines}
""")
    return prepare_scenario(path, TOPOLOGY)


def evaluated(outcome: SimulationOutcome, folder: Path) -> Evaluation:
    write_evidence(outcome, folder)
    (folder / "run.json").write_text("{}")
    (folder / "topology.json").write_text(outcome.topology.to_json())
    return evaluate_run(EmbeddedEngine(), folder)


def plans_of(evaluation: Evaluation) -> list[dict[str, Any]]:
    (check,) = [one for one in evaluation.checks if one.name == "plans-kept"]
    assert check.verdict == "valid", check.sentence
    assert evaluation.verdict == "valid", evaluation.headline
    found: list[dict[str, Any]] = evaluation.figures["failover_plans"]["plans"]
    return found


def run(tmp_path: Path, steps: str, seed: int = 1, **scenario: Any) -> list[dict[str, Any]]:
    outcome = run_scenario(scenario_of(tmp_path, steps, **scenario), seed)
    assert outcome.violation is None
    return plans_of(evaluated(outcome, tmp_path / "run"))


SHARED = ", type: shared, leaves_unacknowledged: 150"


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_plan_of_a_quiet_topic_predicts_every_redelivery(tmp_path: Path, seed: int) -> None:
    (plan,) = run(tmp_path, BEGIN + QUIET, seed, consumer=SHARED, batching="false")
    assert plan["predicted_exactly"]
    assert plan["planned"] == plan["redelivered"] >= 250


def test_a_plan_under_load_is_an_upper_bound(tmp_path: Path) -> None:
    steps = """
        plan: {subscription: billing, from: us-east, to: us-west}
        wait: 1s
        plan: {subscription: billing, from: us-east, to: us-west}
        move: {consumer: billing, to: us-west}
        finish: producers
        drain: 30s
    """
    plans = run(tmp_path, BEGIN + steps, messages=400)
    assert [plan["outcome"] for plan in plans] == ["kept", "kept"]
    assert all(plan["redelivered"] <= plan["planned"] for plan in plans)


@pytest.mark.parametrize(
    ("error", "kind"), [(-1, "more than planned"), (1, "fewer than planned")], ids=["too few", "too many"]
)
def test_a_region_that_states_a_wrong_number_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, kind: str
) -> None:
    """Without the comparison's correct count in the broker, the plan of a quiet topic is broken."""

    async def compare(*arguments: Any) -> PlannedFigures:
        figures = await delivery.compare(*arguments)
        figures.redelivered += error
        return figures

    monkeypatch.setattr(failover, "compare", compare)
    outcome = run_scenario(scenario_of(tmp_path, BEGIN + QUIET, consumer=SHARED, batching="false"), 1)
    assert outcome.violation is None
    evaluation = evaluated(outcome, tmp_path / "run")
    assert evaluation.verdict == "invalid"
    (check,) = [one for one in evaluation.checks if one.name == "plans-kept"]
    assert [one["kind"] for one in check.witness] == [kind]


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_region_that_does_not_respond_is_planned_for_by_the_other_one(tmp_path: Path, fault: str) -> None:
    steps = f"""
        {fault}: us-east
        plan: {{subscription: billing, from: us-east, to: us-west, within: 90s}}
        move: {{consumer: billing, to: us-west}}
        {"start" if fault == "kill" else "resume"}: us-east
        finish: producers
        drain: 60s
    """
    (plan,) = run(tmp_path, BEGIN + steps, messages=600)
    assert plan["outcome"] == "kept"
    assert not plan["predicted_exactly"]


def test_each_partition_has_a_plan(tmp_path: Path) -> None:
    steps = """
        plan: {subscription: billing, from: us-east, to: us-west}
        move: {consumer: billing, to: us-west}
        finish: producers
        drain: 30s
    """
    plans = run(tmp_path, BEGIN + steps, partitions="partitions: {orders: 3}")
    assert {plan["topic"] for plan in plans} == {f"{ORDERS}-partition-{number}" for number in range(3)}


def test_a_plan_that_must_be_quiet_fails_under_load_with_the_reason(tmp_path: Path) -> None:
    step = "plan: {subscription: billing, from: us-east, to: us-west, quiet: true, within: 1s}"
    outcome = run_scenario(scenario_of(tmp_path, BEGIN + step, messages=900), 1)
    assert outcome.violation is not None
    assert "not quiet: " in outcome.violation.sentence
    assert "within 1 s" in outcome.violation.sentence


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ("plan: {subscription: billing, from: us-east, to: us-east}", "must be two different regions"),
        (
            "plan: {subscription: other, from: us-east, to: us-west}",
            "must be a subscription of this scenario",
        ),
        ("plan: {subscription: billing, from: mars, to: us-west}", "must be a region of the topology"),
        ("plan: {subscription: billing, from: us-east}", "to"),
        ("plan: billing", "must be a mapping"),
    ],
)
def test_a_wrong_step_is_refused_with_its_place(tmp_path: Path, step: str, rule: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        scenario_of(tmp_path, f"begin: all\n{step}")
    assert rule in str(refused.value)
    assert "steps[1].plan" in str(refused.value)
