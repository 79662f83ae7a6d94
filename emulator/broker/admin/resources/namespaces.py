"""Namespaces: which there are, and what is in them."""

from __future__ import annotations

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import Call, Resource, reads
from emulator.broker.admin.scope import Scope


async def names(call: Call) -> Response:
    region, tenant = call.place.region, call.names["tenant"]
    found = [name for name in region.policies.namespaces() if name.startswith(f"{tenant}/")]
    if not found and tenant not in region.policies.tenants():
        raise HttpError(404, f"tenant {tenant} does not exist")
    return Response(found)


async def topics(call: Call) -> Response:
    name = call.place.namespace(call.names["tenant"], call.names["namespace"])
    return Response(call.place.region.directory.names(name))


_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"

RESOURCES = (
    Resource(
        "/admin/v2/namespaces/{tenant}",
        Scope.TENANT,
        get=reads(names, "Full names of the tenant's namespaces."),
    ),
    Resource(
        f"{_NAMESPACE}/topics", Scope.NAMESPACE, get=reads(topics, "Full names of the namespace's topics.")
    ),
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}",
        Scope.NAMESPACE,
        get=reads(topics, "The same, its older path."),
    ),
)
