"""Small runs with few events, for comparisons and measurements."""

from __future__ import annotations

from random import Random

from emulator.config.broker_settings import BrokerSettings
from emulator.simulation.world import simple_topology
from tests.swarm.faults import (
    Cut,
    Kill,
)
from tests.swarm.generator.topologies import REGION_NAMES
from tests.swarm.plan import ConsumerPlan, Plan, ProducerPlan


def drill(seed: int, random: Random) -> Plan:
    """Draw three regions, 300 messages in 30 seconds, one kill, one cut link, and a consumer that moves."""
    names = REGION_NAMES[:3]
    first, second, third = random.sample(names, 3)
    producers = tuple(
        ProducerPlan(f"producer-{name}", name, "orders", 100, burst=10, pause_seconds=2.6) for name in names
    )
    moves = ((random.uniform(8, 20), second),)
    consumer = ConsumerPlan(
        "consumer", "billing", "orders", first, replicated=True, moves=moves, confirmed=0.0, think_seconds=0.0
    )
    return Plan(
        seed=seed,
        kind="failover",
        topology=simple_topology(names, settings=BrokerSettings(snapshot_interval_ms=5_000)),
        topics=("orders",),
        producers=producers,
        consumers=(consumer,),
        faults=(
            Kill(random.uniform(5, 15), random.uniform(0.5, 5), first),
            Cut(random.uniform(5, 20), random.uniform(0.5, 5), second, third),
        ),
        break_seconds=28.0,
    )


def quiet(seed: int, random: Random) -> Plan:
    """Draw three regions, ten messages in about 100 seconds, and no faults."""
    names = REGION_NAMES[:3]
    producer = ProducerPlan("producer", "us", "orders", 10, burst=1, pause_seconds=10.0)
    consumer = ConsumerPlan("consumer", "billing", "orders", "eu", "EXCLUSIVE", True)
    return Plan(
        seed=seed,
        kind="no-faults",
        topology=simple_topology(names),
        topics=("orders",),
        producers=(producer,),
        consumers=(consumer,),
        break_seconds=120.0,
    )
