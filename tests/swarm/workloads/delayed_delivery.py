"""Producers of messages with a delivery time, in regions that crash meanwhile: no message is delivered early or lost.

Clocks are correct in these runs: the region's clock and the checker's clock agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.client import ClientError, MessageId
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.delayed import Delayed
from emulator.core.dispatch.dispatcher import strategy_for
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import Delivery, DispatchLimits, Read, SubscriptionType, Wake
from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from emulator.simulation.virtual_time import EPOCH_MS
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import ConsumerPlan, Plan
from tests.swarm.workload import Act, ActContext, Workload

NAME = "delay"
WORKLOAD = Workload(NAME)
TOPIC = "later"
SUBSCRIPTIONS = {"later-shared": "SHARED", "later-by-key": "KEY_SHARED"}


@dataclass(frozen=True, slots=True)
class DelayedMessageAct(Act):
    """Messages of one producer with delivery times, all sent at once."""

    delays_seconds: tuple[float, ...]
    """Delay of each message from the send to its delivery time; negative: in the past."""

    workload: ClassVar[str] = NAME
    is_awaited: ClassVar[bool] = True

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        try:
            producer = await client.producer(full(TOPIC), name=context.name)
            now_ms = EPOCH_MS + round(context.now * 1000)
            sent = []
            for number, seconds in enumerate(self.delays_seconds):
                payload = f"{context.name}/{number}/1".encode()
                context.note_publish(TOPIC, number, payload, "asked")
                due_ms = now_ms + round(seconds * 1000)
                future = producer.send_nowait(payload, sequence_id=number, deliver_at_ms=due_ms)
                sent.append(self._noted(context, number, payload, future))
            await asyncio.gather(*sent)
            context.note_result("accepted", topic=full(TOPIC))
        finally:
            await client.close()

    async def _noted(
        self, context: ActContext, number: int, payload: bytes, future: asyncio.Future[MessageId]
    ) -> None:
        try:
            place = await future
        except ClientError as failure:
            if failure.definite:
                context.note_publish(TOPIC, number, payload, "failed")
            raise
        context.note_publish(TOPIC, number, payload, "ok", message_id=str(place))


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw senders in all regions, and consumers of both subscriptions in one or two regions each."""
    seconds = plan.break_seconds
    acts = [
        DelayedMessageAct(
            round(random.uniform(0.2, seconds * 0.7), 3),
            random.choice(plan.regions),
            _delays(random, seconds),
        )
        for _ in range(random.randint(3, 8))
    ]
    consumers = [
        ConsumerPlan(
            *(f"{subscription}-{region}-{number}", subscription, TOPIC, region, type_),
            refuses=random.choice((0.0, 0.2)),
            holds=random.choice((0, 3)),
            queue=random.choice((1, 5, 100)),
        )
        for subscription, type_ in SUBSCRIPTIONS.items()
        for region in random.sample(plan.regions, random.randint(1, min(2, len(plan.regions))))
        for number in range(random.choice((1, 2)))
    ]
    return replace(plan, acts=(*plan.acts, *acts), consumers=(*plan.consumers, *consumers))


def _delays(random: Random, seconds: float) -> tuple[float, ...]:
    """Draw delays: some messages are due at once, some in the past, most during the break phase."""
    return tuple(
        round(random.choice((0.0, -5.0, 0.2, *(random.uniform(0.1, seconds) for _ in range(4)))), 3)
        for _ in range(random.randint(2, 12))
    )


# INV-29


@WORKLOAD.checker("never-before-due", "INV-29")
def never_early(evidence: Evidence) -> Found:
    """No consumer receives a message before its delivery time."""
    for event in _deliveries(evidence.events):
        assert event.region is not None
        stored = evidence.log(event.region, full(TOPIC)).by_message_id.get(event.message_id or "")
        # The clock of a region counts whole milliseconds.
        if stored is not None and event.at_ms < stored.due_ms:
            early_ms = stored.due_ms - event.at_ms
            yield (
                f"{event.actor} received {event.detail} in {event.region} {early_ms:.0f} ms before it was due",
                {"given": stored.message_id, "region": event.region, "due_ms": str(stored.due_ms)},
            )


def _deliveries(events: Iterable[HistoryEvent]) -> Iterable[HistoryEvent]:
    return (one for one in events if one.op == "receive" and one.subscription in SUBSCRIPTIONS)


def _with(careless: type[Shared]) -> object:
    def made(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
        return (
            careless(cursor, limits)
            if type_ is SubscriptionType.SHARED
            else strategy_for(type_, cursor, limits)
        )

    return made


@WORKLOAD.mutant("delivered-before-due", "INV-29", patch=part("strategy_for", _with))
class _DeliveredBeforeDue(Shared):
    """A message is dispatched before its delivery time if its consumer has permits."""

    def next(self, end_entry_id: int, now_ms: int, wall_ms: int) -> Read | Wake | None:
        return super().next(end_entry_id, now_ms, _LATE_MS)

    def _dispatch(self, candidates: Any, wall_ms: int) -> list[Delivery]:
        return super()._dispatch(candidates, _LATE_MS)


_LATE_MS = 2**62


class _Forgetful(Delayed):
    """Keeps only the first two delayed messages."""

    def add(self, due_ms: int, entry_id: int) -> None:
        if self.count < 2:
            super().add(due_ms, entry_id)


@WORKLOAD.mutant("delayed-messages-forgotten", "INV-5", patch=part("strategy_for", _with))
class _DelayedMessagesForgotten(Shared):
    """Only a few of the messages that wait for their delivery time are remembered."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self.delayed = _Forgetful()
