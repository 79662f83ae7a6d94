"""A second namespace in one or several regions, with topic names that would collide if they were concatenated without
escaping."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from emulator.config.region import NamespaceConfig
from tests.swarm.plan import ConsumerPlan, Plan, ProducerPlan
from tests.swarm.workload import Workload

NAMESPACE = "public/neighbours"
COLLIDING = (
    ("persistent://public/default/orders", "eu/billing"),
    ("persistent://public/default/orders/eu", "billing"),
)
"""Pairs (topic, subscription) that have one key in common if names are concatenated without escaping."""


WORKLOAD = Workload("neighbours", acts=False)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() < 0.2:
        plan = _with_namespace(random, plan)
    if random.random() < 0.1:
        plan = _with_colliding_names(random, plan)
    return plan


def _with_namespace(random: Random, plan: Plan) -> Plan:
    names = plan.regions
    regions = tuple(sorted(random.sample(names, random.randint(1, max(1, len(names) - 1)))))
    namespace = NamespaceConfig(NAMESPACE, regions, deduplication=random.random() < 0.5)
    topic = f"persistent://{NAMESPACE}/orders"
    plan = _with_programs(random, plan, 0, regions, topic, "billing", replicated=len(regions) > 1)
    return replace(plan, topology=replace(plan.topology, namespaces=(*plan.topology.namespaces, namespace)))


def _with_colliding_names(random: Random, plan: Plan) -> Plan:
    regions = (random.choice(plan.regions),)
    for number, (topic, subscription) in enumerate(COLLIDING, 1):
        plan = _with_programs(random, plan, number, regions, topic, subscription, replicated=False)
    return plan


def _with_programs(
    random: Random,
    plan: Plan,
    number: int,
    regions: tuple[str, ...],
    topic: str,
    subscription: str,
    *,
    replicated: bool,
) -> Plan:
    messages = random.randint(5, 30)
    pause_seconds = round(plan.break_seconds / messages * random.uniform(0.3, 0.9), 4)
    producer = ProducerPlan(
        f"neighbour-{number}",
        random.choice(regions),
        topic,
        messages,
        burst=1,
        pause_seconds=pause_seconds,
        keeps_outbox=random.random() < 0.5,
    )
    consumer = ConsumerPlan(
        f"lodger-{number}",
        subscription,
        topic,
        random.choice(regions),
        random.choice(("EXCLUSIVE", "SHARED")),
        replicated,
    )
    return replace(plan, producers=(*plan.producers, producer), consumers=(*plan.consumers, consumer))
