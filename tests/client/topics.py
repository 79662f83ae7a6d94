"""Helpers of tests that create, change and read the topic `orders` of a simulated world, partitioned or not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from emulator.broker.region import Region
from emulator.client import Client, Consumer, Message, Producer
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.simulation.world import CLIENT_SETTINGS, World
from emulator.wire.message_metadata import read_metadata

NAMESPACE = "persistent://public/default"
ORDERS = f"{NAMESPACE}/orders"
PATH = "/admin/v2/persistent/public/default"
WITH_PARTITIONS = replace(
    CLIENT_SETTINGS, asks_for_partitions=True, partitions_interval_seconds=1.0, topics_interval_seconds=600.0
)


def client_of(w: World, **changes: object) -> Client:
    return w.client("us", settings=replace(WITH_PARTITIONS, **changes))  # type: ignore[arg-type]


def region(w: World) -> Region:
    broker = w.regions["us"].broker
    assert broker is not None
    return broker


async def restart(w: World, seconds: float = 0) -> None:
    w.kill("us")
    await asyncio.sleep(seconds)
    w.start("us")
    await w.ready()


# Changes by an administrator.


async def admin(w: World, method: str, target: str, body: object = None) -> None:
    response = await w.ask_admin("us", method, target, body)
    assert response.status < 300, response


async def create(w: World, count: int = 3, topic: str = "orders") -> None:
    await admin(w, "PUT", f"{PATH}/{topic}/partitions", count)


async def grow(w: World, count: int) -> None:
    await admin(w, "POST", f"{PATH}/orders/partitions", count)


async def delete(w: World, topic: str) -> None:
    await admin(w, "DELETE", f"{PATH}/{topic}?force=true")


async def terminate(w: World, topic: str) -> None:
    await admin(w, "POST", f"/admin/v2/{topic.replace('://', '/')}/terminate")


# The state of the region.


def partition(index: int) -> str:
    return f"{ORDERS}-partition-{index}"


def stored(w: World, index: int) -> list[bytes]:
    """Return the encoded entries of a partition, as stored on the region's disk."""
    return [entry.data for entry in w.regions["us"].medium.entries(partition(index))]


def counts(w: World, partitions: int = 3) -> list[int]:
    return [len(stored(w, index)) for index in range(partitions)]


def numbers(w: World, index: int) -> list[int]:
    """Return the sequence ids of a partition's entries."""
    return [read_metadata(data).sequence_id for data in stored(w, index)]


def owners(w: World, partitions: int = 3) -> list[list[str]]:
    """Return the names of the producers of each partition."""
    topics = [region(w).directory.serving.get(partition(index)) for index in range(partitions)]
    return [[one.producer_name for one in topic.producers.values()] if topic else [] for topic in topics]


def producers_at(w: World, index: int) -> list[str]:
    return owners(w, index + 1)[index]


# Clients.


async def new_producer(w: World, client: Client, *, partitions: int = 3, **options: Any) -> Producer:
    """Create `orders` with its partitions, and a producer of it."""
    await create(w, partitions)
    return await client.producer("orders", **options)


async def new_consumer(w: World, client: Client, *, partitions: int = 3, **options: Any) -> Consumer:
    """Create `orders` with its partitions, and a consumer of the subscription `s`."""
    await create(w, partitions)
    return await client.subscribe(ORDERS, "s", **options)


async def grown(producer: Producer, count: int) -> PartitionedProducer:
    assert isinstance(producer, PartitionedProducer)
    async with asyncio.timeout(60):
        while producer.partitions < count:
            await asyncio.sleep(0.05)
    return producer


async def publish(client: Client, topic: str, *payloads: str) -> None:
    producer = await client.producer(topic)
    for payload in payloads:
        await producer.send(payload.encode(), key=payload)
    await producer.close()


async def take(consumer: Consumer, count: int) -> list[Message]:
    async with asyncio.timeout(30):
        return [await consumer.receive() for _ in range(count)]


async def received(consumer: Consumer, count: int) -> list[str]:
    """Receive and acknowledge `count` messages, and return their payloads, sorted."""
    payloads = []
    async with asyncio.timeout(30):
        for _ in range(count):
            message = await consumer.receive()
            await consumer.acknowledge(message)
            payloads.append(message.payload.decode())
    return sorted(payloads)


def several(consumer: Consumer) -> MultiTopicConsumer:
    assert isinstance(consumer, MultiTopicConsumer)
    return consumer
