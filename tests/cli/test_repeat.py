"""`geoemu run --repeat`: each run has the next seed, and the summary has the worst run first."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli.application import INTERRUPTED_EXIT_CODE
from emulator.cli.repeat import SCENARIO_FILE, RepeatCommand, Repetition, SeededRun, _RepeatedRun
from emulator.cli.verbs import app
from emulator.errors import GeoemuError, Refused, RuntimeFailure
from emulator.runtimes.verifier import VerifierResult
from tests.cli.test_cli import geoemu
from tests.cli.test_runs import CURRENT, SCENARIO
from tests.runtimes.fixtures import end_all, living, write_topology

Outcome = VerifierResult | GeoemuError | int


def verdict(outcome: str, *failed: str, limits: tuple[str, ...] = ()) -> VerifierResult:
    checks = [{"name": name, "verdict": outcome} for name in failed] + [{"name": "fine", "verdict": "valid"}]
    report = {
        **{"verdict": outcome, "headline": f"It is {outcome}.", "checks": checks},
        "limits": [{"limit": one, "outcome": "missed", "sentence": ""} for one in limits],
    }
    status = {"valid": 0, "invalid": 1, "unknown": 2}[outcome]
    return VerifierResult(json.dumps(report), "", max(status, int(bool(limits))))


def perform(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome, as_json: bool = True) -> int:
    """Repeat a scenario whose runs have these outcomes, and return the exit code."""
    remaining = iter(outcomes)

    async def run(self: _RepeatedRun) -> int:
        outcome = next(remaining)
        if isinstance(outcome, GeoemuError):
            raise outcome
        if isinstance(outcome, int):
            return outcome
        self.repetition.run_dir = Path(f"runs/{self.seed}")
        return self._print_verdict(outcome)

    monkeypatch.setattr(_RepeatedRun, "perform", run)
    first = SeededRun(
        Path("billing.yaml"), Path("topology.yaml"), None, None, None, as_json, seed=7, random_kills=True
    )
    return asyncio.run(RepeatCommand(first, len(outcomes), as_json).perform())


def test_the_worst_run_is_first_and_decides_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = (
        verdict("valid"),
        verdict("invalid", "contract-kept"),
        verdict("unknown", "evidence"),
        verdict("invalid", "contract-kept", "acknowledged-stored"),
        VerifierResult("", "Spark has ended\n", 1),
        RuntimeFailure("us-east did not become ready"),
        verdict("valid", limits=("gap<=5s",)),
    )
    assert perform(monkeypatch, *outcomes) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["exit_code"] == 1
    assert [one["seed"] for one in content["runs"]] == [10, 8, 13, 9, 11, 12, 7]
    worst = content["runs"][0]
    assert worst["checks"] == ["contract-kept", "acknowledged-stored"]
    assert worst["command"] == "geoemu run billing.yaml --random-kills --seed 10"
    assert content["runs"][4]["headline"] == "Spark has ended"
    assert (content["runs"][5]["run"], content["runs"][5]["verdict"]) == (None, "unknown")


def test_the_text_names_the_seed_and_how_to_repeat_a_bad_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = (verdict("valid"), verdict("invalid", "contract-kept"), verdict("valid", limits=("gap<=5s",)))
    assert perform(monkeypatch, *outcomes, as_json=False) == 1
    captured = capsys.readouterr()
    assert captured.out == (
        "3 runs of billing.yaml: 1 invalid, 2 valid\n"
        "  invalid  seed 8       runs/8\n"
        "           It is invalid.\n"
        "           checks: contract-kept\n"
        "           repeat: geoemu run billing.yaml --random-kills --seed 8\n"
        "  valid    seed 9       runs/9\n"
        "           It is valid.\n"
        "           limits not kept: gap<=5s\n"
        "           repeat: geoemu run billing.yaml --random-kills --seed 9\n"
        "  valid    seed 7       runs/7\n"
    )
    assert "run 2 of 3, seed 8: invalid: runs/8\n" in captured.err


def test_wrong_input_ends_at_once_and_ctrl_c_summarises_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused):
        perform(monkeypatch, Refused("no port is free"), verdict("valid"))
    assert perform(monkeypatch, verdict("valid"), INTERRUPTED_EXIT_CODE, verdict("valid")) == 130
    assert [one["seed"] for one in json.loads(capsys.readouterr().out)["runs"]] == [7]
    assert perform(monkeypatch, INTERRUPTED_EXIT_CODE, as_json=False) == 130
    assert capsys.readouterr().out == ""


def test_a_run_that_could_not_begin_later_counts_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert perform(monkeypatch, verdict("valid"), Refused("no port is free")) == 2


def test_a_repetition_without_a_verdict_is_unknown() -> None:
    assert (Repetition(1).verdict, Repetition(1).exit_code) == ("unknown", 2)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--repeat 0", "than or equal to"),
        ("--repeat 10001", "than or equal to"),
        ("--seed -1", "than or equal to"),
        ("--repeat 2 --report r", "applies to a single run"),
        ("--repeat 2 --follow", "applies to a single run"),
        ("--repeat 2 --junit j", "applies to a single run"),
    ],
)
def test_wrong_usage_is_explained(typed: str, said: str) -> None:
    result = CliRunner().invoke(app, ["run", "region-failover", *typed.split()], prog_name="geoemu")
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a topology and a scenario; no region outlives the test."""
    topology = write_topology(tmp_path)
    topology.write_text(topology.read_text().replace("regions: all}", "regions: all, deduplication: true}"))
    (tmp_path / "example.yaml").write_text(SCENARIO)
    yield tmp_path
    for run in (tmp_path / ".geoemu").glob("runs/*"):
        end_all(run)


@pytest.mark.real
@pytest.mark.long
def test_runs_with_random_kills_can_be_repeated(folder: Path) -> None:
    options = ("--engine", "embedded", "--json")
    done = geoemu(
        "run", "example.yaml", "--repeat", "2", "--random-kills", "--seed", "3", *options, folder=folder
    )
    runs = json.loads(done.stdout)["runs"]
    assert (done.returncode, [one["verdict"] for one in runs]) == (0, ["valid", "valid"]), done.stderr
    assert {one["seed"] for one in runs} == {3, 4}
    assert living(folder / CURRENT) == []
    command = shlex.split(runs[1]["command"])[1:]
    again = geoemu(*command, *options, "--run-dir", "again", folder=folder)
    assert again.returncode == 0, again.stderr
    first = Path(runs[1]["run"])
    assert (folder / "again" / SCENARIO_FILE).read_text() == (first / SCENARIO_FILE).read_text()
    kills = [
        line for line in (first / "history" / "scenario.jsonl").read_text().splitlines() if '"kill"' in line
    ]
    assert kills
