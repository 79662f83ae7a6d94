"""`geoemu simulate`: what it says and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli.simulate import Simulate
from emulator.cli.verbs import app
from emulator.errors import ConfigurationError
from emulator.simulation.ablations import BY_NAME
from emulator.simulation.names import MUTANTS, WORKLOADS, seed_name


def test_a_clean_seed_ends_with_0() -> None:
    result = CliRunner().invoke(app, ["simulate", "failover", "--seeds", "1", "--from", "3"])
    assert result.exit_code == 0
    assert "1 seeds of failover from 3: clean" in result.stdout


def test_it_tells_which_worlds_and_scenarios_there_are() -> None:
    result = CliRunner().invoke(app, ["simulate", "--list"])
    assert result.exit_code == 0
    told = {
        name: about.strip() for name, _, about in (line.partition(" ") for line in result.stdout.splitlines())
    }
    assert {"swarm", "transaction-key", "rate-limits", "region-failover"} <= told.keys()
    assert all(told.values())


def test_a_failing_seed_tells_how_to_replay_it_and_leaves_a_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    arguments = [
        "simulate",
        "--seeds",
        "3",
        "--without",
        "source-positions-forgotten",
        "--run-dir",
        str(folder),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "violates INV-" in result.stdout
    assert "replay: geoemu simulate swarm --seeds 1 --from " in result.stdout
    assert f"geoemu verify {folder}" in result.stdout
    assert {path.name for path in folder.iterdir()} >= {"run.json", "topology.json", "regions", "history"}


def test_a_time_budget_ends_it() -> None:
    result = CliRunner().invoke(app, ["simulate", "failover", "--time-budget", "0.5"])
    assert result.exit_code == 0


@pytest.mark.parametrize(("kind", "without"), [("nonsense", None), ("swarm", "nonsense")])
def test_what_is_not_known_is_refused(kind: str, without: str | None) -> None:
    simulate = Simulate(kind, Path("topology.yaml"), 1, 1, 1, None, False, without, None)
    with pytest.raises(ConfigurationError, match="nonsense: must be one of"):
        simulate.perform()


@pytest.mark.parametrize(("former", "present"), sorted(WORKLOADS.items()))
def test_the_former_name_of_a_workload_is_answered_with_the_present_one(former: str, present: str) -> None:
    simulate = Simulate(former, Path("topology.yaml"), 1, 1, 1, None, False, None, None)
    with pytest.raises(ConfigurationError, match=f"{former}: was renamed to {present}"):
        simulate.perform()
    assert seed_name(present) == former, "the plans of all seeds stay the same"


@pytest.mark.parametrize(("former", "present"), sorted(MUTANTS.items()))
def test_the_former_name_of_a_mutant_is_answered_with_the_present_one(former: str, present: str) -> None:
    assert present in BY_NAME
    simulate = Simulate("swarm", Path("topology.yaml"), 1, 1, 1, None, False, former, None)
    with pytest.raises(ConfigurationError, match=f"{former}: was renamed to {present}"):
        simulate.perform()
