"""Explains a path that clusters share: which events won or lost, and which clusters lack changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.damage import DamagedRows, incomplete
from emulator.broker.metadata_sync.settings import excluded_in
from emulator.broker.metadata_sync.synchronizer import Synchronizer
from emulator.core.metadata.event import EXISTENCE, SyncStamp, is_synced, readable
from emulator.core.metadata.record import DocumentRecord, ElementState, Loser, stored_record
from emulator.core.metadata.version_vector import covers, stored_vector
from emulator.errors import StorageDamaged
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.stored_keys import SYNC_INCOMPLETE_PATH, SyncPeerPath, SyncRecordPath


def why_shared(metadata: Metadata, synchronizer: Synchronizer | None, path: str) -> list[Reason]:
    """Return why a path has its value, which clusters lack it, or why it is excluded; also damage of its rows. Empty
    for a path that is never shared, and in a region without a synchronizer."""
    if synchronizer is None:
        return []
    damaged = _why_damaged(synchronizer.damage, path)
    try:
        return [*damaged, *_why_shared(metadata, synchronizer, path)]
    except StorageDamaged as damage:
        return damaged or [Cause.ROW_DAMAGED(problem=damage)]


def _why_damaged(damage: DamagedRows, path: str) -> list[Reason]:
    """Return the damage of a path's row or of its sync record, and the replacements of damaged rows."""
    paths = (path, SyncRecordPath(path).text)
    found = [Cause.ROW_DAMAGED(problem=damage.found[one]) for one in paths if one in damage.found]
    reports = [damage.reports[one] for one in paths if one in damage.reports]
    return found + [Cause.ROW_REPLACED(problem=one.problem, time=_time(one.at_ms)) for one in reports]


def _why_shared(metadata: Metadata, synchronizer: Synchronizer, path: str) -> list[Reason]:
    if not is_synced(path):
        return []
    if not synchronizer.settings.covers(path):
        return [_why_excluded(metadata, synchronizer, path)]
    stored = metadata.get(SyncRecordPath(path).text)
    if stored is None:
        return [Cause.PATH_NOT_COMPARED()]
    record = stored_record(path, stored)
    return [
        *(_applied_event(element, entry) for element, entry in sorted(record.entries.items())),
        *(_lost_event(loser) for loser in record.losers),
        *(Cause.CLUSTER_EXCLUDES(cluster=one) for one in _excluding_clusters(metadata, synchronizer, path)),
        *(Cause.RECORDS_INCOMPLETE(cluster=one) for one in _recovering_clusters(metadata, synchronizer)),
        *_why_behind(metadata, synchronizer, record),
    ]


def _recovering_clusters(metadata: Metadata, synchronizer: Synchronizer) -> list[str]:
    """Return the clusters that must still send all their events, because a sync record of this cluster was damaged."""
    row = incomplete(metadata.get(SYNC_INCOMPLETE_PATH.text))
    return sorted(synchronizer.losses.expected.intersection(row))


def _why_behind(metadata: Metadata, synchronizer: Synchronizer, record: DocumentRecord) -> list[Reason]:
    """Return why clusters lack changes of the path; empty when every cluster has confirmed them."""
    behind = dict(_clusters_behind(metadata, synchronizer.losses.expected, record))
    clusters = " and ".join(behind)
    if not behind:
        return []
    leader = synchronizer.lease.holder
    if not leader:
        return [Cause.EVENTS_NOT_CARRIED(clusters=clusters)]
    if synchronizer.failure and leader == synchronizer.settings.region:
        return [Cause.EVENT_TOPIC_FAILS(clusters=clusters, failure=synchronizer.failure)]
    return [Cause.CLUSTERS_BEHIND(clusters=one, count=count) for one, count in behind.items()]


def _why_excluded(metadata: Metadata, synchronizer: Synchronizer, path: str) -> Reason:
    """Explain a path that this cluster does not share; NO_REASON for the event topic's own paths."""
    excluded = [one for one in synchronizer.settings.excluded if readable(path).startswith(one)]
    if not excluded:
        return NO_REASON  # a path of the event topic itself
    sharing = sorted(synchronizer.settings.clusters - set(_excluding_clusters(metadata, synchronizer, path)))
    also = f"; {', '.join(sharing)} did not exclude it and may have another value" if sharing else ""
    return Cause.PATH_EXCLUDED(path=excluded[0], also=also)


def _excluding_clusters(metadata: Metadata, synchronizer: Synchronizer, path: str) -> list[str]:
    clusters = sorted(synchronizer.settings.clusters)
    return [one for one in clusters if readable(path).startswith(excluded_in(metadata, one) or ())]


def _applied_event(element: str, entry: ElementState) -> Reason:
    present = "is there" if element == EXISTENCE else f"is {json.dumps(entry.value)}"
    return Cause.EVENT_APPLIED(
        element=_name(element),
        value="is gone" if entry.is_deleted else present,
        event=_event_text(entry.stamp),
        time=_time(entry.applied_ms),
    )


def _lost_event(loser: Loser) -> Reason:
    return Cause.EVENT_LOST(
        element=_name(loser.element),
        value="" if loser.element == EXISTENCE else f" {json.dumps(loser.value)}",
        event=_event_text(loser.stamp),
        winner=_event_text(loser.winner),
    )


def _event_text(stamp: SyncStamp) -> str:
    """Return the origin and the time of an event as text; values of a topology have time 0."""
    counter = f"+{stamp.counter}" if stamp.counter else ""
    when = f"at {_time(stamp.time_ms)}{counter}" if stamp.time_ms else "in its topology"
    return f"{stamp.source} #{stamp.sequence} {when}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _name(element: str) -> str:
    return "the document" if element == EXISTENCE else element


def _clusters_behind(
    metadata: Metadata, clusters: Iterable[str], record: DocumentRecord
) -> Iterator[tuple[str, int]]:
    """Yield the clusters that have not confirmed all changes of a record, each with the number of those changes."""
    newest = {event.stamp for event in record.events()}
    for cluster in sorted(clusters):
        received = stored_vector(metadata.get(SyncPeerPath(cluster).text))
        missing = [stamp for stamp in newest if stamp.source != cluster and not covers(received, stamp)]
        if missing:
            yield cluster, len(missing)
