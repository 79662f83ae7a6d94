"""Why a path that clusters share is what it is: which event won, which lost, and who lacks it yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from emulator.broker.metadata import Metadata
from emulator.broker.metadata_sync.exclusions import excluded_in
from emulator.broker.metadata_sync.synchronizer import Synchronizer
from emulator.core.metadata_sync.elements import EXISTENCE, is_synced, readable
from emulator.core.metadata_sync.event import Stamp
from emulator.core.metadata_sync.record import Loser, Record
from emulator.core.metadata_sync.rules import Entry
from emulator.core.metadata_sync.standing import covers
from emulator.stored_keys import SyncPeerPath, SyncRecordPath


class Shared(NamedTuple):
    """What is to be said of a path that clusters share."""

    why: str
    waits_for: list[str]


def shared(metadata: Metadata, synchronizer: Synchronizer | None, path: str) -> Shared | None:
    """None: clusters do not share it."""
    if synchronizer is None or not is_synced(path):
        return None
    if not synchronizer.settings.covers(path):
        return _kept(metadata, synchronizer, path)
    stored = metadata.get(SyncRecordPath(path).text)
    if stored is None:
        return Shared("nobody has looked yet whether other clusters know of it", ["the region that carries"])
    record = Record.decode(path, stored.value)
    won = [_won(element, entry) for element, entry in sorted(record.entries.items())]
    lost = [_lost(loser) for loser in record.losers]
    lost += [
        f"cluster {cluster} excludes it (metadata_sync_excluded_paths), and hears nothing of it"
        for cluster in _excluding(metadata, synchronizer, path)
    ]
    waits_for = [*_behind(metadata, synchronizer.losses.expected, record)]
    if waits_for and not synchronizer.lease.holder:
        waits_for.append("a region of this cluster to carry its metadata events")
    if waits_for and synchronizer.why_not:
        waits_for.append(f"the event topic: {synchronizer.why_not}")
    return Shared("; ".join(won + lost), waits_for)


def _kept(metadata: Metadata, synchronizer: Synchronizer, path: str) -> Shared | None:
    """Of a path that this cluster keeps to itself."""
    excluded = [one for one in synchronizer.settings.excluded if readable(path).startswith(one)]
    if not excluded:
        return None  # the event topic's own
    sharing = sorted(synchronizer.settings.clusters - set(_excluding(metadata, synchronizer, path)))
    also = (
        f"; {', '.join(sharing)} did not say to exclude it, too, and changes it without this one"
        if sharing
        else ""
    )
    return Shared(f"metadata_sync_excluded_paths has {excluded[0]}, so it is this cluster's own{also}", [])


def _excluding(metadata: Metadata, synchronizer: Synchronizer, path: str) -> list[str]:
    clusters = sorted(synchronizer.settings.clusters)
    return [one for one in clusters if readable(path).startswith(excluded_in(metadata, one) or ())]


def _won(element: str, entry: Entry) -> str:
    what = (
        "is gone"
        if entry.is_deleted
        else "is there"
        if element == EXISTENCE
        else f"is {json.dumps(entry.value)}"
    )
    return f"{_name(element)} {what} by {_said(entry.stamp)}, applied here at {_time(entry.applied_ms)}"


def _lost(loser: Loser) -> str:
    what = "" if loser.element == EXISTENCE else f" {json.dumps(loser.value)}"
    return f"{_name(loser.element)}{what} of {_said(loser.stamp)} lost to {_said(loser.to)}"


def _said(stamp: Stamp) -> str:
    """Who said it when. What topologies say has the lowest time."""
    counter = f"+{stamp.counter}" if stamp.counter else ""
    when = f"at {_time(stamp.time_ms)}{counter}" if stamp.time_ms else "in its topology"
    return f"{stamp.source} #{stamp.sequence} {when}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _name(element: str) -> str:
    return "the document" if element == EXISTENCE else element


def _behind(metadata: Metadata, clusters: Iterable[str], record: Record) -> Iterator[str]:
    """Which clusters have not said that they have it. Those that are declared lost are not waited for."""
    newest = {event.stamp for event in record.events()}
    for cluster in sorted(clusters):
        said = metadata.get(SyncPeerPath(cluster).text)
        has = {} if said is None or said.value is None else json.loads(said.value)
        lacks = [stamp for stamp in newest if stamp.source != cluster and not covers(has, stamp)]
        if lacks:
            yield f"cluster {cluster} to say that it has {len(lacks)} of these changes"
