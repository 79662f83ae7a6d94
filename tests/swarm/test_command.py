"""`make swarm`: its output and its exit codes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.swarm.__main__ import main
from tests.swarm.generator.kinds import KINDS
from tests.swarm.names import FORMER_WORKLOADS, seed_name

ROOT = Path(__file__).parents[2]

Output = pytest.CaptureFixture[str]


def test_a_clean_seed_ends_with_0(capsys: Output) -> None:
    assert main(["--workload", "failover", "--seeds", "1", "--from", "3"]) == 0
    assert "1 seeds of failover from 3: clean" in capsys.readouterr().out


def test_all_workloads_are_listed(capsys: Output) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {name: about.strip() for name, _, about in (line.partition(" ") for line in lines)}
    assert listed.keys() == KINDS.keys()
    assert all(listed.values())


def test_a_failing_seed_prints_its_replay_command_and_leaves_a_run_folder(
    capsys: Output, tmp_path: Path
) -> None:
    folder = tmp_path / "left"
    mutant = "source-positions-forgotten"
    assert main(["--seeds", "3", "--without", mutant, "--run-dir", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert "violates INV-" in printed
    assert re.search(rf"replay: make swarm SEED=\d+ WITHOUT={mutant}\n", printed)
    assert f"geoemu verify {folder}" in printed
    assert {path.name for path in folder.iterdir()} >= {"run.json", "topology.json", "regions", "history"}


def test_a_time_budget_ends_it() -> None:
    assert main(["--workload", "failover", "--time-budget", "0.5"]) == 0


@pytest.mark.parametrize("option", ["--workload", "--without"])
def test_an_unknown_name_is_rejected(option: str, capsys: Output) -> None:
    assert main([option, "nonsense"]) == 2
    assert "nonsense: must be " in capsys.readouterr().err


@pytest.mark.parametrize(("former", "present"), sorted(FORMER_WORKLOADS.items()))
def test_the_former_name_of_a_workload_is_answered_with_the_present_one(
    former: str, present: str, capsys: Output
) -> None:
    assert main(["--workload", former]) == 2
    assert f"{former}: was renamed to {present}\n" in capsys.readouterr().err
    assert seed_name(present) == former, "the former name must seed the random sources, to keep all plans"


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        (["SEEDS=200", "FROM=7", "JOBS=2"], "--seeds 200 --from 7 --jobs 2"),
        (["SEED=18", "WORKLOAD=trimming"], "--seeds 1 --from 18 --workload trimming"),
        (
            ["SEED=1", "WITHOUT=seek-ignored", "SHRINK=1"],
            "--seeds 1 --from 1 --without seek-ignored --shrink",
        ),
    ],
)
def test_make_passes_its_variables_on(variables: list[str], arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", "swarm", *variables]
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    words = printed.stdout.replace("\\\n", " ").split()
    assert f"-m tests.swarm {arguments}" in " ".join(words)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--seeds", "0"], "'0' must be a whole number, at least 1"),
        (["--seeds", "abc"], "'abc' must be a whole number, at least 1"),
        (["--jobs", "0"], "'0' must be a whole number, at least 1"),
        (["--from", "-1"], "'-1' must be a whole number, at least 0"),
    ],
)
def test_a_number_out_of_range_is_refused(
    arguments: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert rule in capsys.readouterr().err
