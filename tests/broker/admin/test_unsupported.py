"""Pulsar's settings for other clusters, stores and brokers: each is stored, shown, obeyed or rejected, never
ignored."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from emulator.broker.admin.resources.unsupported import ABSENT
from emulator.client import Client, ClientError, ConsumerType
from tests.broker.admin.served import Served

CLUSTER = "/admin/v2/clusters/us"
NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"
NAME = "persistent://public/default/orders"
SUBSCRIPTION = f"{TOPIC}/subscription/billing"


@pytest.fixture(autouse=True)
def _topic(us: Served) -> None:
    assert us.ask("PUT", TOPIC).status == 204


def test_failure_domains_are_stored_and_returned(us: Served) -> None:
    rack = f"{CLUSTER}/failureDomains/rack-1"
    assert us.get(f"{CLUSTER}/failureDomains") == {}
    assert us.ask("GET", rack).status == 404
    assert us.ask("POST", rack, b'{"brokers": ["b1"]}').status == 204
    assert us.ask("POST", rack, b'{"brokers": ["b1", "b2"]}').status == 204
    assert us.get(rack) == {"brokers": ["b1", "b2"]}
    assert us.get(f"{CLUSTER}/failureDomains") == {"rack-1": {"brokers": ["b1", "b2"]}}
    assert "x-geoemu-stored-only" in us.ask("GET", rack).headers
    assert us.ask("DELETE", rack).status == 204
    assert [us.ask("DELETE", rack).status, us.ask("GET", rack).status] == [404, 404]
    assert us.ask("POST", rack, b'{"brokers": "red"}').status == 400
    assert us.ask("POST", "/admin/v2/clusters/mars/failureDomains/d", b"{}").status == 404


@pytest.mark.parametrize("body", [b'"apart"', b"apart"])
def test_an_anti_affinity_group_is_stored_quoted_or_not(us: Served, body: bytes) -> None:
    """Java's client sends the name unquoted, although it declares the body as JSON."""
    path, members = f"{NAMESPACE}/antiAffinity", "/admin/namespaces/us/antiAffinity/apart?tenant=public"
    assert (us.ask("GET", path).status, us.get(members)) == (204, [])
    assert us.ask("POST", path, body).status == 204
    assert us.ask("GET", path).body == b"apart"
    assert us.get(members) == ["public/default"]
    assert us.ask("DELETE", path).status == 204
    assert us.get(members) == []
    assert us.ask("PUT", "/admin/v2/namespaces/public/new", b'{"antiAffinityGroup": ""}').status == 204
    assert us.ask("GET", "/admin/v2/namespaces/public/new/antiAffinity").status == 204, (
        "Go's client sends that"
    )
    assert us.ask("POST", path, b" ").status == 412
    assert us.ask("POST", path, b'["apart"]').status == 400


def test_pausing_for_acknowledgements_is_set_without_a_body(us: Served) -> None:
    for place in (NAMESPACE, TOPIC):
        path = f"{place}/dispatcherPauseOnAckStatePersistent"
        assert us.get(path) is False
        assert us.ask("POST", path).status == 204
        assert us.get(path) is True
        assert us.ask("DELETE", path).status == 204
        assert us.get(path) is False


def test_a_cluster_and_its_peer_share_no_namespace(us: Served) -> None:
    assert us.ask("PUT", "/admin/v2/clusters/mars", b"{}").status == 204
    assert us.ask("POST", f"{CLUSTER}/peers", b'["mars"]').status == 204
    assert us.get(f"{CLUSTER}/peers") == ["mars"]
    assert us.get(CLUSTER)["brokerServiceUrl"].startswith("pulsar://"), "the region is unchanged"
    assert us.ask("POST", f"{CLUSTER}/peers", b'["us"]').status == 412
    assert us.ask("POST", f"{CLUSTER}/peers", b'["venus"]').status == 412
    assert us.ask("POST", f"{CLUSTER}/peers", b"[]").status == 204
    assert us.get(f"{CLUSTER}/peers") == []


def test_nothing_is_offloaded_and_nothing_migrates(us: Served) -> None:
    assert us.get(f"{TOPIC}/offload")["status"] == "NOT_RUN"
    assert us.get(f"{CLUSTER}/migrate") == {"migrated": False, "migratedClusterUrl": None}
    for path in (f"{CLUSTER}/migrate", f"{NAMESPACE}/migration"):
        assert us.ask("POST", f"{path}?migrated=false").status == 204
        reply = us.ask("POST", f"{path}?migrated=true")
        assert (reply.status, "migrated: true" in reply.json()["reason"]) == (412, True)


