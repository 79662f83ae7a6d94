"""How many messages a second one region replicates to two others, until both have stored all of them; also as a part
of the rate of publishing without replication.

    python -m benchmarks.replicated_load [ROUNDS]

Three regions of `topology.yaml` without latency on their links. 100 B entries of the raw generator go to one topic of
one region; the load begins with the first send, and ends when that region knows that both others have the last one.
In each round the same regions serve both loads, in turns first.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.brokers import RunningBroker, processor_seconds
from benchmarks.load_generator import new_topic, publish
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.region import NamespaceConfig
from emulator.config.topology import Topology
from emulator.runtimes.process import ProcessRuntime

MESSAGES = 100_000
SOURCE = "us-east"
ALONE = "public/alone"
"""A namespace that is not replicated."""
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
    published = publish(source, topic, messages)
    begin = time.perf_counter()
    while backlog(admin_url, topic):
        if time.perf_counter() - begin > WAIT_SECONDS_MAX:
            raise RuntimeError(f"not replicated within {WAIT_SECONDS_MAX} s")
        time.sleep(0.01)
    return messages / (messages / published.rate + time.perf_counter() - begin)


def without_latency() -> Topology:
    """Return `topology.yaml` with links that delay nothing."""
    topology = load_topology(Path("topology.yaml"))
    links = tuple(dataclasses.replace(link, shape=LinkShape()) for link in topology.links)
    return dataclasses.replace(topology, links=links)


def with_namespace_alone() -> Topology:
    """Return `without_latency` with a namespace that is not replicated."""
    topology = without_latency()
    namespace = NamespaceConfig(ALONE, (SOURCE,), deduplication=True)
    return dataclasses.replace(topology, namespaces=(*topology.namespaces, namespace))


class RunningRegions(NamedTuple):
    source: RunningBroker
    admin_url: str
    """Of the source."""
    pids: dict[str, int]
    """Of all regions."""


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[RunningRegions]:
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        runtime = ProcessRuntime.create(with_namespace_alone(), Path(folder, "run"))
        await runtime.up()
        try:
            regions = {region.name: region for region in (await runtime.status()).regions}
            pids = {name: region.pid for name, region in regions.items() if region.pid is not None}
            source = RunningBroker(SOURCE, regions[SOURCE].service_url, pids[SOURCE])
            yield RunningRegions(source, regions[SOURCE].admin_url, pids)
        finally:
            await runtime.down()


def replicate(regions: RunningRegions) -> tuple[float, float, float]:
    """(messages per second, µs of processor per message in the source, the same in the busier of the others)."""
    before = {name: processor_seconds(pid) for name, pid in regions.pids.items()}
    rate = load(regions.source, regions.admin_url)
    used = {
        name: (processor_seconds(pid) - before[name]) * 1e6 / MESSAGES for name, pid in regions.pids.items()
    }
    return rate, used.pop(SOURCE), max(used.values())


def publish_alone(regions: RunningRegions) -> tuple[float, float]:
    """(messages per second, µs of processor per message)."""
    topic = new_topic().replace("public/default", ALONE)
    result = publish(regions.source, topic, MESSAGES)
    return result.rate, result.broker_us


async def one_round() -> tuple[float, float, float]:
    """What `replicate` returns, in new regions."""
    async with running() as regions:
        return await asyncio.to_thread(replicate, regions)


async def compared(number: int) -> tuple[float, ...]:
    """What `replicate` and `publish_alone` return in the same regions, of which the order depends on `number`."""
    async with running() as regions:
        if number % 2:
            alone = await asyncio.to_thread(publish_alone, regions)
            return *await asyncio.to_thread(replicate, regions), *alone
        replicated = await asyncio.to_thread(replicate, regions)
        return *replicated, *await asyncio.to_thread(publish_alone, regions)


def table(rounds: int = 5) -> str:
    """All figures as a Markdown table."""
    results = [asyncio.run(compared(number)) for number in range(rounds)]
    rate, source, target, alone_rate, alone = (
        statistics.median(column) for column in zip(*results, strict=True)
    )
    ratio = statistics.median(each[0] / each[3] for each in results)
    return "\n".join(
        [
            "| what | geoemu | goal |",
            "|---|---|---|",
            f"| replicated to two others, until both have stored it (messages/s) | {rate:,.0f} | at least 50,000 |",
            f"| published without replication, by the same regions (messages/s) | {alone_rate:,.0f} | |",
            f"| the first as a part of the second, in the same round | {ratio:.2f} | at least 0.6 |",
            f"| processor time per message in the region it was published to (µs) | {source:.1f} | |",
            f"| the same in each of the others (µs) | {target:.1f} | |",
            f"| the same of a message that is published without replication (µs) | {alone:.1f} | |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
