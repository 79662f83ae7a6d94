"""Messages of commands that change nothing, of finished runs, and of slow operations."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli.options import seconds
from emulator.cli.verbs import app
from emulator.errors import Problem, Refused
from emulator.model.suggestions import nearest
from emulator.runtimes import spinner as spinner_module
from emulator.runtimes.contract import RegionState, RunStatus
from emulator.runtimes.operator import reason_unchanged, refuse_ended
from emulator.runtimes.spinner import spinner
from tests.cli.test_cli import ROOT, geoemu
from tests.runtimes.fixtures import wait_until


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("kill", "killed"),
        ("kill", "lost"),
        ("kill", "stopped"),
        ("lose", "lost"),
        ("stop", "stopped"),
        ("start", "running"),
        ("pause", "paused"),
        ("resume", "running"),
    ],
)
def test_a_verb_without_effect_is_reported_and_not_performed(verb: str, state: RegionState) -> None:
    assert reason_unchanged(verb, "eu", state) == f"eu is already {state}: nothing was done"


@pytest.mark.parametrize(
    ("verb", "state"),
    [("kill", "running"), ("lose", "killed"), ("stop", "paused"), ("start", "lost"), ("restart", "running")],
)
def test_a_verb_with_an_effect_is_performed(verb: str, state: RegionState) -> None:
    assert reason_unchanged(verb, "eu", state) is None


@pytest.mark.parametrize("state", ["killed", "lost"])
def test_a_dead_region_cannot_be_stopped(state: RegionState) -> None:
    with pytest.raises(Refused, match=f"eu is {state} and cannot be stopped; `geoemu start eu`"):
        reason_unchanged("stop", "eu", state)


def test_an_ended_run_is_left_alone() -> None:
    with pytest.raises(Refused, match=r"the run in runs/1 has ended: start a new one with `geoemu up`"):
        refuse_ended(RunStatus(Path("runs/1"), "process", (), (), ended=True))
    refuse_ended(RunStatus(Path("runs/1"), "process", (), ()))


def test_two_names_that_are_equally_near_are_both_suggested() -> None:
    assert nearest("us-eest", ["us-east", "us-west", "eu-central"]) == "us-east or us-west"
    assert nearest("us-esat", ["us-east", "us-west"]) == "us-east"
    assert nearest("mars", ["us-east"]) is None
    problem = Problem("a.yaml", 3, "region", "us-eest", "must be a region", "us-east or us-west")
    assert str(problem).endswith("(did you mean 'us-east' or 'us-west'?)")


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("1.5", 1.5), ("90s", 90.0), ("2m", 120.0)])
def test_a_time_budget_may_say_its_unit(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dashboard --port 99999", "'--port': '99999' should be less than or equal to 65535"),
        ("graph --format pdf", "'--format': 'pdf' is not one of 'mermaid', 'svg'"),
        ("run x --repeat many", "'--repeat': 'many' should be a valid integer"),
        ("chaos --seed -1", "'--seed': '-1' should be greater than or equal to 0"),
        ("latency a b fast", "'TIME': 'fast' must be a duration with its unit"),
        ("region remove", "Missing argument 'REGION'"),
    ],
)
def test_the_message_about_an_invalid_value_has_the_value(line: str, message: str) -> None:
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())


def test_a_misspelt_scenario_gets_a_suggestion() -> None:
    done = geoemu("run", "region-failovr", folder=ROOT)
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert "(did you mean 'region-failover'?)" in done.stderr


def test_a_folder_without_a_run_is_reported_at_once(tmp_path: Path) -> None:
    """Before Spark starts."""
    done = geoemu("verify", str(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} is not a run directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_spinner_prints_the_progress_of_a_long_task(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

        def flush(self) -> None:
            os.write(writing, b".")

    monkeypatch.setattr(spinner_module, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(spinner_module, "REWRITE_SECONDS", 0.01)
    screen = Screen()
    with spinner("verifying", screen):
        for _ in range(2):
            os.read(reading, 1)
    start = "\r\x1b[K" if is_terminal else ""
    assert screen.getvalue().count(f"{start}verifying, 0 s") >= 2
    assert screen.getvalue().endswith("\r\x1b[K" if is_terminal else "\n")
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_a_verb_that_is_interrupted_ends_with_one_line(number: signal.Signals, tmp_path: Path) -> None:
    """At any moment; here while it reads a topology that never arrives."""
    fifo = tmp_path / "topology.yaml"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator.cli", "check", "-f", str(fifo)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with fifo.open("w"):  # opens when the command has begun to read
        process.send_signal(number)
        printed, complained = process.communicate(timeout=20)
    assert (printed, complained, process.returncode) == ("", "interrupted\n", 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_a_simulation_on_several_processes_ends_with_one_line(number: signal.Signals) -> None:
    """Whether the signal goes to all of them, as with Ctrl-C, or not."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "emulator.cli",
            "simulate",
            "region-failover",
            "--time-budget",
            "100",
            "--jobs",
            "2",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: len(children.read_text().split()) == 2, "both work")
    workers = children.read_text().split()
    os.killpg(process.pid, number)
    _, complained = process.communicate(timeout=20)
    assert (complained, process.returncode) == ("interrupted\n", 130)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "nobody works any more")
