"""How long a change of a namespace's policies blocks the event loop of a region with 5,000 loaded topics.

    python -m benchmarks.policy_change [ROUNDS]

The region runs in this process, on a memory store. Each change is one of `CHANGES`; a callback that reschedules itself
measures the longest iteration of the loop until every topic follows the change. Times are processor time of the
loop's thread, because other programs on the machine are not part of a change.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import sys
import time
from typing import Any, Final

from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.declaration import Policy
from emulator.core.policies.lifetime import COMPACTION_THRESHOLD, MESSAGE_TTL
from emulator.core.policies.limits import DISPATCH_RATE
from emulator.model.stored_keys import NamespacePath
from emulator.net.network import SocketNetwork
from emulator.storage.configuration.memory import ConfigurationMemory, MemoryConfiguration
from emulator.storage.memory import MemoryDisk, MemoryStore

TOPICS: Final = 5_000
NAMESPACE: Final = NamespacePath("public/default")
CHANGES: Final[tuple[tuple[Policy[Any], tuple[Any, Any]], ...]] = (
    (DISPATCH_RATE, (RateLimit(1_000, 0, 1), None)),
    (MESSAGE_TTL, (3_600, None)),
    (COMPACTION_THRESHOLD, (2**30, None)),
)


class LongestStep:
    """The longest iteration of the event loop, in ms."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._at = time.thread_time()
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.ms, self._at = max(self.ms, (now - self._at) * 1000), now
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> float:
        self._next.cancel()
        return self.ms


async def _started() -> Region:
    config = RegionConfig(
        region="us",
        cluster="us",
        service_port=0,
        log=LogConfig("memory"),
        settings=BrokerSettings(),
        namespaces=(NamespaceConfig(NAMESPACE.name, ("us",), deduplication=True),),
    )
    environment = Environment(
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        random=random.Random(1),
        network=SocketNetwork(),
        peer_network=SocketNetwork(),
        store=await MemoryStore.open(MemoryDisk(), "us"),
        configuration=MemoryConfiguration(ConfigurationMemory()),
    )
    region = Region(config, environment)
    await region.start()
    return region


async def _rounds(rounds: int) -> list[tuple[float, float]]:
    """(longest iteration, time until every topic follows) of each change, in ms."""
    region = await _started()
    for number in range(TOPICS):
        await region.directory.acquire(f"persistent://{NAMESPACE.name}/t-{number}", OpenMode.CREATE)
    gc.collect()
    gc.freeze()  # as a region that serves: a collection of all topics is not part of a change
    results = []
    for _ in range(rounds):
        for policy, values in CHANGES:
            for value in values:
                longest, began = LongestStep(), time.thread_time()
                await region.policies.set(NAMESPACE, policy, value)
                results.append((longest.stop(), (time.thread_time() - began) * 1000))
    await region.stop()
    return results


def table(rounds: int = 20) -> str:
    """As a Markdown table."""
    steps, whole = zip(*asyncio.run(_rounds(rounds)), strict=True)
    return "\n".join(
        [
            f"| a change of a namespace with {TOPICS:,} loaded topics | median (ms) | longest (ms) | goal |",
            "|---|---|---|---|",
            f"| longest iteration of the event loop | {statistics.median(steps):.1f} | {max(steps):.1f} | "
            "at most 10 ms |",
            f"| until every topic follows it | {statistics.median(whole):.0f} | {max(whole):.0f} | |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
