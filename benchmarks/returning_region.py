"""A region returns after it missed many messages: how fast it catches up, and what that costs clients meanwhile.

    python -m benchmarks.returning_region [MISSED]

Three regions of `topology.yaml` without latency on their links. One is stopped, the raw generator publishes MISSED
messages of 100 B to one topic of another region, and a client publishes there at a constant rate. The latency of its
receipts is measured before the region returns, and until the region has every message.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.brokers import RunningBroker
from benchmarks.load_generator import new_topic, publish
from benchmarks.replicated_load import SOURCE, backlog, without_latency
from emulator.client import Client
from emulator.client.producer import Producer
from emulator.runtimes.process import ProcessRuntime

MISSED: Final = 1_000_000
LIVE_PER_SECOND: Final = 200
RETURNING: Final = "eu-central"
QUIET_SECONDS: Final = 10
"""Time that the latency is measured for before the region returns."""
CATCH_UP_SECONDS_MAX: Final = 900


class Figures(NamedTuple):
    rate: float
    """Messages per second that the returning region stores until it has all of them."""
    p99_before_ms: float
    p99_during_ms: float


class LiveLoad:
    """Publishes at a constant rate until it is stopped, and measures the time of each receipt."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.latencies_ms: list[float] = []
        self._running = True

    async def run(self) -> None:
        began, published = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while self._running:
                await asyncio.sleep(max(0.0, began + published / LIVE_PER_SECOND - time.perf_counter()))
                group.create_task(self._publish())
                published += 1

    async def _publish(self) -> None:
        began = time.perf_counter()
        await self._producer.send(b"x" * 100)
        self.latencies_ms.append((time.perf_counter() - began) * 1000)

    def stop(self) -> None:
        self._running = False


def p99(latencies_ms: list[float]) -> float:
    return statistics.quantiles(latencies_ms, n=100)[98]


async def measure(missed: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        runtime = ProcessRuntime.create(without_latency(), Path(folder, "run"))
        await runtime.up()
        try:
            return await _measure(runtime, missed)
        finally:
            await runtime.down()


async def _measure(runtime: ProcessRuntime, missed: int) -> Figures:
    source = next(one for one in (await runtime.status()).regions if one.name == SOURCE)
    assert source.pid is not None
    topic = new_topic()
    async with Client(source.service_url) as client:
        producer = await client.producer(topic)
        await producer.send(b"the topic exists in every region")
        await _until_replicated(source.admin_url, topic)
        await runtime.stop(RETURNING)
        broker = RunningBroker(SOURCE, source.service_url, source.pid)
        await asyncio.to_thread(publish, broker, topic, missed)
        live = LiveLoad(producer)
        running = asyncio.create_task(live.run())
        await asyncio.sleep(QUIET_SECONDS)
        before = len(live.latencies_ms)
        began = time.perf_counter()
        await runtime.start(RETURNING)
        await _until_replicated(source.admin_url, topic)
        seconds = time.perf_counter() - began
        live.stop()
        await running
    stored = missed + len(live.latencies_ms)
    return Figures(stored / seconds, p99(live.latencies_ms[:before]), p99(live.latencies_ms[before:]))


async def _until_replicated(admin_url: str, topic: str) -> None:
    """Wait until every region has all but the newest messages, which are still under way."""
    async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
        while await asyncio.to_thread(backlog, admin_url, topic) > LIVE_PER_SECOND // 10:
            await asyncio.sleep(0.1)


def table(missed: int = MISSED) -> str:
    """All figures as a Markdown table."""
    figures = asyncio.run(measure(missed))
    return "\n".join(
        [
            f"| a region returns after {missed:,} missed messages | geoemu | goal |",
            "|---|---|---|",
            f"| stored by it until it has all (messages/s) | {figures.rate:,.0f} | |",
            f"| the same as a multiple of the live rate of {LIVE_PER_SECOND} messages/s "
            f"| {figures.rate / LIVE_PER_SECOND:,.0f} | at least 4 |",
            f"| p99 of a receipt in the source region before (ms) | {figures.p99_before_ms:.1f} | |",
            f"| the same while the region catches up (ms) | {figures.p99_during_ms:.1f} | "
            "at most 10 ms more |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else MISSED))
