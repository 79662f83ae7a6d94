"""Changed evidence: each change gives an invalid or unknown verdict with its sentence (docs/reference/tampering.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import embedded_engine
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run

from .generated_runs import difference, report_text
from .sample_run import SampleRun
from .tampering.cursors import snapshot
from .tampering.kinds import Tampering, WritableRun
from .tampering.runs import (
    EAST,
    SharedMetadata,
    both_granted,
    converged,
    coordinator,
    cursor_at,
    finished_in_west,
    granted,
    keyed,
    planned,
    replicated_cursors,
    small_run,
    transactions,
    two_owners,
    two_producers,
)
from .tampering.table import PAGE, TAMPERINGS, page


@pytest.mark.parametrize(
    "tampering",
    [
        pytest.param(one, id=one.name, marks=() if number % 8 == 0 else pytest.mark.long)
        for number, one in enumerate(TAMPERINGS)
    ],
)
def test_the_check_reports_it(tmp_path: Path, tampering: Tampering) -> None:
    with embedded_engine() as engine:
        evaluation = evaluate_run(engine, tampering.write(tmp_path / "run"))
    (check,) = [one for one in evaluation.checks if tampering.check in (one.invariant, one.name)]
    assert check.verdict == tampering.verdict, verdicts(evaluation)
    assert evaluation.verdict in ("invalid", tampering.verdict), verdicts(evaluation)
    assert tampering.sentence in check.sentence
    assert not tampering.kind or tampering.kind in {one.get("kind") for one in check.witness}, check.witness


@pytest.mark.parametrize(
    "tampering",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.long if number % 33 == 0 else pytest.mark.slow)
        for number, one in enumerate(TAMPERINGS)
    ],
)
def test_both_engines_write_the_same_report(spark: SparkEngine, tmp_path: Path, tampering: Tampering) -> None:
    path = tampering.write(tmp_path / "run")
    with embedded_engine() as embedded:
        expected = report_text(embedded, path)
    assert difference(expected, report_text(spark, path)) is None


def test_every_tampering_has_its_own_name() -> None:
    assert [name for name, n in Counter(one.name for one in TAMPERINGS).items() if n > 1] == []
    assert len(TAMPERINGS) >= 40
    assert [one.name for one in TAMPERINGS if not one.sentence] == []


def test_the_page_lists_every_tampering() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def verdicts(evaluation: Evaluation) -> str:
    return "\n".join(f"{one.verdict} {one.invariant} {one.sentence}" for one in evaluation.checks)


def untouched() -> SampleRun:
    run = small_run()
    snapshot(run, 11, 10)
    return run


def all_stored(path: Path) -> None:
    cursor_at(11)(path)
    granted(0, f"orders-{EAST}", 0)(path)


WITHOUT_TRANSACTIONS = (
    "INV-1",
    "INV-2",
    "INV-3",
    "INV-4",
    "INV-5",
    "INV-6",
    "INV-12",
    "INV-13",
    "INV-18",
    "INV-25",
)


@pytest.mark.parametrize(
    ("make", "on_disk", "valid"),
    [
        pytest.param(untouched, all_stored, WITHOUT_TRANSACTIONS, id="all"),
        pytest.param(two_producers, None, (), id="producers"),
        pytest.param(two_owners, both_granted, (), id="owners"),
        pytest.param(lambda: small_run(replicated=False), None, (), id="one region"),
        pytest.param(
            transactions, cursor_at(6), ("INV-1", "INV-5", "INV-18", "INV-58", "INV-59"), id="transactions"
        ),
        pytest.param(keyed, coordinator(), ("INV-70", "INV-71", "INV-72"), id="keys"),
        pytest.param(planned, finished_in_west, ("INV-5", "INV-18", "INV-125"), id="plan"),
        pytest.param(converged, replicated_cursors(), ("INV-12", "INV-18", "INV-128"), id="converged"),
        pytest.param(SharedMetadata, None, ("INV-1", "INV-53"), id="metadata"),
    ],
)
def test_unchanged_evidence_is_valid(
    engine: QueryEngine,
    tmp_path: Path,
    make: Callable[[], WritableRun],
    on_disk: Callable[[Path], object] | None,
    valid: Sequence[str],
) -> None:
    """`valid`: the invariants whose checks have something to check."""
    path = make().write(tmp_path / "run")
    if on_disk is not None:
        on_disk(path)
    evaluation = evaluate_run(engine, path)
    assert evaluation.verdict == "valid", verdicts(evaluation)
    assert evaluation.checks[0].verdict == "valid", verdicts(evaluation)
    found = {one.invariant: one.verdict for one in evaluation.checks}
    assert {name: found[name] for name in valid} == dict.fromkeys(valid, "valid"), verdicts(evaluation)
