"""Policies of replicated subscriptions: set for the cluster, a namespace or a topic, they apply at once."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.broker.region import Region
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.client import InitialPosition
from emulator.config.broker_settings import BrokerSettings
from emulator.core.policies.declaration import Policy
from emulator.core.policies.replicated_subscriptions import (
    POLICIES,
    REPLICATE_SUBSCRIPTION_STATE,
    SNAPSHOT_CACHE_SIZE,
    SNAPSHOT_INTERVAL,
    SNAPSHOT_TIMEOUT,
    SNAPSHOT_TIMEOUT_GROWTH,
)
from emulator.model.stored_keys import BROKER_POLICIES_PATH, NamespacePath, StoredKey, TopicPoliciesPath
from emulator.model.values import SUBSCRIPTION_REPLICATION_BOUNDS, Position
from tests.broker.admin.served import Served, served
from tests.broker.regions import regions, until
from tests.core.replication.test_subscription_updates import snapshot_at

TOPIC = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
OF_TOPIC = TopicPoliciesPath(TOPIC)
EARLIEST = InitialPosition.EARLIEST


def replication(region: Region, topic: str = TOPIC) -> ReplicatedSubscriptions:
    found = region.directory.serving[topic].subscriptions.replicated
    assert found is not None
    return found


def is_replicated(region: Region, subscription: str = "s", topic: str = TOPIC) -> bool:
    loaded = region.directory.serving.get(topic)
    return loaded is not None and loaded.subscriptions[subscription].cursor.replicated


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_policy_has_a_setting_of_its_name(policy: Policy[Any]) -> None:
    assert policy.default is None
    assert hasattr(BrokerSettings(), policy.name)


@pytest.mark.parametrize(("name", "bounds"), SUBSCRIPTION_REPLICATION_BOUNDS.items())
def test_the_default_of_each_setting_is_within_its_bounds(name: str, bounds: tuple[int, int]) -> None:
    assert bounds[0] <= getattr(BrokerSettings(), name) <= bounds[1]


@pytest.mark.parametrize(
    "place", [BROKER_POLICIES_PATH, NAMESPACE, OF_TOPIC], ids=["all", "namespace", "topic"]
)
async def test_policies_apply_to_a_loaded_topic_at_once(place: StoredKey) -> None:
    async with regions("us", "eu", snapshot_interval_ms=3_000) as world, world.client("us") as client:
        await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        us = world.running["us"]
        for policy, value in (
            (SNAPSHOT_INTERVAL, 20),
            (SNAPSHOT_TIMEOUT, 700),
            (SNAPSHOT_TIMEOUT_GROWTH, 1),
            (SNAPSHOT_CACHE_SIZE, 10),
        ):
            await us.policies.set(place, policy, value)
        for region in world.running.values():
            await until(lambda region=region: TOPIC in region.directory.serving)
            sync = replication(region)
            settings = sync.snapshots.controller.schedule.settings
            assert (settings.interval_ms, settings.timeout_ms, settings.timeout_growth_max) == (20, 700, 1)
            assert sync.snapshots.controller.backoff.timeout_ms == 700
        assert replication(us)._machines["s"].cache.max_size == 10


async def test_a_shorter_interval_ends_the_wait_for_a_later_snapshot() -> None:
    """The timer was set for the old interval."""
    async with regions("us", "eu", snapshot_interval_ms=3_600_000) as world, world.client("us") as client:
        consumer = await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        producer = await client.producer(TOPIC)
        sync = replication(world.running["us"])
        await producer.send(b"0")
        await until(lambda: sync.snapshots.controller.counters.completed == 1)
        await producer.send(b"1")
        for _ in range(2):
            await consumer.acknowledge(await consumer.receive())
        await world.running["us"].policies.set(OF_TOPIC, SNAPSHOT_INTERVAL, 20)
        await until(lambda: sync.snapshots.controller.counters.completed == 2)
        await world.running["us"].policies.set(OF_TOPIC, SNAPSHOT_INTERVAL, None)
        assert sync.snapshots.controller.schedule.settings.interval_ms == 3_600_000


async def test_a_smaller_cache_drops_what_a_full_one_drops() -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        await client.subscribe(TOPIC, "s", initial_position=EARLIEST, replicated=True)
        us = world.running["us"]
        cache = replication(us)._machines["s"].cache
        for entry in range(100, 130):
            cache.add(snapshot_at(entry))
        await us.policies.set(OF_TOPIC, SNAPSHOT_CACHE_SIZE, 10)
        kept = [one.local_position.entry for one in cache.snapshots]
        assert len(kept) == 10
        assert (kept[0], kept[-1]) == (100, 129)
        assert cache.snapshots[0].local_position == Position(1, 100)


async def test_every_durable_subscription_is_replicated_by_policy() -> None:
    """Existing ones, new ones, but not one that an administrator disabled, nor a reader's. Unsetting changes none."""
    async with regions("us", "eu") as world, world.client("us") as client:
        us = world.running["us"]
        await client.subscribe(TOPIC, "old", initial_position=EARLIEST)
        await client.subscribe(TOPIC, "disabled", initial_position=EARLIEST)
        await client.reader(TOPIC)
        subscriptions = us.directory.serving[TOPIC].subscriptions
        subscriptions.disable_replication(subscriptions["disabled"])
        await us.policies.set(NAMESPACE, REPLICATE_SUBSCRIPTION_STATE, True)
        await client.subscribe(TOPIC, "new", initial_position=EARLIEST)
        replicated = {name for name, one in subscriptions.items() if one.cursor.replicated}
        assert replicated == {"old", "new"}
        await us.policies.set(NAMESPACE, REPLICATE_SUBSCRIPTION_STATE, None)
        await client.subscribe(TOPIC, "later", initial_position=EARLIEST)
        assert {name for name, one in subscriptions.items() if one.cursor.replicated} == {"old", "new"}


