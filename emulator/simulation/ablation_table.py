"""The table of safeguards in docs/INVARIANTS.md: what is taken away, and which seed notices.

    python -m emulator.simulation.ablation_table docs/INVARIANTS.md

searches again and rewrites the table between its markers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from emulator.simulation.ablation import Ablation
from emulator.simulation.ablations import ABLATIONS
from emulator.simulation.fleet import SeedResult, first_caught

BEGIN = "<!-- ablations: written by emulator.simulation.ablation_table -->"
END = "<!-- end of ablations -->"
SEEDS_MAX = 400


class Row(NamedTuple):
    name: str
    seed: int
    invariant: str


def table(results: list[tuple[Ablation, SeedResult | None]]) -> str:
    """In Markdown."""
    lines = ["| safeguard taken away | invariant | first seed | witness |", "|---|---|---|---|"]
    for ablation, result in results:
        if result is None or result.violation is None:
            lines.append(
                f"| `{ablation.name}`: {ablation.safeguard} | {ablation.invariants[0]} | - | not caught |"
            )
            continue
        violation = result.violation
        sentence = violation.sentence.replace("|", "/")
        lines.append(
            f"| `{ablation.name}`: {ablation.safeguard} | {violation.invariant} | {result.seed} | {sentence} |"
        )
    return "\n".join(lines)


def rows_of(page: str) -> list[Row]:
    """What the page says; rows of what was not caught are left out."""
    between = page.partition(BEGIN)[2].partition(END)[0]
    pattern = re.compile(r"^\| `([^`]+)`: .*? \| (INV-\d+) \| (\d+) \|", re.MULTILINE)
    return [Row(name, int(seed), invariant) for name, invariant, seed in pattern.findall(between)]


def rewrite(page: str, new_table: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{new_table}\n{END}{after}"


def main(path: Path, jobs: int = 2) -> int:
    """Exit code 1 when one is not caught."""
    results = []
    for ablation in ABLATIONS:
        result = first_caught(ablation, seeds_max=SEEDS_MAX, jobs=jobs)
        print(f"{ablation.name}: {'not caught' if result is None else result.seed}", flush=True)
        results.append((ablation, result))
    path.write_text(rewrite(path.read_text(), table(results)))
    return 1 if any(result is None for _, result in results) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
