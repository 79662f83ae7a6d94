"""Types of snapshots of replicated subscriptions: effects, stages, counters, observed conditions, the back-off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from emulator.core.replication.schedule import SnapshotSettings
from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.reasons import Cause, Reason, ReasonRow
from emulator.model.values import Position

SECOND_ROUND_SUFFIX = "/2"
FOLLOW_UP_SUFFIX = "+"
"""Suffix of the id of a snapshot that was started without new messages."""
NOT_TRIGGERING_SUFFIXES = (SECOND_ROUND_SUFFIX, FOLLOW_UP_SUFFIX)
"""Suffixes of ids of requests that trigger no follow-up: second rounds, and follow-ups themselves."""


# Effects, which the caller must carry out.


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Append this marker to the log of this region."""

    marker: SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate
    replicate_to: tuple[str, ...]
    """Regions that process it; empty: all."""


@dataclass(frozen=True, slots=True)
class OfferSnapshot:
    """Pass this snapshot to every replicated subscription of the topic."""

    snapshot: Snapshot


Effect = WriteMarker | OfferSnapshot


# States.


Received = Callable[[str], Position]
"""Maps a region to the newest durable entry that originates there, as a position in the log of that region;
BEFORE_EVERYTHING: there is none."""


class LogEnd(NamedTuple):
    """The end of this region's log at one moment."""

    position: Position
    """Position of the newest durable entry, readable or not."""
    received: Received


class SnapshotStage(Enum):
    """Stage of one pending snapshot."""

    FIRST_ROUND = "waiting for first responses"
    SECOND_ROUND = "waiting for second responses"
    STORING = "complete; its marker is being stored"


NEXT_STAGES = {
    SnapshotStage.FIRST_ROUND: {SnapshotStage.SECOND_ROUND, SnapshotStage.STORING},
    SnapshotStage.SECOND_ROUND: {SnapshotStage.STORING},
    SnapshotStage.STORING: set[SnapshotStage](),
}


class Skip(Enum):
    """Why a tick started no snapshot. Values are sentences for users and labels for metrics."""

    NO_REMOTES = "the topic is not replicated to another region"
    DISCONNECTED = "a link is down"
    IDLE = "no message since the last snapshot"
    UNANSWERED = "the first snapshot still waits for answers"
    UNDER_WAY = "no message since one was begun that still waits for answers"
    TOO_MANY = "too many snapshots wait for answers"
    EARLY = "the next one is not due yet"


@dataclass(slots=True)
class PendingSnapshot:
    """One snapshot that is not complete."""

    snapshot_id: str
    started_ms: int
    covers: Position
    """Position of the newest message when the snapshot was started."""
    covers_triggers: int
    """Number of triggers of follow-ups when the snapshot was started."""
    asked: frozenset[str]
    """Regions from which it was requested: all remote regions, or fewer for a partial snapshot."""
    unanswered: set[str]
    """Regions of `asked` that have not responded in this round. Invariant: empty only while STORING (INV-12)."""
    stage: SnapshotStage = SnapshotStage.FIRST_ROUND
    first_responses: dict[str, Position] = field(default_factory=dict)
    received: dict[str, Mapping[str, Position]] = field(default_factory=dict)
    """Region -> what it had received of each other region when it responded in the first round, if it stated that."""
    doubtful: bool = False
    """Whether the link to a region broke before it responded: the snapshot may complete, but the next one does not wait
    for it."""

    @property
    def wire_id(self) -> str:
        """The id that requests and valid responses of the present round have."""
        return self.snapshot_id + (SECOND_ROUND_SUFFIX if self.stage is SnapshotStage.SECOND_ROUND else "")

    def request(
        self, source_region: str, remotes: Set[str], down: Set[str], *, wants_received: bool = False
    ) -> WriteMarker:
        """Return the request of the present round. A partial one also goes to regions that do not respond although
        their link is up, so that their return is noticed, and to none of `down`, where requests would accumulate."""
        marker = SnapshotRequest(self.wire_id, source_region, wants_received)
        everyone = self.asked == remotes
        return WriteMarker(marker, () if everyone else tuple(sorted(self.asked | (remotes - down))))

    @property
    def rounds_needed(self) -> int:
        return 1 if len(self.asked) == 1 else 2

    @property
    def round(self) -> int:
        return 2 if self.stage is SnapshotStage.SECOND_ROUND else 1

    def is_received(self, received: Received) -> bool:
        """Whether this region, which has `received` these entries, has everything that the responding regions had
        received from each other: then a second round would prove nothing more."""
        regions = self.first_responses.keys()
        for responder in regions:
            stated = self.received[responder]
            others = regions - {responder}
            if any(region not in stated or stated[region] > received(region) for region in others):
                return False
        return True

    def why_pending(self, now_ms: int) -> Reason:
        """Return why the snapshot is not complete."""
        waited = seconds_text(now_ms - self.started_ms)
        if self.stage is SnapshotStage.STORING:
            return Cause.SNAPSHOT_STORING(snapshot=self.snapshot_id, waited=waited)
        regions = " and ".join(sorted(self.unanswered))
        return Cause.SNAPSHOT_UNANSWERED(regions=regions, round=self.round, waited=waited)

    def become(self, stage: SnapshotStage) -> None:
        assert stage in NEXT_STAGES[self.stage], f"{self.stage.name} -> {stage.name}"
        self.stage = stage


