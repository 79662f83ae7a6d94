"""Tenants and namespaces are created, changed and deleted over HTTP, as Pulsar's tools do it."""

from __future__ import annotations

import pytest

from emulator.config.region import PeerConfig
from tests.broker.admin.served import Served, served

TENANT = "/admin/v2/tenants/acme"
NAMESPACE = "/admin/v2/namespaces/acme/orders"
TOPIC = "/admin/v2/persistent/acme/orders/t"
US = b'{"adminRoles": ["ada"], "allowedClusters": ["us"]}'


def status_of(us: Served, method: str, target: str, body: bytes | None = None) -> int:
    return us.ask(method, target, body).status


def reason_of(us: Served, method: str, target: str, body: bytes | None = None) -> tuple[int, str]:
    reply = us.ask(method, target, body)
    return reply.status, reply.json()["reason"]


def with_namespace(us: Served, policies: bytes | None = None) -> None:
    assert status_of(us, "PUT", TENANT, US) == 204
    assert status_of(us, "PUT", NAMESPACE, policies) == 204


def test_a_tenant_from_its_creation_to_its_end(us: Served) -> None:
    assert reason_of(us, "GET", TENANT) == (404, "Tenant does not exist")
    assert status_of(us, "PUT", TENANT, US) == 204
    assert reason_of(us, "PUT", TENANT, US) == (409, "Tenant already exist")
    assert us.get(TENANT) == {"adminRoles": ["ada"], "allowedClusters": ["us"]}
    assert "acme" in us.get("/admin/v2/tenants")
    assert status_of(us, "POST", TENANT, US.replace(b"ada", b"bob")) == 204
    assert us.get(TENANT)["adminRoles"] == ["bob"]
    assert status_of(us, "DELETE", TENANT) == 204
    assert reason_of(us, "DELETE", TENANT) == (404, "Tenant does not exist")
    assert reason_of(us, "POST", TENANT, US) == (404, "Tenant does not exist")


def test_a_tenant_of_the_topology_allows_all_regions(us: Served) -> None:
    assert us.get("/admin/v2/tenants/public") == {"adminRoles": [], "allowedClusters": ["us"]}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 412, "Clusters can not be empty"),
        (b'{"allowedClusters": []}', 412, "Clusters can not be empty"),
        (b'{"allowedClusters": [""]}', 412, "Clusters can not be empty"),
        (b'{"allowedClusters": ["mars"]}', 412, "Clusters do not exist"),
        (b'{"allowedClusters": ["a b"]}', 412, "is not a name of a cluster"),
        (b'{"allowedClusters": "us"}', 400, "not a list"),
        (b"[]", 400, "JSON object"),
        (b"{", 400, "not JSON"),
    ],
)
def test_an_invalid_tenant_is_refused(us: Served, body: bytes, status: int, words: str) -> None:
    got, reason = reason_of(us, "PUT", TENANT, body)
    assert (got, words in reason) == (status, True), reason
    assert status_of(us, "GET", TENANT) == 404


def test_a_namespace_from_its_creation_to_its_end(us: Served) -> None:
    assert reason_of(us, "PUT", NAMESPACE) == (404, "Tenant does not exist")
    with_namespace(us)
    assert reason_of(us, "PUT", NAMESPACE) == (409, "Namespace already exists")
    assert us.get("/admin/v2/namespaces/acme") == ["acme/orders"]
    document = us.get(NAMESPACE)
    assert document["replication_clusters"] == ["us"]
    assert document["deleted"] is False
    assert us.get(f"{NAMESPACE}/topics") == []
    assert reason_of(us, "DELETE", TENANT) == (409, "The tenant still has active namespaces")
    assert status_of(us, "DELETE", NAMESPACE) == 204
    assert reason_of(us, "GET", NAMESPACE) == (404, "Namespace does not exist")
    assert reason_of(us, "DELETE", NAMESPACE) == (404, "Namespace does not exist")
    assert status_of(us, "DELETE", TENANT) == 204


def test_a_namespace_is_created_with_its_policies(us: Served) -> None:
    with_namespace(
        us,
        b'{"auth_policies": {"namespace_auth": {"anonymous": ["produce", "consume"]}}, "replication_clusters": ["us"],'
        b' "deduplicationEnabled": true, "bundles": {"boundaries": null, "numBundles": 16},'
        b' "backlog_quota_map": {}, "retention_policies": null, "schema_compatibility_strategy": "UNDEFINED"}',
    )
    assert us.get(f"{NAMESPACE}/deduplication") is True
    assert us.get(f"{NAMESPACE}/permissions") == {"anonymous": ["produce", "consume"]}
    document = us.get(NAMESPACE)
    assert document["deduplicationEnabled"] is True
    assert document["bundles"]["numBundles"] == 16


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"replication_clusters": ["mars"]}', 412, "mars is not a region"),
        (b'{"replication_clusters": "us"}', 400, "replication_clusters: 'us'"),
        (b'{"deduplicationEnabled": "yes"}', 400, "deduplicationEnabled: 'yes'"),
        (b'{"encryption_required": true}', 400, "encryption_required"),
        (b'{"bundles": {"numBundles": -1}}', 412, "Bundles"),
        (b"7", 400, "JSON object"),
    ],
)
def test_an_invalid_namespace_is_refused(us: Served, body: bytes, status: int, words: str) -> None:
    assert status_of(us, "PUT", TENANT, US) == 204
    got, reason = reason_of(us, "PUT", NAMESPACE, body)
    assert (got, words in reason) == (status, True), reason
    assert us.get("/admin/v2/namespaces/acme") == []


def test_a_namespace_with_topics_is_deleted_only_by_force(us: Served) -> None:
    with_namespace(us)
    assert status_of(us, "PUT", TOPIC) == 204
    assert status_of(us, "PUT", f"{TOPIC}s/partitions", b"2") == 204
    assert us.ask("POST", f"{TOPIC}/deduplicationEnabled", b"true").status == 204
    assert reason_of(us, "DELETE", NAMESPACE) == (409, "Cannot delete non empty namespace")
    assert us.get(f"{NAMESPACE}/topics") != []
    assert status_of(us, "DELETE", f"{NAMESPACE}?force=true") == 204
    assert status_of(us, "GET", f"{TOPIC}/stats") == 404
    assert status_of(us, "PUT", NAMESPACE) == 204
    assert us.get(f"{NAMESPACE}/topics") == []
    assert us.ask("GET", f"{TOPIC}/deduplicationEnabled").status == 204, "its policies were deleted with it"
    assert us.get("/admin/v2/persistent/acme/orders/partitioned") == []


def test_a_tenant_is_deleted_with_all_it_has_only_by_force(us: Served) -> None:
    with_namespace(us)
    assert status_of(us, "PUT", TOPIC) == 204
    assert status_of(us, "DELETE", TENANT) == 409
    assert status_of(us, "DELETE", f"{TENANT}?force=true") == 204
    assert "acme" not in us.get("/admin/v2/tenants")
    assert status_of(us, "GET", NAMESPACE) == 404


def test_a_namespace_that_regions_share_is_not_deleted() -> None:
    with served(peers=(PeerConfig("eu", "test", "127.0.0.1", 1),)) as us:
        with_both = b'{"allowedClusters": ["us", "eu"]}'
        assert status_of(us, "PUT", TENANT, with_both) == 204
        assert status_of(us, "PUT", NAMESPACE, b'{"replication_clusters": ["us", "eu"]}') == 204
        got, reason = reason_of(us, "DELETE", NAMESPACE)
        assert (got, "Cannot delete the global namespace" in reason) == (412, True)
        assert status_of(us, "POST", f"{NAMESPACE}/replication", b'["us"]') == 204
        assert status_of(us, "DELETE", NAMESPACE) == 204


def test_regions_are_those_that_the_tenant_and_the_namespace_allow() -> None:
    with served(peers=(PeerConfig("eu", "test", "127.0.0.1", 1),)) as us:
        with_namespace(us)
        got, reason = reason_of(us, "POST", f"{NAMESPACE}/replication", b'["us", "eu"]')
        assert (got, "tenant [acme]" in reason) == (403, True)
        assert status_of(us, "POST", TENANT, b'{"allowedClusters": ["us", "eu"]}') == 204
        assert status_of(us, "POST", f"{NAMESPACE}/allowedClusters", b'["us"]') == 204
        got, reason = reason_of(us, "POST", f"{NAMESPACE}/replication", b'["us", "eu"]')
        assert (got, "namespace [acme/orders]" in reason) == (403, True)
        assert status_of(us, "POST", f"{NAMESPACE}/allowedClusters", b'["eu"]') == 400


def test_of_concurrent_creations_of_a_namespace_one_succeeds_and_the_others_are_refused(us: Served) -> None:
    assert status_of(us, "PUT", TENANT, US) == 204
    assert sorted(us.ask_at_once(*[("PUT", NAMESPACE)] * 8)) == [204] + [409] * 7


def test_concurrent_changes_of_properties_keep_each_other_s(us: Served) -> None:
    with_namespace(us)
    us.ask_at_once(*(("PUT", f"{NAMESPACE}/property/k{i}/v%2F{i}") for i in range(12)))
    assert us.get(f"{NAMESPACE}/properties") == {f"k{i}": f"v/{i}" for i in range(12)}


@pytest.mark.parametrize("name", ["größe", "заказы", "注文", "a.b-c:d=e_1"])
def test_names_of_every_script(us: Served, name: str) -> None:
    from urllib.parse import quote

    target = f"/admin/v2/namespaces/public/{quote(name)}"
    assert status_of(us, "PUT", target) == 204
    assert f"public/{name}" in us.get("/admin/v2/namespaces/public")
    topic = f"/admin/v2/persistent/public/{quote(name)}/{quote(name)}"
    assert status_of(us, "PUT", topic) == 204
    assert us.get(f"{target}/topics") == [f"persistent://public/{name}/{name}"]
    assert status_of(us, "DELETE", f"{target}?force=true") == 204


@pytest.mark.parametrize("name", ["a%2Fb", "a%20b", "%00", "a%0Ab", "%22", "..%2F..", "%F0%9F%98%80"])
def test_invalid_names_are_refused(us: Served, name: str) -> None:
    for target in (f"/admin/v2/namespaces/public/{name}", f"/admin/v2/tenants/{name}"):
        assert status_of(us, "PUT", target, US if "tenants" in target else None) == 412
    assert us.get("/admin/v2/tenants") == ["public"]
