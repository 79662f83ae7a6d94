"""The messages of the event topic, one JSON object each: events, a version vector, a request or a response to one.

events    a source's own events, the newest of each element, within a range of sequence numbers
standing  a cluster's version vector; `asks`: the other clusters must send theirs; `declared`: clusters it declared
          lost; `excluded`: paths that it does not synchronise
request   a cluster's version vector, and the cluster that must send it all missing events; an empty vector: all events
answer    a part of the requested events; `vector`: the requester's version vector after it has applied all parts

`EventOutbox` decides which events are published next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from emulator.core.metadata.event import SyncEvent, SyncStamp, number
from emulator.core.metadata.record import DocumentRecord
from emulator.core.metadata.stored import Excluded, excluded_from_json
from emulator.core.metadata.version_vector import vector_from_json
from emulator.model.values import is_valid_name

VERSION: Final = 1
EVENT_CHARACTERS_MAX: Final = 262_144
"""Maximum size of the events in one message, in characters; a single event may exceed it."""
EVENTS_MAX: Final = 20_000
"""Maximum number of events in a received message. An event takes at least 200 characters, so a full one has fewer."""


PARTS_MAX: Final = 100_000
"""Maximum number of parts of one answer; a cluster has far fewer documents."""
ANSWER_EVENTS_MAX: Final = 1_000_000
"""Maximum number of events in all parts of one answer together."""


@dataclass(frozen=True, slots=True)
class Events:
    """A cluster's own events within a range of sequence numbers."""

    source: str
    incarnation: str
    after: int
    """Sequence number of the source after which the message begins, exclusive."""
    upto: int
    """Sequence number up to which a cluster has all events after applying it, if it had those up to `after`."""
    events: tuple[SyncEvent, ...]
    seen_to: Mapping[str, int] = field(default_factory=dict)
    """Declaring cluster -> number of its newest declaration that the source is lost which the source has processed."""


@dataclass(frozen=True, slots=True)
class VersionReport:
    """The version vector and settings of a cluster."""

    source: str
    vector: Mapping[str, int]
    asks: bool = False
    """Whether the other clusters must send their reports, too."""
    declared: Mapping[str, int] = field(default_factory=dict)
    """Cluster -> how many times the source declared it lost."""
    excluded: Excluded = ()
    """Paths that the source does not synchronise."""


@dataclass(frozen=True, slots=True)
class CatchUpRequest:
    """A request to the cluster `to` for all events that the source lacks."""

    source: str
    to: str
    vector: Mapping[str, int]
    number: int = 0
    """Number that the response must have; 0: the responding cluster chooses one."""


@dataclass(frozen=True, slots=True)
class CatchUpResponse:
    """A part of the response to a CatchUpRequest of the cluster `to`."""

    source: str
    to: str
    number: int
    """Number of the response, which distinguishes its parts from those of another response."""
    part: int
    parts: int
    vector: Mapping[str, int]
    """Version vector of the requester after it has applied all parts."""
    events: tuple[SyncEvent, ...]
    is_whole: bool = False
    """Whether the parts contain the whole state of the source, not only the events that the requester lacked."""
    declared: int = 0
    """How many times the source had declared the requester lost when it sent the response."""
    seen_to: Mapping[str, int] = field(default_factory=dict)


Message = Events | VersionReport | CatchUpRequest | CatchUpResponse
_KINDS: Final[Mapping[type[Message], str]] = {
    Events: "events",
    VersionReport: "standing",
    CatchUpRequest: "request",
    CatchUpResponse: "answer",
}


def encode(message: Message) -> bytes:
    raw: dict[str, Any] = {
        "version": VERSION,
        "kind": _KINDS[type(message)],
        "source": message.source,
    }
    match message:
        case Events(_, incarnation, after, upto, events, seen_to):
            raw |= {
                "incarnation": incarnation,
                "after": after,
                "upto": upto,
                "events": _events_to_json(events),
            }
            raw |= {"seenTo": dict(seen_to)}
        case VersionReport(_, vector, asks, declared, excluded):
            raw |= {"vector": dict(vector), "asks": asks, "declared": dict(declared)}
            raw |= {"excluded": list(excluded)} if excluded else {}
        case CatchUpRequest(_, to, vector, number_):
            raw |= {"to": to, "vector": dict(vector)} | ({"number": number_} if number_ else {})
        case CatchUpResponse(_, to, number_, part, parts, vector, events, is_whole, declared_times, seen_to):
            raw |= {"to": to, "number": number_, "part": part, "parts": parts}
            raw |= {"whole": is_whole, "declared": declared_times, "seenTo": dict(seen_to)}
            raw |= {"vector": dict(vector), "events": _events_to_json(events)}
    return json.dumps(raw, separators=(",", ":")).encode()


def _events_to_json(events: Iterable[SyncEvent]) -> list[dict[str, Any]]:
    return [event.to_json() for event in events]


def decode(payload: bytes) -> Message:
    """Decode and validate a payload of the event topic. Raises ValueError, naming the violated rule."""
    raw = json.loads(payload)
    if not isinstance(raw, Mapping) or raw.get("version") != VERSION:
        raise ValueError("it is not a pack of this version")
    source = _cluster(raw, "source")
    match raw.get("kind"):
        case "events":
            incarnation = str(raw.get("incarnation"))
            after, upto = number(raw, "after"), number(raw, "upto")
            events = _events(raw)
            foreign = [one for one in events if one.stamp.origin != f"{source}:{incarnation}"]
            if foreign:
                raise ValueError(f"{source} speaks for {foreign[0].stamp.source}")
            return Events(source, incarnation, after, upto, events, vector_from_json(raw.get("seenTo", {})))
        case "standing":
            vector = vector_from_json(raw.get("vector"))
            declared = vector_from_json(raw.get("declared", {}))
            excluded = excluded_from_json(raw.get("excluded", []))
            return VersionReport(source, vector, raw.get("asks") is True, declared, excluded)
        case "request":
            vector, number_ = vector_from_json(raw.get("vector")), number(raw, "number", default=0)
            return CatchUpRequest(source, _cluster(raw, "to"), vector, number_)
        case "answer":
            vector = vector_from_json(raw.get("vector"))
            part, parts = number(raw, "part"), number(raw, "parts")
            if part >= parts or parts > PARTS_MAX:
                raise ValueError(f"part {part} is none of {parts}, of which there are {PARTS_MAX} at most")
            return CatchUpResponse(
                source,
                _cluster(raw, "to"),
                number(raw, "number"),
                part,
                parts,
                vector,
                _events(raw),
                raw.get("whole") is True,
                number(raw, "declared", default=0),
                vector_from_json(raw.get("seenTo", {})),
            )
        case other:
            raise ValueError(f"kind {other!r} is not known")


def _cluster(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not is_valid_name(value):
        raise ValueError(f"{name} {str(value)[:80]!r} is not a name of a cluster")
    return value


def _events(raw: Mapping[str, Any]) -> tuple[SyncEvent, ...]:
    raw_events = raw.get("events")
    if not isinstance(raw_events, list) or len(raw_events) > EVENTS_MAX:
        raise ValueError(f"events must be a list of {EVENTS_MAX} at most")
    return tuple(SyncEvent.from_json(one) for one in raw_events)


def portions(
    events: Iterable[SyncEvent], characters_max: int = EVENT_CHARACTERS_MAX
) -> Iterator[tuple[SyncEvent, ...]]:
    """Yield the events in tuples that fit into one message each. An event that exceeds the limit gets its own."""
    portion: list[SyncEvent] = []
    size = 0
    for event in events:
        characters = len(json.dumps(event.value)) + len(event.path) + 200
        if portion and size + characters > characters_max:
            yield tuple(portion)
            portion, size = [], 0
        portion.append(event)
        size += characters
    if portion:
        yield tuple(portion)


class EventOutbox:
    """Finds a cluster's own changes that are not published yet. Owned by the sync leader. It is not stored: a new sync
    leader creates it from the records and the sequence up to which the events are published."""

    def __init__(self, cluster: str, incarnation: str, published: int) -> None:
        self._cluster = cluster
        self.incarnation = incarnation
        self.published = published
        """Sequence up to which the cluster's events are published."""
        self._paths: dict[str, None] = {}
        """Documents with unpublished changes."""

    def begins_with(self, record: DocumentRecord) -> None:
        """Note the unpublished changes of a record when this region becomes the sync leader."""
        self.noted(record)

    def noted(self, record: DocumentRecord) -> None:
        """Note the unpublished changes of a record that changed."""
        if any(self._is_due(event.stamp) for event in record.events()):
            self._paths[record.path] = None

    def _is_due(self, stamp: SyncStamp) -> bool:
        return stamp.origin == f"{self._cluster}:{self.incarnation}" and stamp.sequence > self.published

    @property
    def due(self) -> Sequence[str]:
        """Paths of the records with unpublished changes, which `event_messages` must receive."""
        return list(self._paths)

    def event_messages(
        self,
        records: Iterable[DocumentRecord],
        settled: int,
        characters_max: int = EVENT_CHARACTERS_MAX,
        seen_to: Mapping[str, int] | None = None,
    ) -> list[Events]:
        """Return messages with the unpublished events of `records` up to `settled`; none if all up to there are
        published. `records` and `settled` are read in one transaction: each own event up to `settled` is applied, or
        never will be. The last message reaches `settled` even if the events up to there are superseded, so that other
        clusters ignore copies that any region published before (INV-78)."""
        due = (event for record in records for event in record.events() if self._is_due(event.stamp))
        events = [event for event in due if event.stamp.sequence <= settled]
        events.sort(key=lambda event: event.stamp.sequence)
        made: list[Events] = []
        after = self.published
        portioned = list(portions(events, characters_max)) or [()]
        for index, portion in enumerate(portioned):
            upto = settled if index == len(portioned) - 1 else portion[-1].stamp.sequence
            made.append(Events(self._cluster, self.incarnation, after, upto, portion, seen_to or {}))
            after = upto
        return made if settled > self.published else []

    def heard(self, message: Events) -> None:
        """Note a message of this cluster that was received from the event topic: its events are published. It is
        ignored if events between `published` and the message are missing."""
        if message.incarnation == self.incarnation and message.after <= self.published:
            self.published = max(self.published, message.upto)

    def sent(self, messages: Sequence[Events], records: Iterable[DocumentRecord]) -> None:
        """Note that messages are durable in the event topic. `records`: the records that were due, in their current
        state. Those that changed while the messages were being published are due again."""
        if messages:
            self.published = max(self.published, messages[-1].upto)
        for record in records:
            self._paths.pop(record.path, None)
            self.noted(record)
