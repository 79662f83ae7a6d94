"""Applies the updates of other regions to the subscriptions of one topic (PIP-33).

An update is applied once, in log order, after its marker is durable in the local log. It creates a subscription that
does not exist, and moves an existing one only while that is replicated here (INV-119).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.subscription.origin_reads import Answer, OriginReads
from emulator.broker.subscription.snapshots import SnapshotTopic
from emulator.broker.topic.view import SubscriptionsView
from emulator.config.compatibility import Compatibility
from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.subscription_updates import Applied
from emulator.core.replication.update_records import OUTCOMES, UpdateOutcome
from emulator.model.markers import SubscriptionUpdate

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices
    from emulator.broker.subscription.individual_acks import TopicIndividualAcks
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.subscription.update_records import TopicUpdateRecords
    from emulator.broker.topic.stored_entry import StoredEntry
    from emulator.core.replication.snapshots import SnapshotController

logger = logging.getLogger(__name__)


def status_follows_upstream(region: RegionServices) -> bool:
    """Return whether, as upstream, updates also move subscriptions that are not replicated, and any SUBSCRIBE may
    enable replication."""
    return Compatibility(region.config.compatibility).follows_upstream("replicated_subscription_status")


class AllSubscriptions(SubscriptionsView, Protocol):
    """The subscriptions of a topic, as this module needs them."""

    def get(self, name: str, /) -> Subscription | None: ...
    def items(self) -> Iterable[tuple[str, Subscription]]: ...

    def create(self, name: str, cursor: Cursor) -> Subscription:
        """Add a durable subscription that does not exist yet."""
        ...

    def replicate(self, subscription: Subscription) -> None:
        """Send the subscription's position to the other regions from now on."""
        ...


class ReplicatedTopic(SnapshotTopic, Protocol):
    """The topic, as this module needs it."""

    @property
    def subscriptions(self) -> AllSubscriptions: ...


class ReceivedUpdates:
    """The updates of other regions for one topic."""

    def __init__(
        self,
        topic: ReplicatedTopic,
        controller: SnapshotController,
        records: TopicUpdateRecords,
        answer: Answer,
        *,
        passes_markers: bool,
    ) -> None:
        """`answer`: sends a position in turn after an update moved it. `passes_markers`: whether an update also
        acknowledges the markers that directly follow its position."""
        self._topic = topic
        self._controller = controller
        self._records = records
        self._answer = answer
        self._passes_markers = passes_markers
        self._components = topic.region.environment.components.replication
        self._applies_always = status_follows_upstream(topic.region)
        self.origin_reads = OriginReads(topic, answer, applies_always=self._applies_always)
        self.not_applied_count = 0
        """Number of updates that were not applied, because the subscription is not replicated here."""

    def stored(
        self,
        entry: StoredEntry,
        update: SubscriptionUpdate,
        source: str,
        individual: TopicIndividualAcks | None,
    ) -> None:
        """Apply an update of region `source` that is durable in `entry`. `individual`: the individual acknowledgements
        of the topic; None: it does not replicate them. Called once for each update, in log order."""
        topic = self._topic
        subscription = topic.subscriptions.get(update.subscription)
        if not update.individual or subscription is None:
            self._position_stored(entry, update, source)
        if update.individual and individual is not None:
            self._claim_stored(individual, update, source)

    def _position_stored(self, entry: StoredEntry, update: SubscriptionUpdate, source: str) -> None:
        topic = self._topic
        entry_id = self._components.own_entry_id(update, topic.region.config.region, topic.ledger_id)
        subscription = topic.subscriptions.get(update.subscription)
        if entry_id is None:
            if subscription is not None:
                self._records.received(entry, update, source, UpdateOutcome.OTHER_LOG)
            return
        if subscription is None:
            subscription = self._create(update.subscription)
        if subscription.closed:
            return
        named = [name for name, _ in update.positions]
        if not self._components.takes_updates(
            subscription.cursor, subscription.durable, self._applies_always
        ):
            self.not_applied_count += 1
            self._records.received(entry, update, source, UpdateOutcome.NOT_REPLICATED)
            if subscription.durable:
                known = self._sharing_regions(named)
                subscription.move(lambda cursor: cursor.note_unapplied(source, entry_id, known))
            return
        subscription.move(
            lambda cursor: self._records.received(
                entry, update, source, OUTCOMES[self.apply(cursor, source, entry_id, named)]
            )
        )
        self._answer(subscription, update, source, entry_id)
        self.origin_reads.applied(subscription, update, source, entry_id)

    def _claim_stored(self, individual: TopicIndividualAcks, update: SubscriptionUpdate, source: str) -> None:
        """Apply a claim. The positions in the same update were sent before; only a new subscription needs them."""
        subscription = self._topic.subscriptions.get(update.subscription)
        if subscription is None:
            subscription = self._create(update.subscription)
        if not subscription.closed and self._components.takes_updates(
            subscription.cursor, subscription.durable, self._applies_always
        ):
            individual.claim_stored(subscription, source, update.individual)

    def _sharing_regions(self, named: Sequence[str]) -> list[str]:
        """Return those of the named regions that share the topic. This bounds the stored list."""
        regions = {self._topic.region.config.region, *self._controller.remotes}
        return [name for name in named if name in regions]

    def _create(self, name: str) -> Subscription:
        """Create a replicated subscription, beginning at the first entry, for an update with an unknown name. An
        existing one is replicated only if this region enabled that."""
        cursor = self._topic.region.environment.components.subscriptions.cursor(
            self._topic.reading.first_entry_id - 1
        )
        subscription = self._topic.subscriptions.create(name, cursor)
        self._topic.subscriptions.replicate(subscription)
        return subscription

    def apply(self, cursor: Cursor, source: str, own_entry_id: int, named: Sequence[str]) -> Applied:
        """Acknowledge what an update of region `source` covers. `named`: regions whose positions it contains."""
        applied = self._topic.state.follow(
            cursor,
            source,
            own_entry_id,
            named=named,
            never=self._components.never_reaches,
            apply=self._components.apply_update,
            passes_markers=self._passes_markers,
        )
        if applied is Applied.REFUSED:
            logger.warning("%s: update of %s refused: %s", self._topic.full_name, source, applied.value)
        else:
            self._topic.region.resources.protocol_events.note("update_applied", self._topic.full_name)
        return applied

    def close(self) -> None:
        self.origin_reads.close()
