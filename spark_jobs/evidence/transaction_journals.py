"""What the journals of transaction coordinators say of transaction keys: which epochs were granted, which transactions
began under a key, and when each was decided.

The journals (docs/components/transactions.md) are read by code of its own: a check that used the code that wrote them
would share its defects. A checkpoint begins a *generation*: what follows it repeats everything that still counts, and
what is in front of it may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

BEGAN, DECIDED, GRANTED, DELETED, FLOOR = "began", "decided", "granted", "deleted", "floor"

JournalRow = tuple[Any, ...]
"""Region, coordinator, generation, number, what, transaction, role, transaction key, epoch, process; None where a field
does not apply."""
CoordinatorEntry = tuple[str, str, int, bytes]
"""Region, name of the journal, id and content of the entry."""


def rows_of(region: str, name: str, entries: Iterable[CoordinatorEntry]) -> Iterator[JournalRow]:
    """The rows of one journal. ValueError for an entry that cannot be read."""
    coordinator, generation = int(name.rpartition("_")[2]), 0
    for _, _, number, data in entries:
        try:
            what, *rest = json.loads(data)
            said = _parsed(coordinator, what, rest)
        except (ValueError, TypeError) as problem:
            raise ValueError(f"entry {number} cannot be read: {problem}") from None
        generation += what == "checkpoint"
        if said is not None:
            yield (region, coordinator, generation, number, *said)


def _parsed(coordinator: int, what: str, rest: list[Any]) -> JournalRow | None:
    match what, rest:
        case "began", [least, _, _, [role, key, epoch]]:
            return (BEGAN, f"{coordinator},{least}", role, key, epoch, None)
        case "decided", [least, *_]:
            return (DECIDED, f"{coordinator},{least}", None, None, None, None)
        case "granted", [role, key, epoch, process, _, *_]:
            return (GRANTED, None, role, key, epoch, process)
        case "deleted", [role, key, epoch]:
            return (DELETED, None, role, key, epoch, None)
        case "floor", [epoch, *_]:
            return (FLOOR, None, None, None, epoch, None)
        case (("began" | "begun" | "partitions" | "subscriptions" | "ended" | "checkpoint"), _):
            return None
    raise ValueError(f"{what!r} with {len(rest)} values")
