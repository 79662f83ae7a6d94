"""Settings that tools set and read back although they have no effect here, and the note in each response about that."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.broker.admin.resources import stored_only
from tests.broker.admin.served import Served

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"
PERSISTENCE = {
    "bookkeeperEnsemble": 3,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 10.5,
}
AFFINITY = {"bookkeeperAffinityGroupPrimary": "one", "bookkeeperAffinityGroupSecondary": "two"}


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        ("POST", f"{NAMESPACE}/persistence", PERSISTENCE),
        ("POST", f"{TOPIC}/persistence", PERSISTENCE),
        ("POST", f"{NAMESPACE}/persistence/bookieAffinity", AFFINITY),
        ("POST", f"{NAMESPACE}/offloadPolicies", {"managedLedgerOffloadDriver": "aws-s3"}),
        ("POST", f"{TOPIC}/offloadPolicies", {"managedLedgerOffloadMaxThreads": 4}),
        ("POST", f"{TOPIC}/deduplicationSnapshotInterval", 1_000),
        ("POST", f"{NAMESPACE}/deduplicationSnapshotInterval", 1_000),
        ("PUT", f"{NAMESPACE}/offloadDeletionLagMs", 1_000),
        ("PUT", f"{NAMESPACE}/offloadThresholdInSeconds", -60),
    ],
)
def test_a_stored_only_value_is_returned_with_the_header(
    us: Served, method: str, path: str, value: Any
) -> None:
    before = us.ask("GET", path)
    answers = [us.ask(method, path, value), us.ask("GET", path)]
    assert [one.status for one in answers] == [204, 200]
    assert answers[1].json() == value
    assert {one.headers["x-geoemu-stored-only"] for one in answers} == {"docs/ADMIN.md#stored-without-effect"}
    assert us.ask("DELETE", path).status == 204
    after = us.ask("GET", path)
    assert (after.status, after.body) == (before.status, before.body)


def test_an_enforced_policy_has_no_stored_only_header(us: Served) -> None:
    assert "x-geoemu-stored-only" not in us.ask("GET", f"{NAMESPACE}/deduplication").headers


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", f"{NAMESPACE}/encryptionRequired", b"true", 400),
        ("POST", f"{NAMESPACE}/entryFilters", b'{"entryFilterNames": "mine"}', 412),
        ("POST", f"{NAMESPACE}/persistence", b'{"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2}', 412),
        ("POST", f"{NAMESPACE}/persistence", b'{"bookkeeperEnsemble": "many"}', 400),
        ("POST", f"{NAMESPACE}/persistence", b"3", 400),
        ("PUT", f"{NAMESPACE}/offloadThreshold", b'"much"', 400),
        ("POST", f"{NAMESPACE}/offloadThreshold", b"1", 405),
        ("POST", f"{NAMESPACE}/deduplicationSnapshotInterval", b"-1", 412),
        ("PUT", f"{NAMESPACE}/bundle/split", None, 412),
    ],
)
def test_values_that_a_test_would_rely_on_are_refused(
    us: Served, method: str, path: str, body: bytes | None, status: int
) -> None:
    reply = us.ask(method, path, body)
    assert reply.status == status, reply
    assert reply.json()["reason"]


def test_an_offload_policy_is_removed_where_pulsar_removes_it(us: Served) -> None:
    assert (
        us.ask("POST", f"{NAMESPACE}/offloadPolicies", b'{"managedLedgerOffloadDriver": "s3"}').status == 204
    )
    assert us.ask("DELETE", f"{NAMESPACE}/removeOffloadPolicies").status == 204
    assert us.ask("GET", f"{NAMESPACE}/offloadPolicies").status == 204


def test_permissions_are_stored(us: Served) -> None:
    assert us.ask("POST", f"{NAMESPACE}/permissions/ada", b'["produce"]').status == 204
    assert us.ask("POST", f"{TOPIC}/permissions/bob", b'["consume"]').status == 204
    assert us.get(f"{NAMESPACE}/permissions") == {"ada": ["produce"]}
    assert us.get(f"{TOPIC}/permissions") == {"ada": ["produce"], "bob": ["consume"]}
    assert us.ask("DELETE", f"{TOPIC}/permissions/ada").status == 412
    assert us.ask("DELETE", f"{TOPIC}/permissions/bob").status == 204
    assert us.ask("DELETE", f"{NAMESPACE}/permissions/ada").status == 204
    assert us.get(f"{TOPIC}/permissions") == {}
    assert us.ask("POST", f"{NAMESPACE}/permissions/ada", b'["fly"]').status == 400


def test_permissions_on_subscriptions_are_stored(us: Served) -> None:
    of = f"{NAMESPACE}/permissions/subscription"
    assert us.ask("POST", f"{of}/billing", b'["ada", "bob"]').status == 204
    assert us.get(of) == {"billing": ["ada", "bob"]}
    assert us.ask("DELETE", f"{NAMESPACE}/permissions/billing/ada").status == 204
    assert us.get(of) == {"billing": ["bob"]}
    assert us.ask("DELETE", f"{NAMESPACE}/permissions/billing/bob").status == 204
    assert us.get(of) == {}


def test_a_role_is_revoked_also_where_the_subscription_is_named_subscription(us: Served) -> None:
    of = f"{NAMESPACE}/permissions/subscription"
    assert us.ask("POST", f"{of}/subscription", b'["user", "other"]').status == 204
    assert us.ask("DELETE", f"{NAMESPACE}/permissions/subscription/user").status == 204
    assert us.get(of) == {"subscription": ["other"]}


def test_resource_groups_are_stored(us: Served) -> None:
    group = "/admin/v2/resourcegroups/small"
    assert us.ask("GET", group).status == 404
    assert us.ask("POST", f"{NAMESPACE}/resourcegroup/small").status == 404
    assert us.ask("PUT", group, b'{"publishRateInMsgs": 10, "dispatchRateInBytes": null}').status == 204
    assert us.get(group) == {"publishRateInMsgs": 10}
    assert us.get("/admin/v2/resourcegroups") == ["small"]
    assert us.ask("POST", f"{NAMESPACE}/resourcegroup/small").status == 204
    assert us.get(f"{NAMESPACE}/resourcegroup") == "small"
    assert us.ask("DELETE", group).status == 412
    assert us.ask("DELETE", f"{NAMESPACE}/resourcegroup").status == 204
    assert us.ask("GET", f"{NAMESPACE}/resourcegroup").status == 204
    assert us.ask("DELETE", group).status == 204


def test_the_number_of_resource_groups_and_the_length_of_their_names_are_limited(
    us: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = "/admin/v2/resourcegroups"
    assert us.ask("PUT", f"{groups}/{'a' * 256}", b"{}").status == 412
    monkeypatch.setattr(stored_only, "DOCUMENTS_MAX", 2)
    statuses = [us.ask("PUT", f"{groups}/{name}", b"{}").status for name in ("a" * 255, "b", "c", "b")]
    assert statuses == [204, 204, 412, 204]
    assert us.get(groups) == ["a" * 255, "b"]


def test_cluster_documents_are_stored_and_deleted(us: Served) -> None:
    mars = "/admin/v2/clusters/mars"
    assert us.ask("GET", mars).status == 404
    described = {"serviceUrl": "http://mars:8080", "brokerServiceUrl": "pulsar://mars:6650"}
    assert us.ask("PUT", mars, described).status == 204
    assert us.ask("PUT", mars, b"{}").status == 409
    assert us.get(mars) == described
    assert us.get("/admin/v2/clusters") == ["mars", "us"]
    assert us.ask("POST", f"{NAMESPACE}/replication", b'["us", "mars"]').status == 412
    assert us.ask("PUT", "/admin/v2/tenants/a", b'{"allowedClusters": ["mars"]}').status == 204
    assert us.ask("DELETE", mars).status == 412
    assert us.ask("DELETE", "/admin/v2/tenants/a").status == 204
    assert us.ask("DELETE", mars).status == 204
    assert us.ask("PUT", mars, b'{"serviceUrl": 1}').status == 400


def test_a_region_is_a_cluster_that_only_the_topology_changes(us: Served) -> None:
    cluster = "/admin/v2/clusters/us"
    found = us.get(cluster)
    assert found["brokerServiceUrl"] == f"pulsar://127.0.0.1:{us.service_port}"
    assert us.ask("PUT", cluster, b"{}").status == 409
    assert us.ask("DELETE", cluster).status == 412
    assert us.ask("POST", cluster, found).status == 204
    assert us.ask("POST", cluster, b'{"brokerServiceUrl": "pulsar://elsewhere:1"}').status == 412


def test_permissions_on_several_topics_are_granted_and_revoked_at_once(us: Served) -> None:
    options = [
        {"topic": f"persistent://public/default/{name}", "role": "ada", "actions": ["produce"], "other": 1}
        for name in ("orders", "bills")
    ]
    path = "/admin/v2/namespaces"
    assert us.ask("POST", f"{path}/grantPermissionsOnTopics", options).status == 204
    assert us.get(f"{TOPIC}/permissions") == {"ada": ["produce"]}
    assert us.ask("POST", f"{path}/revokePermissionsOnTopics", options).status == 204
    assert us.get(f"{TOPIC}/permissions") == {}
    for wrong, status in (
        (b'{"topic": "x"}', 400),
        (b'[{"topic": 1, "role": "ada"}]', 400),
        (b'[{"topic": "persistent://a/b", "role": "ada"}]', 400),
        (b'[{"topic": "persistent://a/b/c", "role": "ada", "actions": []}]', 404),
        (b'[{"topic": "persistent://public/default/x", "role": "ada", "actions": ["fly"]}]', 400),
    ):
        reply = us.ask("POST", f"{path}/grantPermissionsOnTopics", wrong)
        assert reply.status in (status, 412), reply
