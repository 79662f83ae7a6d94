"""The table of reasons: every sentence by which a region explains the state of an object, for example why it waits.

The component that causes a wait returns a `Reason` created from a row of this table. `explain`, the statistics of the
admin API and the readiness of a region print its text unchanged. docs/components/explain.md lists the table.

Rows of one question are in order of precedence: when several causes coincide, the first one is printed.

    row.py           rows, and the reasons created from them
    replication.py   links, replicators, snapshots, positions
    topics.py        subscriptions, topics, exclusive producers
    metadata.py      the configuration store, transactions, readiness
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from emulator.model.reasons.metadata import MetadataCauses
from emulator.model.reasons.replication import ReplicationCauses
from emulator.model.reasons.row import DETAIL_CHARACTERS_MAX, NO_REASON, Question, Reason, ReasonRow
from emulator.model.reasons.topics import TopicCauses

__all__ = [
    "DETAIL_CHARACTERS_MAX",
    "NO_REASON",
    "REASON_ROWS",
    "Cause",
    "Question",
    "Reason",
    "ReasonRow",
    "first_of",
    "rows_of",
]


class Cause(ReplicationCauses, TopicCauses, MetadataCauses):
    """All rows by name: `Cause.LINK_CUT(...)` returns a reason."""


REASON_ROWS: Final[tuple[ReasonRow, ...]] = tuple(
    row
    for part in (ReplicationCauses, TopicCauses, MetadataCauses)
    for row in vars(part).values()
    if isinstance(row, ReasonRow)
)
_ORDER: Final = {row.name: rank for rank, row in enumerate(REASON_ROWS)}


def first_of(reasons: Iterable[Reason]) -> Reason:
    """Return the reason whose row is first in the table; of several with one row, the first of `reasons`. NO_REASON:
    all are empty."""
    return min(filter(None, reasons), key=_rank, default=NO_REASON)


def _rank(reason: Reason) -> int:
    assert reason.cause is not None
    return _ORDER[reason.cause.name]


def rows_of(question: Question) -> list[ReasonRow]:
    """Return the rows that answer a question, in order of precedence."""
    return [row for row in REASON_ROWS if row.question is question]
