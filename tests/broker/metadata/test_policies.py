"""Policies are stored in the cluster's configuration store; loaded topics follow them at once."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.store import Metadata
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import InitialPosition
from emulator.core.policies.declaration import Policy, Scope, effective
from emulator.core.policies.topic_policies import REGISTRY
from emulator.core.policies.topics import DEDUPLICATION, REPLICATION_CLUSTERS
from emulator.errors import StorageError
from emulator.model.stored_keys import (
    BROKER_POLICIES_PATH,
    NamespacePath,
    SyncExcludedPath,
    TopicPoliciesPath,
)
from emulator.model.values import TopicName
from emulator.simulation.world import World
from emulator.storage.configuration.memory import ConfigurationMemory, MemoryConfiguration
from tests.broker.regions import regions, until
from tests.swarm.faults import ConfigurationAway

TOPIC = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")


@pytest.mark.parametrize("policy", REGISTRY.values(), ids=lambda policy: policy.name)
def test_p1_every_policy_is_obeyed_by_the_module_it_names(policy: Policy[object]) -> None:
    """A policy names the module that obeys it, or the reason why it is only stored."""
    assert bool(policy.obeyed_by) != bool(policy.kept)
    if policy.obeyed_by:
        assert policy in importlib.import_module(policy.obeyed_by).OBEYS


def test_p2_unset_and_set_to_the_default_are_different() -> None:
    broker = {Scope.BROKER: {"deduplication": True}}
    assert effective(DEDUPLICATION, {}) is False
    assert effective(DEDUPLICATION, broker) is True
    assert effective(DEDUPLICATION, {**broker, Scope.NAMESPACE: {}}) is True
    assert effective(DEDUPLICATION, {**broker, Scope.NAMESPACE: {"deduplication": False}}) is False


def test_the_topic_outranks_the_namespace_and_that_the_broker() -> None:
    places = {
        Scope.BROKER: {"deduplication": True, "replication_clusters": ["nowhere"]},
        Scope.NAMESPACE: {"deduplication": False, "replication_clusters": ["us", "eu"]},
        Scope.TOPIC: {"replication_clusters": ["us"]},
    }
    assert effective(DEDUPLICATION, places) is False
    assert effective(REPLICATION_CLUSTERS, places) == ("us",)
    assert effective(REPLICATION_CLUSTERS, {Scope.BROKER: places[Scope.BROKER]}) == (), (
        "not one of its scopes"
    )


def test_an_invalid_value_is_reported() -> None:
    with pytest.raises(ValueError, match="'yes' is neither true nor false"):
        effective(DEDUPLICATION, {Scope.TOPIC: {"deduplication": "yes"}})


async def test_p3_the_topology_never_overwrites_a_users_value() -> None:
    async with regions("us", "eu") as world:
        policies = world.running["us"].policies
        await policies.set(NAMESPACE, DEDUPLICATION, False)
        await policies.set(NAMESPACE, REPLICATION_CLUSTERS, None)
        await world.stop("us")
        await world.start("us")
        policies = world.running["us"].policies
        assert policies.of_namespace("public/default", DEDUPLICATION) is False
        regions_of: tuple[str, ...] = policies.of_namespace("public/default", REPLICATION_CLUSTERS)
        assert regions_of == ()


class LateConfiguration(MemoryConfiguration):
    """A configuration store whose notifications of commits arrive late."""

    def listen(self, on_commit: Callable[[], None]) -> None:
        pass


async def test_a_region_that_starts_has_what_another_one_seeds_at_the_same_time() -> None:
    memory = ConfigurationMemory()
    tasks: list[asyncio.Task[Any]] = []

    def spawn(work: Coroutine[Any, Any, Any]) -> None:
        tasks.append(asyncio.create_task(work))

    us, eu = Metadata(LateConfiguration(memory), spawn), Metadata(LateConfiguration(memory), spawn)
    await us.open()
    await eu.open()
    await Policies(us, "us").start(["public"], [])
    seeded = Policies(eu, "eu")
    await seeded.start(["public"], [])
    assert seeded.tenants() == ["public"]
    await asyncio.gather(*tasks)


async def test_what_one_region_sets_applies_in_the_others_of_its_cluster() -> None:
    async with regions("us", "eu") as world:
        topic = await world.running["eu"].directory.acquire(TOPIC, OpenMode.CREATE)
        assert topic.state.deduplicates
        await world.running["us"].policies.set(NAMESPACE, DEDUPLICATION, False)
        await until(lambda: not topic.state.deduplicates)
        await world.running["us"].policies.set(TopicPoliciesPath(TOPIC), DEDUPLICATION, True)
        await until(lambda: topic.state.deduplicates)
        await world.running["us"].policies.set(TopicPoliciesPath(TOPIC), DEDUPLICATION, None)
        await until(lambda: not topic.state.deduplicates)
        await world.running["us"].policies.set(BROKER_POLICIES_PATH, DEDUPLICATION, True)
        await world.running["us"].policies.set(NAMESPACE, DEDUPLICATION, None)
        await until(lambda: topic.state.deduplicates)


async def test_a_loaded_topic_follows_the_replication_clusters_of_its_namespace() -> None:
    """A region is removed and added again while messages are published: in the end every region has every message
    once."""
    async with regions("us", "eu", "ap") as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        consumer = await client.subscribe(
            TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True
        )
        await producer.send(b"0")
        topic = world.running["us"].directory.serving[TOPIC]
        policies = world.running["us"].policies
        await policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))
        await until(lambda: list(topic.replicators) == ["eu"])
        assert topic.subscriptions.replicated is not None
        await until(
            lambda: (
                topic.subscriptions.replicated is not None
                and topic.subscriptions.replicated.snapshots.controller.remotes == {"eu"}
            )
        )
        await producer.send(b"1")
        await until(lambda: stored(world.running["eu"]) >= 2)
        await policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu", "ap"))
        await until(lambda: list(topic.replicators) == ["eu", "ap"])
        await producer.send(b"2")
        for _ in range(3):
            await consumer.receive()
        async with world.client("ap") as other:
            reader = await other.subscribe(TOPIC, "r", initial_position=InitialPosition.EARLIEST)
            assert [(await reader.receive()).payload for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_topic_policy_of_one_region_stops_only_that_regions_replicator() -> None:
    async with regions("us", "eu") as world, world.client("us") as client, world.client("eu") as other:
        await (await client.producer(TOPIC)).send(b"0")
        await until(lambda: stored(world.running["eu"]) >= 1)
        us, eu = (world.running[name] for name in ("us", "eu"))
        place = us.policies.topic_policies_path(TopicName.parse(TOPIC), everywhere=False)
        await us.policies.set(place, REPLICATION_CLUSTERS, ("us",))
        await until(lambda: not us.directory.serving[TOPIC].replicators)
        assert list(eu.directory.serving[TOPIC].replicators) == ["us"]
        before = stored(us)
        await (await other.producer(TOPIC)).send(b"1")
        await until(lambda: stored(us) > before)
        await us.policies.set(place, REPLICATION_CLUSTERS, None)
        await until(lambda: list(us.directory.serving[TOPIC].replicators) == ["eu"])


def stored(region: object) -> int:
    topic = region.directory.serving.get(TOPIC)  # type: ignore[attr-defined]
    return 0 if topic is None else int(topic.state.stored_end)


async def test_a_region_removed_from_the_replication_clusters_replicates_nothing() -> None:
    """Another region of its cluster removed this one. It would send messages without a way back, and count them as
    backlog."""
    async with regions("us", "eu", "ap") as world, world.client("us") as client:
        await (await client.producer(TOPIC)).send(b"shared")
        await until(lambda: stored(world.running["ap"]) == 1)
        topic = world.running["us"].directory.serving[TOPIC]
        await world.running["eu"].policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("eu", "ap"))
        await until(lambda: not topic.replicators)
        assert list(world.running["eu"].directory.serving[TOPIC].replicators) == ["ap"]


async def test_replication_of_a_loaded_topic_can_be_enabled() -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        policies = world.running["us"].policies
        await policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us",))
        await until(lambda: world.running["eu"].metadata.revision == world.running["us"].metadata.revision)
        await (await client.producer(TOPIC)).send(b"early")
        topic = world.running["us"].directory.serving[TOPIC]
        assert topic.subscriptions.replicated is None
        assert not topic.replicators
        await policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))
        await until(lambda: stored(world.running["eu"]) == 1)


async def test_an_invalid_value_is_ignored_without_further_effect() -> None:
    async with regions("us") as world:
        region = world.running["us"]
        await region.metadata.put(NAMESPACE.text, b'{"policies": {"deduplication": "perhaps"}}')
        assert region.policies.of_topic(TopicName.parse(TOPIC))[DEDUPLICATION] is False
        await region.metadata.put(NAMESPACE.text, b"no document")
        assert (await region.directory.acquire(TOPIC, OpenMode.CREATE)).state.deduplicates is False


@pytest.mark.world("us", "eu")
async def test_m2_regions_serve_while_their_configuration_store_is_unavailable(world: World) -> None:
    """Under virtual time: the store becomes unavailable, clients are not affected, and regions follow a change made
    afterwards."""
    client = world.client("us")
    await (await client.producer(TOPIC)).send(b"before")
    fault = ConfigurationAway(0.0, 1.0, "world")
    fault.begin(world)
    broker = world.regions["us"].broker
    assert broker is not None
    with pytest.raises(StorageError, match="away"):
        await broker.policies.set(NAMESPACE, DEDUPLICATION, False)
    await (await client.producer(TOPIC + "-new")).send(b"during")
    await world.quiet()
    fault.end(world)
    await broker.policies.set(NAMESPACE, DEDUPLICATION, False)
    await world.simulation.until(lambda: not broker.directory.serving[TOPIC].state.deduplicates)
    for region in world.regions.values():
        await world.simulation.until(lambda region=region: "false" in region.config_changes[-1])  # type: ignore[misc]
        assert {json.loads(line)["region"] for line in region.config_changes} == {region.name}


async def test_documents_without_policies_are_not_read_as_policies(caplog: pytest.LogCaptureFixture) -> None:
    async with regions("us") as world:
        await world.running["us"].metadata.put(SyncExcludedPath("eu").text, b'["namespace/a"]')
    assert "is not a document" not in caplog.text
