"""Snapshots: a position in the log of this region and the corresponding positions in all other regions (PIP-33).

A snapshot (P; b: X, c: Y) of region a guarantees: a subscription that has acknowledged everything up to P in a has
acknowledged every message up to X in b, and up to Y in c, that ever reaches a. Regions determine a snapshot by markers
in the replicated log itself:

    a   ├─request──────────────┬─response of b─┬─response of c = P─┬─snapshot
        │                      │               │                   (own log only)
    b   └──▶ request ─ "X" ────┘               │
    c   └──▶ request ─ "Y" ────────────────────┘

Proof. A message at or before X in the log of b originates
  * from a: it was in the log of a before b received it, so before the response of b arrived in a;
  * from b: the log of b is replicated to a in order, so the response arrives in a after the message;
  * from c, and b received it by replication. One round proves nothing here, since replication from c to a may be slow.
    So with two or more remote regions there is a SECOND ROUND of requests: the message was in the log of c before the
    first response of b, so before the second request, so the second response of c arrives in a after the message.
Therefore a snapshot contains the positions of the FIRST round, and its own position is that of the last response of the
LAST round. The proof requires that regions forward only entries that originate there, in order and without loss. A
snapshot says nothing of messages that never reach a because their producer named other regions; the code that applies
an update leaves those alone (`emulator.core.replication.subscription_updates`).

    FIRST_ROUND ──all responded──▶ SECOND_ROUND ──all responded──▶ STORING ──marker durable──▶ (completed)
         └── all responded, and there is only one remote region ───────▲

    Any stage may end early: it timed out, the set of regions changed, or (except STORING) a newer one completed.

One round is enough if a has by then received everything of c that b had received when it responded, and everything of
b that c had: a has the message, and the end of its log becomes the position of the snapshot. Regions state that in a
response if they are asked (`SnapshotRequest.wants_received`, by the adaptive schedule); a real Pulsar does not.

Rounds differ by the id on the wire (`<id>`, then `<id>/2`), which remote regions return unchanged, so a repeated or
late response of the first round does not count for the second. A snapshot is completed once its marker is durable, not
when the write is issued.

Without new messages only a new controller starts a snapshot, and a *follow-up* is started when another region may not
have applied all updates of this one. Each of these events requires one follow-up, so a quiet topic becomes quiet again:
  * A link broke. A region that was killed may have stored our last update without applying it.
  * With three or more regions, another one requests a snapshot. Our log may be quiet while messages of b are still
    replicated to c, over a link that was cut: our last snapshot contains a position in c before them, and c would
    redeliver messages that were consumed here long ago. But c, having new messages, requests a snapshot. The id of a
    follow-up marks it as one, and a follow-up triggers no other.

A *partial* snapshot is requested from fewer regions, since others were absent for `partial_snapshots_after`. It has two
rounds if it is requested from two or more regions. The proof holds for messages that originate in a or in a region that
was asked, and for no others. So an update names exactly the regions that were asked, and every region that applies it
leaves messages of other regions unacknowledged (`TopicState.possibly_unseen`, INV-5, INV-12). When an absent region
returns, the next snapshot is requested from it, also in a quiet topic.

`SnapshotBackoff` limits the number of pending snapshots and their duration.

The caller must
  1. call `request_stored`, `response_stored` and `snapshot_stored` for each marker once it is durable in our log, in
     log order, once; never while the log is read again after a start;
  2. append the markers of the returned effects, in order, and pass snapshots to every replicated subscription;
  3. call `tick` at `due_ms` or more often: when a message arrives in a quiet topic, when a link is established;
  4. call `link_lost` when a link breaks, or the topic's session on it.
After a restart or a failed append a new controller starts with nothing pending and ignores responses to the old one.
"""

from __future__ import annotations

from collections.abc import Set

from emulator.core.replication.absence import RegionAbsence
from emulator.core.replication.schedule import (
    DEFAULT_SETTINGS,
    SnapshotBackoff,
    SnapshotSchedule,
    SnapshotSettings,
)
from emulator.core.replication.snapshot_types import (
    FOLLOW_UP_SUFFIX,
    NOT_TRIGGERING_SUFFIXES,
    SECOND_ROUND_SUFFIX,
    CompletedSnapshot,
    Effect,
    FollowUps,
    LogEnd,
    Observed,
    OfferSnapshot,
    PendingSnapshot,
    Received,
    Skip,
    SnapshotCounters,
    SnapshotStage,
    WriteMarker,
)
from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse
from emulator.model.reasons import NO_REASON, Cause, Reason, first_of
from emulator.model.values import Position


