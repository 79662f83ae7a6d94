"""The Go admin client, on which pulsarctl is built, against a region: each call is one of its methods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.client import Client
from tests.broker.admin.served import Served, served
from tests.clients.admin.resident import Resident, resident
from tests.clients.driving import go_program

HERE = Path(__file__).parent
NAMESPACE, TOPIC = "acme/orders", "persistent://acme/orders/new"
PARTITIONED = "persistent://acme/orders/parts"
RATE = {"dispatchThrottlingRateInMsg": 100, "dispatchThrottlingRateInByte": 1_000, "ratePeriodInSecond": 2}
PUBLISH_RATE = {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 1_000}
RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}
LIMIT = {"limitSize": 1_000, "limitTime": -1, "policy": "producer_exception"}
SUBSCRIBE_RATE = {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 60}
PERSISTENCE = {
    "bookkeeperEnsemble": 2,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 0,
}
LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}


class Failed(Exception):
    """The client returned an error."""


class GoAdmin:
    """The client, resident."""

    def __init__(self, program: Resident) -> None:
        self._program = program

    def call(self, part: str, method: str, *arguments: Any) -> Any:
        """Call the method and return its result; a list if it returns several values."""
        outcome, _, text = self._program.ask(f"{part}\t{method}\t{json.dumps(arguments)}").partition("\t")
        if outcome != "ok":
            raise Failed(text)
        found = json.loads(text)
        return found[0] if len(found) == 1 else found


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    with served() as region:
        yield region


@pytest.fixture(scope="module")
def admin(us: Served) -> Iterator[GoAdmin]:
    """Build it if it is missing; skip the test without Go."""
    command = go_program("go-admin", HERE / "go_driver.go")
    with resident(*command, f"http://127.0.0.1:{us.admin_port}") as program:
        client = GoAdmin(program)
        client.call("Tenants", "Create", {"Name": "acme", "adminRoles": ["ada"], "allowedClusters": ["us"]})
        client.call("Namespaces", "CreateNamespace", NAMESPACE)
        client.call("Topics", "Create", TOPIC, 0)
        yield client


pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_tenants_are_created_changed_and_deleted(admin: GoAdmin) -> None:
    assert admin.call("Clusters", "List") == ["us"]
    assert admin.call("Tenants", "Get", "acme") == {"adminRoles": ["ada"], "allowedClusters": ["us"]}
    admin.call("Tenants", "Create", {"Name": "short", "adminRoles": [], "allowedClusters": ["us"]})
    with pytest.raises(Failed, match="409"):
        admin.call("Tenants", "Create", {"Name": "short", "adminRoles": [], "allowedClusters": ["us"]})
    admin.call("Tenants", "Update", {"Name": "short", "adminRoles": ["bob"], "allowedClusters": ["us"]})
    assert admin.call("Tenants", "Get", "short")["adminRoles"] == ["bob"]
    assert "short" in admin.call("Tenants", "List")
    admin.call("Tenants", "Delete", "short")
    with pytest.raises(Failed, match="404"):
        admin.call("Tenants", "Get", "short")


def test_a_namespace_is_created_with_policies_and_read_as_a_whole(admin: GoAdmin) -> None:
    made = {"replication_clusters": ["us"], "message_ttl_in_seconds": 60, "retention_policies": RETENTION}
    default = {
        "offload_threshold": -1,
        "subscription_auth_mode": "None",
        "schema_auto_update_compatibility_strategy": "Full",
    }
    admin.call("Namespaces", "CreateNsWithPolices", "acme/made", {**default, **made})
    found = admin.call("Namespaces", "GetPolicies", "acme/made")
    assert {name: found[name] for name in made} == made
    assert sorted(admin.call("Namespaces", "GetNamespaces", "acme")) == ["acme/made", NAMESPACE]
    admin.call("Namespaces", "DeleteNamespace", "acme/made")
    assert admin.call("Namespaces", "GetNamespaces", "acme") == [NAMESPACE]


OF_NAMESPACES = {
    "Retention": RETENTION,
    "NamespaceMessageTTL": 60,
    "NamespaceReplicationClusters": ["us"],
    "CompactionThreshold": 1_000,
    "MaxProducersPerTopic": 3,
    "MaxConsumersPerTopic": 4,
    "MaxConsumersPerSubscription": 5,
    "DispatchRate": RATE,
    "SubscriptionDispatchRate": RATE,
    "ReplicatorDispatchRate": RATE,
    "PublishRate": PUBLISH_RATE,
    "SubscribeRate": SUBSCRIBE_RATE,
    "Persistence": PERSISTENCE,
    "NamespaceAntiAffinityGroup": "apart",
    "OffloadThreshold": 1_000,
    "OffloadDeleteLag": 1_000,
    "SchemaValidationEnforced": False,
    "IsAllowAutoUpdateSchema": True,
    "SubscriptionExpirationTime": 60,
    "TopicAutoCreation": {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
}
OF_TOPICS = {
    "MessageTTL": 60,
    "MaxProducers": 3,
    "MaxConsumers": 4,
    "MaxUnackMessagesPerConsumer": 5,
    "MaxUnackMessagesPerSubscription": 6,
    "DispatchRate": RATE,
    "PublishRate": PUBLISH_RATE,
    "DelayedDelivery": {"tickTime": 10, "active": True},
    "DeduplicationStatus": True,
    "ReplicationClusters": ["us"],
    "Persistence": PERSISTENCE,
}
POLICIES = [("Namespaces", NAMESPACE, *one) for one in OF_NAMESPACES.items()]
POLICIES += [("Topics", TOPIC, *one) for one in OF_TOPICS.items()]


@pytest.mark.parametrize(
    ("part", "of", "name", "value"), POLICIES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_policy_that_is_set_is_read_back(admin: GoAdmin, part: str, of: str, name: str, value: Any) -> None:
    admin.call(part, f"Set{name}", of, value)
    found = admin.call(part, f"Get{name}", of)
    assert (found if not isinstance(value, dict) else {field: found[field] for field in value}) == value
    if part == "Topics" and name != "ReplicationClusters":
        admin.call(part, f"Remove{name}", of)


def test_backlog_quotas_and_grants_of_a_namespace(admin: GoAdmin) -> None:
    admin.call("Namespaces", "SetBacklogQuota", NAMESPACE, LIMIT, "destination_storage")
    found = admin.call("Namespaces", "GetBacklogQuotaMap", NAMESPACE)
    assert found["destination_storage"]["policy"] == "producer_exception"
    admin.call("Namespaces", "RemoveBacklogQuota", NAMESPACE)
    assert admin.call("Namespaces", "GetBacklogQuotaMap", NAMESPACE) == {}
    admin.call("Namespaces", "GrantNamespacePermission", NAMESPACE, "bob", ["produce"])
    assert admin.call("Namespaces", "GetNamespacePermissions", NAMESPACE) == {"bob": ["produce"]}
    admin.call("Namespaces", "RevokeNamespacePermission", NAMESPACE, "bob")


def test_topics_with_partitions_grow_and_go(admin: GoAdmin) -> None:
    admin.call("Topics", "CreateWithProperties", PARTITIONED, 2, {"of": "ada"})
    assert admin.call("Topics", "GetMetadata", PARTITIONED)["partitions"] == 2
    assert admin.call("Topics", "GetProperties", PARTITIONED) == {"of": "ada"}
    admin.call("Topics", "Update", PARTITIONED, 3)
    partitioned, others = admin.call("Topics", "List", NAMESPACE)
    assert (PARTITIONED in partitioned, TOPIC in others) == (True, True)
    assert admin.call("Topics", "GetPartitionedStats", PARTITIONED, True)["metadata"]["partitions"] == 3
    with pytest.raises(Failed, match="409"):
        admin.call("Topics", "Create", PARTITIONED, 2)
    admin.call("Topics", "Delete", PARTITIONED, True, False)
    assert PARTITIONED not in (admin.call("Topics", "List", NAMESPACE)[0] or [])


def test_subscriptions_are_moved_and_messages_looked_at(us: Served, admin: GoAdmin) -> None:
    admin.call("Subscriptions", "Create", TOPIC, "billing", LATEST)
    assert admin.call("Subscriptions", "List", TOPIC) == ["billing"]

    async def publish() -> None:
        async with Client([f"pulsar://127.0.0.1:{us.service_port}"]) as client:
            producer = await client.producer(TOPIC)
            for number in range(3):
                await producer.send(b"%d" % number)

    asyncio.run(publish())
    assert admin.call("Topics", "Lookup", TOPIC)["brokerUrl"].endswith(str(us.service_port))
    assert admin.call("Topics", "GetStats", TOPIC)["subscriptions"]["billing"]["msgBacklog"] == 3
    assert len(admin.call("Subscriptions", "PeekMessages", TOPIC, "billing", 2)) == 2
    last = admin.call("Topics", "GetLastMessageID", TOPIC)
    assert len(admin.call("Subscriptions", "GetMessagesByID", TOPIC, last["ledgerId"], last["entryId"])) == 1
    admin.call("Subscriptions", "SkipMessages", TOPIC, "billing", 1)
    stored = admin.call("Topics", "GetInternalInfo", TOPIC)
    assert stored["cursors"]["billing"]["markDelete"] == {"ledgerId": last["ledgerId"], "entryId": 0}
    assert (stored["ledgers"][0]["ledgerId"], stored["ledgers"][0]["entries"]) == (last["ledgerId"], 3)
    assert admin.call("Topics", "GetStats", TOPIC)["subscriptions"]["billing"]["msgBacklog"] == 2
    admin.call("Subscriptions", "ClearBacklog", TOPIC, "billing")
    assert admin.call("Topics", "GetStats", TOPIC)["subscriptions"]["billing"]["msgBacklog"] == 0
    admin.call("Subscriptions", "ResetCursorToTimestamp", TOPIC, "billing", 1)
    assert admin.call("Topics", "GetStats", TOPIC)["subscriptions"]["billing"]["msgBacklog"] == 3
    admin.call("Subscriptions", "ResetCursorToMessageID", TOPIC, "billing", last)
    admin.call("Subscriptions", "ExpireMessages", TOPIC, "billing", 3_600)
    assert admin.call("Topics", "OffloadStatus", TOPIC)["status"] == "NOT_RUN"
    admin.call("Topics", "Compact", TOPIC)
    assert admin.call("Topics", "CompactStatus", TOPIC)["status"] in ("RUNNING", "SUCCESS")
    admin.call("Topics", "Unload", TOPIC)
    admin.call("Subscriptions", "Delete", TOPIC, "billing")
    with pytest.raises(Failed, match="404"):
        admin.call("Subscriptions", "ClearBacklog", TOPIC, "billing")


def test_schemas_are_brought_read_and_deleted(admin: GoAdmin) -> None:
    avro = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}, separators=(",", ":")
    )
    payload = {"type": "AVRO", "schema": avro, "properties": {"of": "ada"}}
    admin.call("Schemas", "CreateSchemaByPayload", TOPIC, payload)
    found = admin.call("Schemas", "GetSchemaInfo", TOPIC)
    assert (found["type"], found["properties"]) == ("AVRO", {"of": "ada"})
    assert admin.call("Schemas", "GetSchemaInfoWithVersion", TOPIC)["version"] == 0
    assert admin.call("Schemas", "GetVersionByPayload", TOPIC, payload) == 0
    assert len(admin.call("Schemas", "GetAllSchemas", TOPIC)) == 1
    other = {"type": "STRING", "schema": "", "properties": {}}
    checked = admin.call("Schemas", "TestCompatibilityWithPostSchemaPayload", TOPIC, other)
    assert checked["compatibility"] is False
    admin.call("Schemas", "DeleteSchema", TOPIC)
    with pytest.raises(Failed, match="404"):
        admin.call("Schemas", "GetSchemaInfo", TOPIC)
