"""Tenants."""

from __future__ import annotations

from emulator.broker.admin.http import Response
from emulator.broker.admin.resource import Call, Resource, reads
from emulator.broker.admin.scope import Scope


async def names(call: Call) -> Response:
    return Response(call.place.region.policies.tenants())


RESOURCES = (Resource("/admin/v2/tenants", Scope.REGION, get=reads(names, "Names of all tenants.")),)
