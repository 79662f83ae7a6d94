"""The metadata events that the logs of the event topic hold, of all regions together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from emulator.errors import ProtocolError, StorageError
from emulator.storage.group import decode_group
from emulator.wire.message_metadata import read_entry
from spark_jobs.evidence.metadata_fold import EXISTENCE, EventStamp, MetadataEvent, is_shared
from spark_jobs.sources.contract import Group, LogDamaged
from spark_jobs.sources.region_log import READERS
from spark_jobs.sources.run_folder import RunFolder

DELETED = "Deleted"
TYPES = ("Created", "Modified", DELETED)
_WITH_EVENTS = ("events", "answer")


def read_events(folder: RunFolder, topic: str) -> tuple[dict[EventStamp, MetadataEvent], list[str]]:
    """Every event that any region has stored, and a sentence for each log that cannot be read. A message that is no
    pack of events, or that speaks for another cluster than its region's, says nothing: no region obeys it."""
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
    """The content of a message that a region of this cluster published."""
    try:
        pack = json.loads(payload)
        if pack["kind"] not in _WITH_EVENTS or pack["source"] != cluster:
            return []
        return list(_events(pack["events"], published_ms))
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _events(raw: Iterable[Mapping[str, Any]], published_ms: float) -> Iterator[MetadataEvent]:
    for one in raw:
        kind, _, rest = one["path"].partition("/")
        name, _, element = rest.partition("/")
        path, is_deletion = f"{kind}/{name}", one["type"] == DELETED
        if one["type"] not in TYPES or not is_shared(path):
            raise ValueError(f"{one['path']} is not an event")
        if "Ephemeral" in (one.get("options") or ()):
            continue
        stamp = EventStamp(
            one["lastUpdatedTimestamp"],
            one.get("counter", 0),
            one["sourceCluster"],
            one["sequence"],
            one["incarnation"],
        )
        value = None if is_deletion or element == EXISTENCE else one.get("value")
        yield MetadataEvent(path, element, value, is_deletion, stamp, published_ms)
