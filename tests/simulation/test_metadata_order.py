"""The proposal's order (`metadata_order: upstream`), a change published first and then applied, and how it differs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from emulator.broker.region import Region
from emulator.core.policies.topics import DEDUPLICATION
from emulator.model.stored_keys import TenantPath
from emulator.simulation.world import World
from emulator.storage.configuration.contract import Conflict
from tests.simulation.test_metadata_sync import EVENTS, SimulatedScenario, play, topology
from tests.simulation.test_metadata_sync_unreachable import NAMESPACE, is_known, region, run_in_world, soon

TENANT = TenantPath("acme").text
OURS, THEIRS = b'{"adminRoles": ["ours"]}', b'{"adminRoles": ["theirs"]}'


def roles(world: World) -> set[str]:
    """Return the roles of the tenant in all regions."""
    found = set()
    for name in world.regions:
        change = region(world, name).metadata.get(TENANT)
        found.add("" if change is None or change.value is None else json.loads(change.value)["adminRoles"][0])
    return found


@pytest.mark.parametrize("proposal", [False, True])
def test_a_change_that_the_store_refused_takes_effect_only_where_it_is_published_first(
    proposal: bool,
) -> None:
    async def scenario(world: World, us: Region) -> None:
        await us.metadata.put(TENANT, OURS)
        await soon(world, lambda: roles(world) == {"ours"})
        with pytest.raises(Conflict):
            await us.metadata.put(TENANT, THEIRS, expected=-1)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)  # later events were received
        await soon(world, lambda: is_known(world.regions["eu"].broker))
        await soon(world, lambda: roles(world) == ({"theirs"} if proposal else {"ours"}))

    run_in_world(scenario, proposal=proposal)


def test_with_the_proposal_s_order_each_change_is_published_once() -> None:
    async def scenario(world: World, us: Region) -> None:
        assert us.synchronizer is not None
        before = us.synchronizer.metrics.sent
        for value in (True, False, True):
            await us.policies.set(NAMESPACE, DEDUPLICATION, value)
            await soon(world, lambda v=value: is_known(world.regions["eu"].broker) == v)  # type: ignore[misc]
        await region(world, "eu").metadata.put(TENANT, THEIRS)
        await soon(world, lambda: roles(world) == {"theirs"})
        assert us.synchronizer.metrics.sent == before, "the sync leader found nothing unsent"

    run_in_world(scenario, proposal=True)


@pytest.mark.parametrize("seed", range(4))
def test_clusters_converge_with_the_proposal_s_order_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.simulation.test_metadata_sync.topology",
        lambda of, **how: replace(topology(of, **how), compatibility={"metadata_order": "upstream"}),
    )
    scenario: SimulatedScenario = play(seed)
    assert scenario.acknowledged > 0


def test_with_the_proposal_s_order_changes_at_the_same_time_are_published_once_each() -> None:
    """A published event is not rebuilt because another change came between: two that gave way to each other would
    publish for ever."""

    async def scenario(world: World, us: Region) -> None:
        published = _published(world)
        world.configurations["americas"].faults.call_seconds = (0.02, 0.03)  # all come in between
        values = (True, False, True, False)
        changes = [us.policies.set(NAMESPACE, DEDUPLICATION, value) for value in values]
        await asyncio.gather(*changes, return_exceptions=True)  # a change that lost to a later one raises
        await soon(world, lambda: _is_same(world))
        assert _published(world) - published <= len(values)

    run_in_world(scenario, proposal=True)


def _published(world: World) -> int:
    log = world.regions["us"].medium.logs[EVENTS]
    return sum(b'"kind":"events","source":"americas"' in data for data in log.entries)


def _is_same(world: World) -> bool:
    us, eu = (world.configurations[one].memory.values[NAMESPACE.text].value for one in ("americas", "europe"))
    return us == eu
