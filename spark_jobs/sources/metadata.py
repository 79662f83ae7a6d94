"""The metadata of a run's clusters: their configuration stores (`configuration/<cluster>/configuration.sqlite`), their
settings of metadata synchronisation, and the metadata events in all regions' logs of the event topic.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import ProtocolError, StorageError
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    NamespacePath,
    PartitionedTopicPath,
    SyncRecordPath,
    TopicPoliciesPath,
)
from emulator.model.values import TopicName
from emulator.storage.group import decode_group
from emulator.wire.message_metadata import read_entry
from spark_jobs.evidence.metadata_fold import (
    EventStamp,
    MetadataEvent,
    as_written,
    decides,
    is_shared,
    read_events,
    read_record,
)
from spark_jobs.sources.contract import Group, LogDamaged
from spark_jobs.sources.region_log import READERS
from spark_jobs.sources.run_folder import RunFolder
from spark_jobs.sources.sqlite import connect_read_only

STORE_FILE = "configuration.sqlite"
_WITH_EVENTS = ("events", "answer")
"""Kinds of messages in the event topic that contain events."""


class StoreUnreadable(Exception):
    """A configuration store cannot be read; the message is a sentence without its full stop."""


@dataclass(slots=True)
class ClusterSync:
    """A cluster's settings of metadata synchronisation."""

    topic: str
    excluded: tuple[str, ...]
    is_in_run_dir: bool
    """Whether its store is in the run directory, not in a volume or in memory."""

    def shares(self, path: str) -> bool:
        """Return whether the cluster shares a path: neither excluded, nor metadata of the event topic itself."""
        topic = TopicName.parse(self.topic)
        own = (
            NamespacePath(topic.full_namespace).text,
            TopicPoliciesPath(self.topic).text,
            PartitionedTopicPath(self.topic).text,
        )
        return (
            is_shared(path) and path not in own and not as_written(path).startswith(self.excluded or ("\0",))
        )


@dataclass(slots=True)
class ClusterStore:
    """The content of a cluster's configuration store at one time."""

    cluster: str
    values: Mapping[str, bytes]
    """Documents by path."""
    records: Mapping[str, bytes]
    """Its records of the events applied to each document, by SyncRecordPath."""
    has: Mapping[str, int]
    """Origin of events -> sequence up to which it claims to have applied all of them."""

    def claims(self, stamp: EventStamp) -> bool:
        """Return whether the store claims to have applied this event."""
        return self.has.get(stamp.origin, 0) >= stamp.sequence

    def recorded_events(self, path: str, element: str) -> list[tuple[EventStamp, float]]:
        """Return the recorded events that determine an element, and the time at which the store applied each; 0 for a
        deletion of the document."""
        record = self.records.get(SyncRecordPath(path).text)
        if record is None:
            return []
        deciding = (event for event in read_record(path, record) if decides(event.element, element))
        return [(event.stamp, event.published_ms) for event in deciding]


def read_settings(folder: RunFolder) -> dict[str, ClusterSync]:
    """Return the settings of each cluster that shares metadata. Other readers report unreadable files."""
    found: dict[str, ClusterSync] = {}
    for region, cluster in folder.clusters.items():
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            config = json.loads((folder.path / "regions" / region / "region.json").read_text())
            topic = config["settings"]["configuration_metadata_sync_event_topic"]
            if topic:
                excluded = config["settings"]["metadata_sync_excluded_paths"].split(",")
                there = Path(config.get("configuration", {}).get("path", "")).parent.name == cluster
                prefixes = tuple(filter(None, (one.strip() for one in excluded)))
                found[cluster] = ClusterSync(str(TopicName.parse(topic)), prefixes, there)
    return found


def store_path(run: Path, cluster: str) -> Path:
    return run / "configuration" / cluster / STORE_FILE


def read_store(run: Path, cluster: str) -> ClusterStore:
    """Read a cluster's configuration store. Raises StoreUnreadable."""
    path = store_path(run, cluster)
    try:
        with contextlib.ExitStack() as resources:
            connection = connect_read_only(path, resources)
            meta = dict(connection.execute("SELECT key, value FROM meta"))
            if meta.get("cluster", cluster) != cluster:
                raise StoreUnreadable(f"the store of {cluster} belongs to {meta['cluster']}")
            rows = connection.execute("SELECT path, value FROM kv").fetchall()
            return _store(cluster, [(key, bytes(value)) for key, value in rows if value is not None])
    except FileNotFoundError:
        raise StoreUnreadable(f"configuration/{cluster}/{STORE_FILE} is missing") from None
    except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise StoreUnreadable(f"configuration/{cluster}/{STORE_FILE} cannot be read: {problem}") from problem


def _store(cluster: str, rows: Iterable[tuple[str, bytes]]) -> ClusterStore:
    values = dict(rows)
    has = json.loads(values.get(SYNC_APPLIED_PATH.text, b"{}"))
    if SYNC_CLOCK_PATH.text in values:
        clock = json.loads(values[SYNC_CLOCK_PATH.text])
        has[f"{cluster}:{clock['incarnation']}"] = clock["sequence"]
    documents = {path: value for path, value in values.items() if is_shared(path)}
    prefix = SyncRecordPath.prefix()
    records = {path: value for path, value in values.items() if path.startswith(prefix)}
    return ClusterStore(cluster, documents, records, has)


def read_event_topic(folder: RunFolder, topic: str) -> tuple[dict[EventStamp, MetadataEvent], list[str]]:
    """Return every event that any region stores, with the time of its first publish, and a sentence for each unreadable
    log. A message without events, or with the events of another cluster than its region's, is skipped, as regions
    do."""
    found: dict[EventStamp, MetadataEvent] = {}
    unreadable: list[str] = []
    for log in folder.logs:
        reader = READERS.get(log.backend)
        if reader is None:
            unreadable.append(f"the log of {log.region} cannot be read: its backend is {log.backend}")
            continue
        try:
            for group in reader.read_topic(log, topic):
                for event in _in_group(group, log.region, folder.clusters):
                    before = found.get(event.stamp)
                    if before is None or event.published_ms < before.published_ms:
                        found[event.stamp] = event
        except (LogDamaged, StorageError, ProtocolError) as damage:
            unreadable.append(str(damage))
    return found, unreadable


def _in_group(group: Group, region: str, clusters: Mapping[str, str]) -> Iterator[MetadataEvent]:
    for data in decode_group(group.data, f"the event topic in {region}"):
        info = read_entry(data)
        if info.marker_type is not None:
            continue
        cluster = clusters.get(info.replicated_from or region, "")
        yield from events_in(bytes(data[info.payload_offset :]), cluster, info.publish_time_ms)


def events_in(payload: bytes, cluster: str, published_ms: float) -> list[MetadataEvent]:
    """Decode the events in a message that a region of this cluster published; none if the message is invalid or names
    another cluster."""
    try:
        pack = json.loads(payload)
        if pack["kind"] not in _WITH_EVENTS or pack["source"] != cluster:
            return []
        return list(read_events(pack["events"], published_ms))
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
