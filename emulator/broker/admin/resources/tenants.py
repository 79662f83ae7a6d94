"""Tenants: create, change, list and delete them."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.clusters import known_clusters, regions_of
from emulator.broker.metadata.tenancy import Tenant
from emulator.broker.region import Region
from emulator.core.authorization.rule import Permission
from emulator.model.values import is_valid_name
from emulator.net.http_server import HttpError

NAMES_MAX = 1_000


async def names(call: AdminRequest) -> Content:
    return call.region.policies.tenants()


async def get(call: AdminRequest) -> Content:
    tenant = call.region.tenancy.tenant(call.names["tenant"])
    allowed = tenant.allowed_clusters
    clusters = sorted(regions_of(call.region)) if allowed is None else list(allowed)
    return {"adminRoles": list(tenant.admin_roles), "allowedClusters": clusters}


async def create(call: AdminRequest) -> None:
    region, name = call.region, call.names["tenant"]
    tenant = _validated(region, call.body)
    await region.tenancy.create_tenant(name, tenant, region.config.settings.tenants_max)


async def change(call: AdminRequest) -> None:
    tenancy, name = call.region.tenancy, call.names["tenant"]
    tenancy.tenant(name)
    await tenancy.change_tenant(name, _validated(call.region, call.body))


async def delete(call: AdminRequest) -> None:
    region = call.region
    await region.tenancy.delete_tenant(call.names["tenant"], force=call.flag("force"))


def _validated(region: Region, tenant: Tenant | None) -> Tenant:
    """Return the tenant. HttpError 412 if it has no allowed clusters, or an unknown one."""
    allowed = None if tenant is None else tenant.allowed_clusters
    if tenant is None or not allowed or not all(name.strip() for name in allowed):
        raise HttpError(412, "Clusters can not be empty")
    known = known_clusters(region)
    unknown = [name for name in allowed if name not in known]
    if unknown:
        raise HttpError(412, f"Clusters do not exist: {unknown[0]}; there are {', '.join(known)}")
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


_NAMES = {"type": ["array", "null"], "items": {"type": "string"}}
_BODY = Body(
    _parse, {"type": "object", "properties": dict.fromkeys(("adminRoles", "allowedClusters"), _NAMES)}
)
_SUPERUSER = Permission.SUPERUSER

RESOURCES = (
    Resource("/admin/v2/tenants", get=reads(names, "Names of all tenants.")),
    Resource(
        "/admin/v2/tenants/{tenant}",
        get=reads(get, "Its admin roles, and the regions that its namespaces may use."),
        put=changes(create, "Create the tenant; 409 if it exists.", body=_BODY, permission=_SUPERUSER),
        post=changes(change, "Replace the tenant's properties.", body=_BODY, permission=_SUPERUSER),
        delete=changes(
            delete,
            "Delete the tenant; 409 while it has namespaces.",
            Query("force", "Delete them as well."),
            permission=_SUPERUSER,
        ),
    ),
)
