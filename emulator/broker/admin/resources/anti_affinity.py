"""Anti-affinity groups of namespaces: stored and returned without any effect."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.policies import parser
from emulator.broker.admin.resources.tenants import known_clusters
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.stored_only import ANTI_AFFINITY
from emulator.model.stored_keys import NamespacePath


def _place(call: AdminRequest) -> NamespacePath:
    return NamespacePath(call.context.namespace(call.names["tenant"], call.names["namespace"]))


def _group(call: AdminRequest, namespace: NamespacePath) -> Any:
    return call.context.region.policies.set_at(namespace).get(ANTI_AFFINITY.name)


async def get(call: AdminRequest) -> Response:
    group = _group(call, _place(call))
    return Response(status=204) if group is None else Response(group, text=True)


async def set_(call: AdminRequest) -> Response:
    if not call.body or not call.body.strip():
        raise HttpError(412, "Anti-affinity group name can't be null or empty")
    await call.context.region.policies.set(_place(call), ANTI_AFFINITY, call.body)
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    await call.context.region.policies.set(_place(call), ANTI_AFFINITY, None)
    return Response(status=204)


async def members(call: AdminRequest) -> Response:
    """Return the members of a group, of all tenants."""
    region = call.context.region
    if call.names["cluster"] not in known_clusters(region):
        raise HttpError(404, f"Cluster {call.names['cluster']} does not exist")
    namespaces = region.policies.namespaces()
    return Response([one for one in namespaces if _group(call, NamespacePath(one)) == call.names["group"]])


_BODY = Body(parser(ANTI_AFFINITY), ANTI_AFFINITY.codec.schema, or_text=True)

RESOURCES = (
    Resource(
        "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity",
        ResourceScope.NAMESPACE,
        get=reads(get, "The namespace's anti-affinity group; 204 if it has none.", text=True),
        post=changes(
            set_, "Set the anti-affinity group. The body is its name, quoted as JSON or not.", body=_BODY
        ),
        delete=changes(delete, "Be in no group."),
        kept=ANTI_AFFINITY.kept,
    ),
    Resource(
        "/admin/namespaces/{cluster}/antiAffinity/{group}",
        ResourceScope.REGION,
        get=reads(
            members,
            "Full names of the namespaces in a group.",
            Query("tenant", "The requesting tenant; not checked.", str),
        ),
        kept=ANTI_AFFINITY.kept,
    ),
)
