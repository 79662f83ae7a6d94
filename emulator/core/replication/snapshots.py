"""Taking snapshots: which place in our log corresponds to which place in every other region's (PIP-33).

A snapshot (P; b: X, c: Y) of region a promises: whoever has acknowledged everything up to P here has
acknowledged everything in b up to X, and in c up to Y, that ever reaches a. It is found by asking through the
replicated log itself:

    a   ├─request──────────────┬─response of b─┬─response of c = P─┬─snapshot
        │                      │               │                   (own log only)
    b   └──▶ request ─ "X" ────┘               │
    c   └──▶ request ─ "Y" ────────────────────┘

Why that is true. A message that stands in b at or before X came
  * from a: it was in our log before b got it, so before b's answer came back;
  * from b: b's log reaches us in order, the answer behind it;
  * from c, by way of b's log: here the answers prove nothing yet, since c may be slow towards us. So with two
    or more other regions everybody is asked A SECOND TIME: the message was in c before b's first answer, so
    before the second request, so c's second answer arrives here behind it. A snapshot says the positions of
    the FIRST round and the place of the last answer of the LAST round.
It needs regions that forward only what they originated, in order and without loss. It says nothing of
messages that never reach us because their sender named other regions; whoever applies an update leaves those
alone (`emulator.core.replication.subscription_updates`).

    FIRST_ROUND ──all answered──▶ SECOND_ROUND ──all answered──▶ STORING ──marker durable──▶ (completed)
         └── all answered, there is only one other region ──────────▲

    Any stage may end early: timed out, the set of regions changed, or (but for STORING) a newer one
    completed.

Rounds differ by the id on the wire (`<id>`, then `<id>/2`), which others echo as it is, so no repeated or
late answer of the first round counts for the second. A snapshot counts as completed once its marker
is durable, not when that is issued.

Without new messages no snapshot is begun, but for an *afterthought* when another region may know
less than we told it. Each event calls for one, so a quiet topic falls silent again:
  * A link broke. A region that was killed may have stored our last update without having acted upon it.
  * With three regions, another one asks for a snapshot. Our log may be quiet while b's messages still trickle
    into c, over a link that was cut: our last snapshot named a place in c before them, and c would give out
    again what was consumed here long ago. But c, having new messages, asks. An afterthought says in its id
    that it is one, and calls for none in turn.

Markers must not take the links from each other. A region that asks again and again because nobody answers in time makes
answers later still; and each of its requests calls for afterthoughts elsewhere. With five regions, small windows and
slow links that went on for ever in a topic that nobody published to. So a snapshot that no message has overtaken is
waited for: as long as twice the last one took, and twice as long after each that was begun in vain. And when snapshots
time out, fewer may be under way at once, until they complete again, and the next has twice the time: where a marker
waits longer behind others than a snapshot may take, each new one would only make the others late.

The shell's duties:
  1. Tell what was stored (`request_stored`, `response_stored`, `snapshot_stored`) once it is durable in our
     log, in log order, each entry once; never while the log is read again after a start.
  2. Write the markers it is handed, in order; offer a snapshot to every replicated subscription when told to.
  3. Call `tick` at `due_ms` or more often: when a message arrives in a quiet topic, when a link comes up.
  4. Call `link_lost` when a link breaks, or the topic's session on it.
After a restart or a failed append a new controller begins with nothing pending and ignores answers to the
old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.reasons import NO_REASON, Cause, Reason, ReasonRow, first_of
from emulator.model.values import Position

SECOND_ROUND_SUFFIX = "/2"
AFTERTHOUGHT_SUFFIX = "+"
"""Ends the id of a snapshot that was begun without new messages."""
NO_NEWS_SUFFIXES = (SECOND_ROUND_SUFFIX, AFTERTHOUGHT_SUFFIX)
"""Requests that do not mean that their region has new messages."""
PENDING_MAX = 8
"""Snapshots under way at once. More than one, because a round trip may take longer than the interval; few,
because others may never answer and requests must not pile up in the log."""
TIMEOUT_GROWTH_MAX = 8
"""So many times as long as it was told may a snapshot take at most, after others timed out."""


# What the shell is asked to do.


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Append this marker to our own log."""

    marker: SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate
    replicate_to: tuple[str, ...]
    """Regions it is meant for; empty: all."""


