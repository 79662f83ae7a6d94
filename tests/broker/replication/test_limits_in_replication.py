"""Limits that a remote region reaches while it receives replicated messages: none is lost, markers and positions pass,
clients alone are refused, and replication continues once the limit is relaxed or removed."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import ClientError, ConsumerType, InitialPosition
from emulator.core.replication.progress import ReplicatorState
from emulator.simulation.world import World
from tests.broker.replication.limits import (
    BILLS,
    NAMESPACE,
    ORDERS,
    PARTITIONED,
    PATH,
    SETTINGS,
    TWO,
    ask,
    has_subscription,
    rate,
    receive,
    replicator_of,
    subscribe,
    topic_of,
    until_reason,
)

# Number of topics.


@TWO
@pytest.mark.parametrize(
    "fault", ["none", "the remote region restarts", "the source restarts", "the link breaks"]
)
@pytest.mark.parametrize("relaxed", [0, 2])
async def test_a_topic_beyond_the_maximum_of_the_remote_namespace_arrives_once_there_is_room(
    world: World, fault: str, relaxed: int
) -> None:
    """`relaxed`: the later maximum; 0: none."""
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxTopicsPerNamespace", 1)
    us = world.client("us")
    await (await us.producer(ORDERS)).send(b"first")
    await world.quiet()
    bills = await us.producer(BILLS)
    sent = [b"%d" % number for number in range(10)]
    for payload in sent:
        await bills.send(payload)
    reason = await until_reason(world, "replication", "bills eu", "replicator-refused")
    assert reason == "eu refuses: Exceed maximum number of topics in namespace: 1"
    if fault == "the remote region restarts":
        world.kill("eu")
        world.start("eu")
    elif fault == "the source restarts":
        world.kill("us")
        world.start("us")
    elif fault == "the link breaks":
        world.cut("us", "eu")
        await until_reason(world, "replication", "bills eu", "link-down")
        world.heal()
    await world.ready()
    await until_reason(world, "replication", "bills eu", "replicator-refused")
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxTopicsPerNamespace", relaxed)
    await world.quiet()
    consumer = await world.client("eu").subscribe(BILLS, "s", initial_position=InitialPosition.EARLIEST)
    assert await receive(consumer, len(sent)) == sent


@TWO
async def test_new_partitions_beyond_the_maximum_of_topics_arrive_once_there_is_room(
    world: World,
) -> None:
    await ask(world, "us", "PUT", f"{PATH}/orders/partitions", 2)
    await world.quiet()
    consumer = await subscribe(world.client("eu", settings=PARTITIONED))
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxTopicsPerNamespace", 3)
    await ask(world, "us", "POST", f"{PATH}/orders/partitions", 4)
    producer = await world.client("us", settings=PARTITIONED).producer(ORDERS)
    for number in range(20):
        await producer.send(b"%d" % number)
    refused = f"{ORDERS}-partition-2", f"{ORDERS}-partition-3"
    await world.simulation.until(
        lambda: any(
            replicator_of(world, "us", "eu", name).lifecycle.state is ReplicatorState.REFUSED
            for name in refused
        )
    )
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxTopicsPerNamespace", 0)
    assert sorted(await receive(consumer, 20)) == sorted(b"%d" % number for number in range(20))


# Numbers of clients and subscriptions.


@pytest.mark.world("us", "eu", "ap", settings=SETTINGS)
@pytest.mark.parametrize("most", [1, 2])
async def test_replicators_do_not_count_as_producers(world: World, most: int) -> None:
    """Neither where the limit is below the present use, nor where a region returns and its peers are first."""
    clients = {name: world.client(name) for name in world.regions}
    producers = {name: await client.producer(ORDERS) for name, client in clients.items()}
    for name, producer in producers.items():
        await producer.send(name.encode())
    await world.quiet()
    await ask(world, "us", "POST", f"{NAMESPACE}/maxProducersPerTopic", most)
    world.kill("eu")
    world.start("eu")
    await world.ready()
    for name, producer in producers.items():
        await producer.send(name.encode())
    await world.quiet()
    more = [await clients["eu"].producer(ORDERS) for _ in range(most - 1)]
    with pytest.raises(ClientError, match=f"reached max producers limit: {most}"):
        await clients["eu"].producer(ORDERS)
    assert len(topic_of(world, "eu").producers) == 2 + most
    assert topic_of(world, "eu").state.readable_end == 6
    assert len(more) == most - 1


@TWO
async def test_a_producer_that_fails_over_to_a_full_region_is_admitted_once_the_limit_is_removed(
    world: World,
) -> None:
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxProducersPerTopic", 1)
    await (await world.client("eu").producer(ORDERS)).send(b"eu")
    moving = world.client("us", "eu")
    producer = await moving.producer(ORDERS)
    await producer.send(b"us")
    await world.quiet()
    world.kill("us")
    await world.simulation.until(lambda: not world.regions["us"].is_up)
    with pytest.raises(ClientError, match="max producers limit"):
        await world.client("eu").producer(ORDERS)
    await ask(world, "eu", "DELETE", f"{NAMESPACE}/maxProducersPerTopic")
    await (await world.client("eu").producer(ORDERS)).send(b"moved")
    world.start("us")
    await world.ready()
    await world.quiet()
    assert topic_of(world, "us").state.readable_end == 3


@TWO
async def test_subscriptions_of_other_regions_are_created_beyond_the_maximum(world: World) -> None:
    """Without them, their consumers would skip or read everything again after a fail-over."""
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxSubscriptionsPerTopic", 1)
    us, eu = world.client("us"), world.client("eu")
    consumers = [await subscribe(us, name, replicated=True) for name in ("one", "two", "three")]
    producer = await us.producer(ORDERS)
    await producer.send(b"0")
    for consumer in consumers:
        await receive(consumer, 1)
    await world.simulation.until(
        lambda: all(has_subscription(world, "eu", one) for one in ("one", "two", "three"))
    )
    with pytest.raises(ClientError, match="maximum number of subscriptions"):
        await subscribe(eu, "four")
    for consumer in consumers:
        await consumer.close()
    await producer.send(b"1")
    await world.quiet()
    assert await receive(await subscribe(eu, "two", replicated=True), 1) == [b"1"]


@TWO
async def test_acknowledgements_of_another_region_make_room_for_a_consumer_at_its_maximum(
    world: World,
) -> None:
    """The consumer in eu holds as many messages as allowed, and the consumer in us acknowledges all of them."""
    await ask(world, "eu", "POST", f"{NAMESPACE}/maxUnackedMessagesPerSubscription", 5)
    us, eu = world.client("us"), world.client("eu")
    consumer = await subscribe(us, replicated=True, type_=ConsumerType.SHARED)
    producer = await us.producer(ORDERS)
    await producer.send(b"0")
    await receive(consumer, 1)
    await world.simulation.until(lambda: has_subscription(world, "eu"))
    holding = await subscribe(eu, replicated=True, type_=ConsumerType.SHARED)
    for number in range(1, 12):
        await producer.send(b"%d" % number)
    held = [(await holding.receive()).payload for _ in range(5)]
    await until_reason(world, "subscription", "orders billing", "subscription-unacked-max", "eu")
    await receive(consumer, 11)
    await world.simulation.until(lambda: topic_of(world, "eu").subscriptions["billing"].backlog() == 0)
    await producer.send(b"12")
    assert [*held, (await holding.receive()).payload] == [b"%d" % number for number in (1, 2, 3, 4, 5, 12)]


# Rates.


@TWO
async def test_a_publish_rate_of_a_remote_region_does_not_delay_replication(world: World) -> None:
    us, eu = world.client("us"), world.client("eu")
    there, producer = await eu.producer(ORDERS), await us.producer(ORDERS)
    await there.send(b"eu")
    await producer.send(b"us")
    await world.quiet()
    await ask(world, "eu", "POST", f"{NAMESPACE}/publishRate", {"publishThrottlingRateInByte": 1})
    await there.send(bytes(100_000))
    late = there.send_nowait(b"late")
    await until_reason(world, "topic", "orders", "publish-rate", "eu")
    for number in range(100):
        await producer.send(b"%d" % number)
    await world.simulation.until(lambda: topic_of(world, "eu").state.readable_end == 103, within_seconds=5)
    assert not late.done()
    await ask(world, "eu", "DELETE", f"{NAMESPACE}/publishRate")
    async with asyncio.timeout(5):
        await late


@TWO
@pytest.mark.parametrize("fault", ["none", "cut", "kill the source", "kill the remote region", "pause"])
async def test_a_replicator_that_waits_for_its_rate_continues_when_the_rate_is_removed(
    world: World, fault: str
) -> None:
    producer = await world.client("us").producer(ORDERS)
    await producer.send(b"first")
    await world.quiet()
    await ask(world, "us", "POST", f"{NAMESPACE}/replicatorDispatchRate", rate(1, 86_400))
    for number in range(40):
        await producer.send(b"%d" % number)
    await until_reason(world, "replication", "orders eu", "replication-rate")
    if fault == "cut":
        world.cut("us", "eu")
        await until_reason(world, "replication", "orders eu", "link-down")
    elif fault == "kill the source":
        world.kill("us")
        world.start("us")
    elif fault == "kill the remote region":
        world.kill("eu")
        world.start("eu")
    elif fault == "pause":
        world.pause("eu")
    await world.simulation.until(lambda: world.regions["us"].is_up)
    await ask(world, "us", "DELETE", f"{NAMESPACE}/replicatorDispatchRate")
    world.heal()
    if fault == "pause":
        world.resume("eu")
    await world.quiet()
    assert topic_of(world, "eu").state.readable_end == 41


@TWO
async def test_markers_do_not_exhaust_a_low_replication_rate(world: World) -> None:
    """One message in 5 s: snapshots become rarer, so that all messages arrive, and the position follows."""
    us = world.client("us")
    consumer = await subscribe(us, replicated=True)
    producer = await us.producer(ORDERS)
    await producer.send(b"first")
    await world.quiet()
    for region in ("us", "eu"):
        await ask(world, region, "POST", f"{NAMESPACE}/replicatorDispatchRate", rate(1, 5))
    for number in range(20):
        await producer.send(b"%d" % number)
    await receive(consumer, 21)
    before = topic_of(world, "us").state.stored_end
    await world.quiet(3_000)
    markers = topic_of(world, "us").state.stored_end - before
    assert markers < 40
    await world.simulation.until(lambda: topic_of(world, "eu").subscriptions["billing"].backlog() == 0)
