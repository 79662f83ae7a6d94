"""Which events of each source a cluster has, which it lacks, and when a tombstone may be removed.

A vector maps each origin (a cluster and an incarnation of its store) to the sequence up to which its holder has every
event that counts. Sources send only events that still count, so gaps in the numbers are no loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.core.metadata.event import BEGINNING, ClockReading, SyncEvent, SyncStamp, number
from emulator.core.metadata.stored import StoreTransaction, decoded
from emulator.model.stored_keys import SYNC_PENDING_PATH
from emulator.model.values import Change


@dataclass(frozen=True, slots=True)
class OwnClock:
    """What numbers and times the cluster gave its own events so far."""

    incarnation: str
    sequence: int = 0
    reading: ClockReading = BEGINNING
    """The latest one. With hybrid clocks also of what was heard."""

    def encode(self) -> bytes:
        raw = {"incarnation": self.incarnation, "sequence": self.sequence, **self.reading._asdict()}
        return json.dumps(raw).encode()

    @classmethod
    def decode(cls, value: bytes) -> OwnClock:
        """ValueError and others for what `encode` did not make."""
        raw = json.loads(value)
        if not isinstance(raw["incarnation"], str):
            raise ValueError(f"incarnation {raw['incarnation']!r} is not a text")
        reading = ClockReading(number(raw, "time_ms"), number(raw, "counter"))
        return cls(raw["incarnation"], number(raw, "sequence"), reading)


Vector = Mapping[str, int]
"""By origin: everything up to this sequence."""
ORIGINS_MAX = 1_000
"""Clusters and their incarnations; more is nonsense."""


def vector_of(applied: Change | None, clock: OwnClock, cluster: str) -> dict[str, int]:
    """What a store has of each origin: from the row SYNC_APPLIED_PATH and its own clock. StorageDamaged."""
    return {**stored_vector(applied), f"{cluster}:{clock.incarnation}": clock.sequence}


def stored_vector(change: Change | None) -> dict[str, int]:
    """Of a row that holds one. StorageDamaged."""
    return decoded(change, lambda value: vector_from_json(json.loads(value)), {})


def covers(vector: Vector, stamp: SyncStamp) -> bool:
    """Return whether the vector's holder has the event."""
    return vector.get(stamp.origin, 0) >= stamp.sequence


def merged(one: Vector, other: Vector) -> dict[str, int]:
    """Return what the holders of two vectors have together."""
    return {origin: max(one.get(origin, 0), other.get(origin, 0)) for origin in one.keys() | other.keys()}


def bounded(one: Vector, other: Vector) -> dict[str, int]:
    """What two have together, of ORIGINS_MAX origins at most, those of `one` first: no cluster accepts a larger vector,
    so what other clusters claim cannot let one grow without end."""
    together = merged(one, other)
    return {origin: together[origin] for origin in list(dict.fromkeys((*one, *other)))[:ORIGINS_MAX]}


def missing(mine: Vector, theirs: Vector) -> dict[str, int]:
    """By origin, up to where they have what I have not."""
    return {origin: sequence for origin, sequence in theirs.items() if sequence > mine.get(origin, 0)}


def may_go(mine: Vector, others: Mapping[str, Vector]) -> Callable[[SyncStamp], bool]:
    """Return a predicate for the tombstones that may be removed here. `others`: the last vector of each other cluster.

    Every cluster must have the tombstone. A cluster that has it sends nothing older any more, since it sends only what
    still counts there. Everything that it sent before must have arrived here.
    """
    is_here = all(
        mine.get(origin, 0) >= sequence
        for cluster, vector in others.items()
        for origin, sequence in vector.items()
        if origin.startswith(f"{cluster}:")
    )
    vectors = (mine, *others.values())
    return lambda stamp: is_here and all(covers(vector, stamp) for vector in vectors)


def vector_from_json(raw: Any) -> dict[str, int]:
    """The gate. ValueError for what is no vector."""
    if not isinstance(raw, Mapping) or len(raw) > ORIGINS_MAX:
        raise ValueError(f"{str(raw)[:80]!r} is not a version vector")
    return {origin: number(raw, origin) for origin in raw}


PendingChanges = dict[int, SyncEvent]
"""A cluster's own changes, by sequence, that may be published but are not applied yet: for clusters that publish
changes before they apply them (decision 0024).

The cluster's store contains them from when they are drawn up until they are applied, received back, or certain never to
be published. So the cluster always knows which of its own events may still take effect, whichever region died. This
lets it remove a tombstone: every other event that arrives late is superseded (INV-78).
"""


def read_pending(stored: Change | None) -> PendingChanges:
    """Raises StorageDamaged."""
    return decoded(stored, _read, {})


def _read(value: bytes) -> PendingChanges:
    return {event.stamp.sequence: event for event in map(SyncEvent.from_json, json.loads(value))}


def add_pending(rows: StoreTransaction, events: Iterable[SyncEvent]) -> None:
    pending = read_pending(rows.get(SYNC_PENDING_PATH.text))
    _write(rows, pending | {event.stamp.sequence: event for event in events})


def remove_pending(rows: StoreTransaction, stamps: Iterable[SyncStamp]) -> None:
    pending = read_pending(rows.get(SYNC_PENDING_PATH.text))
    gone = {
        stamp.sequence
        for stamp in stamps
        if stamp.sequence in pending and pending[stamp.sequence].stamp == stamp
    }
    if gone:
        _write(rows, {sequence: event for sequence, event in pending.items() if sequence not in gone})


def _write(rows: StoreTransaction, pending: PendingChanges) -> None:
    stored = [event.to_json() for _, event in sorted(pending.items())]
    rows.put(SYNC_PENDING_PATH.text, json.dumps(stored).encode() if stored else None)


def settled(clock: OwnClock, pending: PendingChanges) -> int:
    """Return the highest number up to which each own change is applied, or never will be."""
    return min(pending, default=clock.sequence + 1) - 1
