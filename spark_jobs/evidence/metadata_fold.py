"""Which metadata a set of events means, whatever order they came in (PIP-136, docs/components/metadata-sync.md).

Written without a look at the regions' own code: the later event of an element wins; of equal times the cluster whose
name sorts first; of one cluster the later number. What is not later than the latest deletion of its document is gone.
Of the numbers of partitions that a topic was given the largest counts.
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
"""The element of whether there is a document."""
WHOLE = "="
"""Fields of a document that mean nothing apart from each other."""
PARTITIONS = "partitions"
"""How many a partitioned topic has: the largest of the numbers that it was given, each of which is an element."""


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
    """When it was published first."""


def read_events(raw: Iterable[Mapping[str, Any]], published_ms: float) -> Iterator[MetadataEvent]:
    """The events of a pack, as the event topic holds them. KeyError, TypeError or ValueError for what is none."""
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
    """The events that a store's record of a document names, each with the time when the store applied it."""
    raw = json.loads(stored)
    for element, (*stamp, is_deletion, value, at_ms) in raw["entries"].items():
        yield MetadataEvent(path, element, value, is_deletion, EventStamp(*stamp), float(at_ms))
    if "deleted" in raw:
        yield MetadataEvent(path, EXISTENCE, None, True, EventStamp(*raw["deleted"]), 0.0)


Document = Mapping[str, Any]
"""Values by element; EXISTENCE is true."""


@dataclass(slots=True)
class Folded:
    """What events say of one document."""

    winners: dict[str, MetadataEvent] = field(default_factory=dict)
    """By element."""
    deletion: MetadataEvent | None = None
    """The latest one of the whole document."""

    def take(self, event: MetadataEvent) -> None:
        winner = self.winners.get(event.element)
        if winner is None or event.stamp.beats(winner.stamp):
            self.winners[event.element] = event
        is_whole = event.element == EXISTENCE and event.is_deletion
        if is_whole and (self.deletion is None or event.stamp.beats(self.deletion.stamp)):
            self.deletion = event

    def document(self) -> Document:
        """Nothing where there is none."""
        counting = {name: one for name, one in self.winners.items() if self._counts(one)}
        if EXISTENCE not in counting:
            return {}
        elements = {name: True if name == EXISTENCE else one.value for name, one in counting.items()}
        numbers = [elements.pop(name) for name in list(elements) if name.startswith(f"{PARTITIONS}/")]
        return elements | {PARTITIONS: max(numbers)} if numbers else elements

    def _counts(self, event: MetadataEvent) -> bool:
        return not event.is_deletion and (self.deletion is None or event.stamp.beats(self.deletion.stamp))

    def deciding(self, element: str) -> list[MetadataEvent]:
        """The events that make an element what it is."""
        found = [one for name, one in self.winners.items() if decides(name, element)]
        return [*found, self.deletion] if self.deletion is not None else found


def decides(name: str, element: str) -> bool:
    """Whether the winner for `name` makes an element what it is: itself, existence, one of the numbers."""
    return name in (element, EXISTENCE) or (element == PARTITIONS and name.startswith(f"{PARTITIONS}/"))


def fold(events: Iterable[MetadataEvent]) -> dict[str, Folded]:
    """By path."""
    folded: dict[str, Folded] = {}
    for event in events:
        folded.setdefault(event.path, Folded()).take(event)
    return folded


def is_shared(path: str) -> bool:
    """Whether clusters share this path of their stores."""
    return isinstance(parse_path(path), SHARED)


def document_in(path: str, stored: bytes) -> Document:
    """A stored document, by element. ValueError for what is none."""
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
    """As a person writes it: `namespace/acme/orders`."""
    return path.replace("%2F", "/").replace("%25", "%")


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")
