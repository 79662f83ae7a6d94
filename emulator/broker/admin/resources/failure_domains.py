"""Failure domains of clusters: stored and returned without any effect."""

from __future__ import annotations

import json
from typing import Any, Final

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.admin.resources.tenants import known_clusters
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.codecs import TEXTS
from emulator.core.policies.stored_only import ANTI_AFFINITY
from emulator.model.stored_keys import KeptPath, StoredKey, parse_path
from emulator.model.values import is_valid_name

KIND: Final = "failure-domain"


def _cluster(call: AdminRequest) -> str:
    """HttpError 404 when it does not exist."""
    name = call.names["cluster"]
    if name not in known_clusters(call.context.region):
        raise HttpError(404, f"Cluster {name} does not exist")
    return name


def _path(cluster: str, domain: str) -> str:
    """The path with both names, the cluster's first: neither has a slash."""
    return KeptPath(KIND, f"{cluster}/{domain}").text


def _named(call: AdminRequest) -> str:
    """Its path. HttpError 412 for an impossible name."""
    cluster, domain = _cluster(call), call.names["domain"]
    if not is_valid_name(domain):
        raise HttpError(412, f"{domain[:100]!r} is not a name of a failure domain")
    return _path(cluster, domain)


async def domains(call: AdminRequest) -> Response:
    cluster, metadata = _cluster(call), call.context.region.metadata
    found: dict[str, Any] = {}
    for change in metadata.list(KeptPath.prefix(KIND)):
        key: StoredKey | None = parse_path(change.path)
        if isinstance(key, KeptPath) and key.name.startswith(f"{cluster}/") and change.value is not None:
            found[key.name.removeprefix(f"{cluster}/")] = json.loads(change.value)
    return Response(dict(sorted(found.items())))


async def get(call: AdminRequest) -> Response:
    stored = call.context.region.metadata.get(_named(call))
    if stored is None or stored.value is None:
        raise HttpError(404, f"Domain {call.names['domain']} does not exist in {call.names['cluster']}")
    return Response(json.loads(stored.value))


async def put(call: AdminRequest) -> Response:
    value = json.dumps(call.body or {"brokers": []}).encode()
    await call.context.region.metadata.put(_named(call), value)
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    await get(call)
    await call.context.region.metadata.put(_named(call), None)
    return Response(status=204)


def _parse(raw: Any) -> dict[str, list[str]] | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise HttpError(400, f"{str(raw)[:100]} must be a JSON object with brokers")
    try:
        return {"brokers": list(TEXTS.decode(raw.get("brokers") or []))}
    except ValueError as problem:
        raise HttpError(400, f"brokers: {problem}") from None


_BODY = Body(
    _parse,
    {
        "type": "object",
        "properties": {"brokers": {"type": ["array", "null"], "items": {"type": "string"}}},
    },
)
_DOMAINS = "/admin/v2/clusters/{cluster}/failureDomains"

RESOURCES = (
    Resource(
        _DOMAINS,
        ResourceScope.REGION,
        get=reads(domains, "The cluster's failure domains, by name."),
        kept=ANTI_AFFINITY.kept,
    ),
    Resource(
        f"{_DOMAINS}/{{domain}}",
        ResourceScope.REGION,
        get=reads(get, "Its brokers."),
        put=changes(put, "Set its brokers.", body=_BODY),
        post=changes(put, "Set its brokers.", body=_BODY),
        delete=changes(delete, "Delete it."),
        kept=ANTI_AFFINITY.kept,
    ),
)
