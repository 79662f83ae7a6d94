"""Clusters declared lost: no tombstones are kept for them (docs/components/metadata-sync.md)."""

from __future__ import annotations

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.metadata_sync.settings import LostClusters

_LOSS = "/geoemu/v1/clusters/{cluster}/lost"


def _losses(call: AdminRequest) -> LostClusters:
    synchronizer = call.context.region.synchronizer
    if synchronizer is None:
        raise HttpError(
            412,
            "clusters of this run do not synchronise metadata, so none can be declared lost",
        )
    known = sorted(synchronizer.settings.clusters)
    if call.names["cluster"] not in known:
        raise HttpError(
            404, f"there is no other cluster {call.names['cluster']}; there are {', '.join(known)}"
        )
    return synchronizer.losses


async def get(call: AdminRequest) -> Response:
    declared = _losses(call).of(call.names["cluster"])
    return Response({"lost": declared.is_lost, "by": declared.by, "times": declared.times})


async def declare(call: AdminRequest) -> Response:
    await _losses(call).declare(call.names["cluster"], lost=True)
    return Response(status=204)


async def take_back(call: AdminRequest) -> Response:
    await _losses(call).declare(call.names["cluster"], lost=False)
    return Response(status=204)


RESOURCES = (
    Resource(
        _LOSS,
        ResourceScope.REGION,
        get=reads(
            get, "Whether this cluster counts another one as lost, which region declared it, and how often."
        ),
        put=changes(declare, "Declare it lost: tombstones are not kept for it."),
        delete=changes(take_back, "Declare it available again."),
    ),
)
