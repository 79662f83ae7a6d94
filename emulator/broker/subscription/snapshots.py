"""Takes snapshots of one topic, which relate positions in its regions (PIP-33): connects SnapshotController to the log
and to timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from emulator.broker.subscription.blocked_snapshots import blocked_ms
from emulator.broker.subscription.log_search import LogSearch, with_time
from emulator.broker.topic.pending_publish import limits_of
from emulator.broker.topic.view import PublishingTopic
from emulator.config.compatibility import Compatibility
from emulator.core.admission import OwnRegion, Publisher, check
from emulator.core.policies.replicated_subscriptions import (
    PARTIAL_SNAPSHOTS_AFTER,
    SNAPSHOT_CACHE_SIZE,
    SNAPSHOT_INTERVAL,
    SNAPSHOT_SCHEDULE,
    SNAPSHOT_TIMEOUT,
    SNAPSHOT_TIMEOUT_GROWTH,
)
from emulator.core.replication.schedule import SPACING_MS, SnapshotDemand, SnapshotSettings
from emulator.core.replication.snapshot_types import (
    SECOND_ROUND_SUFFIX,
    Effect,
    LogEnd,
    Observed,
    OfferSnapshot,
    Skip,
    WriteMarker,
)
from emulator.core.replication.subscription_updates import SnapshotCache
from emulator.core.replication.update_records import SnapshotBases
from emulator.model.markers import Marker, Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.reasons import Cause, Reason, ReasonRow
from emulator.model.units import ms_or_never
from emulator.model.values import Position
from emulator.wire.markers import encode_marker

if TYPE_CHECKING:
    from emulator.broker.topic.pending_publish import Pending
    from emulator.broker.topic.stored_entry import StoredEntry

OBEYS = (
    PARTIAL_SNAPSHOTS_AFTER,
    SNAPSHOT_CACHE_SIZE,
    SNAPSHOT_INTERVAL,
    SNAPSHOT_SCHEDULE,
    SNAPSHOT_TIMEOUT,
    SNAPSHOT_TIMEOUT_GROWTH,
)
"""Policies that this module acts upon (PO1)."""


class Connectivity(Protocol):
    """The replicators of a topic, as its snapshots see them."""

    def disconnected(self, remotes: frozenset[str]) -> frozenset[str]:
        """Return the regions to which this topic's replicator is disconnected, and those of `remotes` whose replicator
        is not connected to this topic."""
        ...

    def confirmed(self, remote: str) -> int | None:
        """Return the entry id up to which a remote region has confirmed the log; None: the topic is not replicated to
        it."""
        ...

    def unreachable(self, remotes: frozenset[str]) -> Mapping[str, ReasonRow]:
        """Return why entries do not pass to or from `remotes`, by region; connected regions are omitted."""
        ...


class SnapshotTopic(PublishingTopic, Protocol):
    """The topic, as this module needs it."""

    @property
    def replicators(self) -> Connectivity: ...


class MarkerWriter:
    """The `Attachment` that appends the markers of replicated subscriptions to the topic."""

    def __init__(self, topic: PublishingTopic) -> None:
        self.publisher: Publisher = OwnRegion(topic.region.config.region)
        self._topic = topic
        self._limits = limits_of(topic.region.config)

    def write(self, request: WriteMarker) -> None:
        """Append a marker for the regions `replicate_to`; empty: for all. No effect on a terminated topic."""
        topic = self._topic
        if topic.is_terminated:
            return
        now_ms = topic.region.environment.wall_clock_ms()
        data, info = encode_marker(request.marker, now_ms, request.replicate_to)
        refusal = check(self.publisher, info, request.marker, len(data), self._limits)
        assert refusal is None, refusal
        topic.append_own(self, data, info, request.marker)

    def stored(self, publishes: Sequence[Pending]) -> None:
        """Do nothing: the topic passes every stored marker to `entries_stored`."""


def settings_of(topic: SnapshotTopic) -> SnapshotSettings:
    """Return the settings of a topic's snapshots by its policies, its region's settings and compatibility switches."""
    policies, of_region = topic.policies, topic.region.config.settings
    compatibility = Compatibility(topic.region.config.compatibility)
    grows = not compatibility.follows_upstream("snapshot_timeout")
    waits_for_all = compatibility.follows_upstream("dead_region")
    return SnapshotSettings(
        interval_ms=policies.or_setting(SNAPSHOT_INTERVAL, of_region),
        timeout_ms=policies.or_setting(SNAPSHOT_TIMEOUT, of_region),
        timeout_growth_max=policies.or_setting(SNAPSHOT_TIMEOUT_GROWTH, of_region) if grows else 1,
        partial_after_ms=0
        if waits_for_all
        else ms_or_never(policies.or_setting(PARTIAL_SNAPSHOTS_AFTER, of_region)),
        new_messages_only=waits_for_all,
        adaptive=policies.or_setting(SNAPSHOT_SCHEDULE, of_region) == "adaptive",
    )


def cache_size_of(topic: SnapshotTopic) -> int:
    """Return the number of snapshots that each subscription of a topic remembers."""
    return topic.policies.or_setting(SNAPSHOT_CACHE_SIZE, topic.region.config.settings)


class TopicSnapshots:
    """Takes snapshots of one topic while a subscription of it is replicated, and always responds to the snapshot
    requests of other regions."""

    def __init__(
        self,
        topic: SnapshotTopic,
        remotes: Sequence[str],
        markers: MarkerWriter,
        offer: Callable[[Snapshot], None],
        found_update: Callable[[StoredEntry, SubscriptionUpdate], None],
        demand: Callable[[], SnapshotDemand],
    ) -> None:
        """`offer`: passes a completed snapshot to every replicated subscription. `found_update`: is called for each
        update of a subscription from before the topic was loaded that is found in the log. `demand`: returns what the
        subscriptions would gain from a snapshot."""
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._markers = markers
        self._offer_to_subscriptions = offer
        self._demand = demand
        self.controller = topic.region.environment.components.replication.snapshots(
            topic.region.config.region, frozenset(remotes), settings_of(topic)
        )
        self._completed = SnapshotCache(cache_size_of(topic))
        """Newest completed snapshots, with which a newly replicated subscription starts."""
        self.bases = SnapshotBases()
        self.markers_received = 0
        """Number of markers of other regions that were stored since the topic was loaded."""
        self.search = LogSearch(topic, self._offer, found_update)
        self._active = False
        """Whether a subscription is replicated."""
        self._timer: asyncio.TimerHandle | None = None
        self._last_tick_ms = 0
        self._closed = False

    def policies_changed(self) -> None:
        """Apply the topic's policies. A shorter interval applies to the next snapshot, even if its timer is set; a time
        for partial ones to regions that are absent already, for which no timer may be set."""
        self.controller.configure(settings_of(self._topic))
        self._completed.resize(cache_size_of(self._topic))
        self._stop_timer()
        self.schedule()

    @property
    def completed(self) -> tuple[Snapshot, ...]:
        """The remembered completed snapshots, up to `snapshot_cache_size`, oldest first."""
        return self._completed.snapshots

    @property
    def messages(self) -> int:
        """Number of messages published to the topic since it was loaded, without markers; duplicates are counted."""
        return self._topic.metrics.published.messages - self.markers_received

    # Events.

    def start(self) -> None:
        """Take snapshots from now on: a subscription is replicated."""
        self._active = True
        self.schedule()

    def stop(self) -> None:
        """Take no more snapshots, because no subscription is replicated any more. Requests of other regions still
        receive responses."""
        self._active = False
        self.controller.abort_pending()
        self._stop_timer()
        self._report_blocked()

    def entries_stored(self, messages: int, markers: int) -> None:
        """Note durable entries, after each of their markers was processed, and schedule the next snapshot."""
        controller = self.controller
        if controller.schedule.settings.adaptive:
            controller.schedule.stored(
                self._now_ms(), messages=messages, markers=markers, cost=controller.cost
            )
        self.schedule()

    def demand_changed(self) -> None:
        """Schedule the next snapshot after a subscription moved: it may gain from an early one."""
        if self.controller.schedule.settings.adaptive:
            self.schedule()

    def schedule(self) -> None:
        """Set a timer that runs the controller when the next snapshot may be due."""
        if not self._active or self._closed:
            return
        schedule = self.controller.schedule
        if not schedule.settings.adaptive:
            if self._timer is None:
                self._set_timer(self.controller.due_ms - self._now_ms())
            return
        now_ms = self._now_ms()
        if self._timer is None or self._timer.when() * 1000 > now_ms + SPACING_MS:
            schedule.demand = self._demand()
            self._set_timer(max(self.controller.due_ms, self._last_tick_ms + SPACING_MS) - now_ms)

    def _set_timer(self, delay_ms: int) -> None:
        """Run the controller after this time, or earlier if a timer is set."""
        at = self._loop.time() + max(0, delay_ms) / 1000
        if self._timer is not None and self._timer.when() <= at:
            return
        self._stop_timer()
        self._timer = self._loop.call_at(at, self._tick)

    def remotes_changed(self, remotes: Sequence[str]) -> None:
        """Apply a changed set of regions to which the topic is replicated."""
        self.controller.remotes_changed(frozenset(remotes))
        self.schedule()

    def link_lost(self, region: str) -> None:
        """Handle a broken link to or from a region: its responses may be lost, even if it reconnects at once."""
        self.controller.link_lost(region)
        self.schedule()

    def marker_stored(self, entry: StoredEntry, marker: Marker) -> None:
        """Process a durable snapshot marker. Called once for each marker, in log order."""
        controller, counters = self.controller, self.controller.counters
        completed, ignored = counters.completed, counters.ignored_answers
        effects: Sequence[Effect] = ()
        match marker:
            case SnapshotRequest(snapshot_id=snapshot_id, source_region=source):
                received = self._topic.state.watermarks.highest
                effects = controller.request_stored(marker, self._topic.reading.last_position, received)
                is_own_first = source == controller.region and not snapshot_id.endswith(SECOND_ROUND_SUFFIX)
                if is_own_first:
                    self.bases.request_stored(snapshot_id, entry.entry_id)
                self._note("snapshot_started", is_own_first)
            case SnapshotResponse():
                position = Position(self._topic.ledger_id, entry.entry_id)
                effects = controller.response_stored(marker, position, self._now_ms(), _end_of(self._topic))
                is_of_remote = marker.region != controller.region
                self._note("snapshot_response", is_of_remote and counters.ignored_answers == ignored)
            case Snapshot() if entry.info.replicated_from is None:
                self.bases.completed(marker)
                effects = controller.snapshot_stored(with_time(marker, entry), self._now_ms())
                self._note("snapshot_round", counters.completed - completed)
                self._report_blocked()
        self._perform(effects)

    def _note(self, event: str, times: int) -> None:
        self._topic.region.resources.protocol_events.note(event, self._topic.full_name, times)

    # Carrying out.

    def _tick(self) -> None:
        self._timer = None
        if self._closed:
            return
        topic, self._last_tick_ms = self._topic, self._now_ms()
        if self.controller.schedule.settings.adaptive:
            self.controller.schedule.demand = self._demand()
        effects = self.controller.tick(
            self._now_ms(),
            f"{topic.region.environment.random.getrandbits(128):032x}",
            last_data_position=self._last_data_position(),
            disconnected=topic.replicators.disconnected(self.controller.remotes),
        )
        self._perform(effects)
        self._report_blocked()
        if effects or self.controller.pending or self.controller.skip is Skip.EARLY:
            # Publishing may stop now: check again for entries that were stored meanwhile and for snapshots that time
            # out.
            settings = self.controller.schedule.settings
            self._set_timer(settings.interval_ms)
            if settings.adaptive and self.controller.skip is Skip.EARLY:
                self._set_timer(max(1, self.controller.due_ms - self._now_ms()))
        elif (due_ms := self.controller.absence.next_left_out_ms(self._now_ms())) is not None:
            # Snapshots continue without an absent region from then on, also if nothing happens before.
            self._set_timer(due_ms + 1 - self._now_ms())

    def _last_data_position(self) -> Position | None:
        last = self._topic.state.last_data
        return None if last is None else Position(self._topic.ledger_id, last[0])

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteMarker(marker=marker):
                    if isinstance(marker, SnapshotRequest):
                        self.bases.request_written(marker.snapshot_id, self.messages)
                    self._markers.write(effect)
                case OfferSnapshot(snapshot):
                    self._offer(snapshot)

    def _offer(self, snapshot: Snapshot) -> None:
        self._completed.add(snapshot)
        self._offer_to_subscriptions(snapshot)

    # Explanations.

    def observed(self) -> Observed:
        unreachable = self._topic.replicators.unreachable(self.controller.remotes)
        return Observed(self._now_ms(), self._last_data_position(), unreachable)

    def blocked_ms(self) -> dict[str, int]:
        """Return the regions that prevent snapshots, and for how long, in milliseconds."""
        return (
            blocked_ms(self.controller, self.observed().unreachable, self._now_ms()) if self._active else {}
        )

    def _report_blocked(self) -> None:
        timeout_ms = self.controller.schedule.settings.timeout_ms
        blocked = {} if self._closed else self.blocked_ms()
        self._topic.region.resources.blocked_snapshots.update(self._topic.full_name, blocked, timeout_ms)

    def why_not(self) -> Reason:
        """Return why there is no newer snapshot of the topic; NO_REASON when the next tick starts one."""
        return self.controller.why_not(self.observed()) if self._active else Cause.NO_SUBSCRIPTION()

    def summary(self) -> dict[str, Any]:
        """Return the counters of snapshots, and why there is no newer one."""
        counters = self.controller.counters
        return {
            "started": counters.started,
            "completed": counters.completed,
            "timed_out": counters.timed_out,
            "aborted": counters.aborted,
            "superseded": counters.superseded,
            "skipped": {skip.name.lower(): ticks for skip, ticks in counters.skipped.items()},
            "pending": len(self.controller.pending),
            "why_not": self.why_not(),
        }

    def close(self) -> None:
        self._closed = True
        self.search.close()
        self._stop_timer()
        self._report_blocked()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _end_of(topic: SnapshotTopic) -> LogEnd:
    return LogEnd(Position(topic.ledger_id, topic.state.stored_end - 1), topic.state.watermarks.highest)
