"""Policies of producers and consumers: their number, message size and rate; and deduplication that is enabled later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.broker.connection.flow_control import PauseReason
from emulator.broker.region import Region
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import InitialPosition
from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.policies.declaration import Policy
from emulator.core.policies.limits import (
    DISPATCH_RATE,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_MESSAGE_SIZE,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    MAX_TOPICS,
    PUBLISH_RATE,
    REPLICATOR_DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
)
from emulator.core.policies.topics import DEDUPLICATION
from emulator.errors import ServerError
from emulator.model.stored_keys import NamespacePath, StoredKey, TopicPoliciesPath
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_header
from emulator.wire.entry import build_entry, plain_entry
from emulator.wire.frames import simple_frame
from tests.broker.connection.raw import RawClient, entry, raw_client
from tests.broker.regions import regions, until

TOPIC = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
OF_TOPIC = TopicPoliciesPath(TOPIC)
DEADLINE = 30


def send(client: RawClient, data: bytes, sequence_id: int) -> None:
    client.writer.write(send_header(1, sequence_id, data_length=len(data)) + data)


async def set_policy(region: Region, policy: Policy[Any], value: Any, place: StoredKey = NAMESPACE) -> None:
    await region.policies.set(place, policy, value)


async def test_a_topic_has_no_more_producers_than_it_may() -> None:
    """A producer that reconnects under its name does not count again, and other regions' replicators do not count."""
    async with regions("us", "eu") as world, raw_client(world) as client:
        await set_policy(world.running["us"], MAX_PRODUCERS, 1)
        await client.open_producer(1, name="first")
        client.ask_for_producer(2, name="second")
        assert (await client.next()).error.error == int(ServerError.ProducerBusy)
        await client.open_producer(1, name="first")
        topic = world.running["us"].directory.serving[TOPIC]
        async with world.client("eu") as other:
            await (await other.producer(TOPIC)).send(b"0")
        await until(lambda: len(topic.producers) == 2, DEADLINE)
        await set_policy(world.running["us"], MAX_PRODUCERS, None)
        await client.open_producer(2, name="second")


async def test_a_topic_and_a_subscription_have_no_more_consumers_than_they_may() -> None:
    async with regions("us") as world, raw_client(world) as client:
        us = world.running["us"]
        await set_policy(us, MAX_CONSUMERS, 2)
        await set_policy(us, MAX_CONSUMERS_PER_SUBSCRIPTION, 1)
        await set_policy(us, MAX_SUBSCRIPTIONS, 2)
        shared = {"subType": pb.CommandSubscribe.Shared}
        assert (await client.subscribe(1, **shared)).HasField("success")
        assert (await client.subscribe(2, **shared)).error.error == int(ServerError.ConsumerBusy)
        assert (await client.subscribe(3, subscription="t", **shared)).HasField("success")
        refused = (await client.subscribe(4, subscription="u", **shared)).error
        assert refused.error == int(ServerError.NotAllowedError)
        assert "maximum number of subscriptions" in refused.message
        await set_policy(us, MAX_CONSUMERS_PER_SUBSCRIPTION, 5)
        refused = (await client.subscribe(5, subscription="t", **shared)).error
        assert "max consumers limit: 2" in refused.message


async def test_a_namespace_has_no_more_topics_than_it_may() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await set_policy(world.running["us"], MAX_TOPICS, 1)
        await client.open_producer(1, topic="one")
        client.ask_for_producer(2, topic="two", name="q")
        refused = (await client.next()).error
        assert refused.error == int(ServerError.NotAllowedError)
        assert "Exceed maximum number of topics" in refused.message
        await client.open_producer(3, topic="one", name="r")


async def test_a_message_has_no_more_bytes_than_its_topic_allows() -> None:
    """Applies to clients only. A message of another region was acknowledged there."""
    async with regions("us", "eu") as world, raw_client(world) as client:
        await set_policy(world.running["us"], MAX_MESSAGE_SIZE, 10, OF_TOPIC)
        await client.open_producer(1)
        send(client, entry(bytes(11)), 0)
        refused = (await client.next()).send_error
        assert refused.error == int(ServerError.NotAllowedError)
        assert "exceeds the maximum of 10" in refused.message
        send(client, entry(bytes(10), 1), 1)
        assert (await client.next()).send_receipt.sequence_id == 1
        topic = world.running["us"].directory.serving[TOPIC]
        assert topic.publishing.limits.payload_bytes > 10


