"""The run directory of programs with a transaction key contains everything that the verdict requires."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.cli.seed_report import store_run
from spark_jobs.engines.embedded.engine import embedded_engine
from spark_jobs.verify import evaluate_run
from tests.swarm.runner import run_seed


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 3, 7])
def test_a_stored_run_of_tasks_is_verified_from_its_directory_alone(seed: int, tmp_path: Path) -> None:
    """With killed, cut off and fenced programs, too, every stored message has a known producer, and no publish with a
    definite failure is stored."""
    outcome = run_seed("transaction-key", seed)
    assert outcome.violation is None
    store_run(outcome, tmp_path / "run")
    with embedded_engine(0) as engine:
        evaluation = evaluate_run(engine, tmp_path / "run")
    verdicts = {check.invariant: check.verdict for check in evaluation.checks}
    assert {verdicts[name] for name in ("INV-1", "INV-3", "INV-58", "INV-59", "INV-70", "INV-71")} == {
        "valid"
    }
    assert evaluation.verdict == "valid"
