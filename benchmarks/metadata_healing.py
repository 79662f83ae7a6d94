"""Time until five clusters have the same metadata after their links heal, in virtual time.

    python -m benchmarks.metadata_healing [SEEDS]

Five clusters, a link of 20 ms each way between any two. All links are cut for some seconds, while every cluster changes
the same policies of the same namespaces. Then the links heal; regions reconnect at their next attempt. The measurement
begins when the last link is established; its unit is a round trip of 40 ms.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from pathlib import Path
from random import Random

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.core.metadata.event import is_synced
from emulator.model.stored_keys import NamespacePath
from emulator.simulation.world import SERVICE_PORT, World

SEEDS = 200
NAMES = tuple(f"c{number}" for number in range(5))
EVENTS = "persistent://pulsar/system/metadata-events"
LATENCY_MS = 20.0
LOOK_SECONDS = 0.001
POLICIES = ("deduplication", "keep_alive_interval_ms")


def topology() -> Topology:
    chosen = BrokerSettings(configuration_metadata_sync_event_topic=EVENTS)
    regions = {
        name: RegionSpec(name, name, host=name, service_port=SERVICE_PORT, settings=chosen) for name in NAMES
    }
    shape = LinkShape(latency_ms=LATENCY_MS)
    return Topology(
        name="five",
        path=Path("topology.yaml"),
        clusters=tuple(ClusterSpec(name, (region,)) for name, region in regions.items()),
        links=tuple(LinkSpec(one, other, shape) for one in NAMES for other in NAMES if one != other),
        namespaces=(NamespaceConfig("public/default", NAMES, True),),
    )


class Healing:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(topology(), seed)
        self.took_seconds = 0.0

    async def story(self) -> None:
        world, simulation = self.world, self.world.simulation
        await simulation.until(world.is_ready, within_seconds=60)
        for one in NAMES:
            for other in NAMES:
                if one < other:
                    world.cut(one, other)
        for _ in range(30):
            await asyncio.sleep(self.random.expovariate(6.0))
            await self._change(self.random.choice(NAMES))
        assert not self._are_alike(), "nothing to heal"
        world.heal()
        while not world.is_ready():
            await asyncio.sleep(LOOK_SECONDS)
        began = simulation.now
        while not self._are_alike():
            await asyncio.sleep(LOOK_SECONDS)
        self.took_seconds = simulation.now - began

    async def _change(self, name: str) -> None:
        broker = self.world.regions[name].broker
        assert broker is not None, "this benchmark kills no region"
        policy, value = self.random.choice(POLICIES), self.random.randint(1, 9)

        def change(present: bytes | None) -> bytes:
            policies = dict(json.loads(present or b"{}").get("policies", {}))
            return json.dumps({"policies": policies | {policy: value}}).encode()

        await broker.metadata.update(NamespacePath("public/default").text, change)

    def _are_alike(self) -> bool:
        first, *others = [
            {path: change.value for path, change in store.memory.values.items() if is_synced(path)}
            for store in self.world.configurations.values()
        ]
        return all(other == first for other in others)


def measure(seeds: int) -> list[float]:
    """Seconds, of each seed."""
    took = []
    for seed in range(1, seeds + 1):
        healing = Healing(seed)
        with healing.world as world:
            world.play(healing.story(), within_seconds=600)
        took.append(healing.took_seconds)
    return sorted(took)


def table(seeds: int = SEEDS) -> str:
    """As Markdown."""
    took = measure(seeds)
    round_trips = [seconds * 1000 / (2 * LATENCY_MS) for seconds in took]
    return "\n".join(
        [
            "| five clusters, after all links were cut | round trips | goal |",
            "|---|---|---|",
            f"| all stores equal after the last link is there, median of {seeds} seeds |"
            f" {statistics.median(round_trips):.2f} | 1 |",
            f"| the latest of them | {round_trips[-1]:.2f} | |",
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS))