@dataclass(frozen=True, slots=True)
class OfferSnapshot:
    """Let every replicated subscription of the topic know this snapshot."""

    snapshot: Snapshot


Effect = WriteMarker | OfferSnapshot


# What is known of snapshots.


class Stage(Enum):
    """Where one snapshot stands."""

    FIRST_ROUND = "waiting for first answers"
    SECOND_ROUND = "waiting for second answers"
    STORING = "complete; its marker is being stored"


NEXT_STAGES = {
    Stage.FIRST_ROUND: {Stage.SECOND_ROUND, Stage.STORING},
    Stage.SECOND_ROUND: {Stage.STORING},
    Stage.STORING: set[Stage](),
}


class Skip(Enum):
    """Why a tick began no snapshot. Values are sentences for people and labels for metrics."""

    NO_REMOTES = "the topic is not replicated to another region"
    DISCONNECTED = "a link is down"
    IDLE = "no message since the last snapshot"
    UNANSWERED = "the first snapshot still waits for answers"
    UNDER_WAY = "no message since one was begun that still waits for answers"
    TOO_MANY = "too many snapshots wait for answers"
    EARLY = "the next one is not due yet"


@dataclass(slots=True)
class PendingSnapshot:
    """One snapshot under way."""

    snapshot_id: str
    started_ms: int
    covers: Position
    """Newest message when it was started."""
    covers_news: int
    """News from other regions heard when it was started."""
    unanswered: set[str]
    """Who has not answered in this round. Invariant: empty only while STORING (INV-12)."""
    stage: Stage = Stage.FIRST_ROUND
    first_answers: dict[str, Position] = field(default_factory=dict)
    doubtful: bool = False
    """A link went down meanwhile: it may complete, but nobody waits for it."""

    @property
    def wire_id(self) -> str:
        """What answers that count carry."""
        return self.snapshot_id + (SECOND_ROUND_SUFFIX if self.stage is Stage.SECOND_ROUND else "")

    @property
    def round(self) -> int:
        return 2 if self.stage is Stage.SECOND_ROUND else 1

    def become(self, stage: Stage) -> None:
        assert stage in NEXT_STAGES[self.stage], f"{self.stage.name} -> {stage.name}"
        self.stage = stage


@dataclass(frozen=True, slots=True)
class CompletedSnapshot:
    """The last one."""

    snapshot: Snapshot
    duration_ms: int
    """From its start until its marker was durable."""


@dataclass(slots=True)
class SnapshotCounters:
    """Totals since this controller was made."""

    started: int = 0
    completed: int = 0
    timed_out: int = 0
    aborted: int = 0
    """The set of regions changed, or no subscription was replicated any more."""
    superseded: int = 0
    """A newer one completed first: an answer was lost with a region that stopped."""
    ignored_answers: int = 0
    """Repeated, late or unasked."""
    skipped: Counter[Skip] = field(default_factory=Counter)
    """Snapshots that were due and not begun, by reason; at most one per interval and reason."""


class Observed(NamedTuple):
    """What a snapshot depends on, at one moment."""

    now_ms: int
    last_data_position: Position | None
    """The newest entry that is no marker."""
    unreachable: Mapping[str, ReasonRow]
    """By region that nothing comes through to or from: one of the rows for that."""


