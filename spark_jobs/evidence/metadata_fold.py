"""The metadata that results from a set of events, in any order (PIP-136, docs/components/metadata-sync.md).

Implemented independently of the regions' code. The latest event of an element wins: at equal times that of the cluster
whose name sorts first, within a cluster the one with the higher sequence. Events not later than the latest deletion of
their document have no effect. The number of partitions of a topic is the largest of all its events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.model.stored_keys import (
    NamespacePath,
    PartitionedTopicPath,
    StoredKey,
    TenantPath,
    TopicPoliciesPath,
    parse_path,
)

SHARED: tuple[type[StoredKey], ...] = (TenantPath, NamespacePath, TopicPoliciesPath, PartitionedTopicPath)
DELETED = "Deleted"
TYPES = ("Created", "Modified", DELETED)
EXISTENCE = ""
"""Element that states whether the document exists."""
WHOLE = "="
"""Element with the fields of a document that are valid only together."""
PARTITIONS = "partitions"
"""Element with a topic's number of partitions: the largest number of its events, each of which is an element."""


class EventStamp(NamedTuple):
    time_ms: int
    counter: int
    source: str
    sequence: int
    incarnation: str

    @property
    def origin(self) -> str:
        return f"{self.source}:{self.incarnation}"

    def beats(self, other: EventStamp) -> bool:
        """Return whether the event wins over another event of the same element."""
        if self[:2] != other[:2]:
            return self[:2] > other[:2]
        if self.source != other.source:
            return self.source < other.source
        return self[3:] > other[3:]


class MetadataEvent(NamedTuple):
    path: str
    element: str
    value: Any
    is_deletion: bool
    stamp: EventStamp
    published_ms: float
    """Time of the event's first publish; of an event in a store's record, the time at which the store applied it."""


def read_events(raw: Iterable[Mapping[str, Any]], published_ms: float) -> Iterator[MetadataEvent]:
    """Decode the events in one message of the event topic. KeyError, TypeError or ValueError if one is not an event."""
    for one in raw:
        kind, name, element = (*one["path"].split("/", 2), "")[:3]
        path, is_deletion = f"{kind}/{name}", one["type"] == DELETED
        if one["type"] not in TYPES or not is_shared(path):
            raise ValueError(f"{one['path']} is not an event")
        if "Ephemeral" in (one.get("options") or ()):
            continue
        counter, source = one.get("counter", 0), one["sourceCluster"]
        stamp = EventStamp(one["lastUpdatedTimestamp"], counter, source, one["sequence"], one["incarnation"])
        value = None if is_deletion or element == EXISTENCE else one.get("value")
        yield MetadataEvent(path, element, value, is_deletion, stamp, published_ms)


def read_record(path: str, stored: bytes) -> Iterator[MetadataEvent]:
    """Decode the events in a store's record of a document, each with the time at which the store applied it. The record
    has no time (0) for the deletion of the document."""
    raw = json.loads(stored)
    for element, (*stamp, is_deletion, value, at_ms) in raw["entries"].items():
        yield MetadataEvent(path, element, value, is_deletion, EventStamp(*stamp), float(at_ms))
    if "deleted" in raw:
        yield MetadataEvent(path, EXISTENCE, None, True, EventStamp(*raw["deleted"]), 0.0)


Document = Mapping[str, Any]
"""Values of a document by element; the value of EXISTENCE is true."""


@dataclass(slots=True)
class Folded:
    """The events that determine one document."""

    winners: dict[str, MetadataEvent] = field(default_factory=dict)
    """Winning event of each element."""
    deletion: MetadataEvent | None = None
    """Latest deletion of the whole document."""

    def take(self, event: MetadataEvent) -> None:
        winner = self.winners.get(event.element)
        if winner is None or event.stamp.beats(winner.stamp):
            self.winners[event.element] = event
        is_whole = event.element == EXISTENCE and event.is_deletion
        if is_whole and (self.deletion is None or event.stamp.beats(self.deletion.stamp)):
            self.deletion = event

    def document(self) -> Document:
        """Return the document; empty if it does not exist."""
        counting = {name: one for name, one in self.winners.items() if self._counts(one)}
        if EXISTENCE not in counting:
            return {}
        elements = {name: True if name == EXISTENCE else one.value for name, one in counting.items()}
        numbers = [elements.pop(name) for name in list(elements) if name.startswith(f"{PARTITIONS}/")]
        return elements | {PARTITIONS: max(numbers)} if numbers else elements

    def _counts(self, event: MetadataEvent) -> bool:
        return not event.is_deletion and (self.deletion is None or event.stamp.beats(self.deletion.stamp))

    def deciding(self, element: str) -> list[MetadataEvent]:
        """Return the events that determine the value of an element."""
        found = [one for name, one in self.winners.items() if decides(name, element)]
        return [*found, self.deletion] if self.deletion is not None else found


def decides(name: str, element: str) -> bool:
    """Return whether the winner for `name` determines `element`: itself, existence, or a number of partitions."""
    return name in (element, EXISTENCE) or (element == PARTITIONS and name.startswith(f"{PARTITIONS}/"))


def fold(events: Iterable[MetadataEvent]) -> dict[str, Folded]:
    """Fold the events of each path."""
    folded: dict[str, Folded] = {}
    for event in events:
        folded.setdefault(event.path, Folded()).take(event)
    return folded


def is_shared(path: str) -> bool:
    """Return whether clusters share this path of their stores."""
    return isinstance(parse_path(path), SHARED)


def document_in(path: str, stored: bytes) -> Document:
    """Decode a stored document into elements. ValueError if it is not a document."""
    parsed = json.loads(stored)
    if not isinstance(parsed, dict):
        raise ValueError(f"the value stored at {path} is not a document")
    if isinstance(parse_path(path), PartitionedTopicPath):
        number = {PARTITIONS: parsed.pop(PARTITIONS)} if PARTITIONS in parsed else {}
        return {EXISTENCE: True, WHOLE: parsed, **number}
    fields = {_escaped(name): value for name, value in parsed.items() if name != "policies"}
    policies = {f"policies/{_escaped(name)}": value for name, value in parsed.get("policies", {}).items()}
    return {EXISTENCE: True, **fields, **policies}


def as_written(path: str) -> str:
    """Return a path without escapes, as users write it: `namespace/acme/orders`."""
    return path.replace("%2F", "/").replace("%25", "%")


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")
