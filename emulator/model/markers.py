"""Markers: entries of the log by which regions coordinate (PIP-33), as plain values; the wire form is in `wire/`.

Numbers are upstream's `marker_type`. The two of transactions are listed here because they must be hidden, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.model.values import Position

SNAPSHOT_REQUEST = 10
SNAPSHOT_RESPONSE = 11
SNAPSHOT = 12
SUBSCRIPTION_UPDATE = 13
TXN_COMMIT = 21
TXN_ABORT = 22


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request of `source_region` for the last position of every other region."""

    snapshot_id: str
    source_region: str


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """The response of `region`, with its last position."""

    snapshot_id: str
    region: str
    position: Position


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A subscription that acknowledged all entries up to `local_position` also acknowledged all up to `positions`."""

    snapshot_id: str
    local_position: Position
    positions: tuple[tuple[str, Position], ...]
    """(other region, position in its log)."""


@dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """The positions up to which a subscription has acknowledged all entries."""

    subscription: str
    positions: tuple[tuple[str, Position], ...]
    """(region, position in its log)."""


Marker = SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate
