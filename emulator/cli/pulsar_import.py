"""Read a topology draft from the admin API of a running Pulsar, or of a region of geoemu."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from emulator.cli.topology_draft import TopologyDraft
from emulator.errors import Refused
from emulator.runtimes.admin_client import NoHttpResponse, call_url, describe

INSTANCE: Final = "pulsar"
"""Name of the one cluster of the draft: the clusters of a Pulsar instance share a configuration store."""
GLOBAL: Final = "global"
"""Name that Pulsar lists among its clusters, and that is none."""
OWN_TENANT: Final = "pulsar"
"""Tenant of Pulsar's own topics, which regions of geoemu have as well."""
RETENTION: Final = {
    "retention_minutes": "retentionTimeInMinutes",
    "retention_megabytes": "retentionSizeInMB",
}
"""Key of a topology file -> name in Pulsar's policies."""
RESPONSE_SECONDS: Final = 10.0


async def read_pulsar(url: str, latency_ms: float) -> tuple[TopologyDraft, list[str]]:
    """Return the draft of a Pulsar's clusters, tenants, namespaces and policies, and what it does not contain. Each
    cluster is a region. Raises Refused if the URL or a response is invalid."""
    _check_url(url)
    clusters = [name for name in await _names(url, "clusters") if name != GLOBAL]
    if not clusters:
        raise Refused(f"{url} has no cluster")
    tenants = [name for name in await _names(url, "tenants") if name != OWN_TENANT]
    namespaces: dict[str, Mapping[str, Any]] = {}
    remarks: list[str] = []
    for tenant in tenants:
        for name in await _names(url, f"namespaces/{quote(tenant, safe='')}"):
            policies = await _get(url, f"namespaces/{quote(name)}")
            if not isinstance(policies, dict):
                raise Refused(f"{url} returned no policies of namespace {name}: {str(policies)[:80]}")
            namespaces[name] = _keys(policies, clusters)
            remarks += _unknown(name, policies, clusters)
    return TopologyDraft("pulsar", {INSTANCE: clusters}, latency_ms, namespaces, tenants), remarks


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    try:
        is_complete = parts.scheme == "http" and parts.hostname and parts.port
    except ValueError:
        is_complete = False
    if not is_complete:
        raise Refused(f"{url!r} is no URL of an admin API: write for example http://127.0.0.1:8080")


async def _names(url: str, target: str) -> list[str]:
    found = await _get(url, target)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Refused(f"{url} returned no list of {target}: {str(found)[:80]}")
    return found


async def _get(url: str, target: str) -> Any:
    try:
        answer = await call_url(url, "GET", f"/admin/v2/{target}", seconds=RESPONSE_SECONDS)
    except NoHttpResponse as problem:
        raise Refused(f"{url} does not respond: {problem}") from None
    if answer.status != 200:
        raise Refused(f"{url} did not return {target}: {describe(answer)}")
    try:
        return answer.json()
    except ValueError:
        raise Refused(f"{url} returned {target} that is no JSON: is it an admin API?") from None


def _keys(policies: Mapping[str, Any], clusters: Sequence[str]) -> dict[str, Any]:
    """Return the policies that a topology file has, by its keys."""
    declared = policies.get("replication_clusters")
    named = [one for one in declared if one in clusters] if isinstance(declared, list) else []
    keys: dict[str, Any] = {"regions": "all" if set(named) == set(clusters) else named or list(clusters[:1])}
    if policies.get("deduplicationEnabled") is True:
        keys["deduplication"] = True
    retention = policies.get("retention_policies")
    if isinstance(retention, dict):
        for key, name in (
            ("retention_minutes", "retentionTimeInMinutes"),
            ("retention_megabytes", "retentionSizeInMB"),
        ):
            if isinstance(retention.get(name), int):
                keys[key] = retention[name]
    if isinstance(ttl := policies.get("message_ttl_in_seconds"), int) and ttl > 0:
        keys["message_ttl_seconds"] = ttl
    return keys


def _unknown(name: str, policies: Mapping[str, Any], clusters: Sequence[str]) -> Iterator[str]:
    declared = policies.get("replication_clusters")
    for cluster in declared if isinstance(declared, list) else ():
        if cluster not in clusters:
            yield f"{name} is replicated to {cluster!r}, which is no cluster there: left out"
