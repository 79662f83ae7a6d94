"""`geoemu simulate`: its output and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli.simulate import RandomFaults, Simulate
from emulator.cli.verbs import app
from emulator.errors import ConfigurationError

FAILING = """\
name: failing
topic: persistent://public/default/orders
actors:
  producers:
    - {name: east, region: us-east, rate_per_second: 50}
steps:
  - begin: east
  - kill: us-east
  - wait_until: {producer: east, published_more: 500, within: 2s}
"""


def test_a_clean_seed_ends_with_0() -> None:
    result = CliRunner().invoke(app, ["simulate", "region-failover", "--seeds", "1", "--from", "3"])
    assert result.exit_code == 0
    assert "1 seeds of region-failover from 3: clean" in result.stdout


def test_all_shipped_scenarios_are_listed() -> None:
    result = CliRunner().invoke(app, ["simulate", "--list"])
    assert result.exit_code == 0
    listed = {
        name: about.strip() for name, _, about in (line.partition(" ") for line in result.stdout.splitlines())
    }
    assert {"region-failover", "transaction-keys"} <= listed.keys()
    assert "swarm" not in listed
    assert all(listed.values())


def test_a_failing_seed_prints_its_replay_command_and_leaves_a_run_folder(tmp_path: Path) -> None:
    folder, scenario = tmp_path / "left", tmp_path / "failing.yaml"
    scenario.write_text(FAILING)
    result = CliRunner().invoke(app, ["simulate", str(scenario), "--seeds", "1", "--run-dir", str(folder)])
    assert result.exit_code == 1
    assert "seed 1 violates story (every-step-comes-true)" in result.stdout
    assert f"replay: geoemu simulate {scenario} --seeds 1 --from 1" in result.stdout
    assert f"geoemu verify {folder}" in result.stdout
    assert {path.name for path in folder.iterdir()} >= {"run.json", "topology.json", "regions", "history"}


def test_a_time_budget_ends_it() -> None:
    result = CliRunner().invoke(app, ["simulate", "region-failover", "--time-budget", "0.5"])
    assert result.exit_code == 0


@pytest.mark.parametrize("name", ["nonsense", "swarm", "transaction-key", ""])
def test_an_unknown_name_is_rejected_with_the_command_for_workloads(name: str) -> None:
    simulate = Simulate(name, Path("topology.yaml"), 1, 1, 1, None, None)
    with pytest.raises(ConfigurationError, match=f"{name}: must be one of .*make swarm") as error:
        simulate.perform()
    assert len(error.value.problems) == 1


@pytest.mark.parametrize("option", [["--shrink"], ["--without", "seek-ignored"]])
def test_options_of_the_swarm_are_rejected_with_its_command(option: list[str]) -> None:
    result = CliRunner().invoke(app, ["simulate", "region-failover", *option])
    assert result.exit_code == 2
    assert "make swarm" in result.stderr


@pytest.mark.parametrize("profile", ["mild", "harsh"])
def test_random_faults_of_a_seed_violate_nothing_and_repeat_exactly(profile: str) -> None:
    arguments = ["simulate", "--chaos", profile, "--for", "5s", "--seeds", "1", "--from", "4"]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == 0, first.stdout
    assert "1 seeds of chaos from 4: clean" in first.stdout
    digests = [
        [line for line in one.stdout.splitlines() if "digest" in line or "trace" in line]
        for one in (first, second)
    ]
    assert digests[0]
    assert digests[0] == digests[1]


def test_the_replay_command_of_random_faults_names_profile_and_time() -> None:
    command = Simulate("", Path("topology.yaml"), 1, 1, 1, None, None, RandomFaults("harsh", 5.0))
    assert command._replay(7) == "geoemu simulate --chaos harsh --for 5s --seeds 1 --from 7"


def test_a_time_of_random_faults_needs_random_faults() -> None:
    result = CliRunner().invoke(app, ["simulate", "region-failover", "--for", "5s"])
    assert result.exit_code == 2
    assert "needs --chaos" in result.output
