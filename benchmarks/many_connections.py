"""A thousand connections to one region: what each costs, and how one message in flight fares beside them.

    python -m benchmarks.many_connections [ROUNDS]

Half of them are producers, half are consumers of one Shared subscription. First all are idle, then each producer
publishes once a second, which a consumer receives and acknowledges. Their program shares the machine's cores
with the region and with the raw generator, whose one message in flight is what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
from collections.abc import AsyncIterator

from benchmarks.brokers import RunningBroker, geoemu, resident_bytes
from benchmarks.load_generator import Result, new_topic, publish
from emulator.client import Client, Consumer, ConsumerType, Producer

PAIRS = 500
MESSAGES = 3_000
TOPIC = "crowded"


async def _chatter(producer: Producer, number: int) -> None:
    await asyncio.sleep(number / PAIRS)
    while True:
        await producer.send(b"x" * 100)
        await asyncio.sleep(1)


async def _take(consumer: Consumer) -> None:
    while True:
        await consumer.acknowledge(await consumer.receive())


@contextlib.asynccontextmanager
async def _crowd(broker: RunningBroker) -> AsyncIterator[tuple[list[Producer], list[Consumer]]]:
    producers, consumers = [], []
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(PAIRS):
            client = await stack.enter_async_context(Client(broker.service_url))
            producers.append(await client.producer(TOPIC))
            client = await stack.enter_async_context(Client(broker.service_url))
            consumers.append(await client.subscribe(TOPIC, "s", type_=ConsumerType.SHARED))
        yield producers, consumers


async def _one_in_flight(broker: RunningBroker) -> Result:
    return await asyncio.to_thread(publish, broker, new_topic(), MESSAGES, window=1)


async def _round(broker: RunningBroker) -> tuple[float, list[Result]]:
    """(bytes a connection, one message in flight: alone, beside idle ones, beside busy ones)."""
    results = [await _one_in_flight(broker)]
    before = resident_bytes(broker.pid)
    async with _crowd(broker) as (producers, consumers):
        each = (resident_bytes(broker.pid) - before) / (2 * PAIRS)
        results.append(await _one_in_flight(broker))
        chatter = [_chatter(producer, number) for number, producer in enumerate(producers)]
        tasks = [asyncio.create_task(one) for one in (*chatter, *map(_take, consumers))]
        results.append(await _one_in_flight(broker))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return each, results


def table(rounds: int = 3) -> str:
    """As Markdown."""
    taken = []
    for _ in range(rounds):
        with geoemu() as broker:
            taken.append(asyncio.run(_round(broker)))
    rows = ["| one message in flight | p50 (ms) | p99 (ms) |", "|---|---|---|"]
    beside = ("without other load", f"beside {2 * PAIRS:,} idle connections")
    for number, what in enumerate((*beside, f"beside {2 * PAIRS:,} connections, {PAIRS} messages/s on them")):
        p50, p99 = (
            statistics.median(getattr(results[number], field) / 1000 for _, results in taken)
            for field in ("p50_us", "p99_us")
        )
        rows.append(f"| {what} | {p50:.2f} | {p99:.2f} |")
    each = statistics.median(each for each, _ in taken)
    rows += ["", f"A connection with its producer or consumer costs {each / 1000:.1f} KB."]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
