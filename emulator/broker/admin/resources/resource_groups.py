"""Resource groups: stored and returned without any effect."""

from __future__ import annotations

import json
from typing import Any, Final

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.stored_only import RESOURCE_GROUP
from emulator.model.stored_keys import KeptPath, NamespacePath, parse_path
from emulator.model.values import is_valid_name

KIND: Final = "resource-group"
FIELDS: Final = (
    "publishRateInMsgs",
    "publishRateInBytes",
    "dispatchRateInMsgs",
    "dispatchRateInBytes",
    "replicationDispatchRateInMsgs",
    "replicationDispatchRateInBytes",
)


def _path(call: AdminRequest) -> str:
    return KeptPath(KIND, call.names["group"]).text


async def names(call: AdminRequest) -> Response:
    found = [parse_path(change.path) for change in call.context.region.metadata.list(KeptPath.prefix(KIND))]
    return Response(sorted(key.name for key in found if isinstance(key, KeptPath)))


async def get(call: AdminRequest) -> Response:
    stored = call.context.region.metadata.get(_path(call))
    if stored is None or stored.value is None:
        raise HttpError(404, "ResourceGroup does not exist")
    return Response(json.loads(stored.value))


async def put(call: AdminRequest) -> Response:
    """Create one, or change the given fields."""
    if not is_valid_name(call.names["group"]):
        raise HttpError(412, "ResourceGroup name is not valid")

    def changed(present: bytes | None) -> bytes:
        before = {} if present is None else json.loads(present)
        return json.dumps(before | (call.body or {}), sort_keys=True).encode()

    await call.context.region.metadata.update(_path(call), changed)
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    region, name = call.context.region, call.names["group"]
    await get(call)
    for namespace in region.policies.namespaces():
        if region.policies.set_at(NamespacePath(namespace)).get(RESOURCE_GROUP.name) == name:
            raise HttpError(412, f"ResourceGroup {name} is in use by namespace {namespace}")
    await region.metadata.put(_path(call), None)
    return Response(status=204)


async def of_namespace(call: AdminRequest) -> Response:
    name = call.context.region.policies.set_at(_place(call)).get(RESOURCE_GROUP.name)
    return Response(status=204) if name is None else Response(name)


async def join(call: AdminRequest) -> Response:
    place = _place(call)
    await get(call)
    await call.context.region.policies.set(place, RESOURCE_GROUP, call.names["group"])
    return Response(status=204)


async def leave(call: AdminRequest) -> Response:
    await call.context.region.policies.set(_place(call), RESOURCE_GROUP, None)
    return Response(status=204)


def _place(call: AdminRequest) -> NamespacePath:
    return NamespacePath(call.context.namespace(call.names["tenant"], call.names["namespace"]))


def _parse(raw: Any) -> dict[str, int] | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise HttpError(400, "a resource group is a JSON object")
    known = {field: raw[field] for field in FIELDS if raw.get(field) is not None}
    for field, value in known.items():
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
            raise HttpError(400, f"{field}: {str(value)[:100]!r} must be a whole number")
    return known


_BODY = Body(
    _parse,
    {
        "type": "object",
        "properties": {field: {"type": ["integer", "null"]} for field in FIELDS},
    },
)
_GROUP = "/admin/v2/resourcegroups"
_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"

RESOURCES = (
    Resource(
        _GROUP,
        ResourceScope.REGION,
        get=reads(names, "Names of all resource groups."),
        kept=RESOURCE_GROUP.kept,
    ),
    Resource(
        f"{_GROUP}/{{group}}",
        ResourceScope.REGION,
        get=reads(get, "Its rates."),
        put=changes(put, "Create the resource group, or change the given rates.", body=_BODY),
        delete=changes(delete, "Delete it; 412 while a namespace uses it."),
        kept=RESOURCE_GROUP.kept,
    ),
    Resource(
        _NAMESPACE,
        ResourceScope.NAMESPACE,
        get=reads(of_namespace, "The namespace's resource group; 204 if it has none."),
        delete=changes(leave, "Remove the namespace's resource group."),
        kept=RESOURCE_GROUP.kept,
    ),
    Resource(
        f"{_NAMESPACE}/{{group}}",
        ResourceScope.NAMESPACE,
        post=changes(join, "Set the namespace's resource group; 404 if it does not exist."),
        kept=RESOURCE_GROUP.kept,
    ),
)
