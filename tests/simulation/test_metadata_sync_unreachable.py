"""Changes while the event topic accepts no messages: they are applied and sent later, or rejected, depending on the
topology; with the proposal's order they are rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from emulator.broker.region import Region
from emulator.core.policies.topics import DEDUPLICATION
from emulator.errors import StorageError
from emulator.model.stored_keys import NamespacePath
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.world import World
from tests.simulation.test_metadata_sync import topology

NAMESPACE = NamespacePath("acme/orders")
SLOW_SECONDS = 1.5


async def unavailable(world: World) -> None:
    world.remote_log("us").make_unreachable()


async def full(world: World) -> None:
    log = world.remote_log("us")
    log.faults = replace(log.faults, capacity_bytes=0)


async def slow(world: World) -> None:
    log = world.remote_log("us")
    log.faults = replace(log.faults, stall_probability=1.0, stall_seconds=(SLOW_SECONDS, SLOW_SECONDS))


async def fenced(world: World) -> None:
    """Give its log to another owner."""
    world.replace("us")
    await soon(world, lambda: world.regions["us"].is_up)


def repair(world: World) -> None:
    log = world.remote_log("us")
    log.make_reachable()
    log.faults = RemoteFaults()


def is_known(region: Region | None) -> bool:
    return region is not None and region.policies.of_namespace("acme/orders", DEDUPLICATION) is True


SimulatedScenario = Callable[[World, Region], Awaitable[None]]


def run_in_world(scenario: SimulatedScenario, *, requires: bool = False, proposal: bool = False) -> None:
    """Run `scenario` on the region whose log fails; nothing else runs in its cluster."""
    plan = topology(
        {"us": "americas", "eu": "europe"},
        hybrid=False,
        metadata_sync_requires_event_topic=requires,
    )
    if proposal:
        plan = replace(plan, compatibility={"metadata_order": "upstream"})

    async def whole() -> None:
        us = world.regions["us"].broker
        assert us is not None
        await us.metadata.put(NAMESPACE.text, b"{}")
        await soon(world, lambda: region(world, "eu").policies.has_namespace("acme/orders"))
        await scenario(world, us)

    with World(plan, 1, disks={"us": RemoteFaults()}) as world:
        world.play(whole(), within_seconds=600)


def region(world: World, name: str) -> Region:
    broker = world.regions[name].broker
    assert broker is not None
    return broker


async def soon(world: World, condition: Callable[[], bool]) -> None:
    await world.simulation.until(condition, within_seconds=60)


FAULTS = {"away": unavailable, "full": full, "fenced": fenced}


@pytest.mark.parametrize("fault", ["away", "full"])
def test_changes_go_on_without_the_event_topic_and_are_sent_later(fault: str) -> None:
    async def scenario(world: World, us: Region) -> None:
        await FAULTS[fault](world)
        async with asyncio.timeout(1):
            await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        assert is_known(us)
        assert not is_known(world.regions["eu"].broker)
        repair(world)
        await soon(world, lambda: is_known(world.regions["eu"].broker))

    run_in_world(scenario)


def test_what_a_region_that_is_being_fenced_off_acknowledged_is_sent_by_its_successor() -> None:
    async def scenario(world: World, us: Region) -> None:
        world.replace("us")
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(world, lambda: us.end.is_fenced)
        assert not is_known(world.regions["eu"].broker)
        await soon(world, lambda: is_known(world.regions["eu"].broker))

    run_in_world(scenario)


@pytest.mark.parametrize("fault", FAULTS)
def test_changes_are_refused_without_the_event_topic_where_it_is_required(fault: str) -> None:
    async def scenario(world: World, us: Region) -> None:
        await FAULTS[fault](world)
        with pytest.raises(StorageError, match=r"cannot publish|is away") as refused:
            await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        assert refused.value.definite
        repair(world)
        await soon(world, lambda: world.regions["us"].is_up)
        assert not is_known(us)
        await region(world, "us").policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(world, lambda: is_known(world.regions["eu"].broker))

    run_in_world(scenario, requires=True)


@pytest.mark.parametrize("requires", [False, True])
def test_a_slow_event_topic_is_waited_for_only_where_it_is_required(requires: bool) -> None:
    async def scenario(world: World, us: Region) -> None:
        await slow(world)
        began = asyncio.get_running_loop().time()
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        took = asyncio.get_running_loop().time() - began
        assert took >= SLOW_SECONDS if requires else took < 0.5, took
        await soon(world, lambda: is_known(world.regions["eu"].broker))

    run_in_world(scenario, requires=requires)


@pytest.mark.parametrize("fault", FAULTS)
def test_with_the_proposal_s_order_nothing_is_changed_without_the_event_topic(fault: str) -> None:
    """A change of unknown outcome may take effect later: then it does so everywhere."""

    async def scenario(world: World, us: Region) -> None:
        await FAULTS[fault](world)
        with pytest.raises(StorageError):
            await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        assert not is_known(us)
        repair(world)
        await soon(world, lambda: world.regions["us"].is_up)
        await region(world, "us").policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(world, lambda: is_known(world.regions["eu"].broker))

    run_in_world(scenario, proposal=True)
