"""A tombstone is removed when every cluster has it, under both orders. An older event of its cluster that no other
cluster received does not restore the deleted object, however late it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from emulator.broker.region import Region
from emulator.core.metadata.record import DocumentRecord
from emulator.core.policies.topics import DEDUPLICATION
from emulator.model.stored_keys import NamespacePath, SyncRecordPath
from emulator.simulation.disk import DiskFaults
from emulator.simulation.world import World
from tests.simulation.test_metadata_sync import EVENTS, topology
from tests.simulation.test_metadata_sync_unreachable import region, soon

NAMESPACE = NamespacePath("acme/orders")
OF = {"us": "americas", "us2": "americas", "eu": "europe"}
SimulatedScenario = Callable[[World], Awaitable[None]]


def run_in_world(scenario: SimulatedScenario, *, proposal: bool, of: dict[str, str] = OF) -> None:
    plan = topology(of, hybrid=False)
    if proposal:
        plan = replace(plan, compatibility={"metadata_order": "upstream"})

    async def whole() -> None:
        await region(world, "us").metadata.put(NAMESPACE.text, b"{}")
        await region(world, "us").policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(world, lambda: all(is_on(world, name) for name in of))
        await scenario(world)

    with World(plan, 1, disk=DiskFaults()) as world:
        world.play(whole(), within_seconds=600)


def is_on(world: World, name: str) -> bool | None:
    broker = world.regions[name].broker
    known = isinstance(broker, Region) and broker.policies.has_namespace("acme/orders")
    return (
        broker.policies.of_namespace("acme/orders", DEDUPLICATION) if known and broker is not None else None
    )


def tombstones(world: World, cluster: str) -> int:
    stored = world.configurations[cluster].memory.values.get(SyncRecordPath(NAMESPACE.text).text)
    record = DocumentRecord.decode(NAMESPACE.text, None if stored is None else stored.value)
    return sum(event.is_deleted for event in record.events())


def document(world: World, cluster: str) -> bytes | None:
    return world.configurations[cluster].memory.values[NAMESPACE.text].value


def none_are_left(world: World) -> bool:
    return not any(tombstones(world, cluster) for cluster in world.configurations)


def leader(world: World) -> str:
    """Return the sync leader of the cluster with two regions."""
    names = [name for name in ("us", "us2") if _carries(world, name)]
    return names[0] if len(names) == 1 else ""


def _carries(world: World, name: str) -> bool:
    host = world.regions[name]
    return host.is_up and host.broker is not None and host.broker.synchronizer.leader is not None  # type: ignore[union-attr]


def published(world: World, name: str) -> int:
    log = world.regions[name].medium.logs[EVENTS]
    return sum(b'"kind":"events","source":"americas"' in data for data in log.entries)


@pytest.mark.parametrize("proposal", [False, True])
def test_a_tombstone_goes_when_every_cluster_has_it(proposal: bool) -> None:
    async def scenario(world: World) -> None:
        await region(world, "us").policies.set(NAMESPACE, DEDUPLICATION, None)
        await soon(world, lambda: not is_on(world, "eu"))
        await soon(world, lambda: none_are_left(world))
        await region(world, "eu").policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(world, lambda: bool(is_on(world, "us")))

    run_in_world(scenario, proposal=proposal)


@pytest.mark.parametrize("proposal", [False, True])
def test_what_was_published_before_and_comes_after_a_tombstone_went_does_not_count(proposal: bool) -> None:
    """A region publishes a change, receives a later deletion and dies before any other region received the change. All
    drop the tombstone. Then the region is back, and so is its event."""

    async def scenario(world: World) -> None:
        await soon(world, lambda: leader(world) != "")
        first = leader(world)
        other = "us2" if first == "us" else "us"
        world.cut(first, "eu", one_way=True)
        world.cut(first, other, one_way=True)
        before = published(world, first)
        await region(world, first).policies.set(NAMESPACE, DEDUPLICATION, False)
        await soon(world, lambda: published(world, first) > before)
        await region(world, "eu").policies.set(NAMESPACE, DEDUPLICATION, None)
        await soon(world, lambda: document(world, "americas") == b"{}")
        world.kill(first)
        await soon(world, lambda: leader(world) == other)
        await soon(world, lambda: none_are_left(world))
        world.simulation.network.heal()
        world.start(first)
        await asyncio.sleep(10)
        assert none_are_left(world)
        assert [document(world, one) for one in ("americas", "europe")] == [b"{}", b"{}"]

    run_in_world(scenario, proposal=proposal)
