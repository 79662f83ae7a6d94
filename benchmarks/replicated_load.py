"""How many messages a second one region replicates to two others: until both have stored all of them.

    python -m benchmarks.replicated_load [ROUNDS]

Three regions of `topology.yaml` without latency on their links. 100 B entries of the raw generator go to one topic of
one region; the load ends when that region knows that both others have the last one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.brokers import RunningBroker, processor_seconds
from benchmarks.load_generator import new_topic, publish
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.runtimes.process import ProcessRuntime

MESSAGES = 60_000
SOURCE = "us-east"
WAIT_SECONDS_MAX = 120


def backlog(admin_url: str, topic: str) -> int:
    """Entries of the topic that the region it was published to cannot yet say all others have."""
    address = f"{admin_url}/admin/v2/{topic.replace('://', '/')}/stats"
    with urllib.request.urlopen(address, timeout=10) as answer:
        replication = json.load(answer)["replication"]
    return max(each["replicationBacklog"] for each in replication.values())


def load(source: RunningBroker, admin_url: str, messages: int = MESSAGES) -> float:
    """Messages per second."""
    topic = new_topic()
    begin = time.perf_counter()
    publish(source, topic, messages)
    while backlog(admin_url, topic):
        if time.perf_counter() - begin > WAIT_SECONDS_MAX:
            raise RuntimeError(f"not replicated within {WAIT_SECONDS_MAX} s")
        time.sleep(0.02)
    return messages / (time.perf_counter() - begin)


def without_latency() -> Topology:
    """Return `topology.yaml` with links that delay nothing."""
    topology = load_topology(Path("topology.yaml"))
    links = tuple(dataclasses.replace(link, shape=LinkShape()) for link in topology.links)
    return dataclasses.replace(topology, links=links)


async def one_round() -> tuple[float, float, float]:
    """(messages per second, µs of processor per message in the source, the same in the busier of the others)."""
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        runtime = ProcessRuntime.create(without_latency(), Path(folder, "run"))
        await runtime.up()
        try:
            regions = {region.name: region for region in (await runtime.status()).regions}
            pids = {name: region.pid for name, region in regions.items() if region.pid is not None}
            before = {name: processor_seconds(pid) for name, pid in pids.items()}
            source = RunningBroker(SOURCE, regions[SOURCE].service_url, pids[SOURCE])
            rate = await asyncio.to_thread(load, source, regions[SOURCE].admin_url)
            used = {
                name: (processor_seconds(pid) - before[name]) * 1e6 / MESSAGES for name, pid in pids.items()
            }
        finally:
            await runtime.down()
    return rate, used.pop(SOURCE), max(used.values())


def table(rounds: int = 5) -> str:
    """All figures as a Markdown table."""
    results = [asyncio.run(one_round()) for _ in range(rounds)]
    rate, source, target = (statistics.median(column) for column in zip(*results, strict=True))
    return "\n".join(
        [
            "| what | geoemu | goal |",
            "|---|---|---|",
            f"| replicated to two others, until both have stored it (messages/s) | {rate:,.0f} | at least 50,000 |",
            f"| processor time per message in the region it was published to (µs) | {source:.1f} | |",
            f"| the same in each of the others (µs) | {target:.1f} | |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