class FollowUps:
    """Snapshots that are required without new messages."""

    def __init__(self) -> None:
        self.required = 0
        """Number of events that require a follow-up snapshot."""
        self.completed = 0
        """Value of `required` when the last completed snapshot was started."""

    def require(self) -> int:
        """Require another snapshot, even if the newest one covers every message. Returns the number that
        `has_completed` requires."""
        self.required += 1
        return self.required

    def trigger(self, settings: SnapshotSettings) -> None:
        """Require another snapshot after an event, unless only new messages require one."""
        if not settings.new_messages_only:
            self.require()

    def has_completed(self, number: int) -> bool:
        """Whether a snapshot that was started after this call of `require` is complete."""
        return self.completed >= number

    @property
    def are_completed(self) -> bool:
        return self.completed == self.required


@dataclass(frozen=True, slots=True)
class CompletedSnapshot:
    """The last completed snapshot."""

    snapshot: Snapshot
    duration_ms: int
    """Time from its start until its marker was durable."""


@dataclass(slots=True)
class SnapshotCounters:
    """Numbers of snapshots since the controller was created."""

    started: int = 0
    completed: int = 0
    timed_out: int = 0
    aborted: int = 0
    """Snapshots dropped because the set of regions changed, or no subscription was replicated any more."""
    superseded: int = 0
    """Snapshots dropped because a newer one completed first: a response was lost with a region that stopped."""
    ignored_answers: int = 0
    """Responses that were repeated, late or not requested."""
    skipped: Counter[Skip] = field(default_factory=Counter)
    """Snapshots that were due and not started, by reason; at most one per interval and reason."""
    _skip_counted_ms: dict[Skip, int] = field(default_factory=dict)
    """Reason -> time at which it was last counted."""

    def count_skipped(self, skip: Skip, now_ms: int, interval_ms: int) -> None:
        """Count a skipped snapshot, once per interval and reason."""
        counted_ms = self._skip_counted_ms.get(skip)
        if counted_ms is None or now_ms - counted_ms >= interval_ms:
            self._skip_counted_ms[skip] = now_ms
            self.skipped[skip] += 1


class Observed(NamedTuple):
    """The conditions for a snapshot at one moment."""

    now_ms: int
    last_data_position: Position | None
    """Position of the newest entry that is no marker."""
    unreachable: Mapping[str, ReasonRow]
    """Region that cannot be reached or cannot reach this one -> row of the table of reasons."""


def seconds_text(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"
