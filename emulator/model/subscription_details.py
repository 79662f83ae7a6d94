"""The replicated state of one subscription in one region, as explanations show it (PIP-33)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot: corresponding positions in every region."""

    here: str
    """Position in the region that responds."""
    elsewhere: Mapping[str, str]
    """Other region -> position in its log."""
    age_ms: int | None
    """Time since its marker was written, by the region's clock; None: unknown."""
    is_reached: bool
    """Whether mark-delete has reached it."""


@dataclass(frozen=True, slots=True)
class SentPosition:
    """The newest position that the region sent to another one."""

    region: str
    position: str
    """Position in the log of `region`."""
    age_ms: int
    """Time since its update was written, by the sender's clock."""
    is_stored_there: bool
    """Whether `region` has acknowledged the entry of the update."""
    redelivered_at_most: int | None
    """Number of messages that a fail-over to `region` would deliver again at most
    (`core.replication.update_records`); None: unknown."""


@dataclass(frozen=True, slots=True)
class ReceivedPosition:
    """The newest position that another region sent."""

    region: str
    position: str
    """Position in the log of the region that responds; empty: the update names none."""
    age_ms: int | None
    """Time since the update was stored here, by the region's clock; None: since before the topic was loaded."""
    written_ms: int
    """Time at which the update was written, by the clock of `region`."""
    outcome: str


@dataclass(frozen=True, slots=True)
class SubscriptionDetails:
    """The position of one subscription, and what other regions know of it."""

    mark_delete: str
    acknowledged_entries: int
    """Number of entries beyond mark-delete that are wholly acknowledged."""
    acknowledged_ranges: int
    """Number of runs of such entries."""
    partial_batches: int
    """Number of batches that are acknowledged in part."""
    newest_snapshot: KnownSnapshot | None
    """The newest completed snapshot of the topic that this region knows."""
    cached_snapshots: tuple[KnownSnapshot, ...]
    """The snapshots that the subscription waits to reach, oldest first."""
    sent: tuple[SentPosition, ...]
    """By region; without regions to which nothing was sent."""
    received: tuple[ReceivedPosition, ...]
    updates_sent: int
    updates_applied: int
    updates_ignored: int
    """Numbers of updates since the topic was loaded."""
    blocked: str
    """Why the position is not sent any further; empty: it is sent, or the subscription is not replicated."""
    cause: str
    """Code of `blocked`; empty without one."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SubscriptionDetails:
        """Return the value whose `asdict` is `raw`. Raises KeyError or TypeError for anything else."""
        newest = raw["newest_snapshot"]
        return cls(
            **{
                **raw,
                "newest_snapshot": None if newest is None else KnownSnapshot(**newest),
                "cached_snapshots": tuple(KnownSnapshot(**one) for one in raw["cached_snapshots"]),
                "sent": tuple(SentPosition(**one) for one in raw["sent"]),
                "received": tuple(ReceivedPosition(**one) for one in raw["received"]),
            }
        )
