"""What waits for an old connection to show that it lives, and what may happen meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.commands import liveness
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import encode_flow
from emulator.wire.frames import frame_of
from tests.broker.commands.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until

EARLIEST = pb.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw client answers no PING: it counts as half-open after this time."""
    monkeypatch.setattr(liveness, "LIVENESS_SECONDS", 0.2)


async def receives(client: RawClient, world: Regions) -> None:
    """A message that is published now reaches consumer 1 of `client`."""
    client.writer.write(frame_of(encode_flow(1, 10)))
    async with world.client("us") as publisher:
        await (await publisher.producer("orders")).send(b"hello")
    assert (await client.next()).type == pb.BaseCommand.MESSAGE


def test_a_reader_whose_old_connection_is_half_open_comes_back() -> None:
    """Its subscription goes with the old connection; it must not be attached to what is left of it."""

    async def story() -> None:
        async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
            assert (await old.subscribe(durable=False, start_message_id=EARLIEST)).HasField("success")
            assert (await new.subscribe(durable=False, start_message_id=EARLIEST)).HasField("success")
            await receives(new, world)

    asyncio.run(story())


def test_a_subscription_that_is_deleted_while_another_consumer_waits_for_it_is_created_again() -> None:
    """Whoever deletes it: the newcomer must not be attached to what is left."""

    async def story() -> None:
        async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
            assert (await old.subscribe()).HasField("success")
            waiting = asyncio.create_task(new.subscribe())
            region = world.running["us"]
            await until(lambda: any(connection.opening for connection in region.connections))
            (topic,) = region.directory.serving.values()
            await topic.subscriptions["s"].delete()
            assert (await waiting).HasField("success")
            await receives(new, world)

    asyncio.run(story())


def test_what_a_client_waits_for_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is attached for a client that is gone, and the present consumer stays."""
    monkeypatch.setattr(liveness, "LIVENESS_SECONDS", 60)

    async def story() -> None:
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
            await until(lambda: any(connection.opening for connection in region.connections))
            assert region.client_memory.held_bytes > 0
            new.writer.transport.abort()
            await until(lambda: len(region.connections) == 1 and region.client_memory.held_bytes == 0)
            (topic,) = region.directory.serving.values()
            assert len(topic.subscriptions["s"].consumers) == 1

    asyncio.run(story())


def test_a_producer_name_is_free_again_when_the_old_connection_is_half_open() -> None:
    async def story() -> None:
        async with regions("us") as world, raw_client(world) as old, raw_client(world) as new:
            await old.open_producer(name="p")
            assert (await new.open_producer(name="p")).producer_name == "p"
            with pytest.raises(EOFError):
                await old.next()

    asyncio.run(story())
