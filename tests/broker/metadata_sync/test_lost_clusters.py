"""Clusters that are declared lost: the others drop their tombstones, and a returning cluster restores nothing
deleted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from emulator.broker.region import Region
from emulator.core.policies.topics import DEDUPLICATION
from emulator.model.stored_keys import SyncRecordPath, TenantPath
from tests.broker.metadata_sync.clusters import (
    NAMESPACE,
    THREE,
    TWO,
    are_alike,
    clusters,
    create,
    documents,
    soon,
    synchronizer,
)
from tests.broker.regions import Regions

RECORD = SyncRecordPath(NAMESPACE.text).text
TENANT = TenantPath("unheard")

pytestmark = [pytest.mark.within(120), pytest.mark.usefixtures("simulation")]


async def declare(cluster: str, *regions: Region, lost: bool = True) -> None:
    for region in regions:
        await synchronizer(region).losses.declare(cluster, lost=lost)


def remembers(world: Regions, cluster: str) -> bool:
    """Return whether the region has a tombstone of the namespace."""
    return RECORD in world.configurations[cluster].values


@contextlib.asynccontextmanager
async def without_asia() -> AsyncIterator[Regions]:
    """Three clusters: one is down since before the others deleted a namespace, and has a change of its own."""
    async with clusters(THREE) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us, ("us",))
        await soon(lambda: are_alike(world))
        world.cut("us", "ap")
        world.cut("eu", "ap")
        await world.running["ap"].metadata.put(TENANT.text, b"{}")
        await world.crash("ap")
        world.heal("us", "ap")
        world.heal("eu", "ap")
        await us.metadata.put(NAMESPACE.text, None)
        await us.metadata.put(TenantPath("seen").text, b"{}")
        await soon(lambda: "seen" in eu.policies.tenants())
        yield world


async def test_no_tombstones_are_kept_for_a_lost_cluster() -> None:
    async with without_asia() as world:
        assert remembers(world, "americas")
        assert remembers(world, "europe")
        await declare("asia", world.running["us"], world.running["eu"])
        await soon(lambda: not remembers(world, "americas") and not remembers(world, "europe"))


async def test_a_lost_cluster_that_returns_restores_nothing_deleted() -> None:
    """INV-82. The cluster also keeps its own changes that no other cluster had received."""
    async with without_asia() as world:
        us, eu = world.running["us"], world.running["eu"]
        await declare("asia", us, eu)
        await soon(lambda: not remembers(world, "americas") and not remembers(world, "europe"))
        assert NAMESPACE.text in documents(world, "asia")
        ap = await world.start("ap")
        await declare("asia", us, eu, lost=False)
        await soon(lambda: not ap.policies.has_namespace("acme/orders"))
        await soon(lambda: TENANT.name in us.policies.tenants())
        await soon(lambda: are_alike(world))
        await create(ap)
        await soon(lambda: us.policies.has_namespace("acme/orders"))
        await us.metadata.put(NAMESPACE.text, None)
        await soon(lambda: not ap.policies.has_namespace("acme/orders"))
        await soon(lambda: not any(remembers(world, cluster) for cluster in world.configurations))


async def test_two_clusters_that_declared_each_other_lost_converge_again() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us, ("us",))
        await us.metadata.put(TENANT.text, b"{}")
        await soon(lambda: are_alike(world))
        world.cut("us", "eu")
        await declare("europe", us)
        await declare("americas", eu)
        await us.metadata.put(NAMESPACE.text, None)
        await eu.metadata.put(TENANT.text, None)
        await soon(lambda: not remembers(world, "americas"))
        world.heal("us", "eu")
        await declare("europe", us, lost=False)
        await declare("americas", eu, lost=False)
        await soon(lambda: are_alike(world))
        assert not {NAMESPACE.text, TENANT.text} & documents(world, "americas").keys()
        await eu.policies.set(TENANT, DEDUPLICATION, True)
        await soon(lambda: TENANT.name in us.policies.tenants())


async def test_a_cluster_is_lost_as_long_as_the_topology_declares_it() -> None:
    async with clusters(THREE) as world:
        us = world.running["us"]
        assert synchronizer(us).losses.lost == set()
        await world.stop("us")
        declared = {"metadata_sync_lost_clusters": "asia, europe"}
        us = await world.start("us", **declared)
        losses = synchronizer(us).losses
        await soon(lambda: losses.lost == {"asia", "europe"})
        await world.stop("us")
        us = await world.start("us")
        back = synchronizer(us).losses
        await soon(lambda: back.lost == set() and back.declared == {"asia": 1, "europe": 1})
