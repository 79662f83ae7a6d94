"""Write docs/reference/workloads.md: the description of each workload, its checks and its mutants.

python -m tests.swarm.workloads_table
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.swarm.workload import Workload
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "workloads.md"
HEAD = """# Workloads of the swarm

<!-- Written by `python -m tests.swarm.workloads_table`. Do not edit. -->

"""


def text() -> str:
    """Return the page. Workloads without checks of their own are checked by those of every run."""
    rows = [_row(workload, "swarm") for workload in SWARM_WORKLOADS] + [
        _row(workload, workload.name) for workload in NAMED_WORKLOADS
    ]
    head = ["| workload | run by | description | checks | mutants |", "|---|---|---|---|---|"]
    return HEAD + "\n".join([*head, *rows, ""])


def _row(workload: Workload, run_by: str) -> str:
    checks = ", ".join(f"`{check.name}` ({check.invariant})" for check in workload.checks)
    mutants = ", ".join(f"`{mutant.name}`" for mutant in workload.mutants)
    cells = (f"`{workload.name}`", f"`{run_by}`", _description(workload), checks or "-", mutants or "-")
    return f"| {' | '.join(cells)} |"


def _description(workload: Workload) -> str:
    """Return the first sentence of the workload's module, without the names of other files."""
    text = " ".join((sys.modules[workload.draw.__module__].__doc__ or "").split())
    text = re.sub(r" \(`\w+\.py`\)", "", text)
    return f"{text.partition('. ')[0].rstrip('.')}.".replace("|", "/")


if __name__ == "__main__":
    PAGE.write_text(text())
