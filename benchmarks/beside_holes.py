"""How long publishing to one topic takes beside a subscription of another that has 45,000 holes.

    python -m benchmarks.beside_holes [ROUNDS]

Every second message of a backlog was acknowledged, and acknowledgements at random places go on: each changes what the
region must store of the subscription. Meanwhile the raw generator publishes, one message in flight. What a write of
such a cursor costs by itself: `benchmarks.cursor_holes`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys

from benchmarks.brokers import RunningBroker, geoemu
from benchmarks.load_generator import Result, new_topic, publish
from emulator.client import Client, Consumer, ConsumerType, InitialPosition, MessageId

HOLES = 45_000
ACKNOWLEDGEMENTS = 20
"""So many at a time, …"""
PAUSE_SECONDS = 0.01
"""… so often."""
MESSAGES = 2_000


async def _acknowledge_for_ever(consumer: Consumer, ledger: int, chance: random.Random) -> None:
    while True:
        ids = [MessageId(ledger, 2 * chance.randrange(HOLES) + 2) for _ in range(ACKNOWLEDGEMENTS)]
        await consumer.acknowledge(*ids)
        await asyncio.sleep(PAUSE_SECONDS)


async def one_round(broker: RunningBroker) -> tuple[Result, Result]:
    """(without other load, beside the holes)."""
    alone = await asyncio.to_thread(publish, broker, new_topic(), MESSAGES, window=1)
    topic = new_topic()
    await asyncio.to_thread(publish, broker, topic, 2 * HOLES + 2)
    async with Client(broker.service_url) as client:
        consumer = await client.subscribe(
            topic, "holes", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
        )
        last = await consumer.last_message_id()
        assert last is not None, "the topic has a backlog"
        for first in range(1, 2 * HOLES, 2_000):
            ids = [MessageId(last.ledger, entry) for entry in range(first, first + 2_000, 2)]
            await consumer.acknowledge(*ids, confirmed=True)
        acknowledging = asyncio.create_task(_acknowledge_for_ever(consumer, last.ledger, random.Random(1)))
        beside = await asyncio.to_thread(publish, broker, new_topic(), MESSAGES, window=1)
        acknowledging.cancel()
    return alone, beside


def table(rounds: int = 3) -> str:
    """p99 as a Markdown table."""
    with geoemu(deduplication=True) as broker:
        results = [asyncio.run(one_round(broker)) for _ in range(rounds)]
    alone, beside = (
        [statistics.median(getattr(each, field) / 1000 for each in column) for field in ("p50_us", "p99_us")]
        for column in zip(*results, strict=True)
    )
    return "\n".join(
        [
            "| one message in flight | p50 (ms) | p99 (ms) | goal |",
            "|---|---|---|---|",
            f"| without other load | {alone[0]:.2f} | {alone[1]:.2f} | |",
            f"| beside a cursor with {HOLES:,} gaps | {beside[0]:.2f} | {beside[1]:.2f} | p99 at most 5 ms |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
