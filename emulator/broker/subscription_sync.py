"""Replicated subscriptions of one topic (PIP-33): the shell around SnapshotController and ReplicatedSubscription.

Markers are acted upon when they are durable in the local log, in log order, each once. That is where the proposal's
argument needs it; a slow replicator towards another region delays nothing here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emulator.core.cursor import Cursor
from emulator.core.snapshots import Effect, OfferSnapshot, Skip, SnapshotController, WriteMarker
from emulator.core.subscription_updates import (
    Applied,
    ReplicatedSubscription,
    apply_update,
    never_reaches,
    own_entry_id,
)
from emulator.errors import StorageError
from emulator.markers import SNAPSHOT, Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model import Position
from emulator.wire.markers import decode_marker, encode_marker
from emulator.wire.metadata import scan_entry

if TYPE_CHECKING:
    from emulator.broker.subscription import Subscription
    from emulator.broker.tail import StoredEntry
    from emulator.broker.topic import PendingPublish, Topic

logger = logging.getLogger(__name__)


class SubscriptionSync:
    """Owned by its Topic. A Publisher of markers."""

    def __init__(self, topic: Topic, remotes: Sequence[str]) -> None:
        self.source_region: str | None = None
        self.producer_name = "pulsar.marker"
        settings = topic.region.config.settings
        self.topic = topic
        self.controller = SnapshotController(
            topic.region.config.region,
            frozenset(remotes),
            interval_ms=settings.snapshot_interval_ms,
            timeout_ms=settings.snapshot_timeout_ms,
        )
        self._cache_size = settings.snapshot_cache_size
        self._subscriptions: dict[str, ReplicatedSubscription] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # Subscriptions.

    def subscription_added(self, subscription: Subscription) -> None:
        """A subscription is replicated from now on."""
        if subscription.name not in self._subscriptions:
            self._subscriptions[subscription.name] = ReplicatedSubscription(
                subscription.name, self._cache_size
            )
        self._wake()

    def mark_delete_moved(self, subscription: Subscription) -> None:
        """Consumers here acknowledged something."""
        machine = self._subscriptions.get(subscription.name)
        if machine is not None:
            cursor = subscription.cursor
            self._tell(subscription, machine.mark_delete_moved(cursor.mark_delete, leads=cursor.leads))

    def sought(self, subscription: Subscription) -> None:
        """A consumer sent the subscription elsewhere: that stays local."""
        machine = self._subscriptions.get(subscription.name)
        if machine is not None:
            machine.sought()

    def entries_read(self, subscription: Subscription, entries: Sequence[StoredEntry]) -> None:
        """A dispatcher read these out of the log: snapshots from before a restart are found again here."""
        machine = self._subscriptions.get(subscription.name)
        for entry in entries:
            if entry.info.marker_type != SNAPSHOT or machine is None:
                continue
            marker = decode_marker(entry.data, entry.info)
            if isinstance(marker, Snapshot) and marker.local_position.ledger == self.topic.log.ledger_id:
                self._offer_to(subscription, machine, marker)

    def _tell(self, subscription: Subscription, update: SubscriptionUpdate | None) -> None:
        """Let the other regions know, once what they are told is durable here: otherwise a crash could make this
        region forget what another one relies on."""
        if update is not None:
            self.topic.region.spawn(self._tell_when_durable(subscription, update))

    async def _tell_when_durable(self, subscription: Subscription, update: SubscriptionUpdate) -> None:
        try:
            await subscription.persisted()
        except StorageError:
            return  # The topic is loaded again, and its new controller takes a snapshot.
        if not self._closed:
            self._write(WriteMarker(update, ()))

    # Entries.

    def entries_stored(self, entries: Sequence[StoredEntry]) -> None:
        """These are durable, in log order, each told once."""
        for entry in entries:
            if entry.info.marker_type is not None:
                self._marker_stored(entry)
        self._pass_trailing_markers()
        self._wake()

    def _marker_stored(self, entry: StoredEntry) -> None:
        marker = decode_marker(entry.data, entry.info)
        position = Position(self.topic.log.ledger_id, entry.entry_id)
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
        entry_id = own_entry_id(update, topic.region.config.region, topic.log.ledger_id)
        if entry_id is None:
            return
        subscription = topic.subscriptions.get(update.subscription)
        if subscription is None:
            subscription = topic.create_subscription(
                update.subscription, Cursor(topic.log.first_entry_id - 1)
            )
        if not subscription.durable:
            return
        topic.replicate_subscription(subscription)
        unseen = [
            entry_id
            for entry_id, (origin, regions) in topic.restricted.items()
            if never_reaches(source, origin=origin, replicate_to=regions)
        ]
        last_entry_id = topic.end_entry_id - 1

        def change(cursor: Cursor) -> None:
            assert entry_id is not None
            applied = apply_update(cursor, entry_id, last_entry_id, unseen)
            if applied is Applied.MOVED:
                cursor.ack_hidden(topic.hidden_ids)
            elif applied is Applied.REFUSED:
                logger.warning("%s: update of %s refused: %s", topic.full_name, source, applied.value)

        subscription.move(change)
        machine = self._subscriptions[subscription.name]
        cursor = subscription.cursor
        answer = machine.moved_by_update(update, source, entry_id, cursor.mark_delete, leads=cursor.leads)
        self._tell(subscription, answer)

    def _pass_trailing_markers(self) -> None:
        """A subscription that nobody reads here passes markers behind its mark-delete, so that they are no backlog."""
        for name in self._subscriptions:
            subscription = self.topic.subscriptions.get(name)
            if subscription is not None and not subscription.consumers:
                subscription.move(lambda cursor: cursor.ack_hidden(self.topic.hidden_ids))

    # Snapshots.

    def _wake(self) -> None:
        """Have the controller look at the state of things when the next snapshot may be due."""
        if self._timer is None and self._subscriptions and not self._closed:
            delay_ms = max(0, self.controller.due_ms - self._now_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def links_changed(self) -> None:
        """A link came or went."""
        self._wake()

    def link_lost(self, region: str) -> None:
        """The way to or from a region broke: answers of its may be lost, even if it is back in a moment."""
        self.controller.link_lost(region)
        self._wake()

    def _tick(self) -> None:
        self._timer = None
        if self._closed:
            return
        topic = self.topic
        last = topic.last_data
        disconnected = frozenset(
            name for name, replicator in topic.replicators.items() if not replicator.ready
        ) | {name for name in self.controller.remotes if not topic.hears(name)}
        effects = self.controller.tick(
            self._now_ms(),
            f"{topic.region.environment.random.getrandbits(128):032x}",
            last_data_position=Position(topic.log.ledger_id, last[0]) if last is not None else None,
            disconnected=disconnected,
        )
        self._do(effects)
        if effects or self.controller.pending or self.controller.skip is Skip.EARLY:
            # Traffic may stop now: look again, for what was stored meanwhile and for what takes too long.
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
        for name, machine in self._subscriptions.items():
            subscription = self.topic.subscriptions.get(name)
            if subscription is not None:
                self._offer_to(subscription, machine, snapshot)

    def _offer_to(
        self, subscription: Subscription, machine: ReplicatedSubscription, snapshot: Snapshot
    ) -> None:
        cursor = subscription.cursor
        self._tell(subscription, machine.snapshot_offered(snapshot, cursor.mark_delete, leads=cursor.leads))

    def _write(self, wish: WriteMarker) -> None:
        now_ms = self.topic.region.environment.wall_clock_ms()
        data = encode_marker(wish.marker, now_ms, wish.replicate_to)
        self.topic.publish_marker(self, data, scan_entry(data))

    def stored(self, outcomes: Sequence[tuple[PendingPublish, int]]) -> None:
        """Our markers are durable; what follows from that is told by `entries_stored`."""

    # For people.

    def why_not(self, subscription: Subscription) -> str:
        """Why the subscription's position is not carried to the other regions any further. Empty: it is."""
        if not subscription.cursor.replicated:
            return "the subscription is not replicated"
        machine = self._subscriptions[subscription.name]
        if machine.cache.snapshots:
            return machine.why_not(subscription.cursor.mark_delete)
        return self.controller.why_not()

    def summary(self) -> dict[str, Any]:
        """Counters of snapshots, and why there is no newer one."""
        counters = self.controller.counters
        return {
            "started": counters.started,
            "completed": counters.completed,
            "timed_out": counters.timed_out,
            "pending": len(self.controller.pending),
            "why_not": self.controller.why_not() if self._subscriptions else "no subscription is replicated",
            "updates": {name: machine.updates for name, machine in self._subscriptions.items()},
        }

    def subscription_deleted(self, name: str) -> None:
        """UNSUBSCRIBE is local; the next update of another region brings the subscription back."""
        self._subscriptions.pop(name, None)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