@pytest.mark.usefixtures("simulation")
async def test_a_client_that_publishes_too_fast_is_read_more_slowly() -> None:
    """Every message is stored; and without a rate the producer continues at full speed."""
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        await set_policy(us, PUBLISH_RATE, RateLimit(20, 0, 1))
        producer = await client.producer(TOPIC)
        (connection,) = us.clients.connections
        await asyncio.gather(*[producer.send(b"%d" % number) for number in range(21)])
        sending = asyncio.gather(*[producer.send(b"%d" % number) for number in range(21, 30)])
        await until(lambda: PauseReason.RATE in connection.flow_control.reasons, DEADLINE)
        assert connection.flow_control.is_paused_by_region, "the region itself stopped reading the client"
        await sending
        assert us.directory.serving[TOPIC].state.stored_end == 30


@pytest.mark.usefixtures("simulation")
async def test_the_publish_rate_belongs_to_the_topic_and_not_to_connections() -> None:
    """INV-79. 20 messages a second, each over a new connection."""
    async with regions("us") as world:
        us = world.running["us"]
        await set_policy(us, PUBLISH_RATE, RateLimit(20, 0, 1))
        loop, stored = asyncio.get_running_loop(), 0
        began = loop.time()
        while loop.time() < began + 2:
            async with raw_client(world) as client:  # disconnected abruptly as soon as it has its receipts
                await client.open_producer(1, name=str(stored))
                for number in range(10):
                    send(client, plain_entry(str(stored), number, 1, b"x"), number)
                for _ in range(10):
                    await client.next()
                stored += 10
        assert stored <= 20 + 20 * (loop.time() - began) + 10, "at most one batch too early"


@pytest.mark.usefixtures("simulation")
async def test_a_new_producer_waits_too_when_others_exceeded_the_publish_rate() -> None:
    async with regions("us") as world, world.client("us") as one, world.client("us") as other:
        us = world.running["us"]
        await set_policy(us, PUBLISH_RATE, RateLimit(20, 0, 1))
        producers = [await one.producer(TOPIC), await other.producer(TOPIC)]
        assert len(us.clients.connections) == 2
        await asyncio.gather(*[producers[0].send(b"%d" % number) for number in range(30)])
        await until(
            lambda: all(PauseReason.RATE in one.flow_control.reasons for one in us.clients.connections),
            DEADLINE,
        )
        await producers[1].send(b"later")


@pytest.mark.parametrize("then", ["the rate is gone", "the client is gone"])
async def test_a_pause_of_years_does_not_keep_a_closed_connection_in_memory(then: str) -> None:
    async with regions("us") as world, raw_client(world) as client:
        us = world.running["us"]
        await set_policy(us, PUBLISH_RATE, RateLimit(0, 1, 1))
        await client.open_producer(1)
        (connection,) = us.clients.connections
        for number in range(2):
            send(client, entry(bytes(1_000_000), number), number)
        assert (await client.next()).send_receipt.sequence_id == 0
        await until(lambda: PauseReason.RATE in connection.flow_control.reasons, DEADLINE)
        if then == "the client is gone":
            connection.abort()
            await until(lambda: not us.clients.connections, DEADLINE)
            timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
            assert not [
                one
                for one in timers
                if not one.cancelled() and connection.flow_control.speed_up == one._callback
            ]
        else:
            await set_policy(us, PUBLISH_RATE, None)
            assert (await client.next()).send_receipt.sequence_id == 1
            await client.open_producer(2, name="other")


