"""Markers: what regions send each other inside the log (PIP-33), as plain values; the wire form is in `wire/`.

Numbers are upstream's `marker_type`; the two of transactions are listed here because readers must hide them too.
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
    """`source_region` asks every other region for its last position."""

    snapshot_id: str
    source_region: str


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """`region` answers with its last position."""

    snapshot_id: str
    region: str
    position: Position


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A subscription that acknowledged everything up to `local_position` has done so up to `positions`."""

    snapshot_id: str
    local_position: Position
    positions: tuple[tuple[str, Position], ...]
    """(other region, position there)."""


@dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """A subscription has acknowledged everything up to these positions."""

    subscription: str
    positions: tuple[tuple[str, Position], ...]
    """(region, position there)."""


Marker = SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate
