"""The only validation of an entry's claims before the entry is stored (docs/components/admission.md, A1 to A4).

A `Publisher` identifies the sender of an entry. It is created when the sender's producer attaches, not derived from
names in entries. `check` validates an entry's claims against it.

    publisher        replicated_from, source position     producer name        marker
    ClientProducer   none; a source position is ignored   the producer's own   none
    Peer             the peer's region; a position        any                  the peer's, known or permitted
    OwnRegion        none                                 -                    the region's own

After a restart, deduplication by producer name and watermarks by region are rebuilt from the stored log. Both are
correct because every stored entry satisfies this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Protocol

from emulator.errors import ServerError
from emulator.model.markers import Marker, Snapshot, SnapshotRequest, SnapshotResponse
from emulator.model.values import Position

SEQUENCE_ID_MAX = 2**63 - 1
"""Maximum sequence id: clients read sequence ids as signed 64-bit numbers."""
MESSAGE_BYTES_MIN = 6
"""Minimum bytes of a message in a batch: its metadata size (4) and, in its metadata, its payload size (2)."""

# Publishers.


class PeerPermission(Enum):
    """A permission of another region besides sending its own messages; the value is its name in the topology."""

    MARKERS = "replicated-subscriptions"
    """The peer's markers of replicated subscriptions (requests, responses, updates) are stored and take effect."""
    UNKNOWN_MARKERS = "unknown-markers"
    """The peer's markers of unknown types are stored and have no effect."""


REGION_MAY = frozenset({PeerPermission.MARKERS})
"""Permissions of a region of the same run."""


@dataclass(frozen=True, slots=True)
class ClientProducer:
    """A producer of a client."""

    name: str
    """The producer's name, as sent in PRODUCER_SUCCESS."""
    connection: str
    """Description of the connection, for messages to users."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The replicator of another region. Created only after peer authentication."""

    region: str
    may: frozenset[PeerPermission] = REGION_MAY


@dataclass(frozen=True, slots=True)
class OwnRegion:
    """The region itself, which writes markers."""

    region: str


@lru_cache(maxsize=16)
def own_region(region: str) -> OwnRegion:
    """Return the region itself as a publisher; one object for all its topics."""
    return OwnRegion(region)


Publisher = ClientProducer | Peer | OwnRegion


def is_limited(publisher: Publisher) -> bool:
    """Return whether the limits, quotas and rates of a topic apply to a publisher: to clients only. Entries of other
    regions were acknowledged there, and carry the positions that reduce a backlog (L5)."""
    return isinstance(publisher, ClientProducer)


# Claims of an entry.


class Scanned(Protocol):
    """The fields of an entry's metadata that `check` reads."""

    @property
    def producer_name(self) -> str: ...
    @property
    def replicated_from(self) -> str | None: ...
    @property
    def source_position(self) -> Position | None: ...
    @property
    def sequence_id(self) -> int: ...
    @property
    def highest_sequence_id(self) -> int: ...
    @property
    def num_messages(self) -> int: ...
    @property
    def marker_type(self) -> int | None: ...
    @property
    def payload_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EntrySizeLimits:
    """Limits of an entry's size, so that every region to which it is replicated accepts it (A3)."""

    payload_bytes: int
    """Maximum size of the payload alone: the protocol's maximum message size."""
    entry_bytes: int
    """Maximum size of metadata and payload as a client sends them. Leaves room for the metadata that replication adds,
    and for the command in the same frame."""
    batch_bytes: int
    """Maximum size of the uncompressed messages of a batch. A topic's lower limit of payloads applies to the compressed
    batch."""


# Results.


class RefusalScope(Enum):
    """Scope of a refusal: the entry, or also all later entries of its producer."""

    ENTRY = "the entry is not stored; the producer continues"
    ATTACHMENT = "nothing more of this attachment is admitted; the peer attaches again (A2)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an entry is not stored."""

    code: ServerError
    sentence: str
    scope: RefusalScope


def scope_of(publisher: Publisher) -> RefusalScope:
    """Return the scope of a refusal. A client receives a response to each message, so its producer continues. The
    watermark of a peer would pass a refused entry, so all later entries of its attachment are refused, too."""
    return RefusalScope.ATTACHMENT if isinstance(publisher, Peer) else RefusalScope.ENTRY