@pytest.mark.parametrize("then", ["the rate is removed", "the topic is unloaded", "the topic is deleted"])
async def test_a_client_whose_fast_producer_has_closed_is_read_again_when_the_rate_ends(then: str) -> None:
    """The connection, which no longer had a producer of the topic, stayed paused for days."""
    async with regions("us") as world, raw_client(world) as client:
        us = world.running["us"]
        await set_policy(us, PUBLISH_RATE, RateLimit(0, 1, 1))
        await client.open_producer(1)
        (connection,) = us.clients.connections
        closing = pb.CommandCloseProducer(producer_id=1, request_id=7)
        data = entry(bytes(1_000))
        frame = simple_frame(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=closing))
        client.writer.write(send_header(1, 0, data_length=len(data)) + data + frame)
        assert (await client.next()).type == pb.BaseCommand.SEND_RECEIPT
        assert (await client.next()).success.request_id == 7
        assert not us.directory.serving[TOPIC].producers
        assert PauseReason.RATE in connection.flow_control.reasons
        if then == "the rate is removed":
            await set_policy(us, PUBLISH_RATE, None)
        elif then == "the topic is unloaded":
            await us.directory.unload(TOPIC, "a test")
        else:
            await us.directory.delete(TOPIC, force=False)
        await client.open_producer(2, topic="bills", name="other")


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.usefixtures("simulation")
async def test_a_client_that_returns_while_the_rate_pauses_its_former_connection_gets_its_producer(
    *, is_gone: bool
) -> None:
    """The region does not read the former connection, so it did not notice that the client had closed it: the client
    was rejected as a second producer of its own name for as long as the pause lasted."""
    async with regions("us") as world, raw_client(world) as former, raw_client(world) as client:
        us = world.running["us"]
        await set_policy(us, PUBLISH_RATE, RateLimit(0, 1, 1))
        await former.open_producer(1)
        send(former, entry(bytes(1_000)), 0)
        assert (await former.next()).type == pb.BaseCommand.SEND_RECEIPT
        (holder,) = us.directory.serving[TOPIC].producers.values()
        assert holder.connection.flow_control.is_paused_by_region
        if is_gone:
            former.writer.close()
        client.ask_for_producer(1)
        answer = await client.next()
        if is_gone:
            assert answer.producer_success.producer_name == "p"
        else:
            assert answer.error.error == int(ServerError.ProducerBusy)


async def test_the_message_size_limit_does_not_limit_batches() -> None:
    """A batch may be compressed to fewer bytes than it has messages; and a message of one byte counts as one."""
    async with regions("us") as world, raw_client(world) as client:
        await set_policy(world.running["us"], MAX_MESSAGE_SIZE, 1, OF_TOPIC)
        await client.open_producer(1)
        for number, messages in enumerate((1, 50)):
            metadata = pb.MessageMetadata(
                producer_name="p", sequence_id=number, publish_time=1, num_messages_in_batch=messages
            )
            send(client, build_entry(metadata, b"x"), number)
            assert (await client.next()).send_receipt.sequence_id == number


async def test_consumers_receive_everything_within_the_dispatch_rate() -> None:
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        producer = await client.producer(TOPIC)
        for number in range(12):
            await producer.send(b"%d" % number)
        await set_policy(us, SUBSCRIPTION_DISPATCH_RATE, RateLimit(1, 0, 86_400))
        consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
        assert (await consumer.receive()).payload == b"0"
        for number in range(12, 15):
            await producer.send(b"%d" % number)
        assert us.directory.serving[TOPIC].subscriptions["s"].sent.messages == 1
        await set_policy(us, SUBSCRIPTION_DISPATCH_RATE, None)
        assert [(await consumer.receive()).payload for _ in range(14)] == [b"%d" % n for n in range(1, 15)]


async def test_a_subscription_with_a_rate_of_its_own_does_not_follow_that_of_all() -> None:
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        producer = await client.producer(TOPIC)
        for number in range(4):
            await producer.send(b"%d" % number)
        own = {"slow": RateLimit(1, 0, 86_400), "fast": UNLIMITED}
        await set_policy(us, SUBSCRIPTION_DISPATCH_RATE, RateLimit(2, 0, 86_400))
        await set_policy(us, DISPATCH_RATES_BY_SUBSCRIPTION, own, OF_TOPIC)
        consumers = {
            name: await client.subscribe(TOPIC, name, initial_position=InitialPosition.EARLIEST)
            for name in ("slow", "usual", "fast")
        }
        expected = {"slow": 1, "usual": 2, "fast": 4}
        for name, count in expected.items():
            for _ in range(count):
                await consumers[name].receive()
        subscriptions = us.directory.serving[TOPIC].subscriptions
        assert {name: subscriptions[name].sent.messages for name in expected} == expected
        await set_policy(us, DISPATCH_RATES_BY_SUBSCRIPTION, None, OF_TOPIC)
        assert (await consumers["slow"].receive()).payload == b"1"
        assert subscriptions["slow"].sent.messages == 3


