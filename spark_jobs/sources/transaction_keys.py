"""What the coordinators of transactions stored of transaction keys: who was granted which epoch, which transactions
were begun under a key, and when each was decided.

Their logs (docs/components/transactions.md) are read by independent code: a check that used the code that wrote
them would share its defects. A checkpoint begins a *generation*: what follows tells everything anew, and what stands
before it may be gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from spark_jobs.engines.frames import DataFrame, small_frame
from spark_jobs.sources.run_folder import EvidenceDamage

BEGAN, DECIDED, GRANTED, DELETED, FLOOR = "began", "decided", "granted", "deleted", "floor"

ENTRY_SCHEMA = pa.schema(
    {
        "region": pa.string(),
        "coordinator": pa.int64(),
        "generation": pa.int64(),
        "number": pa.int64(),
        "what": pa.string(),
        "transaction": pa.string(),
        "role": pa.string(),
        "transaction_key": pa.string(),
        "epoch": pa.int64(),
        "process": pa.string(),
    }
)
"""An entry. `number`: its place in its log; a coordinator has two, one of transactions and one of keys. `role`: of
the client that has the key, empty where clients have none."""

KEY_AT = ENTRY_SCHEMA.names.index("transaction_key")

Row = tuple[Any, ...]
CoordinatorEntry = tuple[str, str, int, bytes]
"""Region, name of the log, id of the entry, what it says."""


@dataclass(frozen=True, slots=True)
class KeyEvidence:
    """Entries in the shape of ENTRY_SCHEMA."""

    entries: DataFrame
    is_known: bool
    """There is any of a key."""


def read_keys(entries: Iterable[CoordinatorEntry], *, told: bool) -> tuple[KeyEvidence, list[EvidenceDamage]]:
    """From what coordinators stored. `told`: some client says that it used a key."""
    rows: list[Row] = []
    damages: list[EvidenceDamage] = []
    for (region, name), of_log in groupby(entries, key=lambda entry: entry[:2]):
        try:
            rows += rows_of(region, name, of_log)
        except ValueError as problem:
            damages.append(EvidenceDamage(f"{name} of {region}: {problem}", region))
    is_known = told or any(row[KEY_AT] is not None for row in rows)
    return KeyEvidence(small_frame(rows, ENTRY_SCHEMA), is_known), damages


def rows_of(region: str, name: str, entries: Iterable[CoordinatorEntry]) -> Iterator[Row]:
    """One log, in the shape of ENTRY_SCHEMA. ValueError for what cannot be read."""
    coordinator, generation = int(name.rpartition("_")[2]), 0
    for _, _, number, data in entries:
        try:
            what, *rest = json.loads(data)
            said = _said(coordinator, what, rest)
        except (ValueError, TypeError) as problem:
            raise ValueError(f"entry {number} cannot be read: {problem}") from None
        generation += what == "checkpoint"
        if said is not None:
            yield (region, coordinator, generation, number, *said)


def _said(coordinator: int, what: str, rest: list[Any]) -> Row | None:
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
