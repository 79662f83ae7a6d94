"""The swarm detects every mutant: otherwise its passing runs would mean little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from emulator.simulation.region import AS_SHIPPED
from tests.swarm.mutant import Mutant
from tests.swarm.mutants import MUTANTS
from tests.swarm.mutants_table import PAGE, SEEDS_MAX, rows_of
from tests.swarm.search import run_workload

pytestmark = pytest.mark.long

INVARIANTS = (Path(__file__).parents[2] / "docs" / "INVARIANTS.md").read_text()
ROWS = rows_of(PAGE.read_text())
CASES = [
    pytest.param(one, id=one.name, marks=[] if number % 10 == 0 else pytest.mark.slow)
    for number, one in enumerate(MUTANTS)
]
"""All mutants as test parameters. `.ci/run` tests every tenth, `.ci/long` all of them."""
FIRST_SEEDS = {row.name: row.seed for row in ROWS}


def seeds(mutant: Mutant) -> Iterator[int]:
    """Yield the detecting seed of the table first, then all others: a change of the code may move the detection."""
    hint = FIRST_SEEDS.get(mutant.name, 1)
    yield hint
    yield from (seed for seed in range(1, SEEDS_MAX + 1) if seed != hint)


@pytest.mark.parametrize("mutant", CASES)
def test_its_loss_is_noticed(mutant: Mutant) -> None:
    with closing(run_workload(mutant.kind, seeds(mutant), jobs=2, without=mutant.name)) as results:
        caught = any(
            result.violation is not None and result.violation.invariant in mutant.invariants
            for result in results
        )
    assert caught, f"none of {SEEDS_MAX} seeds detects the mutant: {mutant.safeguard}"


def test_the_table_names_them_all() -> None:
    """The page lists exactly the mutants; `python -m tests.swarm.mutants_table` writes it."""
    assert [row.name for row in ROWS] == [mutant.name for mutant in MUTANTS]
    assert all(1 <= row.seed <= SEEDS_MAX for row in ROWS)


def test_every_invariant_they_name_is_on_the_page() -> None:
    for mutant in MUTANTS:
        for invariant in mutant.invariants:
            assert f"| {invariant} |" in INVARIANTS


def test_each_mutant_changes_the_program() -> None:
    for mutant in MUTANTS:
        assert mutant.patch(AS_SHIPPED) != AS_SHIPPED, mutant.name


def test_a_part_that_is_unknown_is_no_seam() -> None:
    with pytest.raises(TypeError, match="no_such_part"):
        AS_SHIPPED.with_parts(no_such_part=None)
