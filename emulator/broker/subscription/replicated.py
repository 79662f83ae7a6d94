"""Replicated subscriptions of one topic (PIP-33): connects SnapshotController and ReplicatedSubscription to the broker.

Each marker is processed once, in log order, after it is durable in the local log. The proposal's argument requires this
order here; a slow replicator towards another region delays nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from emulator.config.compatibility import Compatibility
from emulator.core.admission import Own, Publisher, check
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.replication.snapshot_types import Effect, Observed, OfferSnapshot, Skip, WriteMarker
from emulator.core.replication.subscription_updates import Applied, ReplicatedSubscription, SnapshotCache
from emulator.errors import StorageError
from emulator.model.markers import Marker, Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.reasons import Cause, Reason
from emulator.model.values import Position
from emulator.wire.markers import encode_marker

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices
    from emulator.broker.topic.entry_cache import StoredEntry
    from emulator.broker.topic.pending_publish import PendingPublish
    from emulator.broker.topic.view import CarriedSubscription, PositionsHost

logger = logging.getLogger(__name__)

RECALL_ENTRIES = 4_096
"""How far from the end of the log the broker searches for snapshots of before a restart."""
RECALL_MARKERS_MAX = 100
"""How many of the newest markers among them are read."""
RECALL_BYTES = 1_048_576


def status_follows_upstream(region: RegionServices) -> bool:
    """Whether updates also move subscriptions that are not replicated, and any SUBSCRIBE may enable replication."""
    return Compatibility(region.config.compatibility).follows_upstream("replicated_subscription_status")


class ReplicatedSubscriptions:
    """Owned by its Topic, which it joins as the writer of markers."""

    def __init__(self, topic: PositionsHost, remotes: Sequence[str]) -> None:
        self.publisher: Publisher = Own(topic.region.config.region)
        settings = topic.region.config.settings
        self.topic = topic
        self._components = topic.region.environment.components.replication
        self.controller = self._components.snapshots(
            topic.region.config.region,
            frozenset(remotes),
            interval_ms=settings.snapshot_interval_ms,
            timeout_ms=settings.snapshot_timeout_ms,
        )
        self._cache_size = settings.snapshot_cache_size
        self._subscriptions: dict[str, ReplicatedSubscription] = {}
        self._snapshots = SnapshotCache(self._cache_size)
        """Completed snapshots of this topic; a subscription that becomes replicated starts with them."""
        self._recalled = False
        """The log was searched for snapshots of before the restart."""
        self._applies_always = status_follows_upstream(topic.region)
        self.updates_not_applied = 0
        """Updates of other regions for subscriptions that are not replicated here."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # Subscriptions.

    def subscription_added(self, subscription: CarriedSubscription) -> None:
        """Replicate a subscription from now on. It starts with all known snapshots: a topic without traffic takes no
        others."""
        if subscription.name not in self._subscriptions:
            machine = self._components.replicated_subscription(subscription.name, self._cache_size)
            self._subscriptions[subscription.name] = machine
            subscription.move(self._catch_up)
            machine.remember(self._snapshots.snapshots)
            self.mark_delete_moved(subscription)
            self._recall()
        self._wake()

    def _catch_up(self, cursor: Cursor) -> None:
        """Apply the positions that other regions sent while it was not replicated, and pass trailing markers."""
        for source, update in cursor.take_unapplied().items():
            self._follow(cursor, source, update.entry_id, update.named)
        cursor.ack_hidden(self.topic.hidden_ids)

    def _recall(self) -> None:
        """Search the log for snapshots of before the topic was loaded, once per load."""
        if not self._recalled:
            self._recalled = True
            self.topic.region.spawn(self._recall_snapshots())

    async def _recall_snapshots(self) -> None:
        end = self.topic.readable_end
        newest = list(self.topic.hidden_ids.between(max(0, end - RECALL_ENTRIES), end - 1))
        ids = IdSet()
        ids.update(newest[-RECALL_MARKERS_MAX:])
        for first, last in ids.runs():
            try:
                entries = await self.topic.read(first, last - first + 1, RECALL_BYTES)
            except StorageError:
                return  # The next snapshot replaces it.
            for entry in entries:
                if isinstance(entry.marker, Snapshot) and not self._closed:
                    self._offer_stored(entry.marker)

    def _offer_stored(self, snapshot: Snapshot) -> None:
        """Offer a snapshot that was read from the log and may stem from an earlier load of the topic."""
        if snapshot.local_position.ledger == self.topic.ledger_id:
            self._offer(snapshot)

    def mark_delete_moved(self, subscription: CarriedSubscription) -> None:
        """Called when consumers here acknowledged messages and mark-delete moved."""
        machine = self._subscriptions.get(subscription.name)
        if machine is not None:
            cursor = subscription.cursor
            self._tell(
                subscription,
                machine.mark_delete_moved(cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers),
            )

    def sought(self, subscription: CarriedSubscription) -> None:
        """A consumer reset the cursor: a seek stays local."""
        machine = self._subscriptions.get(subscription.name)
        if machine is not None:
            machine.sought()

    def entries_read(self, subscription: CarriedSubscription, entries: Sequence[StoredEntry]) -> None:
        """Called with entries that a dispatcher read: finds snapshots of before a restart."""
        machine = self._subscriptions.get(subscription.name)
        for entry in entries:
            marker = entry.marker
            if machine is None or not isinstance(marker, Snapshot):
                continue
            if marker.local_position.ledger == self.topic.ledger_id:
                self._offer_to(subscription, machine, marker)

    def _tell(self, subscription: CarriedSubscription, update: SubscriptionUpdate | None) -> None:
        """Send the update to the other regions after the position is durable here. Otherwise a crash could lose a
        position that another region relies on."""
        if update is not None:
            machine = self._subscriptions[subscription.name]
            self.topic.region.spawn(self._tell_when_durable(subscription, machine, update))

    async def _tell_when_durable(
        self, subscription: CarriedSubscription, machine: ReplicatedSubscription, update: SubscriptionUpdate
    ) -> None:
        try:
            await subscription.persisted()
        except StorageError:
            return  # The topic will be loaded again, and its new controller takes a snapshot.
        is_replicated = self._subscriptions.get(subscription.name) is machine
        if is_replicated and not self._closed:
            self._write(WriteMarker(update, ()))

    # Entries.

    def entries_stored(self, entries: Sequence[StoredEntry]) -> None:
        """Called once for each durable entry, in log order."""
        for entry in entries:
            if entry.marker is not None:
                self._marker_stored(entry, entry.marker)
        self._pass_trailing_markers()
        self._wake()

    def _marker_stored(self, entry: StoredEntry, marker: Marker) -> None:
        position = Position(self.topic.ledger_id, entry.entry_id)
        match marker:
            case SnapshotRequest():
                self._do(self.controller.request_stored(marker, self.topic.last_position))
            case SnapshotResponse():
                self._do(self.controller.response_stored(marker, position, self._now_ms()))
            case Snapshot() if entry.info.replicated_from is None:
                self._do(self.controller.snapshot_stored(marker, self._now_ms()))
            case SubscriptionUpdate() if entry.info.replicated_from is not None:
                self._update_stored(marker, entry.info.replicated_from)

    def _update_stored(self, update: SubscriptionUpdate, source: str) -> None:
        topic = self.topic
        entry_id = self._components.own_entry_id(update, topic.region.config.region, topic.ledger_id)
        if entry_id is None:
            return
        subscription = topic.subscriptions.get(update.subscription)
        if subscription is None:
            subscription = self._create(update.subscription)
        if subscription.closed:
            return
        named = [name for name, _ in update.positions]
        if not self._components.takes_updates(
            subscription.cursor, subscription.durable, self._applies_always
        ):
            self.updates_not_applied += 1
            if subscription.durable:
                known = self._known_among(named)
                subscription.move(lambda cursor: cursor.note_unapplied(source, entry_id, known))
            return
        subscription.move(lambda cursor: self._follow(cursor, source, entry_id, named))
        machine = self._subscriptions.get(subscription.name)
        if machine is None:
            return
        cursor = subscription.cursor
        answer = machine.moved_by_update(
            update, source, entry_id, cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers
        )
        self._tell(subscription, answer)

    def _known_among(self, named: Sequence[str]) -> list[str]:
        """Keep only the topic's regions of an update: bounds what is stored, whatever the sender named."""
        regions = {self.topic.region.config.region, *self.controller.remotes}
        return [name for name in named if name in regions]

    def _create(self, name: str) -> CarriedSubscription:
        """Create it only if no subscription has the name: an existing one is replicated only if this region enabled
        that."""
        subscription = self.topic.subscriptions.create(
            name, self.topic.region.environment.components.subscriptions.cursor(self.topic.first_entry_id - 1)
        )
        self.topic.subscriptions.replicate(subscription)
        return subscription

    def _follow(self, cursor: Cursor, source: str, own_entry_id: int, named: Sequence[str]) -> None:
        components = self._components
        applied = self.topic.state.follow(
            cursor,
            source,
            own_entry_id,
            named=named,
            never=components.never_reaches,
            apply=components.apply_update,
        )
        if applied is Applied.REFUSED:
            logger.warning("%s: update of %s refused: %s", self.topic.full_name, source, applied.value)

    def _pass_trailing_markers(self) -> None:
        """Let a subscription without consumers here pass markers behind its mark-delete, so that they are no
        backlog."""
        for name in self._subscriptions:
            subscription = self.topic.subscriptions.get(name)
            if subscription is not None and not subscription.consumers:
                subscription.move(lambda cursor: cursor.ack_hidden(self.topic.hidden_ids))

    # Snapshots.

    def _wake(self) -> None:
        """Run the controller when the next snapshot may be due."""
        if self._timer is None and self._subscriptions and not self._closed:
            delay_ms = max(0, self.controller.due_ms - self._now_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def links_changed(self) -> None:
        """A replication link connected or disconnected."""
        self._wake()

    def remotes_changed(self, remotes: Sequence[str]) -> None:
        """The set of regions to which the topic is replicated changed."""
        self.controller.remotes_changed(frozenset(remotes))
        self._wake()

    def link_lost(self, region: str) -> None:
        """The link to or from a region broke: its responses may be lost, even if it reconnects in a moment."""
        self.controller.link_lost(region)
        self._wake()

    def _tick(self) -> None:
        self._timer = None
        if self._closed:
            return
        topic = self.topic
        last = topic.last_data
        effects = self.controller.tick(
            self._now_ms(),
            f"{topic.region.environment.random.getrandbits(128):032x}",
            last_data_position=Position(topic.ledger_id, last[0]) if last is not None else None,
            disconnected=topic.replicators.disconnected(self.controller.remotes),
        )
        self._do(effects)
        if effects or self.controller.pending or self.controller.skip is Skip.EARLY:
            # Traffic may stop now: check again for entries that were stored meanwhile and for snapshots that time out.
            interval = topic.region.config.settings.snapshot_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(interval, self._tick)

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteMarker():
                    self._write(effect)
                case OfferSnapshot(snapshot):
                    self._offer(snapshot)

    def _offer(self, snapshot: Snapshot) -> None:
        self._snapshots.add(snapshot)
        for name, machine in self._subscriptions.items():
            subscription = self.topic.subscriptions.get(name)
            if subscription is not None:
                self._offer_to(subscription, machine, snapshot)

    def _offer_to(
        self, subscription: CarriedSubscription, machine: ReplicatedSubscription, snapshot: Snapshot
    ) -> None:
        cursor = subscription.cursor
        self._tell(
            subscription,
            machine.snapshot_offered(snapshot, cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers),
        )

    def _write(self, wish: WriteMarker) -> None:
        """Append a marker for these regions; empty: for all. Nothing is appended to a terminated topic."""
        topic = self.topic
        if topic.ending.is_over:
            return
        now_ms = topic.region.environment.wall_clock_ms()
        data, info = encode_marker(wish.marker, now_ms, wish.replicate_to)
        refusal = check(self.publisher, info, wish.marker, len(data), topic.publishing.limits)
        assert refusal is None, refusal
        topic.append_own(self, data, info, wish.marker)

    def stored(self, publishes: Sequence[PendingPublish]) -> None:
        """Our markers are durable; `entries_stored` handles the consequences."""

    # Explanations.

    def refused(self) -> Iterator[tuple[str, str]]:
        """Return (subscription, source region) of each position that was received here and is not applied."""
        for name, one in self.topic.subscriptions.items():
            for source in sorted(one.cursor.unapplied):
                yield name, source

    def why_not(self, subscription: CarriedSubscription) -> Reason:
        """Return why the subscription's position is not replicated any further; empty: it is."""
        cursor = subscription.cursor
        if not cursor.replicated:
            regions = " and ".join(sorted(cursor.unapplied))
            if regions:
                return Cause.POSITION_NOT_APPLIED_HERE(regions=regions, here=self.controller.region)
            return Cause.SUBSCRIPTION_NOT_REPLICATED()
        machine = self._subscriptions[subscription.name]
        observed = self._observed()
        return (
            self.controller.why_unreachable(observed)
            or machine.why_not(cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers)
            or self.controller.why_not(observed)
        )

    @property
    def newest(self) -> Snapshot | None:
        """Return the newest known snapshot."""
        return self._snapshots.snapshots[-1] if self._snapshots.snapshots else None

    def why_no_snapshot(self) -> Reason:
        """Return why there is no newer snapshot of the topic."""
        return self.controller.why_not(self._observed()) if self._subscriptions else Cause.NO_SUBSCRIPTION()

    def _observed(self) -> Observed:
        topic, last = self.topic, self.topic.last_data
        last_position = None if last is None else Position(topic.ledger_id, last[0])
        unreachable = topic.replicators.unreachable(self.controller.remotes)
        return Observed(self._now_ms(), last_position, unreachable)

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
            "why_not": self.why_no_snapshot(),
            "updates": {name: machine.updates for name, machine in self._subscriptions.items()},
            "updates_not_applied": self.updates_not_applied,
        }

    def subscription_removed(self, name: str) -> None:
        """It is not replicated any more, or it was deleted. UNSUBSCRIBE is local: the next update of another region
        creates the subscription again. Without a replicated subscription no marker is written."""
        if self._subscriptions.pop(name, None) is not None and not self._subscriptions:
            self.controller.abort_pending()
            self._stop_timer()

    def close(self) -> None:
        self._closed = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
