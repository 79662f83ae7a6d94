"""Draw ordinary producers and consumers, and estimate how long replication of their messages takes."""

from __future__ import annotations

from random import Random

from emulator.client import Batching
from tests.swarm.plan import ConsumerPlan, Plan, ProducerPlan

ENTRY_BYTES = 1_500
"""Largest size of an entry, except for large batches: payload of 1,000 bytes, metadata, overhead of replication."""


def draw_producer(
    random: Random, number: int, names: tuple[str, ...], topics: tuple[str, ...], seconds: float
) -> ProducerPlan:
    region = random.choice(names)
    burst = random.choice((1, 3, 8))
    messages = random.randint(5, 80)
    batching = None
    if random.random() < 0.4:
        batching = Batching(random.choice((2, 5, 100)), delay_ms_max=random.choice((1.0, 20.0)))
    return ProducerPlan(
        name=f"producer-{number}",
        region=region,
        topic=random.choice(topics),
        messages=messages,
        place=random.choice((region, region, region, random.choice(names))),
        burst=burst,
        pause_seconds=round(seconds * burst / messages * random.uniform(0.3, 1.1), 4),
        batching=batching,
        payload_bytes=random.choice((40, 40, 200, 1_000)),
        choosy=random.choice((0.0, 0.0, 0.3)),
        # Messages sent again in different batches overlap, and overlapping batches are stored (core.deduplication).
        keeps_outbox=batching is None and random.random() < 0.6,
    )


def draw_consumers(
    random: Random, names: tuple[str, ...], topics: tuple[str, ...], seconds: float
) -> tuple[ConsumerPlan, ...]:
    made: list[ConsumerPlan] = []
    for number in range(random.randint(1, 3)):
        subscription, topic = f"sub-{number}", random.choice(topics)
        type_ = random.choice(("EXCLUSIVE", "SHARED", "FAILOVER"))
        region, replicated = random.choice(names), random.random() < 0.7
        several = type_ != "EXCLUSIVE" and random.random() < 0.5
        moves = []
        if not several and len(names) > 1 and random.random() < 0.7:
            moves = [
                (round(random.uniform(0.5, seconds), 3), random.choice(names))
                for _ in range(random.randint(1, 3))
            ]
        made += [
            ConsumerPlan(
                name=f"consumer-{number}-{index}",
                subscription=subscription,
                topic=topic,
                region=region,
                type=type_,
                replicated=replicated,
                moves=tuple(sorted(moves)),
                cumulative=type_ != "SHARED" and random.random() < 0.4,
                confirmed=random.choice((0.0, 0.3, 1.0)),
                refuses=random.choice((0.0, 0.0, 0.1)),
                holds=random.choice((0, 0, 2, 6)),
                think_seconds=random.choice((0.0, 0.01, 0.1)),
                queue=random.choice((1, 5, 20, 1000)),
            )
            for index in range(random.randint(2, 3) if several else 1)
        ]
    return tuple(made)


def carrying_seconds(plan: Plan) -> float:
    """Return the seconds that the slowest link needs for all messages, limited by the replication window alone. With a
    window of one entry and a round trip of 0.5 s, 400 messages take 200 s, which is no fault."""
    latency_ms = {
        (link.source, link.target): link.shape.latency_ms + link.shape.jitter_ms
        for link in plan.topology.links
    }
    way_ms = max((latency_ms[one, other] + latency_ms[other, one] for one, other in latency_ms), default=0.0)
    messages = sum(one.messages * (1 + one.repeats) for one in plan.producers)
    settings = plan.topology.clusters[0].regions[0].settings
    window = min(
        settings.replication_window_entries, max(1, settings.replication_window_bytes // ENTRY_BYTES)
    )
    return round(messages * way_ms / 1000 / window, 3)
