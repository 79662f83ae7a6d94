"""Programs whose topic has partitions and grows while they publish and consume: the whole topic, a list, or a
pattern. No acknowledged message is lost to a subscription, wherever its consumers were when the topic grew; keys keep
their order and partition; table views end with the newest value of each key.

Each program has topics of its own, and records its publishes and deliveries (`ledger.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from emulator.client import Batching
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.partition_growth.environment import (
    LIST,
    LISTED,
    ONE,
    OTHER,
    PARTITIONS,
    PATTERN,
    Growth,
    Life,
    Reading,
    Remaking,
)
from tests.swarm.workloads.partition_growth.mutants import MUTANTS
from tests.swarm.workloads.partition_growth.program import (
    ASTRAY,
    DISORDER,
    EARLY,
    LOST,
    NAME,
    SMALL,
    STRANGE,
    STUCK,
    TABLE,
    PartitionGrowthProgram,
)

WORKLOAD = Workload(NAME)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    acts = [_spread(random, plan) for _ in range(random.choice((1, 1, 2)))]
    return replace(plan, acts=(*plan.acts, *acts))


def _spread(random: Random, plan: Plan) -> PartitionGrowthProgram:
    partitions = random.choice((1, 2, 3))
    region, reading = random.choice(plan.regions), random.choice(plan.regions)
    return PartitionGrowthProgram(
        round(random.uniform(0.1, 1.0), 3),
        region,
        reading,
        partitions,
        _growth(random, plan, partitions),
        tuple(_lives(random, plan, region) for _ in range(random.choice((1, 2)))),
        _readings(random, plan),
        tuple(_remaking(random, plan) for _ in range(random.choice((0, 0, 1, 2)))),
        random.random() < 0.6,
        plan.break_seconds + 1.0,
    )


def _growth(random: Random, plan: Plan, partitions: int) -> tuple[Growth, ...]:
    times = sorted(random.uniform(1.5, plan.break_seconds) for _ in range(random.choice((1, 1, 2))))
    grown = []
    for at in times:
        partitions += random.choice((1, 2))
        grown.append(Growth(round(at, 3), random.choice(plan.regions), partitions))
    return tuple(grown)


def _lives(random: Random, plan: Plan, region: str) -> tuple[Life, ...]:
    """Draw the successive producers of a writer; most publish to the partitioned topic."""
    begins = sorted(random.uniform(1.0, plan.break_seconds) for _ in range(random.choice((1, 2, 3))))
    topics = ("", "", "", "", LISTED, *(f"t{number}" for number in range(3)), OTHER)
    return tuple(
        Life(
            round(at, 3),
            random.choice((region, region, random.choice(plan.regions))),
            random.choice(topics),
            messages := random.randint(3, 20),
            round(plan.break_seconds / messages * random.uniform(0.05, 0.4), 4),
            random.choice((1, 3, 10)),
            random.choice((0.0, 0.2)),
            Batching(random.choice((2, 5)), delay_ms_max=20.0) if random.random() < 0.3 else None,
        )
        for at in begins
    )


def _readings(random: Random, plan: Plan) -> tuple[Reading, ...]:
    kinds = random.sample((PARTITIONS, PARTITIONS, LIST, PATTERN, ONE), random.choice((1, 2, 3)))
    return tuple(_reading(random, plan, number, of) for number, of in enumerate(kinds))


def _reading(random: Random, plan: Plan, number: int, of: str) -> Reading:
    type_ = random.choice(("EXCLUSIVE", "SHARED", "FAILOVER"))
    away = None
    if of != PATTERN and random.random() < 0.6:
        lasts = random.uniform(0.5, plan.break_seconds * 0.6)
        away = (round(random.uniform(2.0, plan.break_seconds), 3), round(lasts, 3))
    return Reading(
        f"sub-{number}",
        of,
        type_,
        1 if type_ == "EXCLUSIVE" else random.choice((1, 2)),
        0 if of == ONE else random.choice((1, 5, 100)),
        random.choice((0.3, 1.0, 30.0)),
        away,
        round(random.uniform(0.2, 2.0), 3) if random.random() < 0.2 else 0.0,
    )


def _remaking(random: Random, plan: Plan) -> Remaking:
    return Remaking(round(random.uniform(1.0, plan.break_seconds), 3), random.randint(1, 5))


# INV-93 to INV-95


def _reported(begins: tuple[str, ...]) -> Callable[[Evidence], Found]:
    def check(evidence: Evidence) -> Found:
        for operation in evidence.operations:
            if operation.workload == NAME and operation.detail.startswith(begins):
                yield (
                    operation.detail.partition(": ")[2],
                    {"region": operation.region, "topic": operation.topic},
                )

    return check


def _acted(evidence: Evidence) -> bool:
    return any(operation.workload == NAME for operation in evidence.operations)


WORKLOAD.mutants += MUTANTS
WORKLOAD.checker("all-partitions-delivered", "INV-93", applies=WORKLOAD.acted)(_reported((LOST, STUCK)))
WORKLOAD.checker("growth-reaches-all-regions", "INV-93", applies=WORKLOAD.acted)(_reported((SMALL,)))
WORKLOAD.checker("keys-in-order-per-partition", "INV-94", applies=WORKLOAD.acted)(
    _reported((DISORDER, ASTRAY))
)
WORKLOAD.checker("only-matching-topics", "INV-94", applies=WORKLOAD.acted)(_reported((STRANGE,)))
WORKLOAD.checker("no-unrequested-delivery", "INV-94", applies=WORKLOAD.acted)(_reported((EARLY,)))
WORKLOAD.checker("table-views-current", "INV-95", applies=WORKLOAD.acted)(_reported((TABLE,)))
