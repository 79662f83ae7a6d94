"""Consumers that delete their subscription; the application returns and creates it again.

The new one has nothing of the one before: it begins where its consumer asks to, at the first message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.subscriptions import Subscriptions
from emulator.broker.topic.topic import Topic
from emulator.broker.topic.view import TopicView
from emulator.core.cursor.cursor import Cursor
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import topic
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.consumer_acts import ConsumerAct
from tests.swarm.workloads.seek import not_given

WORKLOAD = Workload("unsubscribe", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class Unsubscribe(ConsumerAct):
    workload: ClassVar[str] = "unsubscribe"

    async def perform(self, context: ActContext) -> None:
        actor = self.actor(context)
        consumer = actor.consumer
        if consumer is None:
            return
        began = context.now
        region, name, subscription = actor.region, full(actor.plan.topic), actor.plan.subscription
        window = context.record.windows.begin(region, name, subscription)
        await consumer.unsubscribe()
        context.record.windows.end(window)
        context.note_result("accepted", began=began, region=region, topic=name, subscription=subscription)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.15:
        return plan
    consumer = random.choice(plan.consumers)
    at = round(random.uniform(1.0, plan.break_seconds), 3)
    return replace(plan, acts=(*plan.acts, Unsubscribe(at, consumer.region, consumer.name)))


# INV-16


@WORKLOAD.checker("recreated-subscription-is-new", "INV-16", only_healed=True)
def recreated_subscription_is_new(evidence: Evidence) -> Found:
    """A subscription that is deleted and created again at the earliest message receives every message once more.

    Checks only unreplicated subscriptions that no other operation moved since.
    """
    last = {
        (one.region, one.topic, one.subscription): one
        for one in evidence.operations
        if one.workload == Unsubscribe.workload
    }
    for where, operation in last.items():
        is_carried = where[1:] in evidence.delivered.replicated
        if (
            operation.outcome == "accepted"
            and not is_carried
            and evidence.windows.last_end(*where) <= operation.ended
        ):
            yield from not_given(evidence, operation, (-1, -1), "was deleted and created again")


class _RemembersTheDeleted(Subscriptions):
    """Subscriptions of a topic in which a new one continues at the position of the deleted one of the same name."""

    def __init__(self, topic: TopicView) -> None:
        super().__init__(topic)
        self._stood_at: dict[str, int] = {}

    def remove(self, name: str) -> None:
        if name in self:
            self._stood_at[name] = self[name].cursor.mark_delete
        super().remove(name)

    def create(self, name: str, cursor: Cursor, *, durable: bool = True) -> Subscription:
        if name in self._stood_at and self._stood_at[name] > cursor.mark_delete:
            cursor.ack_cumulative(self._stood_at[name])
        return super().create(name, cursor, durable=durable)


@WORKLOAD.mutant("deleted-cursor-reused", "INV-16", patch=topic)
class _DeletedCursorReused(Topic):
    """A subscription that is created again continues at the position of the deleted one."""

    subscriptions_type = _RemembersTheDeleted
