"""Read the shared metadata of clusters: the documents of their configuration stores, and all stored events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from emulator.model.stored_keys import SYNC_APPLIED_PATH, SYNC_PENDING_PATH, SyncRecordPath, parse_path
from emulator.simulation.durable_media import Medium
from emulator.simulation.stored_messages import scan_once
from spark_jobs.evidence.metadata_events import (
    Document,
    EventStamp,
    MetadataEvent,
    document_in,
    is_shared,
    read_events,
    read_record,
)

EVENT_TOPIC = "persistent://pulsar/system/metadata-events"
OF_THE_EVENT_TOPIC = "namespace/pulsar%2Fsystem"
"""Path of the event topic's namespace. It is not shared: a cluster without it would receive no events."""

Stores = Mapping[str, Mapping[str, bytes]]
"""Content of the configuration stores: cluster -> path -> value."""


@dataclass(slots=True)
class MetadataEvidence:
    """The shared metadata of all clusters and its events."""

    stores: Stores = field(default_factory=dict)
    events: list[MetadataEvent] = field(default_factory=list)
    """Every event that the event topic or a configuration store still holds."""

    def documents(self, cluster: str) -> dict[str, Document]:
        """Return the documents that the cluster shares with the others, by path."""
        return {
            path: document_in(path, value)
            for path, value in self.stores[cluster].items()
            if is_shared(path) and path != OF_THE_EVENT_TOPIC
        }

    def lacking(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield (cluster, other cluster, sequence of the last event of the other that it has applied, sequence of the
        other's newest effective event). A change that lost a conflict in its own cluster is not published."""
        newest = {cluster: _newest_own(cluster, values) for cluster, values in self.stores.items()}
        for cluster, values in self.stores.items():
            applied = json.loads(values.get(SYNC_APPLIED_PATH.text, b"{}"))
            for other, (sequence, incarnation) in newest.items():
                last = applied.get(f"{other}:{incarnation}", 0)
                if other != cluster and last < sequence:
                    yield cluster, other, last, sequence


def _newest_own(cluster: str, values: Mapping[str, bytes]) -> tuple[int, str]:
    """Return (sequence, incarnation) of the newest event that the cluster created or is about to publish, and that is
    in effect in its own store."""
    own = [
        (event.stamp.sequence, event.stamp.incarnation)
        for event in _recorded(values)
        if event.stamp.source == cluster
    ]
    pending = json.loads(values.get(SYNC_PENDING_PATH.text, b"[]"))
    own += [(one["sequence"], one["incarnation"]) for one in pending]
    return max(own, default=(0, ""))


def _recorded(values: Mapping[str, bytes]) -> Iterator[MetadataEvent]:
    for path, value in values.items():
        key = parse_path(path)
        if isinstance(key, SyncRecordPath):
            yield from read_record(key.of, value)


def stored_metadata(stores: Stores, disks: Mapping[str, Medium]) -> MetadataEvidence:
    """Read all events of the disks and of the configuration stores."""
    events: dict[EventStamp, MetadataEvent] = {}
    for disk in disks.values():
        log = disk.logs.get(EVENT_TOPIC)
        for data in () if log is None else log.entries:
            events |= {event.stamp: event for event in _published(data)}
    for values in stores.values():
        events |= {event.stamp: event for event in _recorded(values)}
    return MetadataEvidence(stores, list(events.values()))


def _published(data: bytes) -> Iterator[MetadataEvent]:
    info = scan_once(data, verify=True)
    if info.marker_type is None:
        pack = json.loads(data[info.payload_offset :])
        yield from read_events(pack.get("events", ()), info.publish_time_ms)
