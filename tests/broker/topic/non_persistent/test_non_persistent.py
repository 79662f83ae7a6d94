"""Non-persistent topics: a message without a ready consumer is dropped and counted. Under virtual time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from emulator.client import (
    EARLIEST,
    Batching,
    ClientError,
    Consumer,
    ConsumerType,
    InitialPosition,
)
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ServerError
from emulator.model.values import AccessMode
from emulator.simulation.world import World
from tests.broker.regions import broker_of

TOPIC = "non-persistent://public/default/ticks"
PATH = "/admin/v2/non-persistent/public/default"
TYPES = [ConsumerType.EXCLUSIVE, ConsumerType.FAILOVER, ConsumerType.SHARED, ConsumerType.KEY_SHARED]


async def ask(w: World, method: str, target: str, region: str = "us") -> Any:
    answer = await w.ask_admin(region, method, target)
    assert answer.status in (200, 204), answer
    return answer.json() if answer.status == 200 else None


async def received(consumer: Consumer, count: int) -> list[bytes]:
    return [(await consumer.receive()).payload for _ in range(count)]


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("batching", [None, Batching(messages_max=10)])
async def test_connected_consumers_receive_everything_once_without_acknowledgements(
    world: World, type_: ConsumerType, batching: Batching | None
) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC, batching=batching)
    await producer.send(b"before anybody came")
    consumer = await client.subscribe(TOPIC, "s", type_=type_, initial_position=InitialPosition.EARLIEST)
    sent = [b"%d" % number for number in range(2_500)]
    receiving = asyncio.ensure_future(received(consumer, len(sent)))
    for first in range(0, len(sent), 250):
        await asyncio.gather(
            *(producer.send_nowait(one, key=one.decode()) for one in sent[first : first + 250])
        )
    assert await receiving == sent
    stats = await ask(world, "GET", f"{PATH}/ticks/stats")
    assert stats["subscriptions"]["s"]["msgBacklog"] == 0
    assert stats["subscriptions"]["s"]["unackedMessages"] == 0
    consumer.redeliver_unacknowledged()
    await consumer.close()
    again = await client.subscribe(TOPIC, "s", type_=type_)
    await producer.send(b"after")
    assert await received(again, 1) == [b"after"]


async def test_undeliverable_messages_are_dropped_and_counted(world: World) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s", receiver_queue_size=10)
    for number in range(50):
        await producer.send(b"%d" % number)
    stats = await ask(world, "GET", f"{PATH}/ticks/stats")
    assert stats["subscriptions"]["s"]["msgDropCount"] == 40
    assert stats["msgDropRate"] == stats["subscriptions"]["s"]["msgDropRate"] > 0
    assert await received(consumer, 10) == [b"%d" % number for number in range(10)]
    await producer.send(b"now")
    assert await received(consumer, 1) == [b"now"]


async def test_consumers_of_a_subscription_share_messages_and_each_subscription_receives_all(
    world: World,
) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC)
    shared = [await client.subscribe(TOPIC, "s", type_=ConsumerType.SHARED) for _ in range(2)]
    alone = await client.subscribe(TOPIC, "t")
    for number in range(100):
        await producer.send(b"%d" % number)
    everything = await received(alone, 100)
    await world.simulation.until(lambda: sum(len(one.waiting) for one in shared) == 100)
    assert all(one.waiting for one in shared)
    got = [message.payload for one in shared for message in one.waiting]
    assert sorted(got) == sorted(everything)


async def test_a_second_exclusive_consumer_and_positions_are_refused(world: World) -> None:
    client = world.client("us")
    consumer = await client.subscribe(TOPIC, "s")
    with pytest.raises(ClientError) as busy:
        await client.subscribe(TOPIC, "s")
    assert busy.value.code is ServerError.ConsumerBusy
    with pytest.raises(ClientError, match="only allowed on persistent topics") as refused:
        await client.subscribe(TOPIC, "c", read_compacted=True)
    assert refused.value.code is ServerError.NotAllowedError
    with pytest.raises(ClientError, match="is not persistent"):
        await consumer.last_message_id()
    await consumer.seek(0)
    reader = await client.reader(TOPIC, EARLIEST)
    producer = await client.producer(TOPIC)
    await producer.send(b"now")
    assert await received(consumer, 1) == await received(reader, 1) == [b"now"]


async def test_it_is_listed_while_loaded_and_nothing_of_it_is_stored(world: World) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC)
    await client.producer("persistent://public/default/orders")
    await client.subscribe(TOPIC, "s")
    await producer.send(b"x")
    assert await ask(world, "GET", PATH) == [TOPIC]
    assert await ask(world, "GET", "/admin/v2/persistent/public/default") == [
        "persistent://public/default/orders"
    ]
    namespace = "/admin/v2/namespaces/public/default/topics"
    assert TOPIC in await ask(world, "GET", f"{namespace}?mode=ALL")
    assert TOPIC not in await ask(world, "GET", f"{namespace}?mode=PERSISTENT")
    # The Go client loses the query string behind the question mark.
    assert TOPIC not in await ask(world, "GET", namespace)
    assert await ask(world, "GET", f"{PATH}/ticks/subscriptions") == ["s"]
    disk = world.regions["us"].medium
    assert not [key for key in (*disk.logs, *disk.values) if "ticks" in key]
    await ask(world, "DELETE", f"{PATH}/ticks?force=true")
    await producer.close()
    world.kill("us")
    world.start("us")
    await world.ready()


@pytest.mark.world("us", "eu")
async def test_it_is_replicated_live_and_messages_sent_during_a_cut_are_dropped(world: World) -> None:
    us, eu = world.client("us"), world.client("eu")
    producer = await us.producer(TOPIC)
    consumer = await eu.subscribe(TOPIC, "s")
    broker = broker_of(world, "us")
    replicator = broker.directory.serving[TOPIC].replicators["eu"]
    await world.simulation.until(lambda: replicator.lifecycle.is_connected)
    for number in range(200):
        await producer.send(b"%d" % number)
    assert await received(consumer, 200) == [b"%d" % number for number in range(200)]
    world.cut("us", "eu")
    await world.simulation.until(lambda: not replicator.lifecycle.is_connected)
    for _ in range(20):
        await producer.send(b"lost")
    stats = await ask(world, "GET", f"{PATH}/ticks/stats")
    assert stats["replication"]["eu"]["msgDropCount"] == 20
    assert stats["replication"]["eu"]["replicationBacklog"] == 0
    world.heal("us", "eu")
    await world.simulation.until(lambda: replicator.lifecycle.is_connected)
    await producer.send(b"after")
    assert await received(consumer, 1) == [b"after"]


@pytest.mark.parametrize("cut", [False, True], ids=["forgotten", "cut off"])
@pytest.mark.world("us", "eu", settings=BrokerSettings(region_tail_bytes=1))
async def test_messages_that_a_slow_replicator_never_sent_are_counted(world: World, cut: bool) -> None:
    """Whether the topic dropped it because its replicator is slow, or the link broke meanwhile: received plus dropped
    messages are those published."""
    rate = {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 3_600}

    us, eu = world.client("us"), world.client("eu")
    producer = await us.producer(TOPIC)
    await eu.subscribe(TOPIC, "s")
    broker = broker_of(world, "us")
    replicator = broker.directory.serving[TOPIC].replicators["eu"]
    await world.simulation.until(lambda: replicator.lifecycle.is_connected)
    target = "/admin/v2/namespaces/public/default/replicatorDispatchRate"
    assert (await world.ask_admin("us", "POST", target, rate)).status == 204
    for number in range(300):
        await producer.send(b"%04d" % number + bytes(1_000))
    stats = await ask(world, "GET", f"{PATH}/ticks/stats")
    waiting = replicator.backlog
    assert 0 < waiting < 100, "as many as the topic keeps"
    assert stats["replication"]["eu"]["msgDropCount"] == 300 - 10 - waiting
    metrics = (await world.ask_admin("us", "GET", "/metrics")).body.decode()
    assert f"{{}} {300 - 10 - waiting}" in re.sub(
        r"geoemu_replication_dropped_messages_total{.*remote_cluster=.eu.*}", "{}", metrics
    )
    if cut:
        world.cut("us", "eu")
        await world.simulation.until(lambda: not replicator.lifecycle.is_connected)
        await producer.send(b"lost")
        stats = await ask(world, "GET", f"{PATH}/ticks/stats")
        assert stats["replication"]["eu"]["msgDropCount"] == 301 - 10
        return
    assert (await world.ask_admin("us", "DELETE", target)).status == 204
    await producer.send(b"last")
    there = broker_of(world, "eu")
    arrived = there.directory.serving[TOPIC].metrics.published
    await world.simulation.until(lambda: arrived.messages == 10 + waiting + 1)
    stats = await ask(world, "GET", f"{PATH}/ticks/stats")
    assert stats["replication"]["eu"]["msgDropCount"] == 300 - 10 - waiting
    await world.simulation.until(lambda: replicator.backlog == 0)


@pytest.mark.world("us", "eu")
async def test_messages_sent_after_a_restart_are_new_to_other_regions(world: World) -> None:
    """Ids after the restart are larger than those that the other region has seen, so it takes none for a duplicate."""
    us, eu = world.client("us"), world.client("eu")
    producer = await us.producer(TOPIC)
    consumer = await eu.subscribe(TOPIC, "s")
    receiving = asyncio.ensure_future(consumer.receive())
    while not receiving.done():
        await producer.send(b"first life")
        await asyncio.sleep(0.05)
    world.kill("us")
    world.start("us")
    await world.ready()
    while not any(one.payload == b"second life" for one in consumer.waiting):
        await producer.send(b"second life")
        await asyncio.sleep(0.05)


async def test_an_exclusive_producer_keeps_others_out(world: World) -> None:
    client = world.client("us")
    await client.producer(TOPIC, access_mode=AccessMode.EXCLUSIVE)
    with pytest.raises(ClientError) as fenced:
        await client.producer(TOPIC, access_mode=AccessMode.EXCLUSIVE)
    assert fenced.value.code is ServerError.ProducerFenced