def check(
    publisher: Publisher, entry: Scanned, marker: Marker | None, entry_bytes: int, limits: EntrySizeLimits
) -> Refusal | None:
    """Return why an entry may not be stored; None: it may. `marker`: the entry's decoded marker; None if it has none,
    or one of an unknown type."""
    if type(publisher) is ClientProducer:
        if (
            entry.producer_name == publisher.name
            and entry.marker_type is None
            and entry.replicated_from is None
            and entry.sequence_id <= SEQUENCE_ID_MAX
            and entry.highest_sequence_id <= SEQUENCE_ID_MAX
            and entry.num_messages * MESSAGE_BYTES_MIN <= limits.batch_bytes
            and entry_bytes <= limits.entry_bytes
            and entry_bytes - entry.payload_offset <= limits.payload_bytes
        ):
            return None
        sentence = (
            _forbidden_claim(publisher, entry)
            or _invalid_numbers(entry, limits)
            or _too_large(entry, entry_bytes, limits)
        )
    elif type(publisher) is Peer:
        if (
            entry.replicated_from == publisher.region
            and entry.source_position is not None
            and entry.marker_type is None
            and entry.sequence_id <= SEQUENCE_ID_MAX
            and entry.highest_sequence_id <= SEQUENCE_ID_MAX
            and entry.num_messages * MESSAGE_BYTES_MIN <= limits.batch_bytes
            and entry_bytes - entry.payload_offset <= limits.payload_bytes
        ):
            return None
        sentence = _foreign_origin(publisher, entry) or _forbidden_marker(publisher, entry, marker)
        if not sentence and marker is None:
            sentence = _invalid_numbers(entry, limits)
        if not sentence and entry_bytes - entry.payload_offset > limits.payload_bytes:
            sentence = _too_large(entry, entry_bytes, limits)
    else:
        assert marker is not None, "a region writes only markers, of types that it can decode"
        sentence = ""
    return Refusal(ServerError.NotAllowedError, sentence, scope_of(publisher)) if sentence else None


def _forbidden_claim(client: ClientProducer, entry: Scanned) -> str:
    """Return why a client may not make the entry's claims (A1); empty when it may."""
    if entry.producer_name != client.name:
        return f"the entry names producer {entry.producer_name!r}; it was sent by {client.name!r}"
    if entry.marker_type is not None:
        return f"the entry has marker type {entry.marker_type}: only regions write markers"
    if entry.replicated_from is not None:
        return f"the entry says that it was replicated from {entry.replicated_from!r}: only that region may say so"
    return ""


def _foreign_origin(peer: Peer, entry: Scanned) -> str:
    """Return why the peer may not send the entry: its origin is another region, or it has no source position (A1);
    empty when it may."""
    if entry.replicated_from != peer.region:
        return f"the entry says that it was replicated from {entry.replicated_from!r}; it was sent by {peer.region!r}"
    if entry.source_position is None:
        return f"an entry replicated from {peer.region!r} lacks its source position"
    return ""


def _forbidden_marker(peer: Peer, entry: Scanned, marker: Marker | None) -> str:
    """Return why the peer may not send this marker (A4); empty when it may, or the entry is no marker."""
    if entry.marker_type is None:
        return ""
    if marker is None:
        if PeerPermission.UNKNOWN_MARKERS in peer.may:
            return ""
        return f"marker type {entry.marker_type} of {peer.region!r} is not known here"
    if PeerPermission.MARKERS not in peer.may:
        return f"{peer.region!r} may not take part in replicated subscriptions here"
    match marker:
        case SnapshotRequest(_, region) | SnapshotResponse(_, region, _) if region != peer.region:
            return f"{peer.region!r} sent a marker in the name of {region!r}"
        case Snapshot():
            return f"{peer.region!r} sent a snapshot, which is valid in its own log only"
    return ""


def _invalid_numbers(entry: Scanned, limits: EntrySizeLimits) -> str:
    """Return why the entry's numbers are invalid; empty when they are valid. Stored, invalid numbers would affect all
    clients: sequence ids are signed on the wire, and acknowledging a batch takes a bit for each of its messages."""
    for name, number in (
        ("sequence_id", entry.sequence_id),
        ("highest_sequence_id", entry.highest_sequence_id),
    ):
        if number > SEQUENCE_ID_MAX:
            return f"{name} {number} exceeds the maximum of {SEQUENCE_ID_MAX}"
    if entry.num_messages * MESSAGE_BYTES_MIN > limits.batch_bytes:
        return f"a batch of {entry.num_messages} messages does not fit into {limits.batch_bytes} bytes"
    return ""


def _too_large(entry: Scanned, entry_bytes: int, limits: EntrySizeLimits) -> str:
    payload_bytes = entry_bytes - entry.payload_offset
    if payload_bytes > limits.payload_bytes:
        return f"message of {payload_bytes} bytes exceeds the maximum of {limits.payload_bytes}"
    return (
        f"entry of {entry_bytes} bytes exceeds the maximum of {limits.entry_bytes}: "
        f"{payload_bytes} bytes of message and {entry.payload_offset} of metadata"
    )