async def test_the_policy_applies_to_subscriptions_of_a_topic_that_is_loaded_later() -> None:
    async with regions("us", "eu") as world:
        async with world.client("us") as client:
            await client.subscribe(TOPIC, "s", initial_position=EARLIEST)
        await world.stop("us")
        await world.start("us", replicate_subscription_state=True)
        async with world.client("us") as client:
            await client.producer(TOPIC)
        assert is_replicated(world.running["us"])


async def test_a_topic_may_differ_from_its_namespace() -> None:
    async with regions("us", "eu", replicate_subscription_state=True) as world, world.client("us") as client:
        await world.running["us"].policies.set(OF_TOPIC, REPLICATE_SUBSCRIPTION_STATE, False)
        await client.subscribe(TOPIC, "s", initial_position=EARLIEST)
        other = "persistent://public/default/other"
        await client.subscribe(other, "s", initial_position=EARLIEST)
        assert not is_replicated(world.running["us"])
        assert is_replicated(world.running["us"], topic=other)


async def test_partitions_follow_the_policies_of_their_topic() -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        us = world.running["us"]
        names = [f"{TOPIC}-partition-{index}" for index in range(2)]
        for name in names:
            await client.subscribe(name, "s", initial_position=EARLIEST)
        await us.policies.set(OF_TOPIC, SNAPSHOT_INTERVAL, 40)
        await us.policies.set(OF_TOPIC, REPLICATE_SUBSCRIPTION_STATE, True)
        for name in names:
            assert is_replicated(us, topic=name)
            assert replication(us, name).snapshots.controller.schedule.settings.interval_ms == 40


# Admin API.

NAMESPACES = "/admin/v2/namespaces/public/default"
ORDERS = "/admin/v2/persistent/public/default/orders"


@pytest.fixture
def us(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with served() as one:
        yield one


def test_policies_are_set_read_and_removed_over_http(us: Served) -> None:
    assert us.get(f"{ORDERS}/snapshotInterval?applied=true") == 1_000, "the region's setting"
    for base in (NAMESPACES, ORDERS):
        assert us.ask("POST", f"{base}/snapshotInterval", b"250").status == 204
        assert us.get(f"{base}/snapshotInterval") == 250
    assert us.ask("DELETE", f"{ORDERS}/snapshotInterval").status == 204
    assert us.get(f"{ORDERS}/snapshotInterval?applied=true") == 250
    assert us.ask("POST", f"{ORDERS}/replicateSubscriptionState", b"true").status == 204
    assert us.get(f"{ORDERS}/replicateSubscriptionState") is True
    assert us.ask("POST", f"{NAMESPACES}/partialSnapshotsAfter", b'"10m"').status == 204
    assert us.ask("POST", f"{ORDERS}/partialSnapshotsAfter", b'""').status == 204
    assert us.get(f"{NAMESPACES}/partialSnapshotsAfter") == "10m"
    assert us.get(f"{ORDERS}/partialSnapshotsAfter?applied=true") == "", "never"


@pytest.mark.parametrize(
    ("segment", "body", "status"),
    [
        ("snapshotInterval", b"19", 412),
        ("snapshotInterval", b"3600001", 412),
        ("snapshotInterval", b"1e3", 400),
        ("snapshotInterval", b"true", 400),
        ("snapshotInterval", b'"20"', 400),
        ("snapshotTimeout", b"99", 412),
        ("snapshotCacheSize", b"9", 412),
        ("snapshotCacheSize", b"101", 412),
        ("snapshotTimeoutGrowthMax", b"0", 412),
        ("snapshotTimeoutGrowthMax", b"9", 412),
        ("partialSnapshotsAfter", b"10", 400),
        ("partialSnapshotsAfter", b'"10"', 400),
        ("partialSnapshotsAfter", b'"0s"', 400),
        ("partialSnapshotsAfter", b'"' + b"9" * 400 + b's"', 400),
        ("replicateSubscriptionState", b"1", 400),
        ("replicateSubscriptionState", b"", 400),
    ],
)
def test_a_value_out_of_bounds_is_refused(us: Served, segment: str, body: bytes, status: int) -> None:
    for base in (NAMESPACES, ORDERS):
        reply = us.ask("POST", f"{base}/{segment}", body)
        assert reply.status == status, reply.body
        assert us.ask("GET", f"{base}/{segment}").status == 204


def test_pulsar_s_names_of_the_settings_are_dynamic(us: Served) -> None:
    runtime = "/admin/v2/brokers/configuration/runtime"
    change = "/admin/v2/brokers/configuration"
    names = {
        "replicatedSubscriptionsSnapshotFrequencyMillis": ("1000", "20", "19"),
        "replicatedSubscriptionsSnapshotTimeoutSeconds": ("30", "5", "3601"),
        "replicatedSubscriptionsSnapshotMaxCachedPerSubscription": ("30", "10", "9"),
        "replicateSubscriptionState": ("false", "true", "yes"),
    }
    for name, (default, valid, invalid) in names.items():
        assert us.get(runtime)[name] == default
        assert us.ask("POST", f"{change}/{name}/{invalid}").status == 412
        assert us.ask("POST", f"{change}/{name}/{valid}").status == 204
        assert us.get(runtime)[name] == valid
        assert us.get(f"{change}/values")[name] == valid
        assert us.ask("DELETE", f"{change}/{name}").status == 204
        assert us.get(runtime)[name] == default
