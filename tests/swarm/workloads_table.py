"""Write the table of workloads in docs/SIMULATION.md: the description of each, its checks and its mutants.

    python -m tests.swarm.workloads_table docs/SIMULATION.md

rewrites the table between its markers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.swarm.workload import Workload
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS

BEGIN = "<!-- workloads: written by tests.swarm.workloads_table -->"
END = "<!-- end of workloads -->"


def table() -> str:
    """Return the table in Markdown. A workload without checks of its own is covered by those of every run."""
    rows = [_row(workload, "swarm") for workload in SWARM_WORKLOADS] + [
        _row(workload, workload.name) for workload in NAMED_WORKLOADS
    ]
    return "\n".join(
        ["| workload | run by | description | checks | mutants |", "|---|---|---|---|---|", *rows]
    )


def _row(workload: Workload, kind: str) -> str:
    judges = ", ".join(f"`{check.name}` ({check.invariant})" for check in workload.checks)
    mutants = ", ".join(f"`{mutant.name}`" for mutant in workload.mutants)
    cells = (f"`{workload.name}`", f"`{kind}`", _meaning(workload), judges or "-", mutants or "-")
    return f"| {' | '.join(cells)} |"


def _meaning(workload: Workload) -> str:
    """The first sentence of its file, without the names of other files."""
    text = " ".join((sys.modules[workload.draw.__module__].__doc__ or "").split())
    text = re.sub(r" \(`\w+\.py`\)", "", text)
    return f"{text.partition('. ')[0].rstrip('.')}.".replace("|", "/")


def written(page: str) -> str:
    """Return the text between the page's markers."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def rewrite(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewrite(path.read_text()))
