"""Write docs/reference/invariants.md: what verifies each invariant of docs/INVARIANTS.md, according to the code.

python -m tests.swarm.invariants_table
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from spark_jobs.checks import CHECKS, metadata_converged, plans_kept
from spark_jobs.checks.service_contract import check_of
from tests.swarm.checkers.general import CHECKS as GENERAL_CHECKS
from tests.swarm.mutants import MUTANTS
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "invariants.md"
HEAD = """# What verifies each invariant

<!-- Written by `python -m tests.swarm.invariants_table`. Do not edit. -->

[INVARIANTS.md](../INVARIANTS.md) states the invariants. *Verdict*: checks of `geoemu verify`. *Swarm*: checks of
randomised runs: of every run, or of one [workload](workloads.md). *[Mutants](mutants.md)*: changes that violate the
invariant, each of which a check of the swarm must detect.

| invariant | verdict | swarm | mutants |
|---|---|---|---|
"""
Table = dict[str, list[str]]


def verdict_checks() -> Table:
    checks = ((check.name, check.invariant) for check in (*CHECKS, check_of([])))
    further = ((one.NAME, one.INVARIANT) for one in (plans_kept, metadata_converged))
    return _by_invariant([*checks, *further])


def swarm_checks() -> Table:
    """Return the names of checks; those of a workload begin with its name."""
    of_workloads = (
        (f"{workload.name}/{check.name}", check.invariant)
        for workload in (*SWARM_WORKLOADS, *NAMED_WORKLOADS)
        for check in workload.checks
    )
    # The simulation reports an error that no program handles as a violation of INV-15.
    general = ((check.name, check.invariant) for check in GENERAL_CHECKS)
    return _by_invariant([*general, ("programs-are-sound", "INV-15"), *of_workloads])


def mutants() -> Table:
    """Return the names of mutants, by the invariant whose safeguard they remove."""
    return _by_invariant((mutant.name, mutant.invariants[0]) for mutant in MUTANTS)


def text() -> str:
    columns = [verdict_checks(), swarm_checks(), mutants()]
    names = sorted(set().union(*columns), key=lambda name: int(name.removeprefix("INV-")))
    return HEAD + "".join(f"| {name} | {' | '.join(_cells(columns, name))} |\n" for name in names)


def _cells(columns: Iterable[Table], name: str) -> Iterator[str]:
    for column in columns:
        yield ", ".join(f"`{one}`" for one in column.get(name, ())) or "-"


def _by_invariant(pairs: Iterable[tuple[str, str]]) -> Table:
    found: Table = defaultdict(list)
    for name, invariant in pairs:
        if invariant.startswith("INV-"):
            found[invariant].append(name)
    return found


if __name__ == "__main__":
    PAGE.write_text(text())
