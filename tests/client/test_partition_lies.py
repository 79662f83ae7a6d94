"""Wrong numbers of partitions in responses of a region."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, ClientError
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.errors import ServerError
from emulator.model.values import PARTITIONS_MAX
from emulator.wire import pulsar_pb2 as pb
from tests.client.scripted import Script, ScriptedBroker, scripted

NEGATIVE = 2**32 - 1
"""-1 on the wire, where the field is unsigned."""


def topics(script: Script) -> list[str]:
    return [create.topic for create in script.creates]


async def until_asked(script: Script, times: int) -> None:
    """Wait for this number of requests for the number of partitions."""
    async with asyncio.timeout(5):
        while script.asked_for_partitions < times:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("mode", [AccessMode.SHARED, AccessMode.WAIT_FOR_EXCLUSIVE])
@pytest.mark.parametrize("count", [PARTITIONS_MAX + 1, 10**9, NEGATIVE])
async def test_a_number_that_cannot_be_meant_is_refused_at_once(count: int, mode: AccessMode) -> None:
    async with scripted() as (script, client), asyncio.timeout(2):
        script.partitions = count
        with pytest.raises(ClientError, match=f"the region reports {count} partitions of orders") as refusal:
            await client.producer("orders", access_mode=mode)
        assert refusal.value.definite
        assert topics(script) == []


async def test_no_partitions_is_a_topic_itself() -> None:
    async with scripted() as (script, client):
        await client.producer("orders")
        assert topics(script) == ["orders"]


@pytest.mark.parametrize("later", [0, 1, 10**9, NEGATIVE])
async def test_a_topic_does_not_shrink_nor_grow_beyond_measure(later: int) -> None:
    """Whatever later responses contain, messages go to the same partitions, and a correct response is used."""
    async with scripted() as (script, client):
        script.partitions = 2
        producer = await client.producer("orders")
        assert isinstance(producer, PartitionedProducer)
        script.partitions = later
        await until_asked(script, script.asked_for_partitions + 3)
        assert producer.partitions == 2
        await producer.send(b"x")
        script.partitions = 3
        async with asyncio.timeout(5):
            while producer.partitions < 3:
                await asyncio.sleep(0.005)
        assert topics(script) == [f"orders-partition-{index}" for index in range(3)]


def test_a_partition_that_is_refused_fails_the_producer_and_the_others_are_let_go_of() -> None:
    def third_is_refused(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        if create.topic.endswith("-2"):
            broker.refuse(create, ServerError.TopicTerminatedError)
        else:
            broker.succeed(create)

    async def scenario() -> None:
        async with scripted() as (script, client):
            script.partitions, script.on_create = 3, third_is_refused
            with pytest.raises(ClientError) as refusal:
                await client.producer("orders")
            assert refusal.value.code is ServerError.TopicTerminatedError
            opened = {create.producer_id for create in script.creates if not create.topic.endswith("-2")}
            assert opened <= {close.producer_id for close in script.closes}

    asyncio.run(scenario())


async def test_a_partition_that_comes_and_is_refused_is_asked_for_again_and_not_used_before() -> None:
    def only_once_willing(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        refusals = topics(broker.world).count("orders-partition-1")
        if create.topic.endswith("-1") and refusals < 3:
            broker.refuse(create, ServerError.NotAllowedError)
        else:
            broker.succeed(create)

    async with scripted() as (script, client):
        script.partitions, script.on_create = 1, only_once_willing
        producer = await client.producer("orders")
        assert isinstance(producer, PartitionedProducer)
        script.partitions = 2
        async with asyncio.timeout(5):
            while producer.partitions < 2:
                await producer.send(b"x")
                await asyncio.sleep(0.005)
        assert topics(script).count("orders-partition-1") == 3


async def test_a_region_that_gives_a_name_to_the_first_partition_gives_it_to_all() -> None:
    async with scripted() as (script, client):
        script.partitions = 3
        await client.producer("orders")
        assert [create.producer_name for create in script.creates] == ["", "given", "given"]
