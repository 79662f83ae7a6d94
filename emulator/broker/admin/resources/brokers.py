"""How the region's broker is."""

from __future__ import annotations

from emulator.broker.admin.http import Response
from emulator.broker.admin.resource import Call, Resource, reads
from emulator.broker.admin.scope import Scope


async def health(call: Call) -> Response:
    return Response("ok", text=True)


RESOURCES = (
    Resource(
        "/admin/v2/brokers/health", Scope.REGION, get=reads(health, "`ok`: the region answers.", text=True)
    ),
    Resource(
        "/admin/v2/brokers/ready", Scope.REGION, get=reads(health, "`ok`: the region answers.", text=True)
    ),
)
