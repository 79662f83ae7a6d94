"""Features of Pulsar that regions do not have. Queries return the actual state, and changes that would be ignored are
rejected. Nothing is stored here."""

from __future__ import annotations

import zlib
from typing import Any, Final

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.clusters import described
from emulator.broker.authorization import ResourceScope

SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
"""The property by which tools make a topic a shadow of another one."""
WHOLE_BUNDLE: Final = "0x00000000_0xffffffff"
"""The only bundle of each namespace."""
_NO_SHADOWS: Final = "a region has no shadow topics: each topic stores its own messages"

_NO_WORKER: Final = (
    503,
    "Pulsar Function Worker is not enabled: a region runs no functions and no connectors",
)
_NO_PACKAGES: Final = (503, "Package Management Service is not enabled in the broker")
ABSENT: Final = {
    **{
        f"/admin/{at}": _NO_WORKER
        for at in (
            *(f"v3/{name}" for name in ("functions", "function", "sources", "source", "sinks", "sink")),
            *(f"v2/{name}" for name in ("functions", "worker", "worker-stats")),
        )
    },
    "/admin/v3/packages": _NO_PACKAGES,
    "/proxy-stats": (404, "proxy statistics are offered by a proxy, and there is none"),
}
"""Paths of services that a region does not have: the status and reason for everything below each."""


def refuse_shadow(properties: Any) -> None:
    """HttpError 412 for a shadow topic: it would be an ordinary one."""
    if SHADOW_SOURCE in (properties or {}):
        raise HttpError(412, f"{SHADOW_SOURCE}: {_NO_SHADOWS}")


def _topic(call: AdminRequest) -> str:
    """HttpError 404 when it does not exist."""
    region = call.context.region
    topic = region.check_topic(topic_name(call.names))
    if region.partitioned.get(topic) is None and not region.directory.exists(str(topic)):
        raise HttpError(404, f"Topic {topic} not found")
    return str(topic)


async def shadows(call: AdminRequest) -> Response:
    _topic(call)
    return Response([])


async def shadow(call: AdminRequest) -> Response:
    _topic(call)
    if call.body:
        raise HttpError(412, _NO_SHADOWS)
    return Response(status=204)


async def offloading(call: AdminRequest) -> Response:
    _topic(call)
    return Response({"status": "NOT_RUN", "lastError": ""})


async def offload(call: AdminRequest) -> Response:
    _topic(call)
    raise HttpError(412, "a region does not offload to another store")


async def migration(call: AdminRequest) -> Response:
    described(call, call.names["cluster"])
    return Response({"migrated": False, "migratedClusterUrl": None})


async def migrate_cluster(call: AdminRequest) -> Response:
    described(call, call.names["cluster"])
    return _stays(call)


async def migrate_namespace(call: AdminRequest) -> Response:
    call.context.namespace(call.names["tenant"], call.names["namespace"])
    return _stays(call)


def _stays(call: AdminRequest) -> Response:
    if call.query.get("migrated", False):
        raise HttpError(412, "migrated: true: a region does not migrate clients to another cluster")
    return Response(status=204)


async def hash_positions(call: AdminRequest) -> Response:
    """The positions that topics would have in Pulsar's ring of bundles: CRC32 of their full names."""
    region = call.context.region
    namespace = call.context.namespace(call.names["tenant"], call.names["namespace"])
    directory = region.directory
    present = [*directory.names(namespace), *directory.non_persistent_names(namespace)]
    asked = [name for name in call.query.get("topics", "").split(",") if name]
    positions = {name: zlib.crc32(name.encode()) for name in present if not asked or name in asked}
    return Response({"namespace": namespace, "bundle": WHOLE_BUNDLE, "topicHashPositions": positions})


def _names(raw: Any) -> Any:
    if raw is not None and (not isinstance(raw, list) or not all(isinstance(one, str) for one in raw)):
        raise HttpError(400, f"{str(raw)[:100]} is not a list of names of topics")
    return raw


def _any_object(raw: Any) -> Any:
    if raw is not None and not isinstance(raw, dict):
        raise HttpError(400, f"{str(raw)[:100]} is not a JSON object")
    return raw


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_NAMES = Body(_names, {"type": ["array", "null"], "items": {"type": "string"}})
_MIGRATED = Query("migrated", "Only false: 412 for true.")

RESOURCES = (
    Resource(
        f"{_TOPIC}/shadowTopics",
        ResourceScope.TOPIC,
        get=reads(shadows, "None: `[]`."),
        put=changes(shadow, "412, unless the list is empty.", body=_NAMES),
        delete=changes(shadow, "Succeeds: there are none."),
    ),
    Resource(
        f"{_TOPIC}/offload",
        ResourceScope.TOPIC,
        get=reads(offloading, "NOT_RUN: a region does not offload."),
        put=changes(offload, "Refused (412): a region does not offload to another store."),
    ),
    Resource(
        "/admin/v2/clusters/{cluster}/migrate",
        ResourceScope.REGION,
        get=reads(migration, "It is not migrated."),
        post=changes(
            migrate_cluster,
            "412, unless `migrated` is false.",
            _MIGRATED,
            body=Body(_any_object, {"type": ["object", "null"]}),
        ),
    ),
    Resource(
        "/admin/v2/namespaces/{tenant}/{namespace}/migration",
        ResourceScope.NAMESPACE,
        post=changes(migrate_namespace, "412, unless `migrated` is false.", _MIGRATED),
    ),
    Resource(
        f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{WHOLE_BUNDLE}/topicHashPositions",
        ResourceScope.NAMESPACE,
        get=reads(
            hash_positions,
            "The topics' positions in the hash ring of bundles; a namespace has one bundle here.",
            Query("topics", "Only these topics: full names, separated by commas.", str),
        ),
    ),
)
