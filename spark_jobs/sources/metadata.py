"""The metadata of a run's clusters as tables: their configuration stores
(`configuration/<cluster>/configuration.sqlite`), and the metadata events in all regions' logs of the event topic; and
their settings of metadata synchronisation.

`ConfigurationStores` has one part per store, `MetadataEvents` one per region. Values are JSON with sorted names, so
that equal values have equal texts.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from emulator.errors import ProtocolError, StorageError
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    NamespacePath,
    PartitionedTopicPath,
    SyncRecordPath,
    TopicPoliciesPath,
    parse_path,
)
from emulator.model.values import TopicName
from emulator.run.json_text import readable
from emulator.storage.group import decode_group
from emulator.wire.entry_layout import metadata_bounds
from emulator.wire.message_metadata import read_entry
from spark_jobs.engines.frames import record_batches, schema
from spark_jobs.evidence.metadata_events import (
    EXISTENCE,
    NUMBER_MAX,
    Document,
    MetadataEvent,
    as_written,
    document_in,
    is_number_of_partitions,
    is_shared,
    read_events,
    read_record,
)
from spark_jobs.sources.contract import Group, LogDamaged
from spark_jobs.sources.region_log import STORED_READERS, size_of
from spark_jobs.sources.run_folder import RegionLog, RunFolder, folder_of, is_simulated
from spark_jobs.sources.sqlite import connect_read_only

STORE_FILE = "configuration.sqlite"
_WITH_EVENTS = ("events", "answer")
"""Kinds of messages in the event topic that contain events."""
_EVENT = (
    "path string, element string, value string, partitions bigint, is_deletion boolean, time_ms bigint,"
    " counter bigint, source string, sequence bigint, incarnation string, origin string, at_ms double"
)
EVENT_SCHEMA = schema(f"damage string, region string, position string, excluded_by array<string>, {_EVENT}")
"""An event in a region's log. `excluded_by`: clusters that do not share the path. `partitions`: the value, if it is a
number of partitions. `origin`: source and incarnation. `at_ms`: time of the publish. `damage` is null except in rows
for unreadable logs, which set only `region` besides."""
STORE_SCHEMA = schema(f"damage string, cluster string, kind string, {_EVENT}")
"""A row of a configuration store. `kind`:

store     the store was read
document  the value of one element of a document
record    an event that the store applied to a document; `at_ms`: when, 0 if unknown
claim     the store claims to have applied all events of `origin` up to `sequence`
"""
STORE, DOCUMENT, RECORD, CLAIM = "store", "document", "record", "claim"


class StoreUnreadable(Exception):
    """A configuration store cannot be read; the message is a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
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


def read_settings(folder: RunFolder) -> dict[str, ClusterSync]:
    """Return the settings of each cluster that shares metadata. Other readers report unreadable files."""
    found: dict[str, ClusterSync] = {}
    simulated = is_simulated(folder.path)
    for region, cluster in folder.clusters.items():
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            config = json.loads((folder.path / "regions" / region / "region.json").read_text())
            topic = config["settings"]["configuration_metadata_sync_event_topic"]
            if topic:
                excluded = config["settings"]["metadata_sync_excluded_paths"].split(",")
                named = Path(config.get("configuration", {}).get("path", "")).parent.name == cluster
                prefixes = tuple(filter(None, (one.strip() for one in excluded)))
                found[cluster] = ClusterSync(
                    str(TopicName.parse(topic)), prefixes, is_in_run_dir=named or simulated
                )
    return found


def store_path(run: Path, cluster: str) -> Path:
    return run / "configuration" / cluster / STORE_FILE


@dataclass(frozen=True)
class ConfigurationStores:
    """Source of the rows of all clusters' configuration stores, in STORE_SCHEMA."""

    run: Path
    settings: Mapping[str, ClusterSync]
    clusters: tuple[str, ...]
    """The clusters whose stores are read."""
    schema = STORE_SCHEMA

    @property
    def folder(self) -> Path:
        return self.run

    def parts(self) -> Sequence[str]:
        return self.clusters

    def size_bytes(self) -> int:
        files = (Path(f"{store_path(self.run, one)}{end}") for one in self.clusters for end in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.is_file())

    def read(self, part: str) -> Iterator[pa.RecordBatch]:
        try:
            # Read completely first: a store that is damaged anywhere is compared with nothing.
            rows = list(_store_rows(part, self.settings[part], _read_store(self.run, part)))
        except StoreUnreadable as problem:
            rows = [(str(problem), part, *[None] * (len(STORE_SCHEMA) - 2))]
        yield from record_batches(rows, STORE_SCHEMA)


