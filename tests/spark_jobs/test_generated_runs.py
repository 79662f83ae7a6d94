"""Generated runs: no false alarm for honest ones, and equal reports of both engines for honest and changed ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from spark_jobs.engines.embedded.engine import embedded_engine
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.verify import evaluate_run

from .generated_runs import (
    KINDS,
    check_agreement,
    check_honest,
    difference,
    false_alarms,
    generate_run,
    generate_tampered_run,
    report_text,
)
from .random_tampering import CHANGES, remove_group

QUICK = range(1, 1 + len(KINDS))
HONEST = int(os.environ.get("GEOEMU_HONEST_RUNS", "100"))
"""Number of honest runs of the slow test; 1,000 in `.ci/long`."""
AGREEMENTS = int(os.environ.get("GEOEMU_AGREEMENTS", "50"))
"""Number of runs that both engines evaluate in the slow test; 500 in `.ci/long`."""


@pytest.mark.long
def test_honest_runs_raise_no_false_alarm() -> None:
    """One run of each kind."""
    assert list(check_honest(QUICK)) == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10038, id="two sessions with other target regions under one sequence id"),
        pytest.param(10244, id="a cursor at an id whose entry was never completed"),
        pytest.param(10275, id="a simulation that ends while copies are on their way"),
    ],
)
def test_a_former_false_alarm_is_none(seed: int) -> None:
    assert list(check_honest([seed])) == []


@pytest.mark.slow
def test_many_honest_runs_raise_no_false_alarm() -> None:
    assert list(check_honest(range(1, 1 + HONEST))) == []


@pytest.mark.long
def test_engines_agree_on_generated_runs(spark: SparkEngine) -> None:
    assert list(check_agreement(spark, range(1, 5))) == []


@pytest.mark.slow
def test_engines_agree_on_many_generated_runs(spark: SparkEngine) -> None:
    assert list(check_agreement(spark, range(1, 1 + AGREEMENTS))) == []


@pytest.mark.parametrize("seed", range(1, 1 + len(KINDS)))
def test_a_verdict_does_not_depend_on_the_number_of_parts(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large evidence is joined part by part."""
    run = generate_tampered_run(seed, tmp_path / "run").path
    with embedded_engine() as engine:
        expected = report_text(engine, run)
    monkeypatch.setattr("spark_jobs.engines.embedded.engine.PART_BYTES", 50_000)
    with embedded_engine() as engine:
        found = report_text(engine, run)
    assert difference(expected, found) is None


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generated") / "run"
    assert generate_run(0, path).is_honest
    return path


@pytest.mark.parametrize("change", sorted(set(CHANGES), key=lambda one: one.__name__))
def test_a_random_change_changes_the_run(
    template: Path, tmp_path: Path, change: Callable[[Path, Random], str | None]
) -> None:
    """Without an effect of each change, runs that engines agree on would all be honest."""
    path = shutil.copytree(template, tmp_path / "run")
    assert any(change(path, Random(seed)) is not None for seed in range(5))
    before, after = (
        {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()}
        for run in (template, path)
    )
    assert before != after


def test_a_forged_run_is_a_false_alarm(template: Path, tmp_path: Path) -> None:
    """The comparison with the simulation's checkers finds an invalid check."""
    path = shutil.copytree(template, tmp_path / "run")
    for seed in range(50):
        remove_group(path, Random(seed))
    with embedded_engine() as engine:
        evaluation = evaluate_run(engine, path)
    assert false_alarms(evaluation), evaluation.headline


def test_the_first_difference_is_named() -> None:
    one, other = (json.dumps({"verdict": verdict, "n": 1}, indent=1) for verdict in ("valid", "invalid"))
    assert difference(one, one) is None
    assert difference(one, other) == '"verdict": "valid", | "verdict": "invalid",'
