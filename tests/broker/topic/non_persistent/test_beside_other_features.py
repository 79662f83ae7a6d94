"""Non-persistent topics combined with policies, transactions and admin calls."""

from __future__ import annotations

import pytest

from emulator.client import Client, ClientError
from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.lifetime import MESSAGE_TTL, RETENTION, Retention
from emulator.core.policies.limits import (
    DISPATCH_RATE,
    MAX_CONSUMERS,
    MAX_MESSAGE_SIZE,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    MAX_TOPICS,
)
from emulator.core.policies.topics import DEDUPLICATION
from emulator.errors import ServerError
from emulator.model.stored_keys import NamespacePath
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.coordinator_requests import add_partition, add_subscription, begin, connect

TOPIC = "non-persistent://public/default/ticks"
PERSISTENT = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
DEADLINE = 30


async def test_it_cannot_take_part_in_a_transaction() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await connect(client)
        txn = await begin(client)
        for refused in (
            await add_partition(client, txn, TOPIC),
            await add_subscription(client, txn, "s", TOPIC),
        ):
            assert refused.error == int(ServerError.NotAllowedError)
            assert "cannot take part in a transaction" in refused.message
        own: Client
        async with world.client("us") as own:
            producer = await own.producer(TOPIC)
            transaction = await own.new_transaction()
            with pytest.raises(ClientError, match="cannot take part in a transaction"):
                await producer.send(b"x", transaction=transaction)
            await transaction.abort()
            await producer.send(b"plain")


async def test_limits_of_clients_apply_to_non_persistent_topics() -> None:
    async with regions("us") as world, raw_client(world) as client:
        policies = world.running["us"].policies
        for policy in (MAX_PRODUCERS, MAX_CONSUMERS, MAX_SUBSCRIPTIONS, MAX_TOPICS):
            await policies.set(NAMESPACE, policy, 1)
        await policies.set(NAMESPACE, MAX_MESSAGE_SIZE, 10)
        await client.open_producer(1, topic=TOPIC, name="first")
        client.ask_for_producer(2, topic=TOPIC, name="second")
        assert (await client.next()).error.error == int(ServerError.ProducerBusy)
        client.ask_for_producer(3, topic="non-persistent://public/default/more", name="third")
        assert "maximum number of topics" in (await client.next()).error.message
        shared = {"topic": TOPIC, "subType": pb.CommandSubscribe.Shared}
        assert (await client.subscribe(1, **shared)).HasField("success")
        assert (await client.subscribe(2, **shared)).error.error == int(ServerError.ConsumerBusy)
        refused = (await client.subscribe(3, subscription="u", **shared)).error
        assert "maximum number of subscriptions" in refused.message


async def test_messages_over_the_dispatch_rate_are_dropped() -> None:
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        await us.policies.set(NAMESPACE, DISPATCH_RATE, RateLimit(1, 0, 3_600))
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.producer(TOPIC)
        for number in range(5):
            await producer.send(b"%d" % number)
        assert (await consumer.receive()).payload == b"0"
        topic = us.directory.serving[TOPIC]
        assert topic.subscriptions["s"].backlog() == 0
        await us.policies.set(NAMESPACE, DISPATCH_RATE, None)
        await producer.send(b"after")
        assert (await consumer.receive()).payload == b"after"


async def test_retention_policies_do_not_affect_non_persistent_topics() -> None:
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await us.policies.set(NAMESPACE, MESSAGE_TTL, 1)
        await us.policies.set(NAMESPACE, RETENTION, Retention(0, 0))
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.producer(TOPIC)
        await producer.send(b"0")
        topic = us.directory.serving[TOPIC]
        assert not topic.state.deduplicates
        await us.policies.set(NAMESPACE, DEDUPLICATION, False)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await producer.send(b"1")
        assert [(await consumer.receive()).payload for _ in range(2)] == [b"0", b"1"]
        assert not topic.state.deduplicates
        assert not topic.closed
        assert not us.housekeeper.has_work(topic)


async def test_a_subscription_with_a_start_in_the_past_begins_now() -> None:
    async with regions("us") as world, raw_client(world) as client, world.client("us") as own:
        producer = await own.producer(TOPIC)
        await producer.send(b"before")
        options = {"start_message_rollback_duration_sec": 3_600}
        assert (await client.subscribe(1, topic=TOPIC, **options)).HasField("success")
        topic = world.running["us"].directory.serving[TOPIC]
        assert topic.subscriptions["s"].cursor.mark_delete == topic.state.readable_end - 1


async def listed(client: RawClient, mode: int) -> list[str]:
    body = pb.CommandGetTopicsOfNamespace(request_id=7, namespace="public/default")
    body.mode = mode  # type: ignore[assignment]
    command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body)
    return list((await client.ask(command)).getTopicsOfNamespaceResponse.topics)


async def fitting(client: RawClient, pattern: str) -> list[str]:
    body = pb.CommandGetTopicsOfNamespace(
        request_id=7,
        namespace="public/default",
        mode=pb.CommandGetTopicsOfNamespace.ALL,
        topics_pattern=pattern,
    )
    command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body)
    return list((await client.ask(command)).getTopicsOfNamespaceResponse.topics)


async def two_topics(world: Regions, client: Client) -> None:
    await client.producer(PERSISTENT)
    await client.producer(TOPIC)
    await client.producer("non-persistent://public/default/__hidden")
    serving = world.running["us"].directory.serving
    await until(lambda: {TOPIC, PERSISTENT} <= serving.keys(), DEADLINE)


async def test_topic_lists_contain_it_by_mode_and_pattern() -> None:
    async with regions("us") as world, raw_client(world) as client, world.client("us") as own:
        await two_topics(world, own)
        modes = pb.CommandGetTopicsOfNamespace
        assert await listed(client, modes.PERSISTENT) == [PERSISTENT]
        assert await listed(client, modes.NON_PERSISTENT) == [TOPIC]
        assert sorted(await listed(client, modes.ALL)) == [TOPIC, PERSISTENT]
        assert await fitting(client, "non-persistent://public/default/t.*") == [TOPIC]
        assert await fitting(client, "persistent://public/default/o.*") == [PERSISTENT]
