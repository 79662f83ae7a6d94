"""The plan of a fail-over away from this region, made from this region's log and the state that the target states.

Each region states only its own state (docs/components/explain.md): the user's side requests the state of the target
and sends it to the source (`emulator.scenarios.failover_plans`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emulator.broker.explain.delivery import compare
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.core.replication.delivery_state import DeliveryState
from emulator.core.replication.failover_plan import Acknowledged, PlannedFigures, reasons_of, skip_reasons_of
from emulator.model.failover_plans import FailoverPlan
from emulator.model.reasons import Cause, Reason
from emulator.model.values import Position

ACKNOWLEDGED_RANGES_MAX: Final = 1_000
"""Maximum number of acknowledged ranges in a plan."""


async def failover_plan(topic: Topic, subscription: Subscription, target: DeliveryState) -> FailoverPlan:
    """Return the plan of a fail-over of a subscription from this region to `target`. StorageError when the log cannot
    be read."""
    acked = Acknowledged.of(subscription.cursor)
    figures = await compare(topic, acked, target)
    reasons = [reason for reason in _reasons(topic, subscription, target, figures) if reason]
    return FailoverPlan(
        topic=topic.full_name,
        subscription=subscription.name,
        source=topic.region.config.region,
        target=target.region,
        redelivered_messages=figures.redelivered,
        exact=figures.exact,
        quiet=False,
        complete=figures.complete,
        resume=None if target.resume is None else str(target.resume),
        oldest_redelivered_age_ms=_age_ms(topic, figures.oldest_publish_ms),
        skipped_messages=figures.skipped,
        skipped_because=tuple(skip_reasons_of(target, figures)),
        missing_messages=figures.missing,
        information_age_ms=0,
        wait_for=tuple(dict.fromkeys(end for reason in reasons for end in reason.ends)),
        why=tuple(reasons),
        causes=tuple(reason.code for reason in reasons),
        source_mark_delete=str(Position(topic.ledger_id, acked.mark_delete)),
        source_acknowledged=tuple(acked.first_ranges(ACKNOWLEDGED_RANGES_MAX)),
        target_last=None if target.last is None else str(target.last),
    )


def _age_ms(topic: Topic, publish_ms: int | None) -> int | None:
    return None if publish_ms is None else max(0, topic.region.environment.wall_clock_ms() - publish_ms)


def _reasons(
    topic: Topic, subscription: Subscription, target: DeliveryState, figures: PlannedFigures
) -> Iterator[Reason]:
    """Yield the reasons why the fail-over redelivers messages, and why messages are missing there."""
    yield from reasons_of(target, figures)
    replicator = topic.replicators.get(target.region)
    if figures.missing and replicator is not None:
        yield replicator.why_not()
    if subscription.cursor.replicated and target.exists and not target.replicated:
        yield Cause.POSITION_NOT_APPLIED_THERE(region=target.region)
    if figures.redelivered:
        yield topic.subscriptions.why_not_replicated(subscription)