@dataclass(frozen=True)
class MetadataEvents:
    """Source of the events in all regions' logs of the event topic, in EVENT_SCHEMA: an event has a row for each
    message with it. A message without events, or with the events of another cluster than its region's, is skipped, as
    regions do."""

    logs: tuple[RegionLog, ...]
    topic: str
    clusters: Mapping[str, str]
    """Region -> its cluster."""
    settings: Mapping[str, ClusterSync]
    schema = EVENT_SCHEMA

    @property
    def folder(self) -> Path | None:
        return folder_of(self.logs)

    def parts(self) -> Sequence[RegionLog]:
        return self.logs

    def size_bytes(self) -> int | None:
        return size_of(self.logs)

    def read(self, part: RegionLog) -> Iterator[pa.RecordBatch]:
        yield from record_batches(self._rows(part), EVENT_SCHEMA)

    def _rows(self, log: RegionLog) -> Iterator[Sequence[Any]]:
        reader = STORED_READERS.get(log.backend)
        if reader is None:
            yield self._damage(log, f"the log of {log.region} cannot be read: its backend is {log.backend}")
            return
        try:
            for group in reader.read_topic(log, self.topic):
                for entry, event in _in_group(group, log.region, self.clusters):
                    yield self._row(log.region, f"{group.ledger_id}:{entry}", event)
        except (LogDamaged, StorageError, ProtocolError) as damage:
            yield self._damage(log, str(damage))

    def _row(self, region: str, position: str, event: MetadataEvent) -> Sequence[Any]:
        excluded = [name for name, one in self.settings.items() if not one.shares(event.path)]
        return None, region, position, excluded, *event_values(event)

    @staticmethod
    def _damage(log: RegionLog, sentence: str) -> Sequence[Any]:
        return sentence, log.region, *[None] * (len(EVENT_SCHEMA) - 2)


def event_values(event: MetadataEvent) -> Sequence[Any]:
    """Return the columns `_EVENT` of an event."""
    stamp, value = event.stamp, None if event.is_deletion else _value(event.element, event.value)
    number = event.value if value is not None and is_number_of_partitions(event.element) else None
    names = (event.path, event.element)
    return *names, value, number, event.is_deletion, *stamp, stamp.origin, float(event.published_ms)


def _value(element: str, value: Any) -> str:
    return json.dumps(True if element == EXISTENCE else value, sort_keys=True)


def _read_store(run: Path, cluster: str) -> Mapping[str, bytes]:
    """Return the values of a cluster's configuration store by path. Raises StoreUnreadable."""
    path = store_path(run, cluster)
    try:
        with contextlib.ExitStack() as resources:
            connection = connect_read_only(path, resources)
            meta = dict(connection.execute("SELECT key, value FROM meta"))
            if meta.get("cluster", cluster) != cluster:
                raise StoreUnreadable(f"the store of {cluster} belongs to {meta['cluster']}")
            rows = connection.execute("SELECT path, value FROM kv WHERE value IS NOT NULL")
            return {str(key): bytes(value) for key, value in rows}
    except FileNotFoundError:
        raise StoreUnreadable(f"configuration/{cluster}/{STORE_FILE} is missing") from None
    except (sqlite3.Error, OSError, ValueError, TypeError) as problem:
        raise StoreUnreadable(f"configuration/{cluster}/{STORE_FILE} cannot be read: {problem}") from problem


def _store_rows(cluster: str, sync: ClusterSync, values: Mapping[str, bytes]) -> Iterator[Sequence[Any]]:
    """Yield the rows of a store. Raises StoreUnreadable for a record or claim that cannot be decoded."""
    yield None, cluster, STORE, *[None] * (len(STORE_SCHEMA) - 3)
    path = ""
    try:
        for origin, sequence in _claims(cluster, values):
            yield None, cluster, CLAIM, *[None] * 8, sequence, None, origin, None
        for path, value in values.items():
            key = parse_path(path)
            if isinstance(key, SyncRecordPath):
                for event in read_record(key.of, value):
                    yield None, cluster, RECORD, *event_values(event)
            elif sync.shares(path):
                for element, text in _elements(path, value):
                    yield None, cluster, DOCUMENT, path, element, text, *[None] * 9
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        where = f"configuration/{cluster}/{STORE_FILE}, {readable(path)}"
        raise StoreUnreadable(f"{where}: it cannot be read: {problem}") from problem


def _claims(cluster: str, values: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    """Yield the origin of events and the sequence up to which the store claims to have applied all of them."""
    claims = dict(json.loads(values.get(SYNC_APPLIED_PATH.text, b"{}")))
    if SYNC_CLOCK_PATH.text in values:
        clock = json.loads(values[SYNC_CLOCK_PATH.text])
        claims[f"{cluster}:{clock['incarnation']}"] = clock["sequence"]
    for origin, sequence in claims.items():
        if type(sequence) is not int or not 0 <= sequence <= NUMBER_MAX:
            raise ValueError(f"{sequence!r} is not the sequence of an event")
        yield readable(origin), sequence


def _elements(path: str, stored: bytes) -> Iterator[tuple[str, str]]:
    try:
        document: Document = document_in(path, stored)
        texts = [(readable(element), _value(element, value)) for element, value in document.items()]
    except (ValueError, AttributeError, RecursionError):
        document = {EXISTENCE: True, "unreadable": stored.decode(errors="replace")}
        texts = [(element, _value(element, value)) for element, value in document.items()]
    yield from texts


def _in_group(group: Group, region: str, clusters: Mapping[str, str]) -> Iterator[tuple[int, MetadataEvent]]:
    """Yield the entry id and each event of the messages in a group. Raises StorageError for a wrong checksum."""
    place = f"the event topic in {region}"
    for entry, data in enumerate(decode_group(group.data, place), group.first_entry_id):
        try:
            metadata_bounds(data, verify=True)
        except ProtocolError as problem:
            raise StorageError(f"entry {entry} of {place} is damaged: {problem}", definite=True) from problem
        info = read_entry(data)
        if info.marker_type is None:
            cluster = clusters.get(info.replicated_from or region, "")
            for event in events_in(bytes(data[info.payload_offset :]), cluster, info.publish_time_ms):
                yield entry, event


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
