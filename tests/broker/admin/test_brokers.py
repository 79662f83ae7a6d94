"""The broker's description of itself, and which of its settings can be changed."""

from __future__ import annotations

import asyncio

import pytest

from emulator.config.region import NamespaceConfig
from tests.broker.admin.served import DEADLINE_SECONDS, Served, served

BROKERS = "/admin/v2/brokers"


def test_a_region_is_one_broker(us: Served) -> None:
    name = f"127.0.0.1:{us.admin_port}"
    assert us.get(BROKERS) == us.get(f"{BROKERS}/us") == [name]
    assert us.get(f"{BROKERS}/leaderBroker") == {"brokerId": name, "serviceUrl": f"http://{name}"}
    assert us.ask("GET", f"{BROKERS}/mars").status == 404
    assert "public/default/0x00000000_0xffffffff" in us.get(f"{BROKERS}/us/{name}/ownedNamespaces")


@pytest.mark.parametrize("path", ["health", "ready", "health?topicVersion=V2"])
def test_the_region_is_healthy(us: Served, path: str) -> None:
    assert us.ask("GET", f"{BROKERS}/{path}").body == b"ok"


def test_version_and_internal_configuration(us: Served) -> None:
    assert us.ask("GET", f"{BROKERS}/version").body
    assert us.get(f"{BROKERS}/internal-configuration")["region"] == "us"


def test_a_dynamic_setting_applies_at_once_and_is_taken_back(us: Served) -> None:
    of_topic = "/admin/v2/persistent/public/none/t/deduplicationEnabled?applied=true"
    assert us.ask("PUT", "/admin/v2/namespaces/public/none").status == 204
    assert us.get(f"{BROKERS}/configuration/values") == {}
    assert us.ask("POST", f"{BROKERS}/configuration/brokerDeduplicationEnabled/true").status == 204
    assert us.get(f"{BROKERS}/configuration/values") == {"brokerDeduplicationEnabled": "true"}
    assert us.get(f"{BROKERS}/configuration/runtime")["brokerDeduplicationEnabled"] == "true"
    assert us.get(of_topic) is True
    assert us.ask("DELETE", f"{BROKERS}/configuration/brokerDeduplicationEnabled").status == 204
    assert us.get(of_topic) is False


def test_a_configured_policy_applies_until_a_dynamic_setting_or_a_namespace_sets_it() -> None:
    configured = {"deduplication": True, "snapshot_timeout_ms": 7_000}
    of_topic = "/admin/v2/persistent/public/none/t/deduplicationEnabled?applied=true"
    setting = f"{BROKERS}/configuration/brokerDeduplicationEnabled"
    with served(broker_policies=configured) as region:
        assert region.ask("PUT", "/admin/v2/namespaces/public/none").status == 204
        assert region.get(f"{BROKERS}/configuration/values") == {}
        runtime = region.get(f"{BROKERS}/configuration/runtime")
        assert runtime["brokerDeduplicationEnabled"] == "true"
        assert runtime["replicatedSubscriptionsSnapshotTimeoutSeconds"] == "7"
        assert region.get(of_topic) is True
        assert region.ask("POST", f"{setting}/false").status == 204
        assert region.get(of_topic) is False
        assert region.ask("DELETE", setting).status == 204
        assert region.get(of_topic) is True
        assert region.ask("POST", "/admin/v2/namespaces/public/none/deduplication", False).status == 204
        assert region.get(of_topic) is False


@pytest.mark.parametrize("deduplication", [None, False, True])
def test_a_namespace_without_a_policy_of_its_own_has_the_configured_one(deduplication: bool | None) -> None:
    namespace = NamespaceConfig("public/orders", ("us",), deduplication)
    of_topic = "/admin/v2/persistent/public/orders/t/deduplicationEnabled?applied=true"
    with served(broker_policies={"deduplication": True}, namespaces=(namespace,)) as region:
        assert region.get(of_topic) is (deduplication is not False)


def test_a_dynamic_setting_may_be_one_field_of_a_policy(us: Served) -> None:
    of_topic = "/admin/v2/persistent/public/none/t/autoSubscriptionCreation?applied=true"
    assert us.ask("PUT", "/admin/v2/namespaces/public/none").status == 204
    path = f"{BROKERS}/configuration/allowAutoSubscriptionCreation"
    assert us.get(f"{BROKERS}/configuration/runtime")["allowAutoSubscriptionCreation"] == "true"
    assert us.ask("POST", f"{path}/false").status == 204
    assert us.get(f"{BROKERS}/configuration/values") == {"allowAutoSubscriptionCreation": "false"}
    assert us.get(f"{BROKERS}/configuration/runtime")["allowAutoSubscriptionCreation"] == "false"
    assert us.get(of_topic) == {"allowAutoSubscriptionCreation": False}
    reply = us.ask("POST", f"{path}/%7B%22key%2F123%22%3A%22https%3A%2F%2Fexample.com%2F%22%7D")
    assert reply.status == 412
    assert "allowAutoSubscriptionCreation" in reply.json()["reason"]
    assert us.ask("DELETE", path).status == 204
    assert us.get(of_topic) == {"allowAutoSubscriptionCreation": True}


@pytest.mark.parametrize(
    "name",
    [
        "maxTopicsPerNamespace",
        "maxProducersPerTopic",
        "maxConsumersPerTopic",
        "maxConsumersPerSubscription",
        "maxSubscriptionsPerTopic",
    ],
)
def test_a_number_may_be_changed_for_all_namespaces(us: Served, name: str) -> None:
    assert name in us.get(f"{BROKERS}/configuration")
    assert us.get(f"{BROKERS}/configuration/runtime")[name] == "0"
    assert us.ask("POST", f"{BROKERS}/configuration/{name}/7").status == 204
    assert us.get(f"{BROKERS}/configuration/values") == {name: "7"}
    assert us.get(f"/admin/v2/namespaces/public/default/{name}?applied=true") == 7
    assert us.ask("POST", f"{BROKERS}/configuration/{name}/-1").status == 412
    assert us.ask("POST", f"{BROKERS}/configuration/{name}/many").status == 412


def test_other_settings_are_not_changed(us: Served) -> None:
    names = us.get(f"{BROKERS}/configuration")
    assert "brokerDeduplicationEnabled" in names
    reply = us.ask("POST", f"{BROKERS}/configuration/maxMessageSize/1")
    assert reply.status == 412
    assert "brokerDeduplicationEnabled" in reply.json()["reason"]
    assert us.ask("POST", f"{BROKERS}/configuration/brokerDeduplicationEnabled/perhaps").status == 412
    assert us.get(f"{BROKERS}/configuration/runtime")["maxMessageSize"] == "5242880"


def test_a_region_that_is_shut_down_answers_and_then_ends(us: Served) -> None:
    shutdown_path = f"{BROKERS}/shutdown?maxConcurrentUnloadPerSec=0&forcedTerminateTopic=true"
    assert us.ask("POST", shutdown_path, b"").status == 204
    told = asyncio.run_coroutine_threadsafe(us.region.end.wait(), us.loop)
    assert told.result(DEADLINE_SECONDS)
    assert not us.region.end.is_fenced
