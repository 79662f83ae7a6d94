"""Clusters of Pulsar's API: the regions, and cluster documents that tools store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.replication_rules import regions_of
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.admin.resources.tenants import known_clusters
from emulator.broker.authorization import ResourceScope
from emulator.model.stored_keys import ClusterPath
from emulator.model.values import is_valid_name
from emulator.net.addresses import in_url, is_loopback
from emulator.storage.configuration.contract import ABSENT, Conflict

DESCRIPTION_BYTES_MAX: Final = 65_536
FIELDS: Final = {
    "serviceUrl": "string",
    "serviceUrlTls": "string",
    "brokerServiceUrl": "string",
    "brokerServiceUrlTls": "string",
    "proxyServiceUrl": "string",
    "proxyProtocol": "string",
    "authenticationPlugin": "string",
    "authenticationParameters": "string",
    "peerClusterNames": "array",
    "brokerClientTlsEnabled": "boolean",
    "tlsAllowInsecureConnection": "boolean",
    "brokerClientTlsEnabledWithKeyStore": "boolean",
    "brokerClientTlsTrustStoreType": "string",
    "brokerClientTlsTrustStore": "string",
    "brokerClientTlsTrustStorePassword": "string",
    "brokerClientTlsKeyStoreType": "string",
    "brokerClientTlsKeyStore": "string",
    "brokerClientTlsKeyStorePassword": "string",
    "brokerClientTrustCertsFilePath": "string",
    "brokerClientKeyFilePath": "string",
    "brokerClientCertificateFilePath": "string",
    "brokerClientSslFactoryPlugin": "string",
    "brokerClientSslFactoryPluginParams": "string",
    "listenerName": "string",
    "migrated": "boolean",
    "migratedClusterUrl": "object",
}
_PYTHON: Final = {"string": str, "array": list, "boolean": bool, "object": dict}
KEPT: Final = (
    "The topology decides which regions run. Describing another cluster starts none, and no region "
    "replicates to it."
)


async def names(call: AdminRequest) -> Response:
    return Response(known_clusters(call.context.region))


async def get(call: AdminRequest) -> Response:
    return Response(described(call, call.names["cluster"]))


def described(call: AdminRequest, name: str) -> Mapping[str, Any]:
    """HttpError 404 when it does not exist."""
    region = call.context.region
    stored = region.metadata.get(ClusterPath(name).text)
    said: Mapping[str, Any] = {} if stored is None or stored.value is None else json.loads(stored.value)
    if name == region.config.region:
        return {"serviceUrl": call.url, "brokerServiceUrl": call.service_url, **_NO_MORE, **said}
    for peer in region.config.peers:
        if peer.region == name:
            host = _seen_by_client(peer.host, call)
            return {"brokerServiceUrl": f"pulsar://{in_url(host)}:{peer.port}", **_NO_MORE, **said}
    if stored is None or stored.value is None:
        raise HttpError(404, "Cluster does not exist")
    return said


def _seen_by_client(host: str, call: AdminRequest) -> str:
    """Return the address at which the client reaches a peer: a loopback address is of no use to a client elsewhere."""
    everywhere = not call.context.region.config.advertised_host
    return call.came_by if everywhere and is_loopback(host) else host


_NO_MORE: Final = {"brokerClientTlsEnabled": False, "migrated": False}


async def create(call: AdminRequest) -> Response:
    region, name = call.context.region, call.names["cluster"]
    if not is_valid_name(name):
        raise HttpError(412, "Cluster name is not valid")
    taken = HttpError(409, f"Cluster {name} already exists")
    if name in regions_of(region):
        raise taken
    try:
        await region.metadata.put(ClusterPath(name).text, json.dumps(call.body or {}).encode(), ABSENT)
    except Conflict:
        raise taken from None
    return Response(status=204)


async def change(call: AdminRequest) -> Response:
    """A region's document may only contain its actual values."""
    region, name = call.context.region, call.names["cluster"]
    present = described(call, name)
    if name not in regions_of(region):
        await region.metadata.put(ClusterPath(name).text, json.dumps(call.body or {}).encode())
        return Response(status=204)
    for field, value in (call.body or {}).items():
        if value and present.get(field, value if field.startswith("service") else None) != value:
            raise HttpError(
                412,
                f"{field}: {name} is a region of the topology, which defines its address ({present.get(field)})",
            )
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    region, name = call.context.region, call.names["cluster"]
    described(call, name)
    if name in regions_of(region):
        raise HttpError(412, f"{name} is a region of the topology: stop it there")
    for tenant in region.policies.tenants():
        if name in (region.tenancy.tenant(tenant).allowed_clusters or ()):
            raise HttpError(412, f"Cluster not empty: tenant {tenant} allows {name}")
    await region.metadata.put(ClusterPath(name).text, None)
    return Response(status=204)


