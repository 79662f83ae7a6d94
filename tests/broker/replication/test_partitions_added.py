"""A partitioned topic grows while regions are down or cut off: afterwards every region has all partitions, their
messages and subscriptions, and no consumer skips a message."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from emulator.broker.explain.topics import explain
from emulator.client import Consumer
from emulator.client.client import Client
from emulator.config.topology import Topology
from emulator.model.values import TopicName
from emulator.simulation.world import World
from tests.broker.regions import broker_of
from tests.broker.replication.limits import (
    ORDERS,
    PARTITIONED,
    PATH,
    SETTINGS,
    ask,
    receive,
    subscribe,
)
from tests.broker.topologies import clusters

PARTITIONS = f"{PATH}/orders/partitions"
NEW = [f"{ORDERS}-partition-{index}" for index in (2, 3)]
ONE_CLUSTER = clusters(["us", "eu", "ap"], settings=SETTINGS)
TWO_CLUSTERS = clusters(["us", "ap"], ["eu"], settings=SETTINGS)
THREE_CLUSTERS = clusters(["us"], ["eu"], ["ap"], settings=SETTINGS)
UNLOADS = replace(SETTINGS, topic_idle_ms=500)
"""Settings of regions that unload unused topics within a second."""


def count_in(w: World, region: str) -> int:
    return broker_of(w, region).partitioned.count(TopicName.parse(ORDERS))


def has_all(w: World, region: str) -> bool:
    """Whether a region has all four partitions, each with the subscription."""
    broker = broker_of(w, region)
    topics = [broker.directory.serving.get(name) for name in NEW]
    return count_in(w, region) == 4 and all(
        one is not None and "billing" in one.subscriptions for one in topics
    )


async def two_partitions(w: World) -> dict[str, Consumer]:
    """Create the topic, and a consumer of its own subscription in each region."""
    await ask(w, "us", "PUT", PARTITIONS, 2)
    await w.simulation.until(lambda: all(count_in(w, name) == 2 for name in w.regions))
    await w.quiet()
    return {name: await subscribe(w.client(name, settings=PARTITIONED)) for name in w.regions}


async def publish(client: Client, prefix: str, count: int = 12) -> set[bytes]:
    """Publish to all partitions that the client finds."""
    producer = await client.producer(ORDERS)
    payloads = [f"{prefix}-{number}".encode() for number in range(count)]
    for payload in payloads:
        await producer.send(payload)
    await producer.close()
    return set(payloads)


@pytest.mark.parametrize("shape", [ONE_CLUSTER, TWO_CLUSTERS, THREE_CLUSTERS], ids=["one", "two", "three"])
@pytest.mark.parametrize("returns_first", ["eu", "ap"])
def test_a_topic_grows_while_one_region_is_down_and_another_one_is_cut_off(
    shape: Topology, returns_first: str
) -> None:
    """Each consumer receives everything, whatever was published to the new partitions meanwhile, in any region."""

    async def main() -> None:
        consumers = await two_partitions(world)
        sent = await publish(world.client("us", settings=PARTITIONED), "before")
        await world.quiet()
        world.kill("eu")
        world.cut("us", "ap")
        await ask(world, "us", "POST", PARTITIONS, 4)
        sent |= await publish(world.client("us", settings=PARTITIONED), "us")
        sent |= await publish(world.client("ap", settings=PARTITIONED), "ap")
        if returns_first == "eu":
            world.start("eu")
            await world.simulation.until(lambda: world.regions["eu"].is_up and has_all(world, "eu"))
            world.heal()
        else:
            world.heal()
            await world.simulation.until(lambda: has_all(world, "ap"))
            world.start("eu")
        await world.ready()
        sent |= await publish(world.client("eu", settings=PARTITIONED), "eu")
        await world.simulation.until(lambda: all(has_all(world, name) for name in world.regions))
        for consumer in consumers.values():
            assert set(await receive(consumer, len(sent))) == sent
        await world.quiet()

    with World(shape, 1) as world:
        world.play(main())


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.world(topology=clusters(["us"], ["eu"], settings=UNLOADS))
async def test_partitions_without_messages_reach_a_region_that_was_down_when_they_were_added(
    world: World, *, restarts: bool
) -> None:
    """They were unloaded and not loaded again before their first message: the other cluster did not learn of them."""
    for consumer in (await two_partitions(world)).values():
        await consumer.close()
    world.kill("eu")
    await ask(world, "us", "POST", PARTITIONS, 4)
    idle_since = world.simulation.now
    await world.simulation.until(lambda: world.simulation.now > idle_since + 10)
    if restarts:
        world.kill("us")
        world.start("us")
    world.start("eu")
    await world.ready()
    await world.simulation.until(lambda: count_in(world, "eu") == 4)
    await world.simulation.until(lambda: all(broker_of(world, "eu").directory.exists(name) for name in NEW))


@pytest.mark.world(topology=THREE_CLUSTERS)
async def test_clusters_that_grow_a_topic_differently_during_a_cut_have_the_larger_number_afterwards(
    world: World,
) -> None:
    consumers = await two_partitions(world)
    for one, other in (("us", "eu"), ("us", "ap"), ("eu", "ap")):
        world.cut(one, other)
    sent: set[bytes] = set()
    for region, count in (("us", 4), ("eu", 3)):
        await ask(world, region, "POST", PARTITIONS, count)
    for region in world.regions:
        sent |= await publish(world.client(region, settings=PARTITIONED), region)
    world.heal()
    await world.simulation.until(lambda: all(has_all(world, name) for name in world.regions))
    for consumer in consumers.values():
        assert set(await receive(consumer, len(sent))) == sent


@pytest.mark.world(topology=clusters(["us"], ["eu"], settings=SETTINGS))
async def test_a_region_that_cannot_ask_for_the_number_refuses_new_partitions_and_says_why(
    world: World,
) -> None:
    """The link to the region that grew the topic is cut in one direction, so it cannot be asked."""
    consumers = await two_partitions(world)
    world.cut("eu", "us", one_way=True)
    await world.simulation.until(lambda: not broker_of(world, "eu").peers["us"].connected)
    world.heal()
    world.regions["eu"].broker.peers["us"].close()  # type: ignore[union-attr]
    await world.simulation.until(lambda: not broker_of(world, "eu").peers["us"].connected)
    await ask(world, "us", "POST", PARTITIONS, 4)

    def why() -> str:
        return explain(broker_of(world), "replication", "orders-partition-2 eu").why

    await world.simulation.until(lambda: "us was asked how many partitions" in why())
    world.kill("eu")
    world.start("eu")
    await world.ready()
    await world.simulation.until(lambda: has_all(world, "eu"))
    assert consumers


@pytest.mark.world(topology=clusters(["us"], ["eu"], settings=SETTINGS))
@pytest.mark.parametrize("seed", range(8))
async def test_a_consumer_that_fails_over_after_a_growth_receives_every_message_of_the_new_partitions(
    world: World, seed: int
) -> None:
    """Its subscription is replicated; eu is down while the topic grows, then us is lost."""
    us = world.client("us", settings=PARTITIONED)
    await ask(world, "us", "PUT", PARTITIONS, 2)
    await world.simulation.until(lambda: count_in(world, "eu") == 2)
    consumer = await subscribe(us, replicated=True)
    sent = await publish(us, "before")
    acknowledged = set(await receive(consumer, len(sent)))
    names = [f"{ORDERS}-partition-{index}" for index in (0, 1)]
    await world.simulation.until(
        lambda: all(
            "billing" in broker_of(world, "eu").directory.serving[name].subscriptions for name in names
        )
    )
    world.kill("eu")
    await ask(world, "us", "POST", PARTITIONS, 4)
    sent |= await publish(us, "grown")
    acknowledged |= set(await receive(consumer, seed))
    world.start("eu")
    await world.ready()
    sent |= await publish(us, "after", seed)
    await world.quiet()
    world.kill("us")
    moved = await subscribe(world.client("eu", settings=PARTITIONED), replicated=True)
    missing = sent - acknowledged
    async with asyncio.timeout(60):
        while missing:
            missing -= set(await receive(moved, 1))


SYNCHRONISED = replace(
    SETTINGS, configuration_metadata_sync_event_topic="persistent://pulsar/system/metadata-events"
)


@pytest.mark.world(topology=clusters(["us"], ["eu"], settings=SYNCHRONISED))
@pytest.mark.parametrize("restarts", [False, True])
async def test_partitions_that_metadata_sync_announces_beyond_the_maximum_of_a_cluster_wait_for_room(
    world: World, *, restarts: bool
) -> None:
    """The number of partitions is the same everywhere; those that have no room in a cluster are created there later."""
    consumer = (await two_partitions(world))["eu"]
    setting = "/admin/v2/brokers/configuration/maxTopicsPerNamespace"
    await ask(world, "eu", "POST", f"{setting}/2")
    await ask(world, "us", "POST", PARTITIONS, 4)
    sent = await publish(world.client("us", settings=PARTITIONED), "us")
    await world.simulation.until(lambda: count_in(world, "eu") == 4)

    def why() -> str:
        return explain(broker_of(world), "replication", "orders-partition-2 eu").why

    await world.simulation.until(
        lambda: why() == "eu refuses: Exceed maximum number of topics in namespace: 2"
    )
    if restarts:
        world.kill("eu")
        world.start("eu")
        await world.ready()
    assert not any(broker_of(world, "eu").directory.exists(name) for name in NEW)
    await ask(world, "eu", "DELETE", setting)
    await world.simulation.until(lambda: has_all(world, "eu"))
    assert set(await receive(consumer, len(sent))) == sent
