"""Run many seeds of a workload, and find the first one that detects a mutant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from emulator.simulation.parallel_runner import SeedResult, run_seeds
from tests.swarm.mutant import Mutant
from tests.swarm.mutants import overrides_without
from tests.swarm.runner import run_seed


@dataclass(frozen=True, slots=True)
class WorkloadResult(SeedResult):
    """The result of one seed of a workload, with its number of operations."""

    operations: Mapping[tuple[str, str], int]
    """(workload, outcome) -> number of operations."""


def run_workload(
    kind: str,
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    time_budget_seconds: float | None = None,
    without: str | None = None,
) -> Generator[WorkloadResult, None, None]:
    """Yield the results in the order of the seeds. `without`: the mutant to apply; None: the product as shipped."""
    return run_seeds(partial(_run, kind, without), seeds, jobs=jobs, time_budget_seconds=time_budget_seconds)


def _run(kind: str, without: str | None, seed: int) -> WorkloadResult:
    outcome = run_seed(kind, seed, overrides=overrides_without(without))
    return WorkloadResult(
        seed,
        outcome.violation,
        outcome.virtual_seconds,
        outcome.digest,
        outcome.figures,
        Counter((operation.workload, operation.outcome) for operation in outcome.operations),
    )


def first_caught(mutant: Mutant, *, seeds_max: int = 200, jobs: int = 1) -> WorkloadResult | None:
    """Return the result of the first seed that detects the mutant by one of its invariants; None: no seed does."""
    results = run_workload(mutant.kind, range(1, seeds_max + 1), jobs=jobs, without=mutant.name)
    with closing(results):
        for result in results:
            if result.violation is not None and result.violation.invariant in mutant.invariants:
                return result
    return None
