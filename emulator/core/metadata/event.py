"""A metadata event: one element of one path was set or deleted, with the time and the cluster (PIP-136).

The fields are the proposal's (`path`, `value`, `options`, `expectedVersion`, `lastUpdatedTimestamp`, `sourceCluster`,
`type`) and three of geoemu: `sequence`, `incarnation` and `counter`, which make the proposal's rule a total order.
`expectedVersion` is accepted and ignored: versions count the writes of one store, and mean nothing in another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from emulator.model.stored_keys import (
    NamespacePath,
    PartitionedTopicPath,
    StoredKey,
    TenantPath,
    TopicPoliciesPath,
    parse_path,
)
from emulator.model.values import PARTITIONS_MAX, is_valid_name

CREATED, MODIFIED, DELETED = "Created", "Modified", "Deleted"
TYPES: Final = (CREATED, MODIFIED, DELETED)
OPTIONS: Final = ("Ephemeral", "Sequential")
"""Options of a created path. Ephemeral: only its source cluster applies it. Sequential: the path already ends in its
number."""
NUMBER_MAX: Final = 2**53
"""Maximum number in an event: some JSON readers round larger ones."""
VALUE_BYTES_MAX: Final = 1_048_576
PATH_CHARACTERS_MAX: Final = 4_096


class SyncStamp(NamedTuple):
    """The time and origin of an event: its identity and its rank among conflicting events."""

    time_ms: int
    counter: int
    """Order of the events of one hybrid clock reading with the same `time_ms`. With plain clocks 0, except for events
    that follow an event from the far future."""
    source: str
    """Name of the cluster in which the event happened."""
    sequence: int
    """Number of the event within its incarnation; grows by one with each event."""
    incarnation: str
    """Id of the source's configuration store. A store that was lost and created anew has another one, and numbers its
    events from the beginning."""

    @property
    def reading(self) -> ClockReading:
        return ClockReading(self.time_ms, self.counter)

    @property
    def origin(self) -> str:
        """Source and incarnation: sequences are numbered per origin."""
        return f"{self.source}:{self.incarnation}"

    def is_later_than(self, other: SyncStamp) -> bool:
        """Whether this event wins against another one by the proposal's rule: the later time wins; for equal times, the
        cluster whose name sorts first; within one cluster, the higher sequence."""
        if self.reading != other.reading:
            return self.reading > other.reading
        if self.source != other.source:
            return self.source < other.source
        return (self.sequence, self.incarnation) > (other.sequence, other.incarnation)

    def __str__(self) -> str:
        counter = f"+{self.counter}" if self.counter else ""
        return f"{self.time_ms}{counter} {self.source} #{self.sequence}"


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """One element of a document was set or deleted in a cluster."""

    path: str
    """Path of the document in the configuration store."""
    element: str
    """Element of the document; EXISTENCE: the existence of the document."""
    value: Any
    """JSON value. None for a deleted element, and for EXISTENCE."""
    is_deleted: bool
    stamp: SyncStamp
    options: tuple[str, ...] = ()

    @property
    def full_path(self) -> str:
        return joined_path(self.path, self.element)

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object, with the proposal's field names."""
        stamp = self.stamp
        kind = DELETED if self.is_deleted else CREATED if self.element == EXISTENCE else MODIFIED
        raw: dict[str, Any] = {
            "path": self.full_path,
            "value": self.value,
            "lastUpdatedTimestamp": stamp.time_ms,
            "sourceCluster": stamp.source,
            "type": kind,
            "sequence": stamp.sequence,
            "incarnation": stamp.incarnation,
        }
        if stamp.counter:
            raw["counter"] = stamp.counter
        if self.options:
            raw["options"] = list(self.options)
        return raw

    @classmethod
    def from_json(cls, raw: Any) -> SyncEvent:
        """Parse and validate the JSON form of an event. Raises ValueError, naming the violated rule."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"{raw!r} is not an event")
        kind = raw.get("type")
        if kind not in TYPES:
            raise ValueError(f"type {kind!r} is none of {', '.join(TYPES)}")
        path, element = split_path(_text(raw, "path", PATH_CHARACTERS_MAX))
        value = raw.get("value")
        if len(json.dumps(value)) > VALUE_BYTES_MAX:
            raise ValueError(f"the value of {path} is larger than {VALUE_BYTES_MAX} bytes")
        if kind != DELETED:
            check_element(path, element, value)
        return cls(
            path,
            element,
            value=value if kind != DELETED and element != EXISTENCE else None,
            is_deleted=kind == DELETED,
            stamp=_stamp(raw),
            options=_options(raw.get("options")),
        )


def _stamp(raw: Mapping[str, Any]) -> SyncStamp:
    source = _text(raw, "sourceCluster", 63)
    if not is_valid_name(source):
        raise ValueError(f"sourceCluster {source!r} is not a name of a cluster")
    return SyncStamp(
        number(raw, "lastUpdatedTimestamp"),
        number(raw, "counter", default=0),
        source,
        number(raw, "sequence"),
        _text(raw, "incarnation", 32),
    )


def _options(raw_options: Any) -> tuple[str, ...]:
    if raw_options is None:
        return ()
    if not isinstance(raw_options, list) or any(option not in OPTIONS for option in raw_options):
        raise ValueError(f"options {raw_options!r} are not some of {', '.join(OPTIONS)}")
    return tuple(raw_options)


def number(raw: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a non-negative integer field. Raises ValueError for any other value."""
    value = raw.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{name} {value!r} is not a whole number from 0 to {NUMBER_MAX}")
    return value


