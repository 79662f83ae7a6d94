"""Explains subscriptions: the position, the snapshots, and what other regions know of the position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emulator.broker.explain.transactions import ExplanationBuilder, why_not_readable
from emulator.broker.region import Region
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.core.replication.update_records import IGNORED, UpdateRecords
from emulator.model.explanations import Explanation
from emulator.model.markers import Snapshot
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.subscription_details import (
    KnownSnapshot,
    ReceivedPosition,
    SentPosition,
    SubscriptionDetails,
)


def explain_subscription(region: Region, words: tuple[str, ...], build: ExplanationBuilder) -> Explanation:
    """Explain a subscription of a loaded topic."""
    topic = region.directory.serving[words[0]]
    subscription = topic.subscriptions[words[1]]
    backlog, consumers = subscription.backlog(), len(subscription.consumers)
    summary = (
        f"mark-delete is {topic.log.ledger_id}:{subscription.cursor.mark_delete}, {backlog} of the entries after it "
        f"are not acknowledged, {consumers} consumer{'' if consumers == 1 else 's'}, "
        f"{_replication_status(subscription)}"
    )
    delivery = subscription.why_not() or why_not_readable(region, topic)
    why_position_stays = _why_position_stays(topic, subscription)
    return replace(
        build(summary, None, [delivery, why_position_stays]),
        replicates_to=_replicates_to(topic, subscription),
        not_applied=tuple(sorted(subscription.cursor.unapplied)),
        subscription=_details(topic, subscription, why_position_stays),
    )


def _replication_status(subscription: Subscription) -> str:
    if subscription.cursor.replicated:
        return "replicated"
    detail = "; an administrator turned replication off" if subscription.cursor.replication_disabled else ""
    return f"not replicated{detail}"


def _replicates_to(topic: Topic, subscription: Subscription) -> tuple[str, ...] | None:
    if not subscription.cursor.replicated:
        return None
    return (
        ()
        if topic.subscriptions.replicated is None
        else tuple(sorted(topic.subscriptions.replicated.snapshots.controller.remotes))
    )


def _why_position_stays(topic: Topic, subscription: Subscription) -> Reason:
    """Return why the position is not replicated; NO_REASON for a subscription without replication."""
    reason = topic.subscriptions.why_not_replicated(subscription)
    return NO_REASON if reason.cause is Cause.SUBSCRIPTION_NOT_REPLICATED else reason


# Details.


def _details(topic: Topic, subscription: Subscription, blocked: Reason) -> SubscriptionDetails:
    cursor, sync = subscription.cursor, topic.subscriptions.replicated
    ranges = cursor.acked_ranges
    records = UpdateRecords() if sync is None else sync.records.of(subscription.name)
    completed = () if sync is None else sync.snapshots.completed
    cached = () if sync is None else sync.cached_snapshots(subscription.name)
    return SubscriptionDetails(
        mark_delete=f"{topic.ledger_id}:{cursor.mark_delete}",
        acknowledged_entries=sum(last - first + 1 for first, last in ranges),
        acknowledged_ranges=len(ranges),
        partial_batches=len(cursor.open_bits),
        newest_snapshot=_known(topic, subscription, completed[-1]) if completed else None,
        cached_snapshots=tuple(_known(topic, subscription, one) for one in cached),
        sent=tuple(_sent(topic, subscription, sync, records)) if sync is not None else (),
        received=tuple(_received(topic, records)),
        updates_sent=records.sent_count,
        updates_applied=records.applied,
        updates_ignored=sum(records.outcomes[outcome] for outcome in IGNORED),
        blocked=str(blocked),
        cause=blocked.code,
    )


def _known(topic: Topic, subscription: Subscription, snapshot: Snapshot) -> KnownSnapshot:
    taken_ms = snapshot.taken_ms
    return KnownSnapshot(
        here=str(snapshot.local_position),
        elsewhere={region: str(position) for region, position in snapshot.positions},
        age_ms=_age_ms(topic, taken_ms) if taken_ms else None,
        is_reached=snapshot.local_position.entry <= subscription.cursor.mark_delete,
    )


def _sent(
    topic: Topic, subscription: Subscription, sync: ReplicatedSubscriptions, records: UpdateRecords
) -> Iterator[SentPosition]:
    for region, replicator in sorted(topic.replicators.items()):
        update, confirmed = records.newest_sent(region), replicator.progress.confirmed
        if update is not None:
            yield SentPosition(
                region=region,
                position=str(dict(update.positions)[region]),
                age_ms=_age_ms(topic, update.at_ms),
                is_stored_there=update.entry_id <= confirmed,
                redelivered_at_most=sync.records.redelivered_at_most(subscription, region, confirmed),
            )


def _received(topic: Topic, records: UpdateRecords) -> Iterator[ReceivedPosition]:
    for region, received in sorted(records.received.items()):
        yield ReceivedPosition(
            region=region,
            position="" if received.position is None else str(received.position),
            age_ms=None if received.at_ms is None else _age_ms(topic, received.at_ms),
            written_ms=received.written_ms,
            outcome=received.outcome.value,
        )


def _age_ms(topic: Topic, at_ms: int) -> int:
    return max(0, topic.region.environment.wall_clock_ms() - at_ms)
