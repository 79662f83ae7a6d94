"""Programs that acknowledge some of their messages, in two regions in turn, while regions replicate individual
acknowledgements: every unacknowledged message is delivered wherever the subscription continues, and finally everything
is acknowledged in every region.

All other consumers of the run are subject to the same switch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.individual_acks import IndividualAcks, SenderLog
from emulator.model.markers import AckedEntries, SubscriptionUpdate
from tests.swarm.mutant import part
from tests.swarm.plan import ConsumerPlan, Plan, with_settings
from tests.swarm.workload import Workload
from tests.swarm.workloads.subscription_retention_program import LOST, STAYS, MovingProgram

NAME = "individual-acks"
WORKLOAD = Workload(NAME)


@dataclass(frozen=True, slots=True)
class IndividualAcksProgram(MovingProgram):
    """A program that acknowledges some messages and moves between two regions."""

    workload: ClassVar[str] = NAME


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs, each with two regions; none if the plan has a single region. Limits of claims are small in some
    plans, so that claims are incomplete."""
    topology = with_settings(
        plan.topology,
        replicate_individual_acks=True,
        individual_ack_interval_ms=random.choice((10, 50, 200)),
        individual_acks_max=random.choice((1, 3, 1_000)),
    )
    consumers = tuple(_holding(random, one) for one in plan.consumers)
    plan = replace(plan, topology=topology, consumers=consumers)
    if len(plan.regions) < 2:
        return plan
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _holding(random: Random, consumer: ConsumerPlan) -> ConsumerPlan:
    """Let a replicated consumer acknowledge out of order."""
    if not consumer.replicated or consumer.cumulative:
        return consumer
    return replace(consumer, holds=max(consumer.holds, random.choice((0, 3, 10))))


def _program(random: Random, plan: Plan) -> IndividualAcksProgram:
    seconds, count = plan.break_seconds, random.randint(4, 40)
    begin = round(random.uniform(0.2, seconds * 0.3), 3)
    reading, onward = random.sample(plan.regions, 2)
    return IndividualAcksProgram(
        begin,
        random.choice(plan.regions),
        reading,
        count,
        round(seconds / count * random.uniform(0.1, 0.7), 4),
        seconds + 1.0,
        onward,
        tuple(random.random() < 0.7 for _ in range(count)),
        tuple(sorted(round(random.uniform(begin, seconds), 3) for _ in range(random.randint(1, 3)))),
    )


# INV-127


@WORKLOAD.mutant("gaps-claimed", "INV-127", "INV-5", "INV-18", patch=part("individual_acks"))
class _GapsClaimed(IndividualAcks):
    """A claim contains everything up to the last acknowledged entry of each origin."""

    def next_update(self, cursor: Cursor, log: SenderLog, size_max: int) -> SubscriptionUpdate | None:
        update = super().next_update(cursor, log, size_max)
        return update and replace(update, individual=tuple(map(_without_gaps, update.individual)))


def _without_gaps(acked: AckedEntries) -> AckedEntries:
    return replace(acked, ranges=((acked.ranges[0][0], acked.ranges[-1][1]),)) if acked.ranges else acked


WORKLOAD.reports("claims-acknowledge-nothing-else", "INV-127", LOST, "not acknowledged, and not delivered")
WORKLOAD.reports("claims-end", "INV-127", STAYS, "acknowledged, and part of a backlog")
