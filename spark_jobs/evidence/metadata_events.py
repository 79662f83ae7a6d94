"""Metadata events and stored documents (PIP-136, docs/components/metadata-sync.md), decoded independently of the
regions' code. `frames/metadata.py` computes the documents that result from a set of events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
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


NUMBER_MAX = 2**63 - 1
"""Highest number of a stamp that the tables can hold; an event with a higher one is unreadable."""


class EventStamp(NamedTuple):
    time_ms: int
    counter: int
    source: str
    sequence: int
    incarnation: str

    @property
    def origin(self) -> str:
        return f"{self.source}:{self.incarnation}"


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
        stamp = _stamp(one["lastUpdatedTimestamp"], counter, source, one["sequence"], one["incarnation"])
        value = None if is_deletion or element == EXISTENCE else one.get("value")
        yield _checked(MetadataEvent(path, element, value, is_deletion, stamp, published_ms))


def read_record(path: str, stored: bytes) -> Iterator[MetadataEvent]:
    """Decode the events in a store's record of a document, each with the time at which the store applied it. The record
    has no time (0) for the deletion of the document. KeyError, TypeError, AttributeError or ValueError if it is not a
    record."""
    raw = json.loads(stored)
    for element, (*stamp, is_deletion, value, at_ms) in raw["entries"].items():
        event = MetadataEvent(path, element, value, bool(is_deletion), _stamp(*stamp), float(at_ms))
        yield _checked(event)
    if "deleted" in raw:
        yield MetadataEvent(path, EXISTENCE, None, True, _stamp(*raw["deleted"]), 0.0)


def _stamp(*values: Any) -> EventStamp:
    stamp = EventStamp(*values)
    numbers = (stamp.time_ms, stamp.counter, stamp.sequence)
    if any(type(one) is not int or not 0 <= one <= NUMBER_MAX for one in numbers):
        raise ValueError(f"{values!r} is not a stamp: it has a number outside of 0 to 2^63-1")
    if not isinstance(stamp.source, str) or not isinstance(stamp.incarnation, str):
        raise ValueError(f"{values!r} is not a stamp: it has no text as source and incarnation")
    stamp.origin.encode()
    return stamp


def _checked(event: MetadataEvent) -> MetadataEvent:
    """Return an event of valid texts. ValueError for a lone surrogate, and for a number of partitions that is none."""
    f"{event.path}/{event.element}".encode()
    is_number = type(event.value) is int and 0 <= event.value <= NUMBER_MAX
    if is_number_of_partitions(event.element) and not event.is_deletion and not is_number:
        raise ValueError(f"{event.value!r} is not a number of partitions")
    return event


def is_number_of_partitions(element: str) -> bool:
    return element.startswith(f"{PARTITIONS}/")


Document = Mapping[str, Any]
"""Values of a document by element; the value of EXISTENCE is true."""


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
