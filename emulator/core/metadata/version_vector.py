"""What a cluster has of each source's events, what it misses, and when a tombstone may go.

A vector says of each origin (a cluster, and which incarnation of its store) up to which sequence somebody has
everything that counts. Sources send only what still counts, so numbers are missing and nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.core.metadata.event import SyncStamp, number
from emulator.core.metadata.hybrid_clock import BEGINNING, ClockReading
from emulator.core.metadata.stored import decoded
from emulator.model.values import Change


@dataclass(frozen=True, slots=True)
class OwnClock:
    """What numbers and times the cluster gave its own events so far."""

    incarnation: str
    sequence: int = 0
    reading: ClockReading = BEGINNING
    """The latest one. With hybrid clocks also of what was heard."""

    def encode(self) -> bytes:
        told = {"incarnation": self.incarnation, "sequence": self.sequence, **self.reading._asdict()}
        return json.dumps(told).encode()

    @classmethod
    def decode(cls, value: bytes) -> OwnClock:
        """ValueError and others for what `encode` did not make."""
        told = json.loads(value)
        if not isinstance(told["incarnation"], str):
            raise ValueError(f"incarnation {told['incarnation']!r} is not a text")
        reading = ClockReading(number(told, "time_ms"), number(told, "counter"))
        return cls(told["incarnation"], number(told, "sequence"), reading)


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
    """Whether an event is among those that somebody has."""
    return vector.get(stamp.origin, 0) >= stamp.sequence


def merged(one: Vector, other: Vector) -> dict[str, int]:
    """What two have together."""
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
    """Which tombstones may be let go here. `others`: what each other cluster said last that it has, by cluster.

    Everybody has it; whoever has it sends nothing older any more, since it sends only what still counts there; and what
    was sent before that is here already.
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
