"""Reads the log of a topic for fail-over plans: what this region would deliver, and its part of a comparison.

The log is read in chunks, with other tasks running between them, up to a limit of entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.topic import Topic
from emulator.core.cursor.cursor import Cursor
from emulator.core.replication import individual_acks
from emulator.core.replication.delivery_state import (
    SCAN_ENTRIES_MAX,
    DeliveryScan,
    DeliveryState,
    ScannedEntry,
)
from emulator.core.replication.failover_plan import (
    Acknowledged,
    PlannedFigures,
    SourceComparison,
    SourceLog,
)
from emulator.core.replication.origins import Origin, OriginLedger
from emulator.core.replication.subscription_updates import never_reaches
from emulator.model.values import Position

READ_ENTRIES: Final = 512
READ_BYTES: Final = 4_194_304


async def delivery_state(topic: Topic, name: str, source: str | None) -> DeliveryState:
    """Return what this region would deliver to the subscription's consumers. `source`: the region from which their
    fail-over starts. When this returns, the cursor is durable: no restart revokes an acknowledgement of the state.
    StorageError when the log cannot be read, or the cursor not be written."""
    subscription = topic.subscriptions.get(name)
    exists = subscription is not None and not subscription.closed
    first_entry_id = topic.reading.first_entry_id
    cursor = subscription.cursor if subscription is not None and exists else Cursor(first_entry_id - 1)
    acked, end = _copy_of(cursor), topic.state.readable_end
    state = DeliveryState(
        topic.region.config.region,
        exists=exists,
        replicated=exists and cursor.replicated,
        mark_delete=Position(topic.ledger_id, cursor.mark_delete) if exists else None,
        last=Position(topic.ledger_id, end - 1),
        stored={
            **topic.state.watermarks.positions,
            topic.region.config.region: Position(topic.ledger_id, end - 1),
        },
    )
    scan = DeliveryScan(state, source, topic.ledger_id)
    await _scan(topic, scan, acked, max(acked.mark_delete + 1, first_entry_id), end)
    if subscription is not None and exists:
        await subscription.persisted()
    return scan.result()


def _copy_of(cursor: Cursor) -> Cursor:
    """Return a copy of the acknowledgements of a cursor and of the claims that it has not applied yet."""
    copy = Cursor(cursor.mark_delete)
    copy.restore(cursor.copy_acked().parts)
    copy.open_bits.update(cursor.open_bits)
    copy.claims.update(cursor.claims)
    copy.claims.first = cursor.claims.first
    copy.held = cursor.held
    return copy


async def _scan(topic: Topic, scan: DeliveryScan, acked: Cursor, begin: int, end: int) -> None:
    """Add the unacknowledged entries of begin..end, `end` excluded. What other regions claim to have acknowledged is
    applied to `acked` as the dispatcher does (docs/components/individual-acks.md)."""
    here, reached = topic.region.config.region, dict[str, Position]()
    read = 0
    while (begin := acked.next_unacked(begin)) < end:
        if read >= SCAN_ENTRIES_MAX:
            scan.stopped(reached)
            return
        entries = await topic.reading.read(begin, min(READ_ENTRIES, end - begin), READ_BYTES)
        if not entries:
            return
        entries = [entry for entry in entries if entry.entry_id < end]
        if acked.claims and _takes_claims(topic):
            individual_acks.apply_stored_claims(acked, entries, OriginLedger(here, topic.ledger_id))
        for entry in entries:
            _add(topic, scan, acked, entry, reached)
        read += READ_ENTRIES if not entries else len(entries)
        begin = entries[-1].entry_id + 1 if entries else end
        reached[here] = Position(topic.ledger_id, begin - 1)
        await asyncio.sleep(0)  # for other tasks, if the entries were in memory


def _takes_claims(topic: Topic) -> bool:
    replicated = topic.subscriptions.replicated
    return replicated is not None and replicated.individual is not None


def _add(
    topic: Topic, scan: DeliveryScan, acked: Cursor, entry: StoredEntry, reached: dict[str, Position]
) -> None:
    found = scanned(topic, entry)
    if found.origin is not None:
        reached[found.origin.region] = found.origin.position
    if not acked.is_acked(entry.entry_id):
        reaches = scan.source is None or _reaches(topic, entry, scan.source)
        scan.add(found, acked.open_bits.get(entry.entry_id), reaches_source=reaches)


async def compare(topic: Topic, acked: Acknowledged, target: DeliveryState) -> PlannedFigures:
    """Compare this region's log and the acknowledgements of the subscription here with the state of the target, as far
    as necessary and at most SCAN_ENTRIES_MAX entries. StorageError when the log cannot be read."""
    here = topic.region.config.region
    log = SourceLog(
        here,
        topic.ledger_id,
        topic.reading.first_entry_id,
        topic.state.readable_end,
        topic.state.watermarks.positions,
    )
    comparison = SourceComparison(log, acked, target)
    end, read = log.end, 0
    while not comparison.is_done and read < SCAN_ENTRIES_MAX:
        begin = max(log.first_entry_id, end - READ_ENTRIES)
        lowest: dict[str, Position] = {}
        async for entry in _entries(topic, begin, end):
            found = scanned(topic, entry)
            comparison.add(found, reaches_target=_reaches(topic, entry, target.region))
            if found.origin is not None:
                lowest.setdefault(found.origin.region, found.origin.position)
        comparison.chunk_read(begin, lowest)
        read += end - begin
        end = begin
    log.first_entry_id = topic.reading.first_entry_id  # entries may have been trimmed meanwhile
    return comparison.result()


async def _entries(topic: Topic, begin: int, end: int) -> AsyncIterator[StoredEntry]:
    """Yield the entries of begin..end, `end` excluded, in ascending order."""
    while begin < end:
        entries = await topic.reading.read(begin, end - begin, READ_BYTES)
        for entry in entries:
            if entry.entry_id < end:
                yield entry
        if not entries:
            return
        begin = entries[-1].entry_id + 1
        await asyncio.sleep(0)


def scanned(topic: Topic, entry: StoredEntry) -> ScannedEntry:
    """Return the fields of an entry that plans need."""
    info = entry.info
    messages = 0 if entry.hidden else entry.messages
    if info.is_chunk and info.chunk_id != info.num_chunks - 1:
        messages = 0
    return ScannedEntry(entry.entry_id, origin_of(topic, entry), messages, info.publish_time_ms)


def origin_of(topic: Topic, entry: StoredEntry) -> Origin | None:
    """Return the origin of an entry of a topic's log; None: a region that does not append source positions sent it."""
    own = OriginLedger(topic.region.config.region, topic.ledger_id)
    return individual_acks.origin_of(own, entry.entry_id, entry.info)


def _reaches(topic: Topic, entry: StoredEntry, remote: str) -> bool:
    """Whether the entry is stored in another region, or will be, as far as this region knows."""
    info = entry.info
    if info.replicated_from is None and remote not in topic.replicators:
        return False
    origin = info.replicated_from or topic.region.config.region
    return not never_reaches(remote, origin=origin, replicate_to=info.replicate_to)
