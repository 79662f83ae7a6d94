"""What replication adds over the declared latency of a link, and what three regions cost.

    python -m benchmarks.replication [ROUNDS]

Three regions as `topology.yaml` declares them. Added latency: the median time from a send in one region to its delivery
in another, less the link's declared latency, less the same path inside one region. Ready: from the start of the
processes until every link is established and clients can publish. Memory: proportional set size of each, idle.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.brokers import resident_bytes
from emulator.client import Client, ClientSettings
from emulator.config.loading import load_topology
from emulator.runtimes.process import ProcessRuntime

MESSAGES = 200
PAUSE_SECONDS = 0.005
SOURCE, TARGET = "us-east", "us-west"


async def delivery_ms(source_url: str, target_url: str) -> float:
    """Median of send to delivery, one message every few milliseconds."""
    settings = ClientSettings()
    async with Client(source_url, settings=settings) as here, Client(target_url, settings=settings) as there:
        topic = f"bench-{time.time_ns()}"
        producer = await here.producer(topic)
        await producer.send(b"first")
        consumer = await there.subscribe(topic, "bench")
        samples = []
        for number in range(MESSAGES):
            sent_at = time.perf_counter()
            future = producer.send_nowait(b"%d" % number)
            message = await consumer.receive()
            while message.payload != b"%d" % number:
                message = await consumer.receive()
            samples.append(time.perf_counter() - sent_at)
            await future
            await asyncio.sleep(PAUSE_SECONDS)
    return statistics.median(samples) * 1000


async def one_round() -> tuple[float, float, list[int]]:
    """(seconds until ready, milliseconds added, bytes of each region)."""
    topology = load_topology(Path("topology.yaml"))
    link = next(link for link in topology.links if (link.source, link.target) == (SOURCE, TARGET))
    declared_ms = link.shape.latency_ms + link.shape.jitter_ms / 2
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        runtime = ProcessRuntime.create(topology, Path(folder, "run"))
        started = time.perf_counter()
        await runtime.up()
        ready = time.perf_counter() - started
        try:
            status = await runtime.status()
            memory = [resident_bytes(region.pid) for region in status.regions if region.pid]
            urls = {region.name: region.service_url for region in status.regions}
            across = await delivery_ms(urls[SOURCE], urls[TARGET])
            inside = await delivery_ms(urls[SOURCE], urls[SOURCE])
        finally:
            await runtime.down()
    return ready, across - declared_ms - inside, memory


def table(rounds: int = 3) -> str:
    """All figures as a Markdown table."""
    results = [asyncio.run(one_round()) for _ in range(rounds)]
    ready = statistics.median(result[0] for result in results)
    added = statistics.median(result[1] for result in results)
    memory = max(max(result[2]) for result in results) / 1e6
    return "\n".join(
        [
            "| what | geoemu | goal |",
            "|---|---|---|",
            f"| replication added over the declared latency, p50 (ms) | {added:.2f} | under 2 |",
            f"| three regions ready (s) | {ready:.2f} | under 2 |",
            f"| resident memory of a region, idle (MB) | {memory:.0f} | under 80 |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
