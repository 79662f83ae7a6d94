"""The verdicts on many runs in one session."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_jobs import sweep as sweep_program
from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.sweep import find_runs, main, overall_exit_code, sweep
from spark_jobs.tables.export import export_run
from spark_jobs.verify import evaluate_run

from .sample_run import SampleRun


def lost_message() -> SampleRun:
    run = SampleRun()
    run.publish("us-east", 0, 1.0, to=())
    return run


def good_run() -> SampleRun:
    run = SampleRun()
    run.subscribe("us-east", 0.5)
    run.publish("us-east", 0, 1.0)
    run.receive("us-east", "us-east", 0, 1.5)
    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs 1 and 10 are valid, 2 is invalid, 3 is unknown; `current` leads to 10, and 4 is an export of 2."""
    folder = tmp_path / "runs"
    good_run().write(folder / "1")
    good_run().write(folder / "10")
    lost_message().write(folder / "2")
    good_run().write(folder / "3")
    (folder / "3" / "history" / "billing.jsonl").unlink()
    (folder / "current").symlink_to("10")
    (folder / "notes").mkdir()
    export_run(folder / "2", folder / "4")
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([*map(str, arguments), "--engine", "embedded"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_runs_are_found_once_and_in_the_order_of_their_numbers(runs: Path, tmp_path: Path) -> None:
    names = [path.name for path in find_runs([runs])]
    assert names == ["1", "2", "3", "4", "10"]
    assert find_runs([runs / "1", runs / "current", runs / "10"]) == [runs / "1", runs / "current"]
    assert find_runs([tmp_path / "nowhere", runs / "notes"]) == [tmp_path / "nowhere", runs / "notes"]


def test_the_worst_run_is_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, errors = printed(capsys, runs)
    assert (status, errors) == (1, "")
    lines = text.splitlines()
    assert lines[0] == "5 runs: 2 invalid, 1 unknown, 2 valid"
    verdicts = [line.split() for line in lines if line.startswith("  ") and line[2] != " "]
    assert [(verdict, Path(run).name) for verdict, run in verdicts] == [
        ("invalid", "2"),
        ("invalid", "4"),
        ("unknown", "3"),
        ("valid", "1"),
        ("valid", "10"),
    ]
    assert max(map(len, lines[:1])) <= 80


def test_json_has_the_verdict_that_verify_computes(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = printed(capsys, runs, "--json")
    content = json.loads(text)
    assert content["exit_code"] == status == 1
    for one in content["runs"]:
        evaluation = evaluate_run(EmbeddedEngine(), Path(one["run"]))
        assert (one["verdict"], one["headline"]) == (evaluation.verdict, evaluation.headline)
        assert one["checks"] == [
            check.name
            for check in evaluation.checks
            if check.verdict == evaluation.verdict and evaluation.verdict != "valid"
        ]


@pytest.mark.parametrize(
    ("names", "status"), [(["1"], 0), (["1", "3"], 2), (["3", "2"], 1), (["notes", "1"], 2)]
)
def test_the_exit_code_is_that_of_the_worst(
    runs: Path, names: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *(runs / name for name in names))[0] == status


def test_a_run_that_cannot_be_read_does_not_end_the_sweep(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "4" / "export.json").unlink()
    (runs / "3" / "limits").write_text("nonsense")
    status, text, _ = printed(capsys, runs, runs.parent / "nowhere")
    assert status == 1
    assert "is an incomplete export" in text
    assert "nowhere" in text
    assert "it is not a run directory and contains none" in text
    assert text.startswith("6 runs: 1 invalid, 3 unknown, 2 valid\n")


def test_a_missed_limit_is_as_bad_as_an_invalid_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "1" / "limits").write_text("latency.max<=1ms\n")
    status, text, _ = printed(capsys, runs / "1", runs / "10")
    assert status == 1
    assert text.startswith("2 runs: 2 valid, 1 with a missed limit\n")
    assert "Limits not kept: latency.max<=1ms." in text
    assert printed(capsys, runs / "1", "--expect", "latency.max<=60m")[0] == 0


def test_after_a_failure_of_the_engine_earlier_verdicts_are_reported(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = iter([EmbeddedEngine()])

    @contextmanager
    def fails_later(*_: object, **__: object) -> Iterator[QueryEngine]:
        for engine in engines:
            yield engine
            return
        raise EngineUnavailable("the cluster is gone")

    monkeypatch.setattr(sweep_program, "started", fails_later)
    results = sweep("embedded", [runs / "1", runs / "2"])
    assert [(one.run.name, one.verdict) for one in results] == [("2", "unknown"), ("1", "valid")]
    assert results[0].summary == "it was not evaluated: the cluster is gone"
    assert overall_exit_code(results) == 2
    with pytest.raises(EngineUnavailable):
        sweep("embedded", [runs / "1"])


@pytest.mark.slow
def test_spark_evaluates_all_runs_in_one_session(
    runs: Path, spark: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    @contextmanager
    def only_once(*_: object, **__: object) -> Iterator[QueryEngine]:
        starts.append(1)
        yield spark

    monkeypatch.setattr(sweep_program, "started", only_once)
    shutil.rmtree(runs / "10")
    found = {one.run.name: one.verdict for one in sweep("spark", find_runs([runs]))}
    assert found == {"1": "valid", "2": "invalid", "3": "unknown", "4": "invalid"}
    assert len(starts) == 1