async def get_peers(call: AdminRequest) -> Response:
    return Response(described(call, call.names["cluster"]).get("peerClusterNames") or [])


async def set_peers(call: AdminRequest) -> Response:
    """HttpError 412 for an unknown cluster, or for itself."""
    region, name, peers = call.context.region, call.names["cluster"], call.body or []
    described(call, name)
    known = known_clusters(region)
    for peer in peers:
        if peer == name:
            raise HttpError(412, f"{name} itself can't be part of peer-list")
        if peer not in known:
            raise HttpError(412, f"Peer cluster {peer} does not exist; there are {', '.join(known)}")

    def changed(present: bytes | None) -> bytes:
        before = {} if present is None else json.loads(present)
        return json.dumps(before | {"peerClusterNames": list(dict.fromkeys(peers))}).encode()

    await region.metadata.update(ClusterPath(name).text, changed)
    return Response(status=204)


def _parse_peers(raw: Any) -> list[str] | None:
    if raw is not None and (not isinstance(raw, list) or not all(isinstance(one, str) for one in raw)):
        raise HttpError(400, f"{str(raw)[:100]} is not a list of names of clusters")
    return raw


def _parse(raw: Any) -> dict[str, Any] | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise HttpError(400, "a cluster is a JSON object")
    known = {field: raw[field] for field in FIELDS if raw.get(field) is not None}
    for field, value in known.items():
        if not isinstance(value, _PYTHON[FIELDS[field]]):
            raise HttpError(400, f"{field}: {str(value)[:100]!r} must be of type {FIELDS[field]}")
    if len(json.dumps(known)) > DESCRIPTION_BYTES_MAX:
        raise HttpError(400, f"a cluster's description may have {DESCRIPTION_BYTES_MAX} bytes at most")
    return known


_BODY = Body(
    _parse,
    {
        "type": "object",
        "properties": {name: {"type": [kind, "null"]} for name, kind in FIELDS.items()},
    },
)
_CLUSTER = "/admin/v2/clusters/{cluster}"

RESOURCES = (
    Resource(
        "/admin/v2/clusters",
        ResourceScope.REGION,
        get=reads(
            names,
            "Names of all regions (to Pulsar's clients a region is a cluster) and of described clusters.",
        ),
    ),
    Resource(
        _CLUSTER,
        ResourceScope.REGION,
        get=reads(get, "Its addresses."),
        put=changes(create, "Describe another cluster; 409 if the name exists.", body=_BODY),
        post=changes(
            change, "Replace a description; 412 for a region, unless it equals the present one.", body=_BODY
        ),
        delete=changes(
            delete, "Delete a description; 412 for a region, and while a tenant allows the cluster."
        ),
        kept=KEPT,
    ),
    Resource(
        f"{_CLUSTER}/peers",
        ResourceScope.REGION,
        get=reads(get_peers, "Names of its peer clusters."),
        post=changes(
            set_peers,
            "Set its peer clusters: no namespace or topic may be replicated between it and one of them.",
            body=Body(_parse_peers, {"type": ["array", "null"], "items": {"type": "string"}}),
        ),
    ),
)
