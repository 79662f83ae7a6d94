"""Producers that send a message twice with the same sequence id before they receive any response."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from emulator.broker.topic.topic import Topic
from tests.swarm.mutant import topic
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload

WORKLOAD = Workload("repeat", acts=False, runs_in="swarm")


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Let unbatched producers send duplicates if regions deduplicate; otherwise both messages are stored correctly."""
    if random.random() >= 0.2:
        return plan
    namespaces = plan.topology.namespaces
    producers = tuple(
        replace(one, repeats=random.choice((0.2, 0.9)))
        if one.batching is None and all(namespace.deduplication for namespace in namespaces)
        else one
        for one in plan.producers
    )
    return replace(plan, producers=producers)


@WORKLOAD.mutant("duplicate-acknowledged-first", "INV-1", patch=topic)
class _DuplicateAcknowledgedFirst(Topic):
    """A duplicate is acknowledged before earlier appends are durable."""

    def flush(self) -> None:
        batch, self.publishing.batch = self.publishing.batch, []
        self._acknowledge([publish for publish in batch if publish.duplicate])
        self.publishing.batch = [publish for publish in batch if not publish.duplicate]
        super().flush()
