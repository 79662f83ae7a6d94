"""Regions that were removed for good: what may be lost with one, its removal, and the revocation."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Resource, changes, reads
from emulator.broker.region import Region
from emulator.core.policies.topics import EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.model.values import BEFORE_EVERYTHING
from emulator.net.http_server import HttpError


def _other_region(call: AdminRequest) -> str:
    """Return the region in the path. HttpError 404 for a name that is not a region, 412 for this region."""
    name, region = call.names["region"], call.region
    if name == region.config.region:
        raise HttpError(412, f"{name} cannot be removed by itself: send the request to a remaining region")
    if name not in region.peers:
        known = ", ".join(sorted(region.peers))
        raise HttpError(404, f"{name[:100]} is not a region; other regions are {known}")
    return name


def _is_connected(region: Region, name: str) -> bool:
    return region.peers[name].connected or region.is_linked_from(name)


async def _topic_rows(region: Region, name: str) -> list[dict[str, Any]]:
    """Return what this region received of the region, per topic that is replicated with it or was."""
    rows = []
    for topic in await region.every_topic():
        newest = topic.state.watermarks.highest(name)
        if newest == BEFORE_EVERYTHING and name not in topic.policies[REPLICATION_CLUSTERS]:
            continue
        received = None if newest == BEFORE_EVERYTHING else str(newest)
        rows.append({"topic": topic.full_name, "received": received})
    return sorted(rows, key=lambda row: str(row["topic"]))


async def get(call: AdminRequest) -> Content:
    region, name = call.region, _other_region(call)
    removal, policies = region.removed_regions.of(name), region.policies
    return {
        "region": region.config.region,
        "cluster": region.config.cluster,
        "removed": None if removal is None else {"at_ms": removal.at_ms, "by": removal.by},
        "connected": _is_connected(region, name),
        "policies": [path.text for path in policies.documents_with(REPLICATION_CLUSTERS, name)],
        "exclusive_home_of": [
            one for one in policies.namespaces() if policies.of_namespace(one, EXCLUSIVE_HOME) == name
        ],
        "topics": await _topic_rows(region, name),
    }


async def remove(call: AdminRequest) -> Content:
    region, name = call.region, _other_region(call)
    if _is_connected(region, name):
        raise HttpError(
            409,
            f"{name} is connected to {region.config.region}: a region that works is not removed; kill it first",
        )
    return {"region": region.config.region, "changed_policies": await region.removed_regions.remove(name)}


async def revoke(call: AdminRequest) -> None:
    await call.region.removed_regions.revoke(_other_region(call))


RESOURCES = (
    Resource(
        "/geoemu/v1/removed-regions/{region}",
        get=reads(
            get, "Whether a region was removed, and what the region knows of it: what may be lost with it."
        ),
        put=changes(
            remove,
            "Remove a region that will not return: it is taken out of all policies of this cluster, and its links are "
            "refused. 409 while it is connected.",
        ),
        delete=changes(revoke, "Revoke the removal: links are opened again. Policies stay as they are."),
    ),
)