def _text(raw: Mapping[str, Any], name: str, characters_max: int) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= characters_max or not _can_be_stored(value):
        raise ValueError(f"{name} {str(value)[:80]!r} is not a text of 1 to {characters_max} characters")
    return value


def _can_be_stored(text: str) -> bool:
    """Whether the text has no lone surrogates, which JSON allows and no store accepts in a path."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


EXISTENCE: Final = ""
"""The element that stores whether the document exists."""
WHOLE: Final = "="
"""The element of a whole document whose fields cannot be merged separately."""
_POLICIES: Final = "policies"
_PARTITIONS: Final = "partitions"
SYNCED: Final[tuple[type[StoredKey], ...]] = (
    TenantPath,
    NamespacePath,
    TopicPoliciesPath,
    PartitionedTopicPath,
)
"""Kinds of paths that clusters synchronise. Broker policies are a cluster's own, as Pulsar's dynamic configuration."""
_UNDIVIDED: Final = (PartitionedTopicPath.KIND,)


@lru_cache(maxsize=16_384)
def is_synced(path: str) -> bool:
    """Whether clusters synchronise a path of the configuration store."""
    return path.partition("/")[0] in _KINDS and isinstance(parse_path(path), SYNCED)


_KINDS: Final = frozenset(kind.KIND for kind in SYNCED)


def readable(path: str) -> str:
    """Return a path without escapes, as users write it: `namespace/acme/orders`."""
    return path.replace("%2F", "/").replace("%25", "%")


def split_path(full_path: str) -> tuple[str, str]:
    """Split a path into the path of a document and an element of it. Raises ValueError if clusters do not synchronise
    it."""
    kind, _, rest = full_path.partition("/")
    name, separator, element = rest.partition("/")
    path = f"{kind}/{name}"
    if not is_synced(path) or (separator and not element):
        raise ValueError(f"path {full_path[:80]!r} is not shared by clusters")
    return path, element


def joined_path(path: str, element: str) -> str:
    return f"{path}/{element}" if element else path


def elements_of(path: str, document: bytes | None) -> dict[str, Any]:
    """Return the values of a document by element, without EXISTENCE; none if `document` is None. Raises ValueError for
    an invalid document."""
    if document is None:
        return {}
    parsed = json.loads(document)
    if not isinstance(parsed, Mapping):
        raise ValueError(f"what is to be stored at {path} is not a document")
    if path.partition("/")[0] in _UNDIVIDED:
        return _split_partitioned(parsed)
    found = {_escaped(field): value for field, value in parsed.items() if field != _POLICIES}
    policies = parsed.get(_POLICIES, {})
    if not isinstance(policies, Mapping):
        raise ValueError(f"the policies of {path} are not a document")
    found |= {policy_element(name): value for name, value in policies.items()}
    return found


def policy_element(name: str) -> str:
    return f"{_POLICIES}/{_escaped(name)}"


def document_of(path: str, elements: Mapping[str, Any]) -> bytes:
    """Return the document of these elements, the inverse of `elements_of`. Equal elements give equal bytes. Of several
    numbers of partitions the largest counts."""
    if path.partition("/")[0] in _UNDIVIDED:
        return _dumped(_join_partitioned(elements))
    fields: dict[str, Any] = {}
    policies: dict[str, Any] = {}
    for element, value in elements.items():
        first, separator, name = element.partition("/")
        if separator and first == _POLICIES:
            policies[_unescaped(name)] = value
        else:
            fields[_unescaped(element)] = value
    if policies:
        fields[_POLICIES] = policies
    return _dumped(fields)


def _split_partitioned(document: Mapping[str, Any]) -> dict[str, Any]:
    """Split the document of a partitioned topic. Each number of partitions is an element of its own, so that no cluster
    removes partitions when two clusters add some at the same time (INV-80, decision 0024)."""
    others = {name: value for name, value in document.items() if name != _PARTITIONS}
    count = document.get(_PARTITIONS)
    return {WHOLE: others} if count is None else {f"{_PARTITIONS}/{count}": count, WHOLE: others}


def _join_partitioned(elements: Mapping[str, Any]) -> dict[str, Any]:
    counts = [value for element, value in elements.items() if _is_count(element)]
    document = dict(elements.get(WHOLE, {}))
    return document | {_PARTITIONS: max(counts)} if counts else document


def _is_count(element: str) -> bool:
    return element.startswith(f"{_PARTITIONS}/")


def is_implied(element: str, value: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether an element that the new document lacks need not be deleted: a number of partitions up to the new one."""
    return _is_count(element) and any(_is_count(one) and value <= count for one, count in wanted.items())


