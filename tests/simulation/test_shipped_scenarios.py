"""Every shipped scenario in virtual time: a seed violates nothing, and its verdict is valid and
keeps every limit of the scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.scenarios.scenario import SHIPPED
from emulator.simulation.run_folder import write_evidence
from emulator.simulation.scenarios.run import prepare_scenario, run_scenario
from scripts.scenario_table import PRODUCTION, VIRTUAL
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.verify import evaluate_run

TOPOLOGY = load_topology(Path(__file__).parents[2] / "topology.yaml")
SEEDS = (1,)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.long if name in PRODUCTION else pytest.mark.slow)
        for name in VIRTUAL.scenarios
    ],
)
def test_the_verdict_is_valid(scenario: str, tmp_path: Path) -> None:
    simulated = prepare_scenario(SHIPPED / f"{scenario}.yaml", TOPOLOGY)
    outcomes = [run_scenario(simulated, seed) for seed in SEEDS]
    assert [outcome.violation for outcome in outcomes] == [None] * len(SEEDS)
    write_evidence(outcomes[0], tmp_path)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "topology.json").write_text(simulated.topology.to_json())
    evaluation = evaluate_run(EmbeddedEngine(), tmp_path, limits=simulated.scenario.limits)
    wrong = [one.sentence for one in evaluation.checks if one.verdict in ("invalid", "unknown")]
    assert (evaluation.verdict, wrong) == ("valid", [])
    assert [one.sentence for one in evaluation.limits if one.outcome != "kept"] == []
