"""Features of Pulsar that regions do not have. Queries return that there is nothing; changes that would have no effect
are rejected. Nothing is stored."""

from __future__ import annotations

import zlib
from typing import Any, Final

from emulator.broker.admin.parsing import OBJECT, names_body
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Query, Resource, changes, reads
from emulator.broker.admin.resources.clusters import cluster_document
from emulator.core.authorization.rule import Permission
from emulator.net.http_server import HttpError

SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
"""The property by which tools create a shadow topic: the name of its source topic."""
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
"""Prefix of the paths of a service that a region does not have -> (status, reason)."""


def refuse_shadow(properties: Any) -> None:
    """Raise HttpError 412 for a request for a shadow topic, which would be created as an ordinary topic."""
    if SHADOW_SOURCE in (properties or {}):
        raise HttpError(412, f"{SHADOW_SOURCE}: {_NO_SHADOWS}")


async def shadows(call: AdminRequest) -> Content:
    call.existing_topic()
    return []


async def shadow(call: AdminRequest) -> None:
    call.existing_topic()
    if call.body:
        raise HttpError(412, _NO_SHADOWS)


async def offloading(call: AdminRequest) -> Content:
    call.existing_topic()
    return {"status": "NOT_RUN", "lastError": ""}


async def offload(call: AdminRequest) -> None:
    call.existing_topic()
    raise HttpError(412, "a region does not offload to another store")


async def migration(call: AdminRequest) -> Content:
    cluster_document(call, call.names["cluster"])
    return {"migrated": False, "migratedClusterUrl": None}


async def migrate(call: AdminRequest) -> None:
    """Set whether a cluster or a namespace is migrated. HttpError 412 for true."""
    if "cluster" in call.names:
        cluster_document(call, call.names["cluster"])
    else:
        call.namespace()
    if call.flag("migrated"):
        raise HttpError(412, "migrated: true: a region does not migrate clients to another cluster")


async def hash_positions(call: AdminRequest) -> Content:
    """Return the positions of topics in Pulsar's hash ring of bundles: CRC32 of their full names."""
    namespace, directory = call.namespace(), call.region.directory
    present = [*directory.names(namespace), *directory.non_persistent_names(namespace)]
    wanted = [name for name in call.query.get("topics", "").split(",") if name]
    positions = {name: zlib.crc32(name.encode()) for name in present if not wanted or name in wanted}
    return {"namespace": namespace, "bundle": WHOLE_BUNDLE, "topicHashPositions": positions}


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_MIGRATED = Query("migrated", "Only false: 412 for true.")

RESOURCES = (
    Resource(
        f"{_TOPIC}/shadowTopics",
        get=reads(shadows, "None: `[]`."),
        put=changes(shadow, "412, unless the list is empty.", body=names_body("topics")),
        delete=changes(shadow, "Succeeds: there are none."),
    ),
    Resource(
        f"{_TOPIC}/offload",
        get=reads(offloading, "NOT_RUN: a region does not offload."),
        put=changes(offload, "Refused (412): a region does not offload to another store."),
    ),
    Resource(
        "/admin/v2/clusters/{cluster}/migrate",
        get=reads(migration, "The cluster is not migrated."),
        post=changes(migrate, "412, unless `migrated` is false.", _MIGRATED, body=OBJECT),
    ),
    Resource(
        "/admin/v2/namespaces/{tenant}/{namespace}/migration",
        post=changes(migrate, "412, unless `migrated` is false.", _MIGRATED, permission=Permission.SUPERUSER),
    ),
    Resource(
        f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{WHOLE_BUNDLE}/topicHashPositions",
        get=reads(
            hash_positions,
            "The topics' positions in the hash ring of bundles; a namespace has one bundle here.",
            Query("topics", "Only these topics: full names, separated by commas.", str),
        ),
    ),
)
