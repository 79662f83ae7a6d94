"""Regions of several clusters that share metadata events."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from emulator.broker.metadata_sync.sync_leader import SyncLeader
from emulator.broker.metadata_sync.synchronizer import Synchronizer
from emulator.broker.region import Region
from emulator.core.metadata.event import is_synced
from emulator.model.stored_keys import NamespacePath, TenantPath
from tests.broker.regions import Regions, regions, until

DEADLINE_SECONDS = 30
EVENTS = "persistent://public/default/metadata-events"
TOPIC = "persistent://acme/orders/one"
NAMESPACE = NamespacePath("acme/orders")
TWO = {"us": "americas", "eu": "europe"}
THREE = {**TWO, "ap": "asia"}
SIDES = {"us-east": "americas", "us-west": "americas", "eu": "europe"}


@contextlib.asynccontextmanager
async def clusters(of: dict[str, str], **changes: object) -> AsyncIterator[Regions]:
    async with regions(
        *of,
        clusters=of,
        configuration_metadata_sync_event_topic=EVENTS,
        **changes,  # type: ignore[arg-type]
    ) as world:
        yield world


def documents(world: Regions, cluster: str) -> dict[str, bytes | None]:
    """Return the shared documents in the cluster's configuration store, by path."""
    values = world.configurations[cluster].values
    return {path: change.value for path, change in values.items() if is_synced(path)}


def are_alike(world: Regions) -> bool:
    first, *others = [documents(world, cluster) for cluster in world.configurations]
    return all(other == first for other in others)


async def soon(condition: Any) -> None:
    await until(condition, DEADLINE_SECONDS)


async def create(region: Region, replicated_to: tuple[str, ...] = ()) -> None:
    document = {"policies": {"replication_clusters": list(replicated_to)}} if replicated_to else {}
    await region.metadata.put(TenantPath("acme").text, b"{}")
    await region.metadata.put(NAMESPACE.text, json.dumps(document).encode())


def synchronizer(region: Region) -> Synchronizer:
    assert region.synchronizer is not None
    return region.synchronizer


async def leading(region: Region) -> SyncLeader:
    """Wait until the region is the sync leader of its cluster."""
    await soon(lambda: synchronizer(region).leader is not None)
    leader = synchronizer(region).leader
    assert leader is not None
    return leader