def test_a_topic_that_would_show_the_messages_of_another_one_is_refused(us: Served) -> None:
    assert us.get(f"{TOPIC}/shadowTopics") == []
    body = json.dumps({"PULSAR.SHADOW_SOURCE": NAME}).encode()
    assert us.ask("PUT", "/admin/v2/persistent/public/default/shadow", body).status == 412
    assert us.ask("PUT", f"{TOPIC}/shadowTopics", b'["persistent://public/default/shadow"]').status == 412
    assert us.ask("DELETE", f"{TOPIC}/shadowTopics").status == 204
    assert us.get("/admin/v2/persistent/public/default") == [NAME]


def test_a_topics_place_in_the_ring_is_the_checksum_of_its_name(us: Served) -> None:
    path = f"{NAMESPACE}/0x00000000_0xffffffff/topicHashPositions"
    assert us.get(path)["topicHashPositions"] == {NAME: zlib.crc32(NAME.encode())}
    assert us.get(f"{path}?topics=persistent://public/default/other")["topicHashPositions"] == {}
    assert us.ask("GET", f"{NAMESPACE}/0x00000000_0x7fffffff/topicHashPositions").status == 404


def test_notes_on_a_subscription_come_and_go_with_it(us: Served) -> None:
    path = f"{SUBSCRIPTION}/properties"
    assert us.ask("GET", path).status == 404
    assert us.ask("PUT", SUBSCRIPTION).status == 204
    assert us.get(path) == {}
    assert us.ask("PUT", path, b'{"a": "1"}').status == 204
    assert us.ask("PUT", path, b'{"b": "2"}').status == 204
    assert us.get(path) == {"b": "2"}
    assert us.ask("PUT", f"{TOPIC}/unload").status == 204
    assert us.get(path) == {"b": "2"}
    assert us.ask("PUT", path, {"b": "2" * 65_536}).status == 412
    assert us.ask("DELETE", SUBSCRIPTION).status == 204
    assert us.ask("PUT", SUBSCRIPTION).status == 204
    assert us.get(path) == {}


def test_a_consumer_above_its_subscribe_rate_is_refused(us: Served) -> None:
    def come() -> None:
        us.run(lambda client: client.subscribe(NAME, "billing", name="me"))

    rate: dict[str, Any] = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 3_600}
    come()
    assert us.ask("POST", f"{TOPIC}/subscribeRate", rate).status == 204
    assert us.get(f"{TOPIC}/subscribeRate?applied=true") == rate
    come()
    come()
    with pytest.raises(ClientError, match="Subscribe limited by subscribe rate limit per consumer"):
        come()
    assert us.ask("DELETE", f"{TOPIC}/subscribeRate").status == 204
    come()
    assert us.ask("POST", f"{NAMESPACE}/subscribeRate", b'{"ratePeriodInSecond": 0}').status == 412


def test_internal_info_shows_the_stored_state_until_the_end_of_the_topic(us: Served) -> None:
    assert us.ask("PUT", SUBSCRIPTION).status == 204

    async def scenario(client: Client) -> None:
        consumer = await client.subscribe(NAME, "billing", type_=ConsumerType.SHARED)
        producer = await client.producer(NAME)
        for number in range(3):
            await producer.send(b"%d" % number)
        found = [await consumer.receive() for _ in range(3)]
        await consumer.acknowledge(found[2], confirmed=True)

    us.run(scenario)
    stored = us.get(f"{TOPIC}/internal-info")
    ledger = stored["ledgers"][0]["ledgerId"]
    assert stored["ledgers"][0]["entries"] == 3
    assert stored["cursors"]["billing"] == {
        "cursorsLedgerId": -1,
        "markDelete": {"ledgerId": ledger, "entryId": -1},
        "individualDeletedMessages": [
            {"from": {"ledgerId": ledger, "entryId": 1}, "to": {"ledgerId": ledger, "entryId": 2}}
        ],
    }
    assert "terminatedPosition" not in stored
    assert us.ask("POST", f"{TOPIC}/terminate").status == 200
    assert us.get(f"{TOPIC}/internal-info")["terminatedPosition"] == {"ledgerId": ledger, "entryId": 2}


def test_the_only_bundle_can_be_listed_and_emptied(us: Served) -> None:
    bundle = f"{NAMESPACE}/0x00000000_0xffffffff"
    assert us.get(bundle.replace("namespaces", "non-persistent")) == []
    reply = us.ask("DELETE", bundle)
    assert (reply.status, reply.json()["reason"]) == (409, "Cannot delete non empty bundle")
    assert us.ask("DELETE", f"{bundle}?force=true").status == 204
    assert us.ask("DELETE", bundle).status == 204
    assert us.get(f"{NAMESPACE}/topics") == []
    assert us.ask("DELETE", "/admin/v2/namespaces/public/nowhere/0x00000000_0xffffffff").status == 404


