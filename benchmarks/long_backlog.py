"""Cost of a backlog of ten million unread entries for a region, and the read rate at both of its ends.

    python -m benchmarks.long_backlog

The raw load generator publishes them while a subscription exists. Takes a few minutes and 3 GB of disk.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.brokers import RunningBroker, geoemu, processor_seconds, resident_bytes
from benchmarks.load_generator import drain, new_topic, publish
from emulator.client import Client, InitialPosition, MessageId

ENTRIES = 10_000_000
FEW = 500_000
"""By then the pool of newest entries is full."""
LAST = 50_000
WAIT_SECONDS_MAX = 60


async def first_message_seconds(broker: RunningBroker, topic: str) -> float:
    async with Client(broker.service_url) as client:
        began = time.perf_counter()
        consumer = await client.subscribe(topic, "first", initial_position=InitialPosition.EARLIEST)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await consumer.receive()
        return time.perf_counter() - began


async def _end(broker: RunningBroker, topic: str) -> tuple[float, float]:
    """(messages a second to a reader of the last entries, processor time of the region for each in µs)."""
    async with Client(broker.service_url) as client:
        ledger = (await (await client.producer(topic)).send(b"last")).ledger
        start = MessageId(ledger, ENTRIES - LAST)
        began, used = time.perf_counter(), processor_seconds(broker.pid)
        reader = await client.reader(topic, start)
        for _ in range(LAST):
            await reader.receive()
        seconds, used = time.perf_counter() - began, processor_seconds(broker.pid) - used
        return LAST / seconds, used * 1e6 / LAST


async def subscribe(broker: RunningBroker, topic: str) -> None:
    async with Client(broker.service_url) as client:
        await client.subscribe(topic, "s")


def table() -> str:
    """As Markdown."""
    topic = new_topic()
    with geoemu() as broker:
        asyncio.run(subscribe(broker, topic))
        publish(broker, topic, FEW)
        before = resident_bytes(broker.pid)
        publish(broker, topic, ENTRIES - FEW)
        after = resident_bytes(broker.pid)
        first = asyncio.run(first_message_seconds(broker, topic))
        rate, used = asyncio.run(_end(broker, topic))
        drained = drain(broker, topic, FEW)
        end = resident_bytes(broker.pid)
    rows = [
        "| a backlog of 10,000,000 entries | |",
        "|---|---|",
        f"| memory of the region after {FEW:,} entries (MB) | {before / 1e6:.0f} |",
        f"| … after {ENTRIES:,} (MB) | {after / 1e6:.0f} |",
        f"| … after reading at both ends (MB) | {end / 1e6:.0f} |",
        f"| its first message, from subscribing (ms) | {first * 1000:.1f} |",
        f"| drained from its beginning, messages/s (µs of processor) | {drained.rate:,.0f} ({drained.broker_us:.1f}) |",
        f"| our client reads its last {LAST:,}, messages/s (µs of processor) | {rate:,.0f} ({used:.1f}) |",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