def check_element(path: str, element: str, value: Any) -> None:
    """Validate a received element of a partitioned topic; other elements may have any value. Raises ValueError when no
    document can contain it."""
    if path.partition("/")[0] not in _UNDIVIDED or element == EXISTENCE:
        return
    if element == WHOLE:
        if not isinstance(value, Mapping) or _PARTITIONS in value:
            raise ValueError(f"{element} of {path} is not a document without its number of partitions")
    elif type(value) is not int or not 1 <= value <= PARTITIONS_MAX or element != f"{_PARTITIONS}/{value}":
        raise ValueError(
            f"{element} {str(value)[:80]!r} is not a number of partitions from 1 to {PARTITIONS_MAX}"
        )


def _dumped(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unescaped(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


class ClockReading(NamedTuple):
    """A reading of a clock. A hybrid logical clock follows the wall clock, but its reading is later than all readings
    received before. Only its counter runs ahead of the fastest wall clock (docs/components/metadata-sync.md)."""

    time_ms: int
    counter: int


BEGINNING = ClockReading(0, 0)


def tick(latest: ClockReading, now_ms: int) -> ClockReading:
    """Return a hybrid clock's reading for a new local event. `latest`: the latest reading taken or received here."""
    if now_ms > latest.time_ms:
        return ClockReading(now_ms, 0)
    return ClockReading(latest.time_ms, latest.counter + 1)


def latest_reading(latest: ClockReading, other: ClockReading) -> ClockReading:
    """Return the latest reading of a hybrid clock after it received `other`."""
    return max(latest, other)
