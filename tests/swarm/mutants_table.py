"""Write docs/reference/mutants.md: what each mutant removes, and the first seed that detects it.

    python -m tests.swarm.mutants_table [NAME …]

searches for the first seeds of all mutants; with names, only of these and of mutants that the page does not list.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from tests.swarm.mutant import Mutant
from tests.swarm.mutants import MUTANTS
from tests.swarm.search import WorkloadResult, first_caught

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mutants.md"
SEEDS_MAX = 400


class Row(NamedTuple):
    name: str
    seed: int
    invariant: str


HEAD = ("| mutant: what it changes | invariant | first seed | witness |", "|---|---|---|---|")


def line(mutant: Mutant, result: WorkloadResult | None) -> str:
    """Return the mutant's row of the table, in Markdown."""
    begin = f"| `{mutant.name}`: {mutant.safeguard} |"
    if result is None or result.violation is None:
        return f"{begin} {mutant.invariants[0]} | - | not detected |"
    violation = result.violation
    sentence = violation.sentence.replace("|", "/")
    return f"{begin} {violation.invariant} | {result.seed} | {sentence} |"


def lines_of(page: str) -> dict[str, str]:
    """Return the rows of the page as text, by mutant."""
    return {name: text for text, name in re.findall(r"^(\| `([^`]+)`: .*)$", page, re.MULTILINE)}


def rows_of(page: str) -> list[Row]:
    """Return the parsed rows of the page, without mutants that were not detected."""
    pattern = re.compile(r"^\| `([^`]+)`: .*? \| (INV-\d+) \| (\d+) \|", re.MULTILINE)
    return [Row(name, int(seed), invariant) for name, invariant, seed in pattern.findall(page)]


def main(names: set[str], jobs: int = 2) -> int:
    """Write the page. Return 1 if a mutant is not detected, otherwise 0."""
    page = PAGE.read_text()
    kept = lines_of(page) if names else {}
    lines, missed = [*HEAD], 0
    for mutant in MUTANTS:
        if mutant.name in kept and mutant.name not in names:
            lines.append(kept[mutant.name])
            continue
        result = first_caught(mutant, seeds_max=SEEDS_MAX, jobs=jobs)
        print(f"{mutant.name}: {'not detected' if result is None else result.seed}", flush=True)
        missed += result is None
        lines.append(line(mutant, result))
    PAGE.write_text("\n".join([page.partition(HEAD[0])[0].rstrip(), "", *lines, ""]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:])))