async def test_the_consumers_of_a_topic_share_its_rate() -> None:
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        producer = await client.producer(TOPIC)
        one = await client.subscribe(TOPIC, "one")
        two = await client.subscribe(TOPIC, "two")
        await set_policy(us, DISPATCH_RATE, RateLimit(1, 0, 86_400))
        for number in range(4):
            await producer.send(b"%d" % number)
        topic = us.directory.serving[TOPIC]
        assert sum(subscription.sent.messages for subscription in topic.subscriptions.values()) == 1
        await set_policy(us, DISPATCH_RATE, None)
        for consumer in (one, two):
            assert [(await consumer.receive()).payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]


async def test_a_replicator_sends_no_more_than_the_rate_allows() -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        us, eu = world.running["us"], world.running["eu"]
        await set_policy(us, REPLICATOR_DISPATCH_RATE, RateLimit(2, 0, 86_400))
        producer = await client.producer(TOPIC)
        for number in range(10):
            await producer.send(b"%d" % number)
        topic = us.directory.serving[TOPIC]
        await until(lambda: topic.replicators["eu"].progress.confirmed >= 0, DEADLINE)
        assert topic.replicators["eu"].backlog > 0
        await set_policy(us, REPLICATOR_DISPATCH_RATE, None)
        await until(lambda: not topic.replicators["eu"].backlog, DEADLINE)
        there = await eu.directory.acquire(TOPIC, OpenMode.EXISTING)
        await until(lambda: there.state.stored_end == 10, DEADLINE)


# Deduplication.


async def test_deduplication_begins_in_the_middle_of_a_stream() -> None:
    async with regions("us", deduplication=False) as world, raw_client(world) as client:
        us = world.running["us"]
        await client.open_producer(1)
        topic = us.directory.serving[TOPIC]
        for number in (0, 0):
            send(client, entry(b"x", number), number)
            await client.next()
        assert topic.state.stored_end == 2, "deduplication is still off"
        await set_policy(us, DEDUPLICATION, True, OF_TOPIC)
        await until(lambda: topic.state.deduplicates, DEADLINE)
        for number in (1, 1):
            send(client, entry(b"x", number), number)
            assert (await client.next()).send_receipt.sequence_id == number
        assert topic.state.stored_end == 3
        await set_policy(us, DEDUPLICATION, False, OF_TOPIC)
        await until(lambda: not topic.state.deduplicates, DEADLINE)
        send(client, entry(b"x", 1), 1)
        await client.next()
        assert topic.state.stored_end == 4


async def test_sequence_ids_of_before_a_pause_of_deduplication_drop_no_message() -> None:
    """The producer restarts its sequence ids while deduplication is off; also with a crash in between."""
    async with regions("us") as world:
        for crashes in (False, True):
            us = world.running["us"]
            topic = await us.directory.acquire(TOPIC, OpenMode.CREATE)
            await until(lambda topic=topic: topic.state.deduplicates, DEADLINE)
            async with raw_client(world) as client:
                await client.open_producer(1)
                send(client, entry(b"x", 50), 50)
                await client.next()
            await set_policy(us, DEDUPLICATION, False)
            await until(lambda topic=topic: not topic.state.deduplicates, DEADLINE)
            async with raw_client(world) as client:
                await client.open_producer(1)
                send(client, entry(b"x", 0), 0)
                await client.next()
            if crashes:
                await world.crash("us")
                us = await world.start("us")
            await set_policy(us, DEDUPLICATION, True)
            topic = await us.directory.acquire(TOPIC, OpenMode.EXISTING)
            await until(lambda topic=topic: topic.state.deduplicates, DEADLINE)
            before = topic.state.stored_end
            async with raw_client(world) as client:
                await client.open_producer(1)
                send(client, entry(b"x", 1), 1)
                assert (await client.next()).send_receipt.sequence_id == 1
            assert topic.state.stored_end == before + 1


async def test_concurrent_creations_do_not_exceed_the_maximum_number_of_topics() -> None:
    async with regions("us") as world, world.client("us") as client:
        us = world.running["us"]
        await set_policy(us, MAX_TOPICS, 2)
        made = await asyncio.gather(
            *[client.producer(f"persistent://public/default/{number}") for number in range(10)],
            *[client.producer(f"non-persistent://public/default/{number}") for number in range(10)],
            return_exceptions=True,
        )
        assert len([one for one in made if not isinstance(one, BaseException)]) == 2
        assert len(us.directory.counts.of_namespace("public/default")) == 2
