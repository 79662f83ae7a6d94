"""Clusters of Pulsar's API: the regions, and further clusters that tools describe; and the checks of the clusters in a
policy of a namespace or a topic."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from emulator.broker.admin.parsing import names_body
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Resource, changes, reads
from emulator.broker.connection.service_ports import ServiceUrls
from emulator.broker.region import Region
from emulator.core.authorization.rule import Permission
from emulator.core.policies.topics import ALLOWED_CLUSTERS, REPLICATION_CLUSTERS
from emulator.model.stored_keys import ClusterPath, parse_path
from emulator.model.values import is_valid_name
from emulator.net.addresses import is_loopback
from emulator.net.http_server import HttpError
from emulator.storage.configuration.contract import ABSENT, Conflict

OBEYS = (ALLOWED_CLUSTERS,)
"""Policies that this module enforces (PO1)."""
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
_TYPES: Final = {"string": str, "array": list, "boolean": bool, "object": dict}


# Which clusters exist.


def regions_of(region: Region) -> set[str]:
    """Return all regions of the run."""
    return {region.config.region, *region.peers}


def known_clusters(region: Region) -> list[str]:
    """Return the regions, and the clusters with a stored document, sorted."""
    stored = [parse_path(change.path) for change in region.metadata.list(ClusterPath.prefix())]
    return sorted(regions_of(region) | {key.name for key in stored if isinstance(key, ClusterPath)})


def known_cluster(call: AdminRequest) -> str:
    """Return the cluster in the path. HttpError 404 when it does not exist."""
    name = call.names["cluster"]
    if name not in known_clusters(call.region):
        raise HttpError(404, f"Cluster {name} does not exist")
    return name


def _document(region: Region, name: str) -> dict[str, Any] | None:
    stored = region.metadata.get(ClusterPath(name).text)
    found: dict[str, Any] | None = (
        None if stored is None or stored.value is None else json.loads(stored.value)
    )
    return found


def cluster_document(call: AdminRequest, name: str) -> Mapping[str, Any]:
    """Return the document of a cluster; for a region, its addresses and the stored fields. HttpError 404 when it does
    not exist."""
    region, stored = call.region, _document(call.region, name)
    if name == region.config.region:
        return {**_addresses(call), **_DEFAULT_FIELDS, **(stored or {})}
    for peer in region.config.peers:
        if peer.region == name:
            urls = ServiceUrls.of(_address_for_client(peer.host, call), peer.port, peer.port_tls)
            return {**_service_urls(urls), **_DEFAULT_FIELDS, **(stored or {})}
    if stored is None:
        raise HttpError(404, "Cluster does not exist")
    return stored


def _addresses(call: AdminRequest) -> dict[str, str]:
    """Return the fields with the addresses of this region; without those of ports that it does not have."""
    plain, secured = call.urls
    web = {"serviceUrl": plain, "serviceUrlTls": secured}
    return {name: url for name, url in web.items() if url} | _service_urls(call.service_urls)


def _service_urls(urls: ServiceUrls) -> dict[str, str]:
    fields = {"brokerServiceUrl": urls.plain, "brokerServiceUrlTls": urls.secured}
    return {name: url for name, url in fields.items() if url}


def _address_for_client(host: str, call: AdminRequest) -> str:
    """Return the address at which the client reaches a peer: instead of a loopback address, the one that the client
    used for this region, unless the region has an advertised host."""
    everywhere = not call.region.config.advertised_host
    return call.local_address if everywhere and is_loopback(host) else host


_DEFAULT_FIELDS: Final = {"brokerClientTlsEnabled": False, "migrated": False}


# Checks of the clusters that a namespace or a topic names.


def check_region_exists(region: Region, name: str) -> None:
    """Raise HttpError 412 for a name that is not a region."""
    known = regions_of(region)
    if name not in known:
        raise HttpError(412, f"{name} is not a region; there are {', '.join(sorted(known))}")
    if reason := region.removed_regions.why(name):
        raise HttpError(412, str(reason))


def check_replication_clusters(region: Region, namespace: str, clusters: tuple[str, ...]) -> None:
    """Raise HttpError for an invalid list of replication clusters. Pulsar deletes the topics in a region that the list
    lacks. This is never intended for the region of the request, so it must be in the list."""
    here = region.config.region
    for name in clusters:
        check_region_exists(region, name)
    if not clusters:
        raise HttpError(412, f"a list of regions must not be empty; [{here!r}] alone means no replication")
    if here not in clusters:
        raise HttpError(
            412,
            f"the list lacks {here}, the region that received the request: to remove {here}, send the request to "
            f"another region of its cluster; to end replication, name {here} alone",
        )
    _check_peers(region, clusters)
    _check_tenant_allows(region, namespace, clusters)
    if region.policies.has_namespace(namespace):
        allowed = region.policies.of_namespace(namespace, ALLOWED_CLUSTERS)
        _check_among(clusters, allowed or clusters, f"namespace [{namespace}]")


def _check_peers(region: Region, clusters: tuple[str, ...]) -> None:
    """Raise HttpError 409 for a list with two clusters of which one has the other as a peer cluster."""
    for name in clusters:
        for peer in (_document(region, name) or {}).get("peerClusterNames") or ():
            if peer in clusters:
                raise HttpError(
                    409, f"{peer} is a peer cluster of {name}: peer clusters do not replicate to each other"
                )


def _check_tenant_allows(region: Region, namespace: str, clusters: Collection[str]) -> None:
    """Raise HttpError 403 for a region that the tenant does not allow."""
    tenant = namespace.partition("/")[0]
    allowed = region.tenancy.tenant(tenant).allowed_clusters
    if allowed is not None:
        _check_among(clusters, allowed, f"tenant [{tenant}]")


def check_allowed(region: Region, namespace: str, allowed: tuple[str, ...]) -> None:
    """Raise HttpError for a list of allowed clusters that lacks a replication cluster (400), or has an unknown region
    (412) or one that the tenant does not allow (403)."""
    for name in allowed:
        check_region_exists(region, name)
    _check_tenant_allows(region, namespace, allowed)
    check_contained(region.policies.of_namespace(namespace, REPLICATION_CLUSTERS), allowed)


def check_contained(replication_clusters: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Raise HttpError 400 for a replication cluster that is not allowed. An empty `allowed` allows all."""
    for name in replication_clusters:
        if allowed and name not in allowed:
            raise HttpError(400, f"Allowed clusters do not contain the replication cluster {name}")


