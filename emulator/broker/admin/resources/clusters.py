"""Regions, which are what Pulsar's clients call clusters."""

from __future__ import annotations

from emulator.broker.admin.http import Response
from emulator.broker.admin.resource import Call, Resource, reads
from emulator.broker.admin.scope import Scope


async def names(call: Call) -> Response:
    region = call.place.region
    return Response(sorted([region.config.region, *region.peers]))


RESOURCES = (
    Resource(
        "/admin/v2/clusters",
        Scope.REGION,
        get=reads(names, "Names of all regions: to Pulsar's clients a region is a cluster."),
    ),
)
