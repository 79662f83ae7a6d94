"""Partitioned topics with real clients: they look up the number of partitions, and do the routing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from emulator.broker.region import Region
from emulator.core.policies.creation import AUTO_TOPIC_CREATION, AutoCreation
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import TopicName
from tests.broker.regions import FAST
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, case, driver, regions

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("client", [case(one) for one in CLIENTS]),
]

ORDERS = "persistent://public/default/orders"
MESSAGES = 40
OUTCOME_SECONDS = 20


@contextlib.asynccontextmanager
async def one_client(client: str) -> AsyncIterator[tuple[Region, Program]]:
    async with regions("us", settings=FAST) as world, driver(client) as program:
        url = f"pulsar://127.0.0.1:{world.ports['us']}"
        await program.ask("client", key="client", url=url, timeout_ms=30_000)
        yield world.running["us"], program


async def sent_and_received(program: Program) -> set[str]:
    """Return the partitions through which the messages arrived; each message arrives once."""
    async with asyncio.timeout(OUTCOME_SECONDS):
        await program.ask("subscribe", client="client", key="c", topic="orders", subscription="s")
        await program.ask("producer", client="client", key="p", topic="orders")
        for number in range(MESSAGES):
            await program.ask("send", key="p", payload=str(number), message_key=f"key-{number}")
        came = [await program.ask("receive", key="c", timeout_ms=10_000) for _ in range(MESSAGES)]
    assert sorted(int(one["payload"]) for one in came) == list(range(MESSAGES))
    return {one["topic"] for one in came}


async def test_messages_go_through_all_partitions_and_come_once(client: str) -> None:
    async with one_client(client) as (region, program):
        await region.partitioned.create(TopicName.parse(ORDERS), 3)
        assert (await program.ask("partitions", client="client", topic="orders"))["count"] == "3"
        topics = await sent_and_received(program)
        assert topics == {f"{ORDERS}-partition-{index}" for index in range(3)}


async def test_a_topic_is_created_with_as_many_partitions_as_its_namespace_says(client: str) -> None:
    async with one_client(client) as (region, program):
        place = NamespacePath("public/default")
        await region.policies.set(place, AUTO_TOPIC_CREATION, AutoCreation(True, 2))
        topics = await sent_and_received(program)
        assert topics == {f"{ORDERS}-partition-{index}" for index in range(2)}
        assert region.partitioned.count(TopicName.parse(ORDERS)) == 2


async def test_who_has_a_partitioned_topic_alone_has_all_of_its_partitions(client: str) -> None:
    async with one_client(client) as (region, program), asyncio.timeout(OUTCOME_SECONDS):
        await region.partitioned.create(TopicName.parse(ORDERS), 3)
        asked = {"client": "client", "topic": "orders", "access": "Exclusive"}
        await program.ask("producer", key="owner", **asked)
        # Clients may open a partition only with its first message.
        for number in range(MESSAGES):
            await program.ask("send", key="owner", payload=str(number), message_key=f"key-{number}")
        with pytest.raises(Failed) as refused:
            await program.ask("producer", key="other", **asked)
        assert refused.value.name == "ProducerFenced"
        owned = [region.directory.serving[f"{ORDERS}-partition-{index}"].access for index in range(3)]
        assert [access.epoch for access in owned] == [0, 0, 0]
        await program.ask("close", key="owner")
        await program.ask("producer", key="next", **asked)
        await program.ask("send", key="next", payload="mine", message_key="key-0")


async def test_a_topic_without_partitions_is_itself(client: str) -> None:
    async with one_client(client) as (_, program):
        assert await sent_and_received(program) == {ORDERS}
        assert (await program.ask("partitions", client="client", topic="orders"))["count"] == "1"
