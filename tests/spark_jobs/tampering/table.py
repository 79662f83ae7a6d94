"""All kinds of tampering, and the page that lists them: `python -m tests.spark_jobs.tampering.table` (`make docs`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .cursors import CONVERGENCE, CURSORS, GRANTS, PLANS
from .exports import EXPORTS
from .folders import FOLDERS
from .forgeries import FORGERIES
from .histories import FAULTS, HISTORIES
from .kinds import Tampering
from .logs import LOGS
from .metadata import METADATA, POLICIES
from .transactions import KEYS, TRANSACTIONS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "tampering.md"
GROUPS: Mapping[str, Sequence[Tampering]] = {
    "Logs": LOGS,
    "Histories": HISTORIES,
    "Faults": FAULTS,
    "Cursors, snapshots, updates": CURSORS,
    "Replicated subscriptions": CONVERGENCE,
    "Exclusive access": GRANTS,
    "Fail-over plans": PLANS,
    "Transactions": TRANSACTIONS,
    "Transaction keys and coordinators": KEYS,
    "Metadata": METADATA,
    "Policies": POLICIES,
    "Manifest and other files": FOLDERS,
    "Forgeries that leave each file consistent": FORGERIES,
    "Exports": EXPORTS,
}
TAMPERINGS: Sequence[Tampering] = tuple(one for group in GROUPS.values() for one in group)


def page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterable[str]:
    verdicts = Counter(one.verdict for one in TAMPERINGS)
    yield from (
        "# Tampering that is detected",
        "",
        "<!-- Generated from the code by `make docs`. Do not edit. -->",
    )
    yield from (
        "",
        f"Each of these {len(TAMPERINGS)} changes of the evidence of a run is detected by the verdict, with either"
        f" engine: {verdicts['invalid']} make it *invalid*, {verdicts['unknown']} *unknown*."
        " `tests/spark_jobs/test_tampering.py` applies each of them to a small run. *sentence*: a part of the sentence"
        " of the check that reports the change. *kind*: the kind of its witness ([REPORT.md](../REPORT.md))."
        " `evidence-complete` is the check of the evidence itself. [HISTORY.md](../HISTORY.md) lists changes that are"
        " not detected.",
        "",
    )
    for name, group in GROUPS.items():
        yield from (
            f"## {name}",
            "",
            "| change | verdict | reported by | kind | sentence |",
            "|---|---|---|---|---|",
        )
        for one in group:
            cells = (one.name, one.verdict, one.check, one.kind, one.sentence)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