class SnapshotController:
    """All snapshots of one topic in one region."""

    def __init__(
        self,
        region: str,
        remotes: frozenset[str],
        *,
        interval_ms: int = 1_000,
        timeout_ms: int = 30_000,
        rounds: int | None = None,
    ) -> None:
        """`rounds` overrules how often everybody is asked: only for showing that once is not enough."""
        self.region = region
        self.remotes = remotes
        self.pending: dict[str, PendingSnapshot] = {}
        """By snapshot id, oldest first."""
        self.last_completed: CompletedSnapshot | None = None
        self.counters = SnapshotCounters()
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._rounds = rounds
        self._now_ms = 0
        """Latest time told."""
        self._last_start_ms: int | None = None
        self._covered: Position | None = None
        """Newest message when the last completed snapshot was started: later ones call for another. None: no
        snapshot was completed with these regions."""
        self._news_heard = 0
        """How often something called for an afterthought."""
        self._news_covered = 0
        """The same when the last completed snapshot was started."""
        self._down_since_ms: dict[str, int] = {}
        """Other regions we cannot reach, and since which tick."""
        self._patience_ms = interval_ms
        """How long a snapshot that no message has overtaken is waited for before it is tried again."""
        self._room = PENDING_MAX
        """Snapshots that may wait for answers at once. From 1 to PENDING_MAX."""
        self._allowed_ms = timeout_ms
        """How long a snapshot may take. From `timeout_ms` to TIMEOUT_GROWTH_MAX times that."""
        self._observed: Observed | None = None
        """At the last tick."""
        self._skip_counted_ms: dict[Skip, int] = {}
        """When each reason was counted last."""
        self._skip: Skip | None = None
        """What the last tick decided; None: it began a snapshot, or there was none."""

    # Beginning.

    @property
    def due_ms(self) -> int:
        """When `tick` may begin the next snapshot, in the time told to it. In the past when only something
        else is missing."""
        return self._now_ms if self._last_start_ms is None else self._last_start_ms + self._interval_ms

    @property
    def skip(self) -> Skip | None:
        """Why the last tick began no snapshot; None when it did."""
        return self._skip

    def tick(
        self,
        now_ms: int,
        new_snapshot_id: str,
        *,
        last_data_position: Position | None,
        disconnected: Set[str] = frozenset(),
    ) -> list[Effect]:
        """Give up what took too long and begin a snapshot if it is time.

        `new_snapshot_id` is used at most once and must be unique over regions and restarts.
        `last_data_position` is the newest entry that is no marker, None when there is none. `disconnected`
        are regions that a link in either direction is down to. Time may be any that never goes back.
        """
        self._now_ms = max(self._now_ms, now_ms)
        self._note_links(disconnected)
        self._drop_timed_out()
        unreachable = dict.fromkeys(self._down_since_ms, Cause.SNAPSHOT_LINK_TO_DOWN)
        self._observed = Observed(self._now_ms, last_data_position, unreachable)
        self._skip = self._why_skip(last_data_position)
        if self._skip is not None:
            self._count_skipped(self._skip)
            return []
        assert last_data_position is not None, "an empty topic is IDLE"
        if self._is_under_way(last_data_position):
            self._lose_patience()
        suffix = "" if self._has_messages(last_data_position) else AFTERTHOUGHT_SUFFIX
        return self._begin(new_snapshot_id + suffix, last_data_position)

    def _count_skipped(self, skip: Skip) -> None:
        """`tick` is called for every event; a snapshot is due once per interval."""
        counted_ms = self._skip_counted_ms.get(skip)
        if counted_ms is None or self._now_ms - counted_ms >= self._interval_ms:
            self._skip_counted_ms[skip] = self._now_ms
            self.counters.skipped[skip] += 1

    def _begin(self, snapshot_id: str, covers: Position) -> list[Effect]:
        self.counters.started += 1
        self._last_start_ms = self._now_ms
        self.pending[snapshot_id] = PendingSnapshot(
            snapshot_id, self._now_ms, covers, self._news_heard, set(self.remotes)
        )
        return [WriteMarker(SnapshotRequest(snapshot_id, self.region), ())]

    def _note_links(self, disconnected: Set[str]) -> None:
        down = disconnected & self.remotes
        self._down_since_ms = {region: self._down_since_ms.get(region, self._now_ms) for region in down}
        for region in down:
            self.link_lost(region)

    def link_lost(self, region: str) -> None:
        """The connection to a region broke, even if it is back by now. What it was asked may be forgotten, so
        the next snapshot does not wait for it; what it was told may be, so there will be a next one. Told at
        once: `tick` sees only links that are still down."""
        if region not in self.remotes:
            return
        self._news_heard += 1
        for pending in self.pending.values():
            if region in pending.unanswered:
                pending.doubtful = True

    def _drop_timed_out(self) -> None:
        late = [one for one in self.pending.values() if self._now_ms - one.started_ms >= self._allowed_ms]
        for pending in late:
            del self.pending[pending.snapshot_id]
            self.counters.timed_out += 1
            self._room = max(1, self._room // 2)
            self._lose_patience()
        if any(not pending.doubtful for pending in late):
            self._allow(2 * self._allowed_ms)

    def _allow(self, milliseconds: int) -> None:
        self._allowed_ms = max(self._timeout_ms, min(milliseconds, TIMEOUT_GROWTH_MAX * self._timeout_ms))

    def _lose_patience(self) -> None:
        """One was begun in vain, or is begun again."""
        self._patience_ms = min(2 * self._patience_ms, self._allowed_ms)

    def _why_skip(self, last_data_position: Position | None) -> Skip | None:
        """A new controller takes one snapshot of whatever it finds: an update may have
        been lost with the old one."""
        if not self.remotes:
            return Skip.NO_REMOTES
        if last_data_position is None:
            return Skip.IDLE
        if not self._has_messages(last_data_position) and self._news_heard == self._news_covered:
            return Skip.IDLE
        if self._down_since_ms:
            return Skip.DISCONNECTED
        waited_for = self._waited_for
        if self._covered is None and waited_for:
            return Skip.UNANSWERED
        if len(waited_for) >= self._room:
            return Skip.TOO_MANY
        if self._now_ms < self.due_ms:
            return Skip.EARLY
        if self._is_under_way(last_data_position):
            waited_ms = self._now_ms - waited_for[-1].started_ms
            return Skip.UNDER_WAY if waited_ms < self._patience_ms else None
        return None

    @property
    def _waited_for(self) -> list[PendingSnapshot]:
        """Oldest first."""
        return [pending for pending in self.pending.values() if not pending.doubtful]

    def _is_under_way(self, last_data_position: Position) -> bool:
        """Whether the newest one that is waited for has every message."""
        waited_for = self._waited_for
        return bool(waited_for) and waited_for[-1].covers >= last_data_position

    def _has_messages(self, last_data_position: Position) -> bool:
        return self._covered is None or last_data_position > self._covered

    # Markers became durable in our log.

    def request_stored(self, request: SnapshotRequest, last_position: Position) -> list[Effect]:
        """Somebody asks. `last_position`: the newest durable entry that consumers here may already see, at
        this moment; the answer is appended behind it."""
        if request.source_region == self.region or request.source_region not in self.remotes:
            return []
        if len(self.remotes) > 1 and not request.snapshot_id.endswith(NO_NEWS_SUFFIXES):
            self._news_heard += 1
        answer = SnapshotResponse(request.snapshot_id, self.region, last_position)
        return [WriteMarker(answer, (request.source_region,))]

    def response_stored(self, response: SnapshotResponse, at_position: Position, now_ms: int) -> list[Effect]:
        """Somebody answered; the answer stands at `at_position` in our log."""
        self._now_ms = max(self._now_ms, now_ms)
        if response.region == self.region:
            return []
        pending = self.pending.get(response.snapshot_id.removesuffix(SECOND_ROUND_SUFFIX))
        if pending is None or not self._counts(response, pending):
            self.counters.ignored_answers += 1
            return []
        pending.unanswered.remove(response.region)
        pending.first_answers.setdefault(response.region, response.position)
        if pending.unanswered:
            return []
        if pending.stage is Stage.FIRST_ROUND and self._rounds_needed == 2:
            return self._ask_again(pending)
        return self._store(pending, at_position)

    def _counts(self, response: SnapshotResponse, pending: PendingSnapshot) -> bool:
        return (
            pending.stage is not Stage.STORING
            and response.snapshot_id == pending.wire_id
            and response.region in pending.unanswered
        )

    @property
    def _rounds_needed(self) -> int:
        if self._rounds is not None:
            return self._rounds
        return 1 if len(self.remotes) == 1 else 2

    def _ask_again(self, pending: PendingSnapshot) -> list[Effect]:
        pending.become(Stage.SECOND_ROUND)
        pending.unanswered = set(self.remotes)
        return [WriteMarker(SnapshotRequest(pending.wire_id, self.region), ())]

    def _store(self, pending: PendingSnapshot, at_position: Position) -> list[Effect]:
        pending.become(Stage.STORING)
        positions = tuple(sorted(pending.first_answers.items()))
        return [WriteMarker(Snapshot(pending.snapshot_id, at_position, positions), (self.region,))]

    def snapshot_stored(self, snapshot: Snapshot, now_ms: int) -> list[Effect]:
        """The snapshot's marker is durable: it may be used. True also for one that was given up meanwhile."""
        self._now_ms = max(self._now_ms, now_ms)
        pending = self.pending.pop(snapshot.snapshot_id, None)
        if pending is not None:
            self.counters.completed += 1
            self._covered, self._news_covered = pending.covers, pending.covers_news
            duration_ms = self._now_ms - pending.started_ms
            self.last_completed = CompletedSnapshot(snapshot, duration_ms)
            self._room = min(self._room + 1, PENDING_MAX)
            self._allow(2 * duration_ms)
            self._patience_ms = min(max(self._interval_ms, 2 * duration_ms), self._allowed_ms)
            self._drop_older_than(pending)
        return [OfferSnapshot(snapshot)]

    def _drop_older_than(self, completed: PendingSnapshot) -> None:
        """Answers come in order, so an older one still waiting has lost an answer and can gain nothing."""
        for pending in list(self.pending.values()):
            if pending.started_ms < completed.started_ms and pending.stage is not Stage.STORING:
                del self.pending[pending.snapshot_id]
                self.counters.superseded += 1

    # The set of regions changed.

    def remotes_changed(self, remotes: frozenset[str]) -> None:
        """The topic is replicated to other regions than before. What is under way was asked of the wrong
        ones."""
        if remotes == self.remotes:
            return
        self.remotes = remotes
        self.abort_pending()
        self._covered = None
        self._patience_ms, self._room = self._interval_ms, PENDING_MAX
        self._allowed_ms = self._timeout_ms
        self._down_since_ms = {region: ms for region, ms in self._down_since_ms.items() if region in remotes}

    def abort_pending(self) -> None:
        """Stop waiting for the snapshots under way: they were asked of other regions, or no subscription is replicated
        any more."""
        self.counters.aborted += len(self.pending)
        self.pending.clear()

    # For people.

    def why_not(self, observed: Observed | None = None) -> Reason:
        """Return why there is no newer snapshot, as `observed`, or as of the last tick; empty when one begins with the
        next tick. The order is that of the table."""
        if not self.remotes:
            return Cause.SNAPSHOT_NO_REMOTES()
        observed = observed or self._observed
        if observed is None:
            return Cause.SNAPSHOT_NONE_YET()
        observed = observed._replace(now_ms=max(observed.now_ms, self._now_ms))
        if observed.last_data_position is None:
            return Cause.SNAPSHOT_NO_MESSAGE()
        if reason := self.why_unreachable(observed):
            return reason
        if self.pending:
            oldest = (self._waited_for or list(self.pending.values()))[0]
            return self._why_pending(oldest, observed.now_ms)
        return self._why_not_begun(observed)

    def why_unreachable(self, observed: Observed) -> Reason:
        """Return why no snapshot can complete whatever consumers and producers do; empty when one can."""
        return first_of(self._obstacles(observed)) if self.remotes else Cause.SNAPSHOT_NO_REMOTES()

    def _obstacles(self, observed: Observed) -> Iterator[Reason]:
        for region, cause in sorted(observed.unreachable.items()):
            since_ms = self._down_since_ms.get(region, observed.now_ms)
            yield cause(here=self.region, region=region, waited=_seconds(observed.now_ms - since_ms))

    def _why_pending(self, pending: PendingSnapshot, now_ms: int) -> Reason:
        waited = _seconds(now_ms - pending.started_ms)
        if pending.stage is Stage.STORING:
            return Cause.SNAPSHOT_STORING(snapshot=pending.snapshot_id, waited=waited)
        regions = " and ".join(sorted(pending.unanswered))
        return Cause.SNAPSHOT_UNANSWERED(regions=regions, round=pending.round, waited=waited)

    def _why_not_begun(self, observed: Observed) -> Reason:
        """Of a topic with messages that reaches every region, and has no snapshot under way."""
        assert observed.last_data_position is not None
        if not self._has_messages(observed.last_data_position) and self._news_heard == self._news_covered:
            return Cause.SNAPSHOT_NOT_NEEDED()
        if self._last_start_ms is None:
            return Cause.SNAPSHOT_NONE_YET()
        wait_ms = self.due_ms - observed.now_ms
        return Cause.SNAPSHOT_NOT_DUE(wait_ms=wait_ms) if wait_ms > 0 else NO_REASON


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"
