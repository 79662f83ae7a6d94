"""One region's part of a translation of positions: the origin of an entry here, or the entry of an origin here.

Snapshots give bounds if one region does not respond (docs/components/replication.md): a snapshot (P; b: X) of this
region says that every message at or before X in b that reaches this region is at or before P here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from emulator.broker.explain.delivery import READ_BYTES, READ_ENTRIES, origin_of
from emulator.broker.topic.topic import Topic
from emulator.core.replication.delivery_state import SCAN_ENTRIES_MAX
from emulator.core.replication.origin_search import OriginSearch
from emulator.core.replication.origins import Origin
from emulator.model.markers import Snapshot
from emulator.model.values import Position


async def origin_at(topic: Topic, position: Position) -> dict[str, Any] | None:
    """Return the origin of an entry of this log, and positions in other regions that are before it. None: the log has
    no such entry, because it is trimmed, not stored yet or of another log of the topic. StorageError."""
    is_here = topic.reading.first_entry_id <= position.entry < topic.state.readable_end
    if position.ledger != topic.ledger_id or not is_here:
        return None
    found = await topic.reading.read(position.entry, 1, 1)
    if not found or found[0].entry_id != position.entry:
        return None
    origin = origin_of(topic, found[0])
    return {
        "region": topic.region.config.region,
        "position": str(position),
        "origin": None if origin is None else str(origin),
        "after": _positions_before(topic, position),
    }


def _positions_before(topic: Topic, position: Position) -> dict[str, str]:
    """Return the highest position of each other region that is known to be before an entry here: its snapshot's own
    position is before the entry."""
    before = [one for one in _snapshots(topic) if one.local_position < position]
    return {region: str(place) for region, place in before[-1].positions} if before else {}


def _snapshots(topic: Topic) -> tuple[Snapshot, ...]:
    replicated = topic.subscriptions.replicated
    return () if replicated is None else replicated.snapshots.completed


def upto_of(topic: Topic, source: str, position: Position) -> Position | None:
    """Return the position here at or before which an entry of `source` is, if it is stored here at all, by the
    snapshots that this region knows; None: unknown."""
    for snapshot in _snapshots(topic):
        if dict(snapshot.positions).get(source, Position(-1, -1)) >= position:
            return snapshot.local_position
    return None


async def place_of(topic: Topic, origin: Origin) -> dict[str, Any]:
    """Return the position of an entry by its origin, or its neighbours of the same origin region. StorageError."""
    here, first, end = topic.region.config.region, topic.reading.first_entry_id, topic.state.readable_end
    if origin.region == here and origin.ledger == topic.ledger_id:
        is_here = first <= origin.entry < end
        return _place(topic, origin.entry if is_here else None, None, None, is_complete=is_here)
    search, read = OriginSearch(origin, first, end), 0
    while not search.is_done and read < SCAN_ENTRIES_MAX:
        wanted = min(READ_ENTRIES if read else 16, search.read_end - search.read_from)
        entries = await topic.reading.read(search.read_from, wanted, READ_BYTES)
        entries = [entry for entry in entries if entry.entry_id < search.read_end]
        chunk_end = entries[-1].entry_id + 1 if entries else search.read_end
        search.chunk_read(chunk_end, [(entry.entry_id, origin_of(topic, entry)) for entry in entries])
        read += max(1, len(entries))
        await asyncio.sleep(0)
    return _place(topic, search.found, search.before, search.after, is_complete=search.is_done)


def _place(
    topic: Topic, found: int | None, before: int | None, after: int | None, *, is_complete: bool
) -> dict[str, Any]:
    def text(entry_id: int | None) -> str | None:
        return None if entry_id is None else str(Position(topic.ledger_id, entry_id))

    return {
        "region": topic.region.config.region,
        "position": text(found),
        "after": text(before),
        "upto": text(after),
        "last": text(topic.state.readable_end - 1),
        "complete": is_complete,
    }
