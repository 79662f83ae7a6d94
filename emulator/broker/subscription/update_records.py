"""Records the updates of a topic's subscriptions that the region sends and receives (PIP-33): connects `UpdateRecords`
to the log and the clock. Explanations, metrics and statistics read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from emulator.core.replication.update_records import (
    LogFigures,
    ReceivedUpdate,
    UpdateOutcome,
    UpdateRecords,
)
from emulator.model.markers import SubscriptionUpdate
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.values import Position

if TYPE_CHECKING:
    from emulator.broker.subscription.snapshots import TopicSnapshots
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.stored_entry import StoredEntry
    from emulator.broker.topic.view import TopicView


class TopicUpdateRecords:
    """The records of all subscriptions of one topic since it was loaded."""

    def __init__(self, topic: TopicView, snapshots: TopicSnapshots) -> None:
        self._topic = topic
        self._snapshots = snapshots
        self._by_name: dict[str, UpdateRecords] = {}

    def of(self, subscription: str) -> UpdateRecords:
        """Return the records of a subscription."""
        return self._by_name.setdefault(subscription, UpdateRecords())

    def items(self) -> Iterator[tuple[str, UpdateRecords]]:
        yield from self._by_name.items()

    def forget(self, subscription: str) -> None:
        """Forget a subscription that was deleted or is not replicated any more."""
        self._by_name.pop(subscription, None)

    # Events, in log order.

    def sent(self, entry: StoredEntry, update: SubscriptionUpdate) -> None:
        """Record an own update that became durable."""
        base = self._snapshots.bases.of(update.positions)
        self.of(update.subscription).note_sent(update, entry.entry_id, entry.info.publish_time_ms, base)

    def received(
        self, entry: StoredEntry, update: SubscriptionUpdate, source: str, outcome: UpdateOutcome
    ) -> None:
        """Record an update of region `source` that became durable, with its outcome."""
        now_ms = self._topic.region.environment.wall_clock_ms()
        written_ms = entry.info.publish_time_ms
        received = ReceivedUpdate(self._own_position(update), written_ms, now_ms, outcome)
        self.of(update.subscription).note_received(source, received)

    def found(self, entry: StoredEntry, update: SubscriptionUpdate) -> None:
        """Record an update that was found in the log when the topic was loaded. No effect for a subscription without
        records."""
        records, info = self._by_name.get(update.subscription), entry.info
        if records is None:
            return
        if info.replicated_from is None:
            records.found_sent(update, entry.entry_id, info.publish_time_ms)
        else:
            records.found_received(info.replicated_from, self._own_position(update), info.publish_time_ms)

    def _own_position(self, update: SubscriptionUpdate) -> Position | None:
        here = self._topic.region.config.region
        return next((position for region, position in update.positions if region == here), None)

    # Queries.

    def redelivered_at_most(self, subscription: Subscription, region: str, confirmed: int) -> int | None:
        """Return the maximum number of messages that a fail-over of the subscription to a region would deliver again;
        None: unknown. `confirmed`: entry id up to which the replicator to that region is confirmed."""
        state = self._topic.state
        log = LogFigures(state.readable_end, state.visibility.hidden, self._snapshots.messages)
        return self.of(subscription.name).redelivered_at_most(region, confirmed, subscription.cursor, log)

    def why_unconfirmed(self, subscription: str, confirmed: Mapping[str, int | None]) -> Reason:
        """Return which region has not stored the newest position of a subscription that was sent to it. `confirmed`:
        region -> entry id up to which its replicator is confirmed; None: there is no replicator to it."""
        records = self.of(subscription)
        for region, entry_id in confirmed.items():
            update = records.newest_sent(region)
            if update is not None and entry_id is not None and update.entry_id > entry_id:
                return Cause.UPDATE_NOT_CONFIRMED(
                    region=region, entry=update.entry_id, behind=update.entry_id - entry_id
                )
        return NO_REASON
