"""`geoemu chaos`: on a run with the user's own clients, on a run of its own, interrupted, and with wrong input."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_cli import complaints, geoemu
from tests.cli.test_runs import in_foreground, rest_of, states, typed
from tests.runtimes.fixtures import REGIONS, end_all, write_topology

CURRENT = Path(".geoemu") / "current"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a topology; no region outlives the test."""
    write_topology(tmp_path)
    text = (
        (tmp_path / "topology.yaml")
        .read_text()
        .replace("{regions: all}", "{regions: all, deduplication: true}")
    )
    (tmp_path / "topology.yaml").write_text(text)
    yield tmp_path
    for run in (tmp_path / ".geoemu").glob("runs/*"):
        end_all(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--for", "1s"], "'1s' must be between 2s and 10080m (7 days)"),
        (["--for", "soon"], "must be a duration with its unit"),
        (["--seed", "-1"], "should be greater than or equal to 0"),
        (["--profile", "wild"], "'wild'"),
        (["--runtime", "process"], "needs --workload, which starts a new run"),
        (["--file", "topology.yaml"], "needs --workload, which starts a new run"),
        ([], "no run in"),
        (["--workload", "region-failovr"], "did you mean 'region-failover'?"),
        (["--workload", "built-in", "--file", "missing.yaml"], "missing.yaml"),
        (["--plan", "--workload", "region-failovr"], "did you mean 'region-failover'?"),
    ],
)
def test_wrong_input_gets_one_clear_message(folder: Path, arguments: list[str], message: str) -> None:
    done = geoemu("chaos", *arguments, folder=folder)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not (folder / ".geoemu").exists()


def test_the_plan_of_a_seed_is_a_scenario_file(folder: Path) -> None:
    first, second = (
        typed(folder, "chaos", "--for", "5s", "--seed", "7", "--profile", "harsh", "--plan") for _ in range(2)
    )
    assert first == second != typed(folder, "chaos", "--for", "5s", "--seed", "8", "--plan")
    assert first.startswith("# The faults of `geoemu chaos --for 5s --seed 7 --profile harsh` as steps")
    (folder / "plan.yaml").write_text(first)
    described = geoemu("simulate", "plan.yaml", "--seeds", "1", folder=folder)
    assert described.returncode == 0, described.stdout + described.stderr


def test_a_workload_of_a_scenario_keeps_its_actors(folder: Path) -> None:
    plan = typed(folder, "chaos", "--workload", "region-failover", "--seed", "7", "--plan")
    assert "name: billing" in plan
    assert "move" not in plan


@pytest.mark.real
@pytest.mark.long
def test_a_first_try_with_the_built_in_workload_is_valid_and_prints_how_to_repeat_it(folder: Path) -> None:
    arguments = ("chaos", "--workload", "built-in", "--for", "5s", "--seed", "7", "--engine", "embedded")
    done = geoemu(*arguments, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    planned = typed(folder, "chaos", "--for", "5s", "--seed", "7", "--plan").splitlines()
    faults = [
        line[2:] for line in planned if line.startswith(("- kill", "- pause", "- cut", "- hold", "- stop"))
    ]
    assert faults
    for fault in faults:
        assert any(fault in line for line in lines)
    assert any(line.startswith("VALID") for line in lines)
    assert lines[-1] == (
        "repeat the faults: geoemu chaos --for 5s --seed 7 --profile mild --workload built-in"
    )
    again = geoemu(*shlex.split(lines[-1].partition(": geoemu ")[2]), "--plan", folder=folder)
    assert again.stdout.splitlines()[1:] == planned[1:]


@pytest.mark.real
@pytest.mark.long
def test_a_run_without_recorded_clients_is_repaired_and_its_verdict_unknown(folder: Path) -> None:
    typed(folder, "up", "--detach")
    done = geoemu("chaos", "--for", "4s", "--seed", "5", "--engine", "embedded", "--json", folder=folder)
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["verdict"] == "unknown"
    assert " s  " in complaints(done.stderr)
    assert states(folder) == dict.fromkeys(REGIONS, "running")
    typed(folder, "kill", "us-east")
    refused = geoemu("chaos", "--for", "4s", folder=folder)
    assert (refused.returncode, refused.stdout.count("VALID")) == (2, 0)
    assert (
        "us-east is killed: random faults begin when every region runs; `geoemu start us-east`"
        in refused.stderr
    )
    typed(folder, "down")
    assert "has ended: start a new one" in geoemu("chaos", "--for", "4s", folder=folder).stderr


@pytest.mark.real
@pytest.mark.long
def test_ctrl_c_heals_everything_and_prints_the_verdict_so_far(folder: Path) -> None:
    typed(folder, "up", "--detach")
    arguments = ("chaos", "--for", "600s", "--seed", "2", "--profile", "harsh", "--engine", "embedded")
    with in_foreground(folder, *arguments, until="kill: ") as process:
        process.send_signal(signal.SIGINT)
        printed = rest_of(process)
    assert process.returncode == 130
    assert "interrupted: ending the faults" in printed
    assert printed.index("interrupted") < printed.index("UNKNOWN") < printed.index("repeat the faults: ")
    assert states(folder) == dict.fromkeys(REGIONS, "running")
    assert "all links are up" in typed(folder, "status")
    typed(folder, "down")
