"""Transaction keys in the journals of transaction coordinators: granted epochs, transactions that began under a key,
and the decisions on them.

The journals (docs/components/transactions.md) are decoded independently of the broker's code: a check that used it
would share its defects. A checkpoint begins a *generation*: the entries after it repeat all state that is still valid,
and entries before it may have been trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from emulator.run.json_text import parse_json

BEGAN, DECIDED, GRANTED, DELETED, FLOOR = "began", "decided", "granted", "deleted", "floor"

NUMBER_MAX = 2**63 - 1
"""Highest epoch that the tables can hold."""

JournalRow = tuple[Any, ...]
"""Region, coordinator, generation, number, what, transaction, role, transaction key, epoch, process, status; None where
a field does not apply."""
CoordinatorEntry = tuple[str, str, int, bytes]
"""An entry of a journal: region, name of the journal, entry id and content."""


def rows_of(region: str, name: str, entries: Iterable[CoordinatorEntry]) -> Iterator[JournalRow]:
    """Yield the rows of one journal, none for entries without keys or decisions. ValueError for an entry that cannot be
    decoded."""
    coordinator, generation = int(name.rpartition("_")[2]), 0
    for _, _, number, data in entries:
        try:
            what, *rest = parse_json(data)
            row = _parsed(coordinator, what, rest)
            _validate(row)
        except (ValueError, TypeError) as problem:
            raise ValueError(f"entry {number} cannot be read: {problem}") from None
        generation += what == "checkpoint"
        if row is not None:
            yield (region, coordinator, generation, number, *row)


def _validate(row: JournalRow | None) -> None:
    """Raise ValueError for a value that the tables cannot hold."""
    if row is None:
        return
    *texts, epoch, process, status = row
    if any(not isinstance(one, str | None) for one in (*texts, process, status)):
        raise ValueError(f"{row!r} has a value that is no text")
    if epoch is not None and (type(epoch) is not int or not -1 <= epoch <= NUMBER_MAX):
        raise ValueError(f"{epoch!r} is no epoch")


def _parsed(coordinator: int, what: str, rest: list[Any]) -> JournalRow | None:
    match what, rest:
        case "began", [least, _, _, [role, key, epoch]]:
            return (BEGAN, f"{coordinator},{least}", role, key, epoch, None, None)
        case "decided", [least, status, *_]:
            return (DECIDED, f"{coordinator},{least}", None, None, None, None, status)
        case "granted", [role, key, epoch, process, _, *_]:
            return (GRANTED, None, role, key, epoch, process, None)
        case "deleted", [role, key, epoch]:
            return (DELETED, None, role, key, epoch, None, None)
        case "floor", [epoch, *_]:
            return (FLOOR, None, None, None, epoch, None, None)
        case (("began" | "begun" | "partitions" | "subscriptions" | "ended" | "checkpoint"), _):
            return None
    raise ValueError(f"{what!r} with {len(rest)} values")
