"""Replicated subscriptions of one topic (PIP-33): sends their positions to other regions, and applies received
positions.

Each marker is processed once, in log order, after it is durable in the local log. The proposal requires this order only
in this log: a slow replicator to another region delays no marker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.broker.subscription.individual_acks import TopicIndividualAcks, is_on
from emulator.broker.subscription.log_search import with_time
from emulator.broker.subscription.received_updates import ReceivedUpdates, ReplicatedTopic
from emulator.broker.subscription.snapshots import (
    MarkerWriter,
    TopicSnapshots,
    cache_size_of,
)
from emulator.broker.subscription.update_records import TopicUpdateRecords
from emulator.config.compatibility import Compatibility
from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.schedule import SnapshotDemand
from emulator.core.replication.snapshot_types import WriteMarker
from emulator.core.replication.subscription_updates import ReplicatedSubscription
from emulator.core.replication.update_records import OUTCOMES
from emulator.errors import StorageError
from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.reasons import Cause, Reason

if TYPE_CHECKING:
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.new_entries import NewEntries
    from emulator.broker.topic.stored_entry import StoredEntry

logger = logging.getLogger(__name__)


class ReplicatedSubscriptions:
    """Replicated subscriptions of one topic; owned by the topic's `Subscriptions`."""

    def __init__(self, topic: ReplicatedTopic, remotes: Sequence[str]) -> None:
        self._topic = topic
        self._components = topic.region.environment.components.replication
        self._markers = MarkerWriter(topic)
        self.snapshots = TopicSnapshots(
            topic,
            remotes,
            self._markers,
            self._offer,
            lambda entry, update: self.records.found(entry, update),
            self._demand,
        )
        self._machines: dict[str, ReplicatedSubscription] = {}
        """State machines of the replicated subscriptions, by name of the subscription."""
        self.records = TopicUpdateRecords(topic, self.snapshots)
        self.sending = 0
        """Number of updates that wait until the position is durable."""
        self.individual: TopicIndividualAcks | None = None
        """Individual acknowledgements; None: the topic does not replicate them."""
        self._compatibility = Compatibility(topic.region.config.compatibility)
        self._passes_markers = not self._compatibility.follows_upstream("markers_in_backlog")
        self._switch_individual_acks()
        self.received = ReceivedUpdates(
            topic, self.snapshots.controller, self.records, self._answer, passes_markers=self._passes_markers
        )
        self._closed = False

    # Subscriptions.

    def subscription_added(self, subscription: Subscription) -> None:
        """Replicate a subscription from now on. It starts with all known snapshots: a topic without traffic takes no
        new ones."""
        if subscription.name not in self._machines:
            machine = self._components.replicated_subscription(
                subscription.name,
                cache_size_of(self._topic),
                drops_oldest=self._compatibility.follows_upstream("snapshot_cache"),
            )
            self._machines[subscription.name] = machine
            self.records.of(subscription.name)
            subscription.move(partial(self._catch_up, subscription.name))
            machine.remember(self.snapshots.completed)
            self.mark_delete_moved(subscription)
            self.snapshots.search.begin()
            if self.individual is not None:
                self.individual.subscription_added(subscription)
        self.snapshots.start()

    def subscription_removed(self, name: str) -> None:
        """Stop replicating a subscription, which may have been deleted. UNSUBSCRIBE is local: the next update of
        another region creates the subscription again. Without a replicated subscription the topic requests no
        snapshots, but still responds to the requests of other regions."""
        self.records.forget(name)
        if self.individual is not None:
            self.individual.subscription_removed(name)
        if self._machines.pop(name, None) is not None and not self._machines:
            self.snapshots.stop()

    def policies_changed(self) -> None:
        """Apply changed policies of snapshots and of their caches."""
        self.snapshots.policies_changed()
        self._switch_individual_acks()
        for machine in self._machines.values():
            machine.cache.resize(cache_size_of(self._topic))

    def _switch_individual_acks(self) -> None:
        """Begin or end the replication of individual acknowledgements, as policies require."""
        if not is_on(self._topic):
            if self.individual is not None:
                self.individual.close()
            self.individual = None
        elif self.individual is not None:
            self.individual.policies_changed()
        else:
            self.individual = TopicIndividualAcks(self._topic, self._send)
            for name in self._machines:
                subscription = self._topic.subscriptions.get(name)
                if subscription is not None:
                    self.individual.subscription_added(subscription)

    def _catch_up(self, name: str, cursor: Cursor) -> None:
        """Apply the positions that other regions sent while the cursor was not replicated, and pass trailing
        markers."""
        for source, update in cursor.take_unapplied().items():
            outcome = self.received.apply(cursor, source, update.entry_id, update.named)
            self.records.of(name).note_applied(source, OUTCOMES[outcome])
        cursor.ack_hidden(self._topic.state.visibility.hidden)

    def mark_delete_moved(self, subscription: Subscription) -> None:
        """Send the subscription's position to other regions if consumers here moved mark-delete to or past a snapshot
        that was not sent yet."""
        machine = self._machines.get(subscription.name)
        if machine is not None:
            cursor = subscription.cursor
            self._send(
                subscription,
                machine.mark_delete_moved(cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers),
            )
            self.snapshots.demand_changed()

    def _demand(self) -> SnapshotDemand:
        """Return what the subscriptions gain from a snapshot: of those that lead, the one that gains most."""
        unreached: int | None = None
        for name, machine in self._machines.items():
            subscription = self._topic.subscriptions.get(name)
            if subscription is not None and subscription.cursor.ahead_of_peers:
                unreached = len(machine.cache) if unreached is None else min(unreached, len(machine.cache))
                if not unreached:
                    break
        return SnapshotDemand(leads=unreached is not None, unreached=unreached or 0)

    def cursor_reset(self, subscription: Subscription) -> None:
        """Handle a seek, whose position is not sent to other regions."""
        machine = self._machines.get(subscription.name)
        if machine is not None:
            machine.cursor_reset()
        if self.individual is not None:
            self.individual.cursor_reset(subscription)

    def entries_read(self, subscription: Subscription, entries: Sequence[StoredEntry]) -> None:
        """Offer the snapshots among entries that a dispatcher read, to find those from before a restart."""
        machine = self._machines.get(subscription.name)
        for entry in entries:
            marker = entry.marker
            if machine is None or not isinstance(marker, Snapshot):
                continue
            if self.snapshots.search.is_of_this_log(marker):
                self._offer_to(subscription, machine, with_time(marker, entry))

    def _offer(self, snapshot: Snapshot) -> None:
        if self.individual is not None:
            self.individual.snapshot_completed(len(self.snapshots.controller.remotes))
        for name, machine in self._machines.items():
            subscription = self._topic.subscriptions.get(name)
            if subscription is not None:
                self._offer_to(subscription, machine, snapshot)

    def _offer_to(
        self, subscription: Subscription, machine: ReplicatedSubscription, snapshot: Snapshot
    ) -> None:
        cursor = subscription.cursor
        self._send(
            subscription,
            machine.snapshot_offered(snapshot, cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers),
        )

    def _send(self, subscription: Subscription, update: SubscriptionUpdate | None) -> None:
        """Send the update, if any, to the other regions after the position is durable here. Otherwise a crash could
        lose a position that another region relies on."""
        if update is not None:
            machine = self._machines[subscription.name]
            self.sending += 1
            self._topic.region.spawn(self._send_when_durable(subscription, machine, update))

    async def _send_when_durable(
        self, subscription: Subscription, machine: ReplicatedSubscription, update: SubscriptionUpdate
    ) -> None:
        try:
            await subscription.persisted()
        except StorageError:
            return  # the topic is loaded again, and its new controller takes a snapshot
        finally:
            self.sending -= 1
        is_replicated = self._machines.get(subscription.name) is machine
        if is_replicated and not self._closed:
            self._markers.write(WriteMarker(update, ()))
            if self.individual is not None and not update.individual:
                base = self.snapshots.bases.of(update.positions)
                self.individual.positions_sent(update, None if base is None else base.entry_id)

    # Entries.

    def entries_stored(self, entries: NewEntries) -> None:
        """Process the markers among durable entries, and schedule a snapshot. Called once for each entry, in log
        order."""
        markers = 0
        if self.individual is not None:
            self.individual.entries_stored(entries)
        for entry in entries.alone:
            if entry.marker is not None:
                markers += 1
                if entry.info.replicated_from is not None:
                    self.snapshots.markers_received += 1
                if not isinstance(entry.marker, SubscriptionUpdate):
                    self.snapshots.marker_stored(entry, entry.marker)
                elif entry.info.replicated_from is not None:
                    self.received.stored(entry, entry.marker, entry.info.replicated_from, self.individual)
                elif not entry.marker.individual:
                    self._note("update_sent")
                    if entry.marker.subscription in self._machines:
                        self.records.sent(entry, entry.marker)
        for name in self._machines:
            self.pass_markers(name)
        self.snapshots.entries_stored(entries.entry_count - markers, markers)

    def _answer(
        self, subscription: Subscription, update: SubscriptionUpdate, source: str, entry_id: int
    ) -> None:
        """Send the position in turn, if an update of `source` moved it beyond what other regions know."""
        machine = self._machines.get(subscription.name)
        if machine is None:
            return
        cursor = subscription.cursor
        own_update = machine.moved_by_update(
            update, source, entry_id, cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers
        )
        self._send(subscription, own_update)

    def _note(self, event: str) -> None:
        self._topic.region.resources.protocol_events.note(event, self._topic.full_name)

    def pass_markers(self, name: str) -> None:
        """Move a replicated subscription without consumers here past the markers after mark-delete, so that these do
        not count as backlog."""
        subscription = self._topic.subscriptions.get(name) if name in self._machines else None
        if self._passes_markers and subscription is not None and not subscription.consumers:
            subscription.pass_markers()

    # Explanations.

    def unapplied_positions(self) -> Iterator[tuple[str, str]]:
        """Yield (subscription, source region) of each received position that is not applied."""
        for name, one in self._topic.subscriptions.items():
            for source in sorted(one.cursor.unapplied):
                yield name, source

    def cached_snapshots(self, name: str) -> tuple[Snapshot, ...]:
        """Return the snapshots that a subscription waits to reach, oldest first."""
        machine = self._machines.get(name)
        return () if machine is None else machine.cache.snapshots

    def why_not(self, subscription: Subscription) -> Reason:
        """Return why the subscription's position is not replicated any further; NO_REASON when it is."""
        cursor, controller = subscription.cursor, self.snapshots.controller
        if not cursor.replicated:
            regions = " and ".join(sorted(cursor.unapplied))
            if regions:
                return Cause.POSITION_NOT_APPLIED_HERE(regions=regions, here=controller.region)
            return Cause.SUBSCRIPTION_NOT_REPLICATED()
        machine = self._machines[subscription.name]
        observed = self.snapshots.observed()
        return (
            controller.why_unreachable(observed)
            or machine.why_not(cursor.mark_delete, ahead_of_peers=cursor.ahead_of_peers)
            or self.records.why_unconfirmed(
                subscription.name,
                {region: self._topic.replicators.confirmed(region) for region in sorted(controller.remotes)},
            )
            or controller.why_not(observed)
        )

    def summary(self) -> dict[str, Any]:
        """Return the counters of snapshots and updates, and why there is no newer snapshot."""
        return {
            **self.snapshots.summary(),
            "updates": {name: machine.updates for name, machine in self._machines.items()},
            "updates_not_applied": self.received.not_applied_count,
            **({} if self.individual is None else self.individual.summary()),
        }

    def close(self) -> None:
        self._closed = True
        self.received.close()
        if self.individual is not None:
            self.individual.close()
        self.snapshots.close()
