"""Time until clusters agree on their metadata (PIP-136), with real processes and links of 40 ms.

    python -m benchmarks.metadata [NAMESPACES]

Set a policy in one cluster, and poll a region of the other over HTTP every 2 ms until the policy is effective there.
Kill the sync leader, and set a policy in the other region of its cluster. Delete a cluster's configuration store, and
measure how long it takes to restore NAMESPACES namespaces while a client publishes in the other cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from emulator.client import Client
from emulator.config.loading import load_topology
from emulator.runtimes.admin_client import NoHttpResponse, call
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime

NAMESPACES = 10_000
ROUNDS = 100
AT_ONCE = 20
LOOK_SECONDS = 0.002
POLICY = "/admin/v2/namespaces/public/default/compactionThreshold"
TOPOLOGY = """\
name: metadata
clusters: [americas, europe]
links: {defaults: {latency_ms: 40}}
tenants: [public]
namespaces: {public/default: {regions: all}}
settings: {configuration_metadata_sync_event_topic: 'persistent://pulsar/system/metadata-events'}
"""


async def ask(region: RegionStatus, method: str, path: str, body: Any = None) -> Any:
    answer = await call("127.0.0.1", int(region.admin_url.rpartition(":")[2]), method, path, body, seconds=30)
    assert answer.status < 300, (method, path, answer)
    return answer.json() if answer.body and answer.status == 200 and path != "/metrics" else answer.body


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():
            await asyncio.sleep(LOOK_SECONDS)


async def obeyed(setter: RegionStatus, other: RegionStatus, value: int) -> float:
    """Seconds from when it is asked for until the other one has it."""

    async def has_it() -> bool:
        return bool(await ask(other, "GET", POLICY) == value)

    began = time.perf_counter()
    await ask(setter, "PUT", POLICY, value)
    await until(has_it)
    return time.perf_counter() - began


async def carries(region: RegionStatus) -> bool:
    try:
        return b"\ngeoemu_metadata_sync_leader 1" in await ask(region, "GET", "/metrics")
    except NoHttpResponse:
        return False


async def carrier_killed(run: ProcessRuntime, regions: list[RegionStatus]) -> float:
    east, west, europe = regions
    first, second = (east, west) if await carries(east) else (west, east)
    await run.kill(first.name)
    seconds = await obeyed(second, europe, 777)
    await run.start(first.name)
    return seconds


async def joined(run: ProcessRuntime, regions: list[RegionStatus], count: int) -> tuple[float, list[float]]:
    """Seconds until a cluster that lost its store has all namespaces again, from when its region is ready; and how long
    each publish in the other cluster took meanwhile."""
    east, _, europe = regions
    await run.lose(europe.name)
    await run.lose_store("europe")
    numbers = iter(range(count))

    async def make() -> None:
        for number in numbers:
            await ask(east, "PUT", f"/admin/v2/namespaces/public/n{number}")

    await asyncio.gather(*(make() for _ in range(AT_ONCE)))
    took: list[float] = []
    async with Client([east.service_url]) as client:
        producer = await client.producer("persistent://public/default/live")

        async def publish() -> None:
            while True:
                began = time.perf_counter()
                await producer.send(b"x")
                took.append(time.perf_counter() - began)
                await asyncio.sleep(0.01)

        publishing = asyncio.create_task(publish())
        await run.start(europe.name)
        began = time.perf_counter()

        async def all_there() -> bool:
            await asyncio.sleep(0.1)
            return len(await ask(europe, "GET", "/admin/v2/namespaces/public")) > count

        await until(all_there)
        seconds = time.perf_counter() - began
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing
    return seconds, took


async def measured(count: int) -> str:
    with tempfile.TemporaryDirectory(prefix="geoemu-metadata-") as name:
        folder = Path(name)
        (folder / "clusters").mkdir()
        (folder / "clusters" / "americas.yaml").write_text("regions: {us-east: {}, us-west: {}}\n")
        (folder / "clusters" / "europe.yaml").write_text("regions: {eu-central: {}}\n")
        (folder / "topology.yaml").write_text(TOPOLOGY)
        run = ProcessRuntime.create(load_topology(folder / "topology.yaml"), folder / "run", detached=False)
        await run.up()
        try:
            regions = list((await run.status()).regions)
            for value in range(5):
                await obeyed(regions[0], regions[2], 100 + value)
            seconds = sorted([await obeyed(regions[0], regions[2], 1_000 + value) for value in range(ROUNDS)])
            killed = await carrier_killed(run, regions)
            joining, took = await joined(run, regions, count)
        finally:
            await run.down()
    p50, p99 = statistics.median(seconds) * 1000, seconds[round(len(seconds) * 0.99) - 1] * 1000
    live = statistics.quantiles(took, n=100)
    return "\n".join(
        [
            "| measurement | value | goal |",
            "|---|---|---|",
            f"| a policy set in one cluster takes effect in another, p50, p99 (ms) | {p50:.0f}, {p99:.0f} | 100, 250 |",
            f"| sync leader killed: next change in the other cluster after (s) | {killed:.2f} | 2 to another leader |",
            f"| a cluster that joins receives {count:,} namespaces (s) | {joining:.1f} | under 10 |",
            f"| publishes meanwhile, p50, p99 (ms) | {1000 * live[49]:.1f}, {1000 * live[98]:.1f} | as without |",
        ]
    )


def table(count: int = NAMESPACES) -> str:
    return asyncio.run(measured(count))


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else NAMESPACES))