def test_nothing_is_offloaded_on_request(us: Served) -> None:
    reply = us.ask("PUT", f"{TOPIC}/offload", b'{"ledgerId": 1, "entryId": 1}')
    assert (reply.status, reply.json()["reason"]) == (412, "a region does not offload to another store")
    assert us.ask("PUT", f"{TOPIC}-other/offload").status == 404


def test_quotas_are_compared_on_request(us: Served) -> None:
    assert us.ask("GET", "/admin/v2/brokers/backlog-quota-check").status == 204


def test_figures_of_partitions_leave_clients_out_on_request(us: Served) -> None:
    parts = f"{TOPIC}-parts"
    assert us.ask("PUT", f"{parts}/partitions", b"1").status == 204
    assert us.ask("PUT", f"{parts}/subscription/billing").status == 204
    found = us.get(f"{parts}/partitioned-stats?excludePublishers=true&excludeConsumers=true")
    assert (found["publishers"], found["subscriptions"]["billing"]["consumers"]) == ([], [])


@pytest.mark.parametrize(
    ("path", "body", "unset"),
    [
        (f"{CLUSTER}/namespaceIsolationPolicies/mine", {"namespaces": ["a/.*"], "unload_scope": "none"}, 404),
        ("/admin/v2/bookies/racks-info/b:3181?group=g", {"rack": "r", "hostname": "h"}, 404),
        ("/admin/v2/resource-quotas/public/default/0x00000000_0xffffffff", {"memory": 7}, 200),
    ],
)
def test_documents_about_other_machines_are_stored(us: Served, path: str, body: Any, unset: int) -> None:
    assert us.ask("GET", path).status == unset
    answer = us.ask("POST", path, body | {"sinceAnotherVersion": 1})
    assert (answer.status, "x-geoemu-stored-only" in answer.headers) == (204, True)
    assert us.get(path) == body
    assert us.ask("POST", path, b'{"namespaces": 1, "rack": 1, "memory": "x"}').status == 400
    assert us.ask("POST", path).status == 400
    assert us.ask("DELETE", path).status == 204
    assert us.ask("GET", path).status == unset


def test_racks_and_isolation_policies_are_listed(us: Served) -> None:
    assert us.ask("POST", "/admin/v2/bookies/racks-info/b", b"{}").status == 412
    assert us.ask("POST", f"/admin/v2/bookies/racks-info/{'b' * 300}?group=g", b"{}").status == 412
    assert us.ask("POST", "/admin/v2/bookies/racks-info/b?group=g", b'{"rack": "r"}').status == 204
    assert us.get("/admin/v2/bookies/racks-info") == {"g": {"b": {"rack": "r"}}}
    assert us.get("/admin/v2/bookies/all") == {"bookies": []}
    policies = f"{CLUSTER}/namespaceIsolationPolicies"
    assert us.ask("POST", f"{policies}/mine", b"{}").status == 204
    assert us.get(policies) == {"mine": {}}
    (broker,) = us.get(f"{policies}/brokers")
    assert us.get(f"{policies}/brokers/{broker['brokerName']}") == broker
    assert us.ask("GET", f"{policies}/brokers/other").status == 404
    assert us.ask("GET", "/admin/v2/clusters/mars/namespaceIsolationPolicies").status == 404


def test_a_default_quota_counts_where_a_bundle_has_none(us: Served) -> None:
    bundle = "/admin/v2/resource-quotas/public/default/0x00000000_0xffffffff"
    assert us.get(bundle) == us.get("/admin/v2/resource-quotas")
    assert us.ask("POST", "/admin/v2/resource-quotas", b'{"memory": 7}').status == 204
    assert us.get(bundle) == {"memory": 7}


def test_figures_of_a_broker(us: Served) -> None:
    stats = "/admin/v2/broker-stats"
    topics = us.get(f"{stats}/topics")["public/default"]["0x00000000_0xffffffff"]["persistent"]
    assert list(topics) == [TOPIC.replace("/admin/v2/persistent/", "persistent://")]
    assert (us.get(f"{stats}/metrics"), us.get(f"{stats}/mbeans"), us.get(f"{stats}/bookieops")) == (
        [],
        [],
        {},
    )
    assert us.get(f"{stats}/load-report")["numTopics"] == 1
    assert us.ask("GET", f"{stats}/allocator-stats/default").status == 404


@pytest.mark.parametrize("path", ABSENT)
def test_requests_for_a_missing_service_are_refused_with_its_reason(us: Served, path: str) -> None:
    status, reason = ABSENT[path]
    for method, target in (("GET", path), ("POST", f"{path}/public/default/x"), ("DELETE", f"{path}/x")):
        reply = us.ask(method, target)
        assert (reply.status, reply.json()["reason"]) == (status, reason)
    assert us.ask("GET", f"{path}x").status == 404


def test_services_that_a_region_does_not_have_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "ADMIN.md").read_text()
    assert [path for path in ABSENT if f"`{path}" not in page] == []
