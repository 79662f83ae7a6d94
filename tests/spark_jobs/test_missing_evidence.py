"""No check is valid without its evidence, and no file of a run can be removed unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.checks import CHECKS
from spark_jobs.checks.check import EvidenceKind
from spark_jobs.engines.embedded.engine import embedded_engine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run

from .tampering.cursors import snapshot
from .tampering.kinds import WritableRun
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
)

OPTIONAL = {
    # A region writes this file when it receives a policy.
    *("regions/us/metadata.jsonl", "regions/eu/metadata.jsonl"),
    # Histories of a simulated run name no other files (docs/HISTORY.md, changes that are not detected).
    *("history/scenario.jsonl", "history/simulation.jsonl"),
}
Make = tuple[Callable[[], WritableRun], Callable[[Path], object] | None]


def with_snapshot() -> WritableRun:
    run = small_run()
    snapshot(run, 11, 10)
    return run


def all_stored(path: Path) -> None:
    cursor_at(11)(path)
    granted(0, f"orders-{EAST}", 0)(path)


RUNS: dict[str, Make] = {
    "snapshots": (with_snapshot, all_stored),
    "owners": (two_owners, both_granted),
    "transactions": (transactions, cursor_at(6)),
    "keys": (keyed, coordinator()),
    "plan": (planned, finished_in_west),
    "converged": (converged, replicated_cursors()),
    "metadata": (SharedMetadata, None),
}
ALL_RUNS = pytest.mark.parametrize("make", [pytest.param(one, id=name) for name, one in RUNS.items()])
OF_LOGS_ALONE = {"per-origin-order", "regions-converge", "one-owner", "cursors-converge"}
OF_HISTORIES_ALONE = {"consumers-received-everything", "processed-once", "times-agree"}


def written(make: Make, path: Path) -> Path:
    run, change = make
    run().write(path)
    if change is not None:
        change(path)
    return path


def evaluated(path: Path) -> Evaluation:
    with embedded_engine() as engine:
        return evaluate_run(engine, path)


def verdicts_of(path: Path) -> dict[str, str]:
    return {check.name: check.verdict for check in evaluated(path).checks}


def remove(path: Path, pattern: str) -> None:
    files = [*path.glob(pattern)]
    assert files
    for file in files:
        file.unlink()


@pytest.mark.long
@ALL_RUNS
@pytest.mark.parametrize(
    ("kind", "pattern"), [("logs", "regions/*/log.sqlite"), ("histories", "history/*.jsonl")]
)
def test_a_check_without_its_evidence_is_not_valid(
    tmp_path: Path, make: Make, kind: EvidenceKind, pattern: str
) -> None:
    path = written(make, tmp_path / "run")
    before = verdicts_of(path)
    remove(path, pattern)
    after = verdicts_of(path)
    needing = [check.name for check in CHECKS if kind in check.evidence and before[check.name] == "valid"]
    assert needing
    assert {name: after[name] for name in needing if after[name] not in ("unknown", "not applicable")} == {}
    assert after["evidence-complete"] == "unknown"


def test_checks_need_both_kinds_of_evidence_unless_they_are_listed() -> None:
    guarantees = [
        check for check in CHECKS if check.name not in ("publish-outcomes", "redelivered", "failover-gap")
    ]
    assert {check.name for check in guarantees if "histories" not in check.evidence} == OF_LOGS_ALONE
    assert {check.name for check in guarantees if "logs" not in check.evidence} == OF_HISTORIES_ALONE


@ALL_RUNS
@pytest.mark.long
def test_the_verdict_is_not_valid_without_one_of_the_files(tmp_path: Path, make: Make) -> None:
    path = written(make, tmp_path / "run")
    unnoticed = []
    for file in sorted(one for one in path.rglob("*") if one.is_file() and one.suffix != ".lock"):
        content = file.read_bytes()
        file.unlink()
        if evaluated(path).verdict == "valid":
            unnoticed.append(str(file.relative_to(path)))
        file.write_bytes(content)
    assert {*unnoticed} <= OPTIONAL, unnoticed
    assert evaluated(path).verdict == "valid"
