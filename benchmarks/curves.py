"""How costs grow with the number of topics, connections, unread entries and regions.

    python -m benchmarks.curves [topics|connections|backlog|regions] [NUMBER ...]

One table for each; without arguments all of them, which takes about ten minutes. A row has a fresh region, or for
`regions` a fresh run of that many processes, without latency on their links. `p50` is that of one message in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import replicated_load
from benchmarks.brokers import RunningBroker, geoemu, processor_seconds, resident_bytes
from benchmarks.load_generator import drain, new_topic, publish
from benchmarks.long_backlog import first_message_seconds, subscribe
from emulator.client import Client
from emulator.config.loading import load_topology
from emulator.runtimes.process import ProcessRuntime

AT_ONCE = 50
ONE_IN_FLIGHT = 2_000
DRAINED = 50_000
REPLICATED = 20_000
Row = tuple[float, ...]


def _p50_ms(broker: RunningBroker) -> float:
    return publish(broker, new_topic(), ONE_IN_FLIGHT, window=1).p50_us / 1000


async def _topics(broker: RunningBroker, number: int) -> Row:
    memory, used = resident_bytes(broker.pid), processor_seconds(broker.pid)
    async with Client(broker.service_url) as client:
        for first in range(0, number, AT_ONCE):
            names = (f"t{one}" for one in range(first, min(first + AT_ONCE, number)))
            await asyncio.gather(*map(client.producer, names))
        used = processor_seconds(broker.pid) - used
        memory = resident_bytes(broker.pid) - memory
        return used / number * 1e6, memory / number / 1e3, await asyncio.to_thread(_p50_ms, broker)


async def _connections(broker: RunningBroker, number: int) -> Row:
    memory, used = resident_bytes(broker.pid), processor_seconds(broker.pid)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(number):
            client = await stack.enter_async_context(Client(broker.service_url))
            await client.producer("crowded")
        used = processor_seconds(broker.pid) - used
        memory = resident_bytes(broker.pid) - memory
        return used / number * 1e6, memory / number / 1e3, await asyncio.to_thread(_p50_ms, broker)


async def _backlog(broker: RunningBroker, number: int) -> Row:
    topic = new_topic()
    await subscribe(broker, topic)
    await asyncio.to_thread(publish, broker, topic, number)
    first = await first_message_seconds(broker, topic)
    memory = resident_bytes(broker.pid)
    drained = await asyncio.to_thread(drain, broker, topic, min(number, DRAINED))
    return memory / 1e6, first * 1000, drained.broker_us


def _in_a_region(measure: Callable[[RunningBroker, int], object]) -> Callable[[int], Row]:
    def row(number: int) -> Row:
        with geoemu(deduplication=True) as broker:
            return asyncio.run(measure(broker, number))  # type: ignore[arg-type]

    return row


def _write_topology(folder: Path, number: int) -> Path:
    """Write a topology of one cluster with this many regions, r1 to rN."""
    (folder / "clusters").mkdir()
    ports = "{service_port: 0, admin_port: 0}"
    regions = "".join(f"  r{one}: {ports}\n" for one in range(1, number + 1))
    (folder / "clusters" / "all.yaml").write_text(f"regions:\n{regions}")
    path = folder / "topology.yaml"
    path.write_text(
        "name: curve\nclusters: [all]\ntenants: [public]\n"
        "namespaces: {public/default: {regions: all, deduplication: true}}\nlog: {backend: sqlite}\n"
    )
    return path


def _regions(number: int) -> Row:
    return asyncio.run(_run_of_regions(number))


async def _run_of_regions(number: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as name:
        folder = Path(name)
        runtime = ProcessRuntime.create(load_topology(_write_topology(folder, number)), folder / "run")
        began = time.perf_counter()
        await runtime.up()
        try:
            ready = time.perf_counter() - began
            regions = {region.name: region for region in (await runtime.status()).regions}
            pids = {name: region.pid for name, region in regions.items() if region.pid is not None}
            used = {name: processor_seconds(pid) for name, pid in pids.items()}
            source = RunningBroker("r1", regions["r1"].service_url, pids["r1"])
            rate = await asyncio.to_thread(replicated_load.load, source, regions["r1"].admin_url, REPLICATED)
            each = {
                name: (processor_seconds(pid) - used[name]) / REPLICATED * 1e6 for name, pid in pids.items()
            }
            memory = sum(map(resident_bytes, pids.values())) / number / 1e6
        finally:
            await runtime.down()
    return ready, memory, rate, each.pop("r1"), sum(each.values()) / len(each)


@dataclass(frozen=True)
class Curve:
    row: Callable[[int], Row]
    numbers: tuple[int, ...]
    columns: tuple[str, ...]


CURVES = {
    "topics": Curve(
        _in_a_region(_topics), (1_000, 5_000, 20_000), ("µs of processor to open one", "KB each", "p50 (ms)")
    ),
    "connections": Curve(
        _in_a_region(_connections),
        (100, 1_000, 4_000),
        ("µs of processor to open one", "KB each", "p50 (ms)"),
    ),
    "backlog": Curve(
        _in_a_region(_backlog),
        (100_000, 1_000_000, 4_000_000),
        ("memory of the region (MB)", "first message (ms)", "µs of processor to drain one"),
    ),
    "regions": Curve(
        _regions,
        (2, 3, 5, 10, 25),
        (
            "ready (s)",
            "MB each",
            "messages/s, until all have them",
            "µs of processor per message in the source",
            "in each other",
        ),
    ),
}


def table(name: str, numbers: tuple[int, ...] = ()) -> str:
    """One curve as Markdown."""
    curve = CURVES[name]
    rows = [f"| {name} | {' | '.join(curve.columns)} |", "|---" * (1 + len(curve.columns)) + "|"]
    for number in numbers or curve.numbers:
        cells = (f"{cell:,.0f}" if cell >= 100 else f"{cell:,.2f}" for cell in curve.row(number))
        rows.append(f"| {number:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    chosen, numbers = sys.argv[1:2] or list(CURVES), tuple(map(int, sys.argv[2:]))
    for one in chosen:
        print(table(one, numbers), end="\n\n", flush=True)
