"""Tenants."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.replication_rules import regions_of
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.metadata.tenancy import Tenant
from emulator.broker.region import Region
from emulator.model.stored_keys import ClusterPath, parse_path
from emulator.model.values import is_valid_name

NAMES_MAX = 1_000
KEPT = "Requests are not authorized yet: `adminRoles` are stored and returned."


async def names(call: AdminRequest) -> Response:
    return Response(call.context.region.policies.tenants())


async def get(call: AdminRequest) -> Response:
    region = call.context.region
    tenant = region.tenancy.tenant(call.names["tenant"])
    allowed = sorted(regions_of(region)) if tenant.allowed_clusters is None else list(tenant.allowed_clusters)
    return Response({"adminRoles": list(tenant.admin_roles), "allowedClusters": allowed})


async def create(call: AdminRequest) -> Response:
    region, name = call.context.region, call.names["tenant"]
    await region.tenancy.create_tenant(name, _checked(region, call.body))
    return Response(status=204)


async def change(call: AdminRequest) -> Response:
    region, name = call.context.region, call.names["tenant"]
    region.tenancy.tenant(name)
    await region.tenancy.change_tenant(name, _checked(region, call.body))
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    region = call.context.region
    force = call.query.get("force", False)
    await region.tenancy.delete_tenant(call.names["tenant"], force=force)
    return Response(status=204)


def known_clusters(region: Region) -> list[str]:
    """Regions, and clusters with a stored document."""
    stored = [parse_path(change.path) for change in region.metadata.list(ClusterPath.prefix())]
    return sorted(regions_of(region) | {key.name for key in stored if isinstance(key, ClusterPath)})


def _checked(region: Region, tenant: Tenant | None) -> Tenant:
    """HttpError 412 when it names no cluster, or an unknown one."""
    if (
        tenant is None
        or not tenant.allowed_clusters
        or not all(name.strip() for name in tenant.allowed_clusters)
    ):
        raise HttpError(412, "Clusters can not be empty")
    known = known_clusters(region)
    strangers = [name for name in tenant.allowed_clusters if name not in known]
    if strangers:
        raise HttpError(412, f"Clusters do not exist: {strangers[0]}; there are {', '.join(known)}")
    return tenant


def _parse(raw: Any) -> Tenant | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise HttpError(400, "a tenant is a JSON object with adminRoles and allowedClusters")
    return Tenant(_names(raw, "adminRoles"), _names(raw, "allowedClusters"))


def _names(raw: dict[str, Any], field: str) -> tuple[str, ...]:
    found = raw.get(field) or []
    if (
        not isinstance(found, list)
        or len(found) > NAMES_MAX
        or not all(isinstance(one, str) and len(one) < 1_000 for one in found)
    ):
        raise HttpError(400, f"{field}: {str(found)[:100]} is not a list of at most {NAMES_MAX} names")
    wrong = [one for one in found if field == "allowedClusters" and one and not is_valid_name(one)]
    if wrong:
        raise HttpError(412, f"{field}: {wrong[0]!r} is not a name of a cluster")
    return tuple(dict.fromkeys(found))


_TENANT = "/admin/v2/tenants/{tenant}"
_BODY = Body(
    _parse,
    {
        "type": "object",
        "properties": {
            "adminRoles": {"type": ["array", "null"], "items": {"type": "string"}},
            "allowedClusters": {"type": ["array", "null"], "items": {"type": "string"}},
        },
    },
)

RESOURCES = (
    Resource("/admin/v2/tenants", ResourceScope.REGION, get=reads(names, "Names of all tenants.")),
    Resource(
        _TENANT,
        ResourceScope.TENANT,
        get=reads(get, "Its admin roles, and the regions that its namespaces may use."),
        put=changes(create, "Create the tenant; 409 if it exists.", body=_BODY),
        post=changes(change, "Change the tenant.", body=_BODY),
        delete=changes(
            delete, "Delete the tenant; 409 while it has namespaces.", Query("force", "Delete them as well.")
        ),
        kept=KEPT,
    ),
)
