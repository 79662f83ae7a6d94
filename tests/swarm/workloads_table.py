"""The table of words in docs/SIMULATION.md: what each is, who judges it, and what would be noticed without it.

    python -m tests.swarm.workloads_table docs/SIMULATION.md

rewrites the table between its markers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.swarm.workload import Word
from tests.swarm.workloads import ASKED_FOR, WORDS

BEGIN = "<!-- words: written by tests.swarm.workloads_table -->"
END = "<!-- end of words -->"


def table() -> str:
    """In Markdown. A word without a judge of its own is judged by those of every world."""
    rows = [_row(word, "swarm") for word in WORDS] + [_row(word, word.name) for word in ASKED_FOR]
    return "\n".join(
        ["| workload | run by | description | checks | mutants |", "|---|---|---|---|---|", *rows]
    )


def _row(word: Word, kind: str) -> str:
    judges = ", ".join(f"`{check.name}` ({check.invariant})" for check in word.checks)
    ablations = ", ".join(f"`{ablation.name}`" for ablation in word.ablations)
    cells = (f"`{word.name}`", f"`{kind}`", _meaning(word), judges or "-", ablations or "-")
    return f"| {' | '.join(cells)} |"


def _meaning(word: Word) -> str:
    """The first sentence of its file, without the names of other files."""
    text = " ".join((sys.modules[word.draw.__module__].__doc__ or "").split())
    text = re.sub(r" \(`\w+\.py`\)", "", text)
    return f"{text.partition('. ')[0].rstrip('.')}.".replace("|", "/")


def written(page: str) -> str:
    """What stands between the page's markers."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def rewrite(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewrite(path.read_text()))
