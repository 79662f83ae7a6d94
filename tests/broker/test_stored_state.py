"""State that a region reads from its store when it starts."""

from __future__ import annotations

import asyncio
import random

import pytest

from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.client import InitialPosition
from emulator.config.region import NamespaceConfig, RegionConfig
from emulator.errors import StorageError
from emulator.net.network import SocketNetwork
from emulator.storage.configuration.memory import MemoryConfiguration
from emulator.storage.memory import MemoryStore
from tests.broker.regions import DEADLINE_SECONDS, regions


async def test_cursors_of_names_with_slashes_stay_apart() -> None:
    """`orders` + `eu/billing` and `orders/eu` + `billing` used to share a key: after a restart the second subscription
    had the first one's position, and its consumers received nothing."""
    pairs = [("orders", "eu/billing"), ("orders/eu", "billing")]
    names = [(f"persistent://public/default/{topic}", subscription) for topic, subscription in pairs]

    async with regions("us") as world:
        async with world.client("us") as client:
            for topic, subscription in names:
                consumer = await client.subscribe(
                    topic, subscription, initial_position=InitialPosition.EARLIEST
                )
                await (await client.producer(topic)).send(topic.encode())
                if topic == names[0][0]:
                    await consumer.acknowledge(await consumer.receive(), confirmed=True)
        await world.stop("us")
        await world.start("us")
        async with world.client("us") as client:
            topic, subscription = names[1]
            consumer = await client.subscribe(topic, subscription)
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert (await consumer.receive()).payload == topic.encode()


async def test_a_store_of_an_older_format_is_rejected_in_one_sentence() -> None:
    store = await MemoryStore.open(region="us")
    await store.put("region/starts", b"0")
    namespace = NamespaceConfig("public/default", ("us",))
    region = Region(RegionConfig("us", "test", namespaces=(namespace,)), _environment(store))
    with pytest.raises(StorageError, match=r"has format 1.*reads format 2.*start a new run"):
        await region.start()


def _environment(store: MemoryStore) -> Environment:
    network = SocketNetwork()
    return Environment(
        wall_clock_ms=lambda: 0,
        random=random.Random(1),
        network=network,
        peer_network=network,
        store=store,
        configuration=MemoryConfiguration(),
    )
