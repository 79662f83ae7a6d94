"""Markers of replicated subscriptions (PIP-33) as plain values, and the type numbers of all markers.

Markers are entries that brokers write. `wire.markers` encodes and decodes them. The numbers are upstream's
`marker_type`; markers of transactions (PIP-31) have no value here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.model.values import Position

SNAPSHOT_REQUEST = 10
SNAPSHOT_RESPONSE = 11
SNAPSHOT = 12
SUBSCRIPTION_UPDATE = 13
TXN_COMMIT = 21
TXN_ABORT = 22


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request by `source_region` for the last position in the log of every other region."""

    snapshot_id: str
    source_region: str
    wants_received: bool = False
    """Whether responses shall state what their regions have received. Regions of a real Pulsar ignore it."""


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """The response of `region`, with its last position."""

    snapshot_id: str
    region: str
    position: Position
    received: tuple[tuple[str, Position], ...] = ()
    """(other region, position in its log) of the newest entry that its log contains of that region. Empty: not
    stated."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Corresponding positions of one topic: a subscription that has acknowledged all entries up to `local_position` in
    this region's log has also acknowledged those up to `positions` in the logs of other regions."""

    snapshot_id: str
    local_position: Position
    positions: tuple[tuple[str, Position], ...]
    """(other region, position in its log)."""
    taken_ms: int = field(default=0, compare=False)
    """Time at which its marker was written, by this region's clock; 0: not known yet. Not a part of the marker."""


@dataclass(frozen=True, slots=True)
class AckedEntries:
    """Acknowledged entries that originate in one ledger of one region."""

    region: str
    ledger: int
    ranges: tuple[tuple[int, int], ...] = ()
    """(first, last entry id) of acknowledged entries, both included, ascending."""
    batches: tuple[tuple[int, int], ...] = ()
    """(entry id, messages that are not acknowledged, one bit each) of partly acknowledged batches, ascending."""


@dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """The positions up to which a subscription has acknowledged all entries, and entries beyond them."""

    subscription: str
    positions: tuple[tuple[str, Position], ...]
    """(region, position in its log)."""
    individual: tuple[AckedEntries, ...] = ()
    """Acknowledged entries, also beyond the positions. Upstream has no such field."""


Marker = SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate
