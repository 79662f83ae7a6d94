"""Consumers that acknowledge messages which are not in the log yet, by mistake or on purpose. No message may count as
consumed because of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import MessageId
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.simulation.host import Host
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.consumer_acts import ConsumerAct

ENTRY_ID_MAX = 2**63 - 1
ENTRIES_AHEAD = (100_000, 1_000_000)
"""Distances from the newest message beyond any entry of a run. Entries right after it may be markers."""


WORKLOAD = Workload("acknowledge-ahead", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class AcknowledgeBeyondEndAct(ConsumerAct):
    entries: int
    """Distance of the acknowledged position from the last message of the topic, in entries."""
    cumulative: bool

    workload: ClassVar[str] = "acknowledge-ahead"

    def host(self, context: ActContext) -> Host | None:
        return ConsumerAct.host(self, context) if self.actor(context).known_ids else None

    async def perform(self, context: ActContext) -> None:
        """Acknowledge a position beyond the end. The broker ignores it silently, so a response only proves that the
        broker is running."""
        actor = self.actor(context)
        consumer = actor.consumer
        if consumer is None or not actor.known_ids:
            return
        end = await consumer.last_message_id()
        if end is None:
            return
        beyond = MessageId(end.ledger, end.entry + self.entries)
        if self.cumulative:
            await consumer.acknowledge_cumulative(beyond, confirmed=True)
        else:
            await consumer.acknowledge(beyond, confirmed=True)
        context.note_result("accepted", region=actor.region, detail=str(beyond))


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.15:
        return plan
    consumer = random.choice(plan.consumers)
    acts = [
        AcknowledgeBeyondEndAct(
            round(random.uniform(0.5, plan.break_seconds), 3),
            consumer.region,
            consumer.name,
            random.choice(ENTRIES_AHEAD),
            random.random() < 0.7,
        )
        for _ in range(3)
    ]
    return replace(plan, acts=(*plan.acts, *acts))


@WORKLOAD.mutant("acknowledgement-beyond-end-accepted", "INV-5", patch=part("dispatcher"))
class _AcknowledgementBeyondEndAccepted(Dispatcher):
    """An acknowledgement beyond the end of the log counts for messages that are stored later."""

    def acknowledge_cumulative(
        self, entries: Iterable[tuple[int, Sequence[int] | None]], end_entry_id: int
    ) -> None:
        super().acknowledge_cumulative(entries, ENTRY_ID_MAX)
