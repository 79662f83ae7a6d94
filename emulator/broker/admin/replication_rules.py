"""Which replication clusters and allowed clusters a namespace or a topic may name."""

from __future__ import annotations

import json
from collections.abc import Collection

from emulator.broker.admin.http import HttpError
from emulator.broker.region import Region
from emulator.core.policies.topics import ALLOWED_CLUSTERS, REPLICATION_CLUSTERS
from emulator.model.stored_keys import ClusterPath

OBEYS = (ALLOWED_CLUSTERS,)
"""Policies that this module acts upon (PO1)."""


def regions_of(region: Region) -> set[str]:
    """All regions of the run."""
    return {region.config.region, *region.peers}


def check_home(region: Region, named: str) -> None:
    """HttpError 412 unless it is a region."""
    known = regions_of(region)
    if named not in known:
        raise HttpError(412, f"{named} is not a region; there are {', '.join(sorted(known))}")


def check_sharing(region: Region, namespace: str, named: tuple[str, ...]) -> None:
    """HttpError for an invalid list of regions. Pulsar deletes the topics of the requested region if the list lacks it,
    which is never intended here: to end replication, a region names itself alone."""
    asked = region.config.region
    for name in named:
        check_home(region, name)
    if not named:
        raise HttpError(412, f"a list of regions must not be empty; [{asked!r}] alone means no replication")
    if asked not in named:
        raise HttpError(
            412,
            f"the list lacks {asked}, the region that received the request: to remove {asked}, send the request to "
            f"another region of its cluster; to end replication, name {asked} alone",
        )
    _check_peers(region, named)
    check_tenant_allows(region, namespace.partition("/")[0], named)
    if region.policies.has_namespace(namespace):
        allowed = region.policies.of_namespace(namespace, ALLOWED_CLUSTERS)
        _check_among(named, allowed or named, f"namespace [{namespace}]")


def _check_peers(region: Region, named: tuple[str, ...]) -> None:
    """HttpError 409 for a list with two clusters that are declared as peers: one replaces the other."""
    for name in named:
        stored = region.metadata.get(ClusterPath(name).text)
        said = {} if stored is None or stored.value is None else json.loads(stored.value)
        for peer in said.get("peerClusterNames") or ():
            if peer in named:
                raise HttpError(
                    409, f"{peer} is a peer cluster of {name}: peer clusters do not replicate to each other"
                )


def check_tenant_allows(region: Region, tenant: str, named: Collection[str]) -> None:
    """HttpError 403 for a region that the tenant does not allow."""
    allowed = region.tenancy.tenant(tenant).allowed_clusters
    if allowed is not None:
        _check_among(named, allowed, f"tenant [{tenant}]")


def check_allowed(region: Region, namespace: str, allowed: tuple[str, ...]) -> None:
    """HttpError for a list of allowed regions that lacks one in use, or names an unknown one."""
    for name in allowed:
        check_home(region, name)
    check_tenant_allows(region, namespace.partition("/")[0], allowed)
    for name in region.policies.of_namespace(namespace, REPLICATION_CLUSTERS):
        if allowed and name not in allowed:
            raise HttpError(400, f"Allowed clusters do not contain the replication cluster {name}")


def _check_among(named: Collection[str], allowed: Collection[str], whose: str) -> None:
    for name in named:
        if name not in allowed:
            raise HttpError(403, f"Cluster [{name}] is not in the list of allowed clusters list for {whose}")
