"""Read the shared metadata of clusters from the disks, and compute the documents from its events, with the code of this
file, not with the brokers' code (docs/components/metadata-sync.md).

The latest event of an element wins; at equal times the cluster whose name sorts first; within a cluster the later one.
Elements that are not later than the latest deletion of their document are deleted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, NamedTuple

from emulator.model.stored_keys import (
    NamespacePath,
    PartitionedTopicPath,
    StoredKey,
    SyncRecordPath,
    TenantPath,
    TopicPoliciesPath,
    parse_path,
)
from emulator.simulation.durable_media import Medium
from emulator.simulation.evidence import scan_once

EVENT_TOPIC = "persistent://pulsar/system/metadata-events"
OF_THE_EVENT_TOPIC = "namespace/pulsar%2Fsystem"
"""Not shared: without this namespace no cluster would receive any event."""
SHARED: tuple[type[StoredKey], ...] = (TenantPath, NamespacePath, TopicPoliciesPath, PartitionedTopicPath)
DELETED = "Deleted"
APPLIED = "sync/applied"
DRAWN = "sync/drawn"

Stores = Mapping[str, Mapping[str, bytes]]
"""By cluster: what its configuration store holds, by path."""
Document = dict[str, Any]


class Change(NamedTuple):
    """One event: an element of a document got a value, or lost it."""

    path: str
    element: str
    """Empty: whether there is such a document."""
    value: Any
    is_deletion: bool
    time: tuple[int, int]
    """Milliseconds, and what orders events within one."""
    cluster: str
    number: tuple[int, str]
    """Of the cluster's events; and which life of its store."""


def _order(one: Change, other: Change) -> int:
    """Negative: the other one wins."""
    if one.time != other.time:
        return 1 if one.time > other.time else -1
    if one.cluster != other.cluster:
        return 1 if one.cluster < other.cluster else -1
    return (one.number > other.number) - (one.number < other.number)


def fold(changes: Iterable[Change]) -> dict[str, Document | None]:
    """Return each document after all events are applied. None: it is deleted."""
    by_path: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_path[change.path].append(change)
    return {path: _document(found) for path, found in sorted(by_path.items())}


def _document(changes: list[Change]) -> Document | None:
    elements: dict[str, Any] = {}
    for change in sorted(changes, key=cmp_to_key(_order)):
        if change.is_deletion and not change.element:
            elements.clear()
        elif change.is_deletion:
            elements.pop(change.element, None)
        else:
            elements[change.element] = change.value
    return _with_fields(elements) if "" in elements else None


def _with_fields(elements: Mapping[str, Any]) -> Document:
    """Return the stored form. `=` is a document without elements; of several numbers of partitions the largest
    counts."""
    made: Document = {}
    numbers = [value for name, value in elements.items() if name.startswith("partitions/")]
    for name, value in elements.items():
        first, _, rest = name.partition("/")
        if name == "=":
            made |= value
        elif first == "policies":
            made.setdefault("policies", {})[_unescaped(rest)] = value
        elif name and first != "partitions":
            made[_unescaped(name)] = value
    return made | {"partitions": max(numbers)} if numbers else made


def _unescaped(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


# The stored state.


@dataclass(slots=True)
class MetadataEvidence:
    """Of all clusters."""

    stores: Stores = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    """Every event that the event topic or a store still has."""

    def documents(self, cluster: str) -> dict[str, Document]:
        """Return the documents that the cluster shares with the others."""
        return {
            path: json.loads(value)
            for path, value in self.stores[cluster].items()
            if isinstance(parse_path(path), SHARED) and path != OF_THE_EVENT_TOPIC
        }

    def lacking(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield (cluster, other cluster, last event of the other that it has applied, newest event of the other that
        counts). A change that lost in its own cluster is not published."""
        newest = {cluster: _newest_own(cluster, values) for cluster, values in self.stores.items()}
        for cluster, values in self.stores.items():
            has = json.loads(values.get(APPLIED, b"{}"))
            for other, (number, incarnation) in newest.items():
                heard = has.get(f"{other}:{incarnation}", 0)
                if other != cluster and heard < number:
                    yield cluster, other, heard, number


def _newest_own(cluster: str, values: Mapping[str, bytes]) -> tuple[int, str]:
    """Number and incarnation of the newest event that the cluster made, or is about to, and that counts in its own
    store."""
    own = [one.number for one in _all_recorded(values) if one.cluster == cluster]
    own += [(one["sequence"], one["incarnation"]) for one in json.loads(values.get(DRAWN, b"[]"))]
    return max(own, default=(0, ""))


def _all_recorded(values: Mapping[str, bytes]) -> Iterator[Change]:
    for path, value in values.items():
        key = parse_path(path)
        if isinstance(key, SyncRecordPath):
            yield from _recorded(key.of, json.loads(value))


def stored_metadata(stores: Stores, disks: Mapping[str, Medium]) -> MetadataEvidence:
    """Read all of it."""
    changes: dict[tuple[str, tuple[int, str]], Change] = {}
    for disk in disks.values():
        log = disk.logs.get(EVENT_TOPIC)
        for data in () if log is None else log.entries:
            changes |= {(one.cluster, one.number): one for one in _published(data)}
    for values in stores.values():
        changes |= {(one.cluster, one.number): one for one in _all_recorded(values)}
    return MetadataEvidence(stores, list(changes.values()))


def _published(data: bytes) -> Iterator[Change]:
    info = scan_once(data, verify=True)
    if info.marker_type is not None:
        return
    for raw in json.loads(data[info.payload_offset :]).get("events", ()):
        kind, name, element = (*raw["path"].split("/", 2), "")[:3]
        yield Change(
            f"{kind}/{name}",
            element,
            raw["value"],
            raw["type"] == DELETED,
            (raw["lastUpdatedTimestamp"], raw.get("counter", 0)),
            raw["sourceCluster"],
            (raw["sequence"], raw["incarnation"]),
        )


def _recorded(path: str, raw: Mapping[str, Any]) -> Iterator[Change]:
    for element, (*stamp, is_deleted, value, _) in raw["entries"].items():
        yield _stamped(path, element, value, is_deleted, stamp)
    if "deleted" in raw:
        yield _stamped(path, "", None, True, raw["deleted"])


def _stamped(path: str, element: str, value: Any, is_deletion: bool, stamp: list[Any]) -> Change:
    time_ms, counter, cluster, sequence, incarnation = stamp
    return Change(path, element, value, is_deletion, (time_ms, counter), cluster, (sequence, incarnation))
