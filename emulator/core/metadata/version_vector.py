"""Version vectors: which events of each origin a cluster has, and which tombstones may be removed.

A vector maps each origin (a cluster and an incarnation of its store) to the sequence up to which its holder has every
event that was not superseded. Clusters send no superseded events, so a gap in the received numbers is no loss.
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
    """The last sequence number and clock reading of a cluster's own events."""

    incarnation: str
    sequence: int = 0
    reading: ClockReading = BEGINNING
    """The latest reading of an own event; with hybrid clocks, of any event that was not from the far future. Removed
    tombstones may advance it."""

    def encode(self) -> bytes:
        raw = {"incarnation": self.incarnation, "sequence": self.sequence, **self.reading._asdict()}
        return json.dumps(raw).encode()

    @classmethod
    def decode(cls, value: bytes) -> OwnClock:
        """Decode the result of `encode`. Raises one of `UNREADABLE` for anything else."""
        raw = json.loads(value)
        if not isinstance(raw["incarnation"], str):
            raise ValueError(f"incarnation {raw['incarnation']!r} is not a text")
        reading = ClockReading(number(raw, "time_ms"), number(raw, "counter"))
        return cls(raw["incarnation"], number(raw, "sequence"), reading)


Vector = Mapping[str, int]
"""Origin -> sequence up to which the holder has every event that was not superseded."""
ORIGINS_MAX = 1_000
"""Maximum number of origins of a vector: clusters and their incarnations."""


def vector_of(applied: Change | None, clock: OwnClock, cluster: str) -> dict[str, int]:
    """Return a store's version vector, from its row SYNC_APPLIED_PATH and its own clock. Raises StorageDamaged."""
    return {**stored_vector(applied), f"{cluster}:{clock.incarnation}": clock.sequence}


def stored_vector(change: Change | None) -> dict[str, int]:
    """Return the version vector of a row; empty when there is none. Raises StorageDamaged."""
    return decoded(change, lambda value: vector_from_json(json.loads(value)), {})


def covers(vector: Vector, stamp: SyncStamp) -> bool:
    """Return whether the vector's holder has the event, or one that superseded it."""
    return vector.get(stamp.origin, 0) >= stamp.sequence


def merged(one: Vector, other: Vector) -> dict[str, int]:
    """Return the vector of the events that either holder has."""
    return {origin: max(one.get(origin, 0), other.get(origin, 0)) for origin in one.keys() | other.keys()}


def bounded(one: Vector, other: Vector) -> dict[str, int]:
    """Return `merged`, cut to ORIGINS_MAX origins, those of `one` first. No cluster accepts a larger vector, so no
    vector grows without bound, whatever other clusters claim."""
    together = merged(one, other)
    return {origin: together[origin] for origin in list(dict.fromkeys((*one, *other)))[:ORIGINS_MAX]}


def missing(mine: Vector, theirs: Vector) -> dict[str, int]:
    """Return the origins of which `theirs` has events that `mine` lacks, with their sequences in `theirs`."""
    return {origin: sequence for origin, sequence in theirs.items() if sequence > mine.get(origin, 0)}


def removable_tombstones(mine: Vector, others: Mapping[str, Vector]) -> Callable[[SyncStamp], bool]:
    """Return a predicate for the tombstones that may be removed here. `others`: the last vector of each other cluster.

    Every cluster must have the tombstone: then it sends no older event any more, because clusters send no superseded
    events. The events that the other clusters had sent before must have arrived here: for each of them, all its own
    events in its vector.
    """
    own_events_arrived = all(
        mine.get(origin, 0) >= sequence
        for cluster, vector in others.items()
        for origin, sequence in vector.items()
        if origin.startswith(f"{cluster}:")
    )
    vectors = (mine, *others.values())
    return lambda stamp: own_events_arrived and all(covers(vector, stamp) for vector in vectors)


def vector_from_json(raw: Any) -> dict[str, int]:
    """Return a validated version vector. Raises ValueError for anything else."""
    if not isinstance(raw, Mapping) or len(raw) > ORIGINS_MAX:
        raise ValueError(f"{str(raw)[:80]!r} is not a version vector")
    return {origin: number(raw, origin) for origin in raw}


PendingChanges = dict[int, SyncEvent]
"""A cluster's prepared changes, by sequence: own events that may be published but are not applied yet. Only clusters
that publish changes before they apply them have some (decision 0024).

The store contains a change from its preparation until it is applied or certain never to be published. So the cluster
always knows which of its own events may still take effect, even if the region that prepared them died. Every other own
event that arrives late is superseded, so the cluster can remove tombstones (INV-78).
"""


def read_pending(stored: Change | None) -> PendingChanges:
    """Return the stored pending changes. Raises StorageDamaged."""
    return decoded(stored, _read, {})


def _read(value: bytes) -> PendingChanges:
    return {event.stamp.sequence: event for event in map(SyncEvent.from_json, json.loads(value))}


def add_pending(rows: StoreTransaction, events: Iterable[SyncEvent]) -> None:
    pending = read_pending(rows.get(SYNC_PENDING_PATH.text))
    _write(rows, pending | {event.stamp.sequence: event for event in events})


def remove_pending(rows: StoreTransaction, stamps: Iterable[SyncStamp]) -> None:
    pending = read_pending(rows.get(SYNC_PENDING_PATH.text))
    removed = {
        stamp.sequence
        for stamp in stamps
        if stamp.sequence in pending and pending[stamp.sequence].stamp == stamp
    }
    if removed:
        _write(rows, {sequence: event for sequence, event in pending.items() if sequence not in removed})


def _write(rows: StoreTransaction, pending: PendingChanges) -> None:
    stored = [event.to_json() for _, event in sorted(pending.items())]
    rows.put(SYNC_PENDING_PATH.text, json.dumps(stored).encode() if stored else None)


def settled(clock: OwnClock, pending: PendingChanges) -> int:
    """Return the highest sequence up to which no own change is pending: each is applied, or never will be."""
    return min(pending, default=clock.sequence + 1) - 1
