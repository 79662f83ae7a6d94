"""Policies are read, set and removed over HTTP, and topics follow them."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.admin.resources.policies import policy_resources
from emulator.client import ClientError, ConsumerType
from emulator.config.region import PeerConfig
from emulator.core.policies.declaration import Scope
from emulator.core.policies.topic_policies import REGISTRY
from emulator.model.stored_keys import NamespacePath, RegionTopicPoliciesPath
from tests.broker.admin.served import Served, served

NAMESPACE = "/admin/v2/namespaces/public/default"
NAMESPACE_PATH = NamespacePath("public/default").text
ORDERS = "persistent://public/default/orders"
TOPIC = "/admin/v2/persistent/public/default/orders"
NAME = "persistent://public/default/orders"


def test_every_policy_has_its_paths() -> None:
    without = [
        policy.name
        for policy in REGISTRY.values()
        if (Scope.NAMESPACE in policy.scopes and not policy.at_namespace)
        or (Scope.TOPIC in policy.scopes and not policy.at_topic)
    ]
    assert without == []
    assert {row.path for row in policy_resources(REGISTRY.values())} >= {
        "/admin/v2/namespaces/{tenant}/{namespace}/deduplication",
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplicationEnabled",
    }


def test_a_topic_s_policy_overrides_its_namespace_s(us: Served) -> None:
    assert us.get(f"{NAMESPACE}/deduplication") is False
    assert us.ask("POST", f"{NAMESPACE}/deduplication", b"true").status == 204
    assert us.get(f"{NAMESPACE}/deduplication") is True
    assert us.ask("GET", f"{TOPIC}/deduplicationEnabled").status == 204
    assert us.get(f"{TOPIC}/deduplicationEnabled?applied=true") is True
    assert us.ask("POST", f"{TOPIC}/deduplicationEnabled", b"false").status == 204
    assert us.get(f"{TOPIC}/deduplicationEnabled") is False
    assert us.get(f"{TOPIC}/deduplicationEnabled?applied=true") is False
    assert us.ask("DELETE", f"{TOPIC}/deduplicationEnabled").status == 204
    assert us.get(f"{TOPIC}/deduplicationEnabled?applied=true") is True


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"{NAMESPACE}/deduplication", b'"yes"', 400),
        (f"{NAMESPACE}/deduplication", b"null", 400),
        (f"{NAMESPACE}/deduplication", b"", 400),
        (f"{NAMESPACE}/replication", b'"us"', 400),
        (f"{NAMESPACE}/replication", b'["/"]', 400),
        (f"{NAMESPACE}/replication", b'["us", "mars"]', 412),
        (f"{NAMESPACE}/replication", b"[]", 412),
        (f"{NAMESPACE}/replication", b'["us", ""]', 400),
        (f"{NAMESPACE}/replication", b'["us", ["us"]]', 400),
        (f"{TOPIC}/replication", b"[]", 412),
        ("/admin/v2/namespaces/public/none/deduplication", b"true", 404),
        ("/admin/v2/persistent/public/none/orders/deduplicationEnabled", b"true", 404),
        (f"{NAMESPACE}/retention", b'{"retentionTimeInMinutes": 5, "retentionSizeInMB": 0}', 412),
        (f"{NAMESPACE}/retention", b'{"retentionTimeInMinutes": 5}', 400),
        (f"{NAMESPACE}/messageTTL", b"-1", 412),
        (f"{NAMESPACE}/backlogQuota", b'{"limit": 5, "policy": "shrug"}', 400),
        (f"{NAMESPACE}/backlogQuota?backlogQuotaType=weight", b'{"policy": "producer_exception"}', 400),
        (f"{NAMESPACE}/backlogQuota", b'{"limitSize": -7, "policy": "producer_exception"}', 412),
    ],
)
def test_an_invalid_policy_is_refused_and_changes_nothing(
    us: Served, path: str, body: bytes, status: int
) -> None:
    reply = us.ask("POST", path, body)
    assert reply.status == status
    assert reply.json()["reason"]
    assert us.get(f"{NAMESPACE}/replication") == ["us"]
    assert us.get(f"{NAMESPACE}/deduplication") is False


def store(us: Served, path: str, value: bytes) -> None:
    """Write a path of the configuration store without any check."""
    asyncio.run_coroutine_threadsafe(us.region.metadata.put(path, value), us.loop).result(10)


@pytest.mark.parametrize(
    "stored", [b'{"policies": {"deduplication": "yes"}}', b'{"policies": ["yes"]}', b"[]", b"{"]
)
def test_an_invalid_stored_policy_is_replaced_or_removed(us: Served, stored: bytes) -> None:
    path = f"{NAMESPACE}/deduplication"
    for method, body, after in (("POST", b"true", 200), ("DELETE", None, 204)):
        store(us, NAMESPACE_PATH, stored)
        assert us.ask(method, path, body).status == 204
        assert us.ask("GET", path).status == after
    store(us, NAMESPACE_PATH, stored)
    quota = {"limitSize": 5, "limitTime": -1, "policy": "producer_exception"}
    assert us.ask("POST", f"{NAMESPACE}/backlogQuota", quota).status == 204


def test_an_invalid_part_of_a_stored_policy_is_replaced_with_all_of_it(us: Served) -> None:
    store(us, NAMESPACE_PATH, b'{"policies": {"permissions": {"namespace_auth": 3}}}')
    assert us.ask("POST", f"{NAMESPACE}/permissions/ada", ["produce"]).status == 204
    assert us.get(f"{NAMESPACE}/permissions") == {"ada": ["produce"]}


def test_an_invalid_stored_policy_has_no_parts(us: Served) -> None:
    store(us, NAMESPACE_PATH, b'{"policies": {"permissions": 3, "properties": 3}}')
    store(
        us, RegionTopicPoliciesPath("us", ORDERS).text, b'{"policies": {"dispatch_rates_by_subscription": 3}}'
    )
    assert us.get(f"{NAMESPACE}/permissions") == us.get(f"{NAMESPACE}/properties") == {}
    assert us.ask("DELETE", f"{TOPIC}/permissions/ada").status == 412
    assert us.ask("DELETE", f"{NAMESPACE}/property/owner").status == 204
    assert us.ask("GET", f"{TOPIC}/billing/dispatchRate").status == 204


def test_a_list_of_regions_must_contain_the_region_of_the_request() -> None:
    """Otherwise the region would keep sending to regions that no longer share the namespace."""
    with served(peers=(PeerConfig("eu", "test", "127.0.0.1", 1),)) as us:
        for place in (NAMESPACE, TOPIC):
            reply = us.ask("POST", f"{place}/replication", b'["eu"]')
            assert reply.status == 412
            assert "the list lacks us" in reply.json()["reason"]


def test_a_region_that_is_named_twice_is_named_once(us: Served) -> None:
    assert us.ask("POST", f"{NAMESPACE}/replication", b'["us", "us"]').status == 204
    assert us.get(f"{NAMESPACE}/replication") == ["us"]


def test_a_topic_s_policy_applies_to_one_region_or_to_all(us: Served) -> None:
    path = f"{TOPIC}/deduplicationEnabled"
    assert us.ask("POST", f"{path}?isGlobal=true", b"true").status == 204
    assert us.ask("GET", path).status == 204, "only the policy of this region"
    assert us.get(f"{path}?isGlobal=true") is True
    assert us.get(f"{path}?applied=true") is True
    assert us.ask("POST", path, b"false").status == 204
    assert us.get(f"{path}?applied=true") is False, "the more specific policy applies"
    assert us.ask("DELETE", path).status == 204
    assert us.get(f"{path}?applied=true") is True


def test_partitions_have_the_policies_of_their_topic(us: Served) -> None:
    assert us.ask("POST", f"{TOPIC}/deduplicationEnabled", b"true").status == 204
    assert us.get(f"{TOPIC}-partition-0/deduplicationEnabled?applied=true") is True


def test_an_unset_policy_of_a_namespace_is_no_value(us: Served) -> None:
    assert us.ask("DELETE", f"{NAMESPACE}/deduplication").status == 204
    assert us.ask("GET", f"{NAMESPACE}/deduplication").status == 204
    assert us.get(f"{NAMESPACE}/deduplication?applied=true") is False


def test_of_concurrent_changes_of_one_policy_one_is_last_and_all_are_confirmed(us: Served) -> None:
    bodies = [b"true", b"false"] * 6
    statuses = us.ask_at_once(*(("POST", f"{NAMESPACE}/deduplication", body) for body in bodies))
    assert statuses == [204] * len(bodies)
    assert us.get(f"{NAMESPACE}/deduplication") in (True, False)
    assert us.get(f"{NAMESPACE}/replication") == ["us"]


def test_a_subscription_may_have_a_dispatch_rate_of_its_own(us: Served) -> None:
    mine, others = f"{TOPIC}/billing/dispatchRate", f"{TOPIC}/audit/dispatchRate"
    rate = {"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    assert us.ask("PUT", TOPIC).status == 204
    assert us.ask("GET", mine).status == 204
    assert us.ask("POST", mine, rate).status == 204
    assert us.get(mine)["dispatchThrottlingRateInMsg"] == 7
    assert us.ask("GET", others).status == 204
    assert us.get(f"{others}?applied=true")["dispatchThrottlingRateInMsg"] == -1
    assert us.ask("POST", f"{mine}?isGlobal=true", rate).status == 204
    assert us.ask("DELETE", mine).status == 204
    assert us.get(f"{mine}?applied=true")["dispatchThrottlingRateInMsg"] == 7
    assert us.ask("POST", mine, b'{"dispatchThrottlingRateInMsg": "x"}').status == 400
    assert us.ask("POST", mine, b'{"dispatchThrottlingRateInMsg": -7}').status == 412


def test_all_policies_of_a_topic_are_unset_at_once(us: Served) -> None:
    """PIP-422: the policies of this region and those of all; also of a topic that does not exist."""
    for topic in (TOPIC, f"{TOPIC}-gone"):
        for where in ("", "?isGlobal=true"):
            assert us.ask("POST", f"{topic}/maxProducers{where}", b"7").status == 204
            assert us.ask("POST", f"{topic}/deduplicationEnabled{where}", b"true").status == 204
        assert us.ask("DELETE", f"{topic}/policies").status == 204
        for where in ("", "?isGlobal=true"):
            assert us.ask("GET", f"{topic}/maxProducers{where}").body in (b"", b"0")
            assert us.ask("GET", f"{topic}/deduplicationEnabled{where}").status == 204
        assert us.ask("DELETE", f"{topic}/policies").status == 204
    assert us.ask("DELETE", "/admin/v2/persistent/public/nowhere/x/policies").status == 404


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (f"{NAMESPACE}/maxTopicsPerNamespace", "maxTopicsPerNamespace must be 0 or more"),
        (f"{NAMESPACE}/maxProducersPerTopic", "maxProducersPerTopic must be 0 or more"),
        (f"{TOPIC}/maxProducers", "maxProducers must be 0 or more"),
        (f"{NAMESPACE}/maxUnackedMessagesPerConsumer", "maxUnackedMessagesPerConsumer must be 0 or more"),
        (f"{NAMESPACE}/compactionThreshold", "compactionThreshold must be 0 or more"),
        (f"{NAMESPACE}/subscriptionExpirationTime", "Invalid value for subscription expiration time"),
        (f"{NAMESPACE}/messageTTL", "Invalid value for message TTL, message TTL must >= 0"),
    ],
)
def test_a_negative_number_is_refused_in_the_words_that_clients_compare(
    us: Served, path: str, sentence: str
) -> None:
    for body in (b"-1", b"-60"):
        reply = us.ask("PUT" if path.endswith("compactionThreshold") else "POST", path, body)
        assert (reply.status, reply.json()["reason"]) == (412, sentence)
    huge = us.ask("PUT" if path.endswith("compactionThreshold") else "POST", path, b"1" + b"0" * 30)
    assert huge.status == 412
    assert huge.json()["reason"] != sentence, "not negative: that message would be wrong"


@pytest.mark.parametrize("segment", ["dispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate"])
@pytest.mark.parametrize("place", [NAMESPACE, TOPIC])
def test_a_dispatch_rate_may_be_relative_to_the_publish_rate(us: Served, place: str, segment: str) -> None:
    rate = {
        "dispatchThrottlingRateInMsg": 1_000,
        "dispatchThrottlingRateInByte": 1_048_576,
        "ratePeriodInSecond": 30,
        "relativeToPublishRate": True,
    }
    assert us.ask("POST", f"{place}/{segment}", rate).status == 204
    assert us.get(f"{place}/{segment}") == rate
    wrong = {**rate, "relativeToPublishRate": "perhaps"}
    reply = us.ask("POST", f"{place}/{segment}", wrong)
    assert reply.status == 400
    assert "relativeToPublishRate: 'perhaps'" in reply.json()["reason"]


def test_a_missing_tenant_or_namespace_is_named(us: Served) -> None:
    body = b'{"allowAutoTopicCreation": true, "topicType": "non-partitioned"}'
    for name, missing in (("public/none", "Namespace"), ("none/default", "Tenant")):
        reply = us.ask("POST", f"/admin/v2/namespaces/{name}/autoTopicCreation", body)
        assert (reply.status, reply.json()["reason"]) == (404, f"{missing} does not exist")


@pytest.mark.parametrize("count", [0, -1])
def test_topics_with_too_few_partitions_are_refused_in_the_words_that_clients_compare(
    us: Served, count: int
) -> None:
    given = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": count}
    reply = us.ask("POST", f"{NAMESPACE}/autoTopicCreation", given)
    assert (reply.status, reply.json()["reason"]) == (
        412,
        "Invalid configuration for autoTopicCreationOverride. the detail is [defaultNumPartitions] cannot be less "
        "than 1 for partition type.",
    )


# Retention, TTL and quotas, in the forms that Pulsar's tools send.


@pytest.mark.parametrize("place", [NAMESPACE, TOPIC])
def test_quotas_are_set_one_kind_at_a_time_and_read_together(us: Served, place: str) -> None:
    hold = b'{"limit": "10240", "policy": "producer_request_hold"}'
    evict = b'{"limitTime": 5, "limitSize": -1, "policy": "consumer_backlog_eviction"}'
    assert us.ask("POST", f"{place}/backlogQuota", hold).status == 204
    assert us.ask("POST", f"{place}/backlogQuota?backlogQuotaType=message_age", evict).status == 204
    assert us.get(f"{place}/backlogQuotaMap") == {
        "destination_storage": {
            "limit": 10240,
            "limitSize": 10240,
            "limitTime": -1,
            "policy": "producer_request_hold",
        },
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 5, "policy": "consumer_backlog_eviction"},
    }
    assert us.ask("DELETE", f"{place}/backlogQuota?backlogQuotaType=message_age").status == 204
    assert list(us.get(f"{place}/backlogQuotaMap")) == ["destination_storage"]


def test_a_topic_s_ttl_is_a_query_parameter(us: Served) -> None:
    assert us.ask("POST", f"{TOPIC}/messageTTL?messageTTL=60").status == 204
    assert us.get(f"{TOPIC}/messageTTL") == 60
    assert us.ask("DELETE", f"{TOPIC}/messageTTL?messageTTL=60").status == 204
    assert us.ask("GET", f"{TOPIC}/messageTTL").status == 204
    assert us.ask("POST", f"{TOPIC}/messageTTL?messageTTL=soon").status == 400
    assert us.ask("POST", f"{TOPIC}/messageTTL?messageTTL=-5").status == 412


# Which consumers may subscribe, and how.


def subscribe(us: Served, type_: ConsumerType, subscription: str = "billing") -> None:
    us.run(lambda client: client.subscribe(NAME, subscription, type_=type_))


def test_a_policy_reserves_the_creation_of_subscriptions_for_the_admin_api(us: Served) -> None:
    assert us.ask("PUT", TOPIC).status == 204
    off = b'{"allowAutoSubscriptionCreation": false}'
    assert us.ask("POST", f"{NAMESPACE}/autoSubscriptionCreation", off).status == 204
    with pytest.raises(ClientError, match="Subscription does not exist"):
        subscribe(us, ConsumerType.EXCLUSIVE)
    assert us.ask("PUT", f"{TOPIC}/subscription/billing").status == 204
    subscribe(us, ConsumerType.EXCLUSIVE)
    on = off.replace(b"false", b"true")
    assert us.ask("POST", f"{TOPIC}/autoSubscriptionCreation", on).status == 204
    subscribe(us, ConsumerType.EXCLUSIVE, "another")


def test_only_some_types_of_subscriptions(us: Served) -> None:
    assert us.ask("PUT", TOPIC).status == 204
    assert us.get(f"{NAMESPACE}/subscriptionTypesEnabled") == []
    assert us.ask("POST", f"{NAMESPACE}/subscriptionTypesEnabled", b'["Shared", "Failover"]').status == 204
    subscribe(us, ConsumerType.SHARED)
    with pytest.raises(ClientError, match="doesn't support Exclusive sub type"):
        subscribe(us, ConsumerType.EXCLUSIVE)
    assert us.ask("DELETE", f"{NAMESPACE}/subscriptionTypesEnabled").status == 204
    subscribe(us, ConsumerType.EXCLUSIVE)
    assert us.ask("POST", f"{TOPIC}/subscriptionTypesEnabled", b'["Round"]').status == 400