class SnapshotController:
    """All snapshots of one topic in one region. Times are milliseconds."""

    def __init__(
        self,
        region: str,
        remotes: frozenset[str],
        settings: SnapshotSettings = DEFAULT_SETTINGS,
        *,
        rounds: int | None = None,
    ) -> None:
        """`rounds` overrides the number of rounds, only to show that one round is not enough."""
        self.region = region
        self.remotes = remotes
        self.pending: dict[str, PendingSnapshot] = {}
        """Snapshot id -> pending snapshot, oldest first."""
        self.last_completed: CompletedSnapshot | None = None
        self.counters = SnapshotCounters()
        self.schedule = SnapshotSchedule(settings)
        self.backoff = SnapshotBackoff(settings)
        self._rounds = rounds
        self._now_ms = 0
        """Latest time that a caller passed."""
        self._covered: Position | None = None
        """Position of the newest message when the last completed snapshot was started; later messages require another
        snapshot. None: no snapshot was completed with these regions."""
        self.follow_ups = FollowUps()
        self.absence = RegionAbsence(settings.partial_after_ms)
        self._observed: Observed | None = None
        """Conditions at the last tick."""
        self.skip: Skip | None = None
        """Why the last tick started no snapshot; None: it started one, or there was no tick."""

    def configure(self, settings: SnapshotSettings) -> None:
        """Apply changed settings, to pending snapshots too."""
        self.schedule.settings = settings
        self.absence.partial_after_ms = settings.partial_after_ms
        self.backoff.configure(settings)

    # Starting.

    @property
    def due_ms(self) -> int:
        """Earliest time at which `tick` may start the next snapshot, by its clock. In the past when a condition other
        than the interval prevents it."""
        return self.schedule.due_ms(self._now_ms, self.cost, is_pending=bool(self._waited_for))

    @property
    def cost(self) -> int:
        """Number of markers in this log for a snapshot with one round: request, responses, snapshot and update."""
        return len(self.remotes) + 3

    def tick(
        self,
        now_ms: int,
        new_snapshot_id: str,
        *,
        last_data_position: Position | None,
        disconnected: Set[str] = frozenset(),
    ) -> list[Effect]:
        """Drop snapshots that timed out and start one if it is due.

        `new_snapshot_id` is used at most once and must be unique over regions and restarts.
        `last_data_position`: the newest entry that is no marker; None: there is none. `disconnected`: regions with a
        broken link in either direction. `now_ms`: time of any clock that never goes back.
        """
        self._now_ms = max(self._now_ms, now_ms)
        self._drop_timed_out()
        self._note_links(disconnected)
        unreachable = dict.fromkeys(self.absence.down_since_ms, Cause.SNAPSHOT_LINK_TO_DOWN)
        self._observed = Observed(self._now_ms, last_data_position, unreachable)
        self.skip = self._why_skip(last_data_position)
        if self.skip is not None:
            self.counters.count_skipped(self.skip, self._now_ms, self.schedule.settings.interval_ms)
            return []
        assert last_data_position is not None, "an empty topic is IDLE"
        if self._is_under_way(last_data_position):
            self.backoff.lengthen_wait()
        suffix = "" if self._has_messages(last_data_position) else FOLLOW_UP_SUFFIX
        return self._start(new_snapshot_id + suffix, last_data_position)

    def _start(self, snapshot_id: str, covers: Position) -> list[Effect]:
        self.counters.started += 1
        self.schedule.last_start_ms = self._now_ms
        asked = self.remotes - self.absence.left_out
        pending = PendingSnapshot(
            snapshot_id, self._now_ms, covers, self.follow_ups.required, asked, set(asked)
        )
        self.pending[snapshot_id] = pending
        adaptive = self.schedule.settings.adaptive
        down = self.absence.down_since_ms.keys()
        return [pending.request(self.region, self.remotes, down, wants_received=adaptive)]

    def _note_links(self, disconnected: Set[str]) -> None:
        down = disconnected & self.remotes
        self.absence.links_observed(down, self._now_ms)
        for region in down - self.absence.left_out:
            self.link_lost(region)
        # When a region returns, a snapshot from all regions is due, and does not wait for partial ones.
        returned = self.absence.update_left_out(self._now_ms)
        if returned:
            self.follow_ups.trigger(self.schedule.settings)
        for pending in self.pending.values():
            pending.doubtful = pending.doubtful or bool(returned - pending.asked)

    def link_lost(self, region: str) -> None:
        """Require a follow-up because the connection to a region broke, even if it is established again: updates may be
        lost. Requests may be lost, too, so the next snapshot does not wait for pending ones without the region's
        response. Call it at once: `tick` receives only links that are still down."""
        if region not in self.remotes:
            return
        self.follow_ups.trigger(self.schedule.settings)
        for pending in self.pending.values():
            if region in pending.unanswered:
                pending.doubtful = True

    def _drop_timed_out(self) -> None:
        late = [
            one for one in self.pending.values() if self._now_ms - one.started_ms >= self.backoff.timeout_ms
        ]
        for pending in late:
            del self.pending[pending.snapshot_id]
            self.counters.timed_out += 1
            self.backoff.timed_out()
            self.absence.timed_out(pending.unanswered, pending.started_ms)
        if any(not pending.doubtful for pending in late):
            self.backoff.set_timeout(2 * self.backoff.timeout_ms)

    def _why_skip(self, last_data_position: Position | None) -> Skip | None:
        """Return why no snapshot is started now; None: one is. A new controller starts one in any case: an update may
        have been lost with the old controller."""
        if not self.remotes:
            return Skip.NO_REMOTES
        if last_data_position is None:
            return Skip.IDLE
        if not self._needs_snapshot(last_data_position):
            return Skip.IDLE
        left_out = self.absence.left_out
        if self.absence.down_since_ms.keys() - left_out or left_out >= self.remotes:
            return Skip.DISCONNECTED
        waited_for = self._waited_for
        if self._covered is None and waited_for:
            return Skip.UNANSWERED
        if len(waited_for) >= self.backoff.pending_max:
            return Skip.TOO_MANY
        if self._now_ms < self.due_ms:
            return Skip.EARLY
        if self._is_under_way(last_data_position):
            waited_ms = self._now_ms - waited_for[-1].started_ms
            return Skip.UNDER_WAY if waited_ms < self.backoff.retry_after_ms else None
        return None

    @property
    def _waited_for(self) -> list[PendingSnapshot]:
        """Pending snapshots that the next one waits for, oldest first."""
        return [pending for pending in self.pending.values() if not pending.doubtful]

    def _is_under_way(self, last_data_position: Position) -> bool:
        """Whether the newest pending snapshot that is waited for covers every message."""
        waited_for = self._waited_for
        return bool(waited_for) and waited_for[-1].covers >= last_data_position

    def _needs_snapshot(self, last_data_position: Position) -> bool:
        return self._has_messages(last_data_position) or not self.follow_ups.are_completed

    def _has_messages(self, last_data_position: Position) -> bool:
        return self._covered is None or last_data_position > self._covered

    # Markers became durable in our log.

    def request_stored(
        self, request: SnapshotRequest, last_position: Position, received: Received | None = None
    ) -> list[Effect]:
        """Respond to the request of a remote region; with several remote regions, also require a follow-up here.
        `last_position`: the newest durable entry that is readable here now; the response is appended after it.
        `received`: what this log contains of each region, which the response states if the request asks for it."""
        if request.source_region == self.region or request.source_region not in self.remotes:
            return []
        if len(self.remotes) > 1 and not request.snapshot_id.endswith(NOT_TRIGGERING_SUFFIXES):
            self.follow_ups.trigger(self.schedule.settings)
        others = sorted(self.remotes - {request.source_region}) if request.wants_received and received else ()
        stated = tuple((region, received(region)) for region in others) if received else ()
        response = SnapshotResponse(request.snapshot_id, self.region, last_position, stated)
        return [WriteMarker(response, (request.source_region,))]

    def response_stored(
        self,
        response: SnapshotResponse,
        at_position: Position,
        now_ms: int,
        log_end: LogEnd | None = None,
    ) -> list[Effect]:
        """Process another region's response, which is at `at_position` in our log. `log_end`: the end of our log now,
        with which one round may be enough; None: the number of rounds depends on the number of regions alone."""
        self._now_ms = max(self._now_ms, now_ms)
        if response.region == self.region:
            return []
        if response.region in self.remotes:
            self.absence.responded(response.region, self._now_ms)
        pending = self.pending.get(response.snapshot_id.removesuffix(SECOND_ROUND_SUFFIX))
        if pending is None or not self._is_awaited(response, pending):
            self.counters.ignored_answers += 1
            return []
        pending.unanswered.remove(response.region)
        pending.first_responses.setdefault(response.region, response.position)
        stated = {region: position for region, position in response.received if region in self.remotes}
        pending.received.setdefault(response.region, stated)
        if pending.unanswered:
            return []
        if pending.stage is SnapshotStage.FIRST_ROUND and (self._rounds or pending.rounds_needed) == 2:
            if log_end is None or not pending.is_received(log_end.received):
                return self._start_second_round(pending)
            at_position = log_end.position
        return self._store(pending, at_position)

    def _is_awaited(self, response: SnapshotResponse, pending: PendingSnapshot) -> bool:
        return (
            pending.stage is not SnapshotStage.STORING
            and response.snapshot_id == pending.wire_id
            and response.region in pending.unanswered
        )

    def _start_second_round(self, pending: PendingSnapshot) -> list[Effect]:
        pending.become(SnapshotStage.SECOND_ROUND)
        pending.unanswered = set(pending.asked)
        return [pending.request(self.region, self.remotes, self.absence.down_since_ms.keys())]

    def _store(self, pending: PendingSnapshot, at_position: Position) -> list[Effect]:
        pending.become(SnapshotStage.STORING)
        positions = tuple(sorted(pending.first_responses.items()))
        return [WriteMarker(Snapshot(pending.snapshot_id, at_position, positions), (self.region,))]

    def snapshot_stored(self, snapshot: Snapshot, now_ms: int) -> list[Effect]:
        """Complete a snapshot whose marker is durable. It is offered even if it was dropped in the meantime."""
        self._now_ms = max(self._now_ms, now_ms)
        pending = self.pending.pop(snapshot.snapshot_id, None)
        if pending is not None:
            self.counters.completed += 1
            self._covered, self.follow_ups.completed = pending.covers, pending.covers_triggers
            duration_ms = self._now_ms - pending.started_ms
            self.last_completed = CompletedSnapshot(snapshot, duration_ms)
            self.backoff.completed(duration_ms)
            self._drop_older_than(pending)
        return [OfferSnapshot(snapshot)]

    def _drop_older_than(self, completed: PendingSnapshot) -> None:
        """Drop older pending snapshots: responses arrive in order, so each has lost a response and cannot complete."""
        for pending in list(self.pending.values()):
            if pending.started_ms < completed.started_ms and pending.stage is not SnapshotStage.STORING:
                del self.pending[pending.snapshot_id]
                self.counters.superseded += 1

    # The set of regions changed.

    def remotes_changed(self, remotes: frozenset[str]) -> None:
        """Set the remote regions of the topic. Pending snapshots are dropped: they were requested from the old ones."""
        if remotes == self.remotes:
            return
        self.remotes = remotes
        self.abort_pending()
        self._covered = None
        self.backoff.reset()
        self.absence.keep_only(remotes)

    def abort_pending(self) -> None:
        """Drop the pending snapshots: their regions changed, or no subscription is replicated any more."""
        self.counters.aborted += len(self.pending)
        self.pending.clear()

    # Explaining.

    def why_not(self, observed: Observed | None = None) -> Reason:
        """Return why there is no newer snapshot under the conditions `observed`, or those of the last tick; empty when
        one is due and none is pending. Causes are tested in the order of the table of reasons."""
        if not self.remotes:
            return Cause.SNAPSHOT_NO_REMOTES()
        observed = observed or self._observed
        if observed is None:
            return Cause.SNAPSHOT_NONE_YET()
        observed = observed._replace(now_ms=max(observed.now_ms, self._now_ms))
        if observed.last_data_position is None:
            return Cause.SNAPSHOT_NO_MESSAGE()
        if reason := self.why_unreachable(observed) or self.absence.why_partial(observed.now_ms):
            return reason
        if self.pending:
            oldest = (self._waited_for or list(self.pending.values()))[0]
            return oldest.why_pending(observed.now_ms)
        if not self._needs_snapshot(observed.last_data_position):
            return Cause.SNAPSHOT_NOT_NEEDED()
        if self.schedule.last_start_ms is None:
            return Cause.SNAPSHOT_NONE_YET()
        wait_ms = self.due_ms - observed.now_ms
        return Cause.SNAPSHOT_NOT_DUE(wait_ms=wait_ms) if wait_ms > 0 else NO_REASON

    def why_unreachable(self, observed: Observed) -> Reason:
        """Return which link prevents snapshots, or that there is no remote region; empty when neither is the case."""
        if not self.remotes:
            return Cause.SNAPSHOT_NO_REMOTES()
        left_out = self.absence.left_out
        return first_of(
            row(here=self.region, region=region, waited=self.absence.waited_text(region, observed.now_ms))
            for region, row in sorted(observed.unreachable.items())
            if region not in left_out or left_out >= self.remotes
        )
