"""A cluster's own changes that have numbers and may be published, but are not applied yet: for clusters that publish
changes before they apply them (decision 0024).

The cluster's store contains them from when they are drawn up until they are applied, received back, or certain never to
be published. So the cluster always knows which of its own events may still take effect, whichever region died. This
lets it remove a tombstone: every other event that arrives late is superseded (INV-78).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from emulator.core.metadata.event import SyncEvent, SyncStamp
from emulator.core.metadata.stored import StoreTransaction, decoded
from emulator.core.metadata.version_vector import OwnClock
from emulator.model.stored_keys import SYNC_DRAWN_PATH
from emulator.model.values import Change

Drawn = dict[int, SyncEvent]
"""By sequence."""


def read_drawn(stored: Change | None) -> Drawn:
    """Raises StorageDamaged."""
    return decoded(stored, _read, {})


def _read(value: bytes) -> Drawn:
    return {event.stamp.sequence: event for event in map(SyncEvent.from_json, json.loads(value))}


def add(rows: StoreTransaction, events: Iterable[SyncEvent]) -> None:
    drawn = read_drawn(rows.get(SYNC_DRAWN_PATH.text))
    _write(rows, drawn | {event.stamp.sequence: event for event in events})


def take_away(rows: StoreTransaction, stamps: Iterable[SyncStamp]) -> None:
    drawn = read_drawn(rows.get(SYNC_DRAWN_PATH.text))
    gone = {
        stamp.sequence for stamp in stamps if stamp.sequence in drawn and drawn[stamp.sequence].stamp == stamp
    }
    if gone:
        _write(rows, {sequence: event for sequence, event in drawn.items() if sequence not in gone})


def _write(rows: StoreTransaction, drawn: Drawn) -> None:
    told = [event.to_json() for _, event in sorted(drawn.items())]
    rows.put(SYNC_DRAWN_PATH.text, json.dumps(told).encode() if told else None)


def settled(clock: OwnClock, drawn: Drawn) -> int:
    """Return the highest number up to which each own change is applied, or never will be."""
    return min(drawn, default=clock.sequence + 1) - 1
