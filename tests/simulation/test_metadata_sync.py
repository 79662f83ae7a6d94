"""Metadata sync under fault injection: regions die, links are cut, clocks are wrong and stores lose responses. After
all repairs every cluster has the same: the fold of all events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.core.metadata.event import SyncEvent, SyncStamp, is_synced
from emulator.core.metadata.record import LATEST, DocumentRecord
from emulator.errors import ProtocolError, StorageError
from emulator.model.stored_keys import NamespacePath, SyncRecordPath, TenantPath, parse_path
from emulator.simulation.configuration import ConfigurationFaults
from emulator.simulation.disk import DiskFaults
from emulator.simulation.region import AS_SHIPPED, Overrides
from emulator.simulation.world import SERVICE_PORT, World

EVENTS = "persistent://pulsar/system/metadata-events"
NAMESPACES = ("acme/a", "acme/b")
POLICIES = ("deduplication", "keep_alive_interval_ms", "exclusive_home")
STEPS = 40


def topology(of: dict[str, str], *, hybrid: bool, **changes: bool) -> Topology:
    chosen = BrokerSettings(
        configuration_metadata_sync_event_topic=EVENTS, metadata_sync_hybrid_clocks=hybrid, **changes
    )
    regions = [
        RegionSpec(name, of[name], host=name, service_port=SERVICE_PORT, settings=chosen) for name in of
    ]
    shape = LinkShape(latency_ms=20.0, jitter_ms=5.0)
    return Topology(
        name="clusters",
        path=Path("topology.yaml"),
        clusters=tuple(
            ClusterSpec(cluster, tuple(one for one in regions if one.cluster == cluster))
            for cluster in dict.fromkeys(of.values())
        ),
        links=tuple(LinkSpec(one, other, shape) for one in of for other in of if one != other),
        namespaces=(NamespaceConfig("public/default", tuple(of), True),),
    )


class SimulatedScenario:
    """One run of a seed."""

    def __init__(self, seed: int, overrides: Overrides = AS_SHIPPED) -> None:
        self.random = Random(seed)
        count = self.random.randint(2, 4)
        of = {f"r{n}": f"c{n}" for n in range(count)}
        for n in range(count):
            if self.random.random() < 0.4:
                of[f"r{n}x"] = f"c{n}"
        self.hybrid = self.random.random() < 0.5
        self.world = World(topology(of, hybrid=self.hybrid), seed, disk=DiskFaults(), overrides=overrides)
        self.acknowledged = 0

    async def run(self) -> None:
        for _ in range(STEPS):
            await asyncio.sleep(self.random.expovariate(1.2))
            await self._step()
        self._repair()
        await self.world.simulation.until(self._are_alike, within_seconds=60)

    async def _step(self) -> None:
        world, chance = self.world, self.random
        name = chance.choice(list(world.regions))
        other = chance.choice([one for one in world.regions if one != name])
        store = chance.choice(list(world.configurations.values()))
        match chance.randrange(14):
            case 0:
                world.cut(name, other, one_way=chance.random() < 0.3)
            case 1:
                world.simulation.network.heal()
            case 2:
                world.kill(name)
            case 3 | 4:
                world.start(name)
            case 5:
                world.regions[name].host.wall_clock_ms.jump(chance.choice((-3000, -200, 200, 3000)))
            case 6:
                store.faults = ConfigurationFaults(
                    lost_answer_probability=chance.choice((0, 0.3)), is_unreachable=chance.random() < 0.3
                )
            case 7:
                store.repair()
            case _:
                with contextlib.suppress(StorageError, ProtocolError, TimeoutError):
                    async with asyncio.timeout(2):
                        await self._change(name)

    async def _change(self, name: str) -> None:
        broker, chance = self.world.regions[name].broker, self.random
        if broker is None or not self.world.regions[name].is_up:
            return
        namespace = NamespacePath(chance.choice(NAMESPACES)).text
        match chance.randrange(6):
            case 0:
                await broker.metadata.put(namespace, None)
            case 1:
                roles = json.dumps({"adminRoles": [str(chance.randrange(9))]}).encode()
                await broker.metadata.put(TenantPath("acme").text, roles)
            case _:
                policy, value = chance.choice(POLICIES), chance.choice((None, 0, 1, 2))

                def change(present: bytes | None) -> bytes:
                    policies = dict(json.loads(present or b"{}").get("policies", {}))
                    policies.pop(policy, None)
                    return json.dumps(
                        {"policies": policies | ({} if value is None else {policy: value})}
                    ).encode()

                await broker.metadata.update(namespace, change)
        self.acknowledged += 1

    def _repair(self) -> None:
        world = self.world
        world.simulation.network.heal()
        for store in world.configurations.values():
            store.repair()
        for name in world.regions:
            world.start(name)

    def documents(self, cluster: str) -> dict[str, bytes | None]:
        values = self.world.configurations[cluster].memory.values
        return {path: change.value for path, change in values.items() if is_synced(path)}

    def _are_alike(self) -> bool:
        first, *others = [self.documents(cluster) for cluster in self.world.configurations]
        return all(other == first for other in others)

    def events(self) -> dict[SyncStamp, SyncEvent]:
        """Return the events of every event topic, and of every store: unpublished ones count, too."""
        found: dict[SyncStamp, SyncEvent] = {}
        for store in self.world.configurations.values():
            for path, change in store.memory.values.items():
                key = parse_path(path)
                if isinstance(key, SyncRecordPath):
                    found |= {
                        event.stamp: event for event in DocumentRecord.decode(key.of, change.value).events()
                    }
        return found


def play(
    seed: int, overrides: Overrides = AS_SHIPPED, *, kind: type[SimulatedScenario] | None = None
) -> SimulatedScenario:
    scenario = (kind or SimulatedScenario)(seed, overrides)
    with scenario.world as world:
        world.play(scenario.run(), within_seconds=3600)
        fold: dict[str, DocumentRecord] = {}
        for event in scenario.events().values():
            fold.setdefault(event.path, DocumentRecord(event.path)).merge(event, "nobody", 0)
        for cluster in world.configurations:
            documents = scenario.documents(cluster)
            for path, record in fold.items():
                assert documents.get(path) == record.document(), (seed, cluster, path)
    return scenario


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_all_clusters_have_the_same_in_the_end(seed: int) -> None:
    assert play(seed).acknowledged > 0


@pytest.mark.long
def test_without_an_order_of_events_the_fold_finds_the_difference() -> None:
    """The last arrival wins: clusters differ, or have a value that is not the latest."""
    rule = replace(LATEST, wins=lambda stamp, present, here: True)
    with pytest.raises((AssertionError, TimeoutError)):
        _play_many(30, AS_SHIPPED.with_parts(metadata_rule=rule))


def _play_many(count: int, overrides: Overrides) -> None:
    for seed in range(count):
        play(seed, overrides)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_all_clusters_have_the_same_in_the_end_with_many_seeds(seed: int) -> None:
    play(seed)
