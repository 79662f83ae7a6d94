"""Requests that wait for a probe of an older connection, and what may happen meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.connection import liveness
from emulator.client import AccessMode
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_flow
from emulator.wire.frames import frame_of, simple_frame
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until

EARLIEST = pb.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw client answers no PING: it counts as half-open after this time."""
    monkeypatch.setattr(liveness, "LIVENESS_SECONDS", 0.2)


async def receives(client: RawClient, world: Regions) -> None:
    """Check that a message that is published now reaches consumer 1 of `client`."""
    client.writer.write(frame_of(encode_flow(1, 10)))
    async with world.client("us") as publisher:
        await (await publisher.producer("orders")).send(b"hello")
    assert (await client.next()).type == pb.BaseCommand.MESSAGE


async def test_a_reader_whose_old_connection_is_half_open_comes_back() -> None:
    """Its subscription ends with the old connection; the reader must not attach to what is left of it."""
    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        assert (await old.subscribe(durable=False, start_message_id=EARLIEST)).HasField("success")
        assert (await new.subscribe(durable=False, start_message_id=EARLIEST)).HasField("success")
        await receives(new, world)


async def test_a_subscription_that_is_deleted_while_another_consumer_waits_for_it_is_created_again() -> None:
    """Whichever client deletes it: the new consumer must not attach to the deleted subscription."""
    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        assert (await old.subscribe()).HasField("success")
        waiting = asyncio.create_task(new.subscribe())
        region = world.running["us"]
        await until(lambda: any(connection.consumers.opening for connection in region.clients.connections))
        (topic,) = region.directory.serving.values()
        await topic.subscriptions["s"].delete()
        assert (await waiting).HasField("success")
        await receives(new, world)


async def test_pending_requests_end_with_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """No consumer is attached for a closed connection, and the present consumer stays."""
    monkeypatch.setattr(liveness, "LIVENESS_SECONDS", 60)

    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        await old.subscribe()
        request = pb.CommandSubscribe(
            topic="orders",
            subscription="s",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            request_id=1,
        )
        new.send(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=request))
        region = world.running["us"]
        await until(lambda: any(connection.consumers.opening for connection in region.clients.connections))
        assert region.resources.clients.held_bytes > 0
        new.writer.transport.abort()
        await until(lambda: len(region.clients.connections) == 1 and region.resources.clients.held_bytes == 0)
        (topic,) = region.directory.serving.values()
        assert len(topic.subscriptions["s"].consumers) == 1


async def test_a_producer_name_is_free_again_when_the_old_connection_is_half_open() -> None:
    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        await old.open_producer(name="p")
        assert (await new.open_producer(name="p")).producer_name == "p"
        with pytest.raises(EOFError):
            await old.next()


def close_producer(producer_id: int, request_id: int) -> pb.BaseCommand:
    body = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=body)


def create_producer(producer_id: int, request_id: int, name: str = "p") -> pb.BaseCommand:
    body = pb.CommandProducer(
        topic="orders", producer_id=producer_id, request_id=request_id, producer_name=name
    )
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body)


def close_consumer(consumer_id: int, request_id: int) -> pb.BaseCommand:
    body = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=body)


def subscribe(consumer_id: int, request_id: int) -> pb.BaseCommand:
    body = pb.CommandSubscribe(
        topic="orders", subscription="s", subType=0, consumer_id=consumer_id, request_id=request_id
    )
    return pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=body)


async def test_a_producer_closed_and_created_again_in_one_chunk_is_opened() -> None:
    """The first request still waits for the topic when the third arrives: the third gets the response."""
    async with regions("us") as world, raw_client(world) as client:
        for command in (create_producer(1, 1), close_producer(1, 2), create_producer(1, 3)):
            client.send(command)
        assert (await client.next()).success.request_id == 2
        assert (await client.next()).producer_success.request_id == 3
        (connection,) = world.running["us"].clients.connections
        assert not connection.producers.opening


async def test_a_consumer_closed_and_created_again_in_one_chunk_is_attached() -> None:
    async with regions("us") as world, raw_client(world) as client:
        for command in (subscribe(1, 1), close_consumer(1, 2), subscribe(1, 3)):
            client.send(command)
        assert [(await client.next()).success.request_id for _ in range(2)] == [2, 3]
        await receives(client, world)


async def test_a_producer_of_another_name_under_the_same_id_replaces_the_first() -> None:
    """If it stayed attached, the first producer would keep its name, and no client could send as it or close it."""
    async with regions("us") as world, raw_client(world) as client:
        assert (await client.ask(create_producer(1, 1, "first"))).producer_success.request_id == 1
        assert (await client.ask(create_producer(1, 2, "second"))).producer_success.request_id == 2
        (topic,) = world.running["us"].directory.serving.values()
        assert list(topic.producers) == ["second"]


async def test_an_exclusive_owner_that_reconnects_keeps_the_topic_before_waiting_producers() -> None:
    """Its old connection is half-open: the region has to probe it, and must promote no other producer when it closes
    it."""
    async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
        exclusive = pb.Exclusive
        opened = await old.open_producer(name="owner", producer_access_mode=exclusive)
        assert (opened.producer_ready, opened.topic_epoch) == (True, 0)
        async with world.client("us") as client:
            waiting = asyncio.ensure_future(
                client.producer("orders", name="waiter", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
            )
            topic = world.running["us"].directory.serving["persistent://public/default/orders"]
            await until(lambda: [one.producer_name for one in topic.access.waiting] == ["waiter"])
            back = await new.open_producer(
                name="owner", producer_access_mode=exclusive, topic_epoch=0, epoch=1
            )
            assert (back.producer_ready, back.topic_epoch) == (True, 0)
            assert not waiting.done()
            new.writer.close()
            assert (await waiting).topic_epoch == 1


async def test_requests_of_one_read_get_their_responses_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them has to wait, so that no task is needed either."""
    async with regions("us") as world, raw_client(world) as client:
        (connection,) = world.running["us"].clients.connections
        writes: list[bytes] = []
        write = connection.write
        monkeypatch.setattr(connection, "write", lambda data: (writes.append(data), write(data)))
        monkeypatch.setattr(connection.tasks, "start", lambda *_: pytest.fail("a task was started"))
        commands = [close_producer(1, 0)]
        for number in range(1, 10, 2):
            body = pb.CommandLookupTopic(topic="orders", request_id=number)
            commands.append(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=body))
            metadata = pb.CommandPartitionedTopicMetadata(topic="orders", request_id=number + 1)
            commands.append(
                pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=metadata)
            )
        connection.data_received(b"".join(map(simple_frame, commands)))
        responses = [await client.next() for _ in commands]
        assert responses[0].success.request_id == 0
        assert [one.lookupTopicResponse.request_id for one in responses[1::2]] == [1, 3, 5, 7, 9]
        assert [one.partitionMetadataResponse.request_id for one in responses[2::2]] == [2, 4, 6, 8, 10]
        assert len(writes) == 1