def _check_among(clusters: Collection[str], allowed: Collection[str], allowing_object: str) -> None:
    for name in clusters:
        if name not in allowed:
            raise HttpError(
                403, f"Cluster [{name}] is not in the list of allowed clusters list for {allowing_object}"
            )


# Requests.


async def names(call: AdminRequest) -> Content:
    return known_clusters(call.region)


async def get(call: AdminRequest) -> Content:
    return cluster_document(call, call.names["cluster"])


async def create(call: AdminRequest) -> None:
    region, name = call.region, call.names["cluster"]
    if not is_valid_name(name):
        raise HttpError(412, "Cluster name is not valid")
    conflict = HttpError(409, f"Cluster {name} already exists")
    if name in regions_of(region):
        raise conflict
    try:
        await region.metadata.put(ClusterPath(name).text, json.dumps(call.body or {}).encode(), ABSENT)
    except Conflict:
        raise conflict from None


async def change(call: AdminRequest) -> None:
    """Replace the document of a cluster that is not a region. For a region nothing is stored: HttpError 412 for values
    that differ from the present ones."""
    region, name = call.region, call.names["cluster"]
    present = cluster_document(call, name)
    if name not in regions_of(region):
        await region.metadata.put(ClusterPath(name).text, json.dumps(call.body or {}).encode())
        return
    for field, value in (call.body or {}).items():
        if value and present.get(field, value if field.startswith("service") else None) != value:
            raise HttpError(
                412,
                f"{field}: {name} is a region of the topology, which defines its address ({present.get(field)})",
            )


async def delete(call: AdminRequest) -> None:
    region, name = call.region, call.names["cluster"]
    cluster_document(call, name)
    if name in regions_of(region):
        raise HttpError(412, f"{name} is a region of the topology: stop it there")
    for tenant in region.policies.tenants():
        if name in (region.tenancy.tenant(tenant).allowed_clusters or ()):
            raise HttpError(412, f"Cluster not empty: tenant {tenant} allows {name}")
    await region.metadata.put(ClusterPath(name).text, None)


async def get_peers(call: AdminRequest) -> Content:
    return cluster_document(call, call.names["cluster"]).get("peerClusterNames") or []


async def set_peers(call: AdminRequest) -> None:
    """Set the peer clusters of a cluster. HttpError 412 for an unknown cluster, or the cluster itself."""
    region, name, peers = call.region, call.names["cluster"], call.body or []
    cluster_document(call, name)
    known = known_clusters(region)
    for peer in peers:
        if peer == name:
            raise HttpError(412, f"{name} itself can't be part of peer-list")
        if peer not in known:
            raise HttpError(412, f"Peer cluster {peer} does not exist; there are {', '.join(known)}")

    def with_peers(present: bytes | None) -> bytes:
        before = {} if present is None else json.loads(present)
        return json.dumps(before | {"peerClusterNames": list(dict.fromkeys(peers))}).encode()

    await region.metadata.update(ClusterPath(name).text, with_peers)


def _parse(raw: Any) -> dict[str, Any] | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise HttpError(400, "a cluster is a JSON object")
    known = {field: raw[field] for field in FIELDS if raw.get(field) is not None}
    for field, value in known.items():
        if not isinstance(value, _TYPES[FIELDS[field]]):
            raise HttpError(400, f"{field}: {str(value)[:100]!r} must be of type {FIELDS[field]}")
    if len(json.dumps(known)) > DESCRIPTION_BYTES_MAX:
        raise HttpError(400, f"a cluster's description may have {DESCRIPTION_BYTES_MAX} bytes at most")
    return known


_PROPERTIES = {name: {"type": [kind, "null"]} for name, kind in FIELDS.items()}
_BODY = Body(_parse, {"type": "object", "properties": _PROPERTIES})
_CLUSTER = "/admin/v2/clusters/{cluster}"

RESOURCES = (
    Resource(
        "/admin/v2/clusters",
        get=reads(
            names,
            "Names of all regions (to Pulsar's clients a region is a cluster) and of described clusters.",
            permission=Permission.ANY_ROLE,
        ),
    ),
    Resource(
        _CLUSTER,
        get=reads(get, "Its addresses."),
        put=changes(create, "Describe another cluster; 409 if the name exists.", body=_BODY),
        post=changes(
            change, "Replace a description; 412 for a region, unless it equals the present one.", body=_BODY
        ),
        delete=changes(
            delete, "Delete a description; 412 for a region, and while a tenant allows the cluster."
        ),
        stored_only="The topology decides which regions run. Describing another cluster starts none, and no region "
        "replicates to it.",
    ),
    Resource(
        f"{_CLUSTER}/peers",
        get=reads(get_peers, "Names of its peer clusters."),
        post=changes(
            set_peers,
            "Set its peer clusters: no namespace or topic may be replicated between it and one of them.",
            body=names_body("clusters"),
        ),
    ),
)
