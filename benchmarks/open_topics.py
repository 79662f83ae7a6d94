"""Processor time of opening topics: a lookup and a producer for each of many new topics, beside pulsar-lite.

    python -m benchmarks open_topics

Both brokers run throughout. A round opens new topics in one of them and then in the other, in alternating order. One
client of geoemu opens them, several at once, as an application does that starts.
"""

from __future__ import annotations

import asyncio
import statistics

from benchmarks.brokers import RunningBroker, geoemu, processor_seconds, pulsar_lite
from emulator.client import Client

TOPICS = 1_000
AT_ONCE = 50
ROUNDS = 6


async def _open(broker: RunningBroker, round_: int, topics: int) -> float:
    """Open new topics. Return the broker's processor time for each, in microseconds."""
    before = processor_seconds(broker.pid)
    async with Client(broker.service_url) as client:
        for first in range(0, topics, AT_ONCE):
            names = (f"open-{round_}-{number}" for number in range(first, first + AT_ONCE))
            await asyncio.gather(*map(client.producer, names))
    return (processor_seconds(broker.pid) - before) / topics * 1e6


def table(rounds: int = ROUNDS, topics: int = TOPICS) -> str:
    """Medians as a Markdown table."""
    ours: list[float] = []
    theirs: list[float] = []
    with geoemu(deduplication=True) as region, pulsar_lite() as peer:
        for round_ in range(rounds):
            pair = [(region, ours), (peer, theirs)]
            for broker, figures in pair if round_ % 2 else reversed(pair):
                figures.append(asyncio.run(_open(broker, round_, topics)))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return "\n".join(
        [
            "| opening a topic | geoemu (µs of processor) | pulsar-lite | ratio | goal |",
            "|---|---|---|---|---|",
            f"| lookup, topic, producer | {statistics.median(ours):.0f} | {statistics.median(theirs):.0f} "
            f"| {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) | at most 1.5 |",
        ]
    )


if __name__ == "__main__":
    print(table())
