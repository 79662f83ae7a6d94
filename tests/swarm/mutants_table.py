"""The table of safeguards in docs/INVARIANTS.md: what is taken away, and which seed notices.

    python -m tests.swarm.mutants_table docs/INVARIANTS.md

searches again and rewrites the table between its markers. With names behind the page it searches for
those only, and for what the page does not have yet.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from tests.swarm.mutant import Mutant
from tests.swarm.mutants import MUTANTS
from tests.swarm.search import WorkloadResult, first_caught

BEGIN = "<!-- mutants: written by tests.swarm.mutants_table -->"
END = "<!-- end of mutants -->"
SEEDS_MAX = 400


class Row(NamedTuple):
    name: str
    seed: int
    invariant: str


HEAD = ("| mutant: what it changes | invariant | first seed | witness |", "|---|---|---|---|")


def line(mutant: Mutant, result: WorkloadResult | None) -> str:
    """In Markdown."""
    begin = f"| `{mutant.name}`: {mutant.safeguard} |"
    if result is None or result.violation is None:
        return f"{begin} {mutant.invariants[0]} | - | not detected |"
    violation = result.violation
    sentence = violation.sentence.replace("|", "/")
    return f"{begin} {violation.invariant} | {result.seed} | {sentence} |"


def lines_of(page: str) -> dict[str, str]:
    """By mutant, as the page has it."""
    between = page.partition(BEGIN)[2].partition(END)[0]
    return {name: text for text, name in re.findall(r"^(\| `([^`]+)`: .*)$", between, re.MULTILINE)}


def rows_of(page: str) -> list[Row]:
    """What the page says; rows of what was not detected are left out."""
    between = page.partition(BEGIN)[2].partition(END)[0]
    pattern = re.compile(r"^\| `([^`]+)`: .*? \| (INV-\d+) \| (\d+) \|", re.MULTILINE)
    return [Row(name, int(seed), invariant) for name, invariant, seed in pattern.findall(between)]


def rewrite(page: str, new_table: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{new_table}\n{END}{after}"


def main(path: Path, names: set[str], jobs: int = 2) -> int:
    """Exit code 1 when one is not detected."""
    kept = lines_of(path.read_text()) if names else {}
    lines, missed = [*HEAD], 0
    for mutant in MUTANTS:
        if mutant.name in kept and mutant.name not in names:
            lines.append(kept[mutant.name])
            continue
        result = first_caught(mutant, seeds_max=SEEDS_MAX, jobs=jobs)
        print(f"{mutant.name}: {'not detected' if result is None else result.seed}", flush=True)
        missed += result is None
        lines.append(line(mutant, result))
    path.write_text(rewrite(path.read_text(), "\n".join(lines)))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), set(sys.argv[2:])))
