"""What consumers ask for: in which order a region answers, and what it makes of it."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.commands.tasks import TaskGroup
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import encode_ack, encode_flow
from emulator.wire.frames import frame_of
from tests.broker.commands.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions


async def publish(world: Regions, count: int) -> None:
    async with world.client("us") as client:
        producer = await client.producer("orders")
        for number in range(count):
            await producer.send(b"%d" % number)


async def flow(client: RawClient, count: int) -> list[tuple[int, int]]:
    """Ask for so many messages; their ids."""
    client.writer.write(frame_of(encode_flow(1, count)))
    ids = [(await client.next()).message.message_id for _ in range(count)]
    return [(id_.ledgerId, id_.entryId) for id_ in ids]


def test_a_seek_sends_the_consumer_away_before_it_succeeds() -> None:
    """The other way round the C++ client lands at the seek before this one."""

    async def story() -> None:
        async with regions("us") as world, raw_client(world) as client:
            await publish(world, 3)
            await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest)
            ids = await flow(client, 3)
            seek = pb.CommandSeek(consumer_id=1, request_id=5)
            seek.message_id.ledgerId, seek.message_id.entryId = ids[1]
            assert (await client.ask(pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=seek))).HasField(
                "close_consumer"
            )
            assert (await client.next()).success.request_id == 5
            assert (await client.subscribe()).HasField("success")
            assert await flow(client, 2) == ids[1:]

    asyncio.run(story())


def test_a_producer_may_bring_its_first_subscription() -> None:
    """Nothing that is published is lost to it, although nobody consumes yet."""

    async def story() -> None:
        async with regions("us") as world, raw_client(world) as client:
            request = pb.CommandProducer(
                topic="orders", producer_id=1, request_id=1, initial_subscription_name="s"
            )
            await client.ask(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=request))
            await publish(world, 2)
            await client.subscribe(initialPosition=pb.CommandSubscribe.Latest)
            assert len(await flow(client, 2)) == 2

    asyncio.run(story())


def test_acknowledgements_of_one_chunk_share_one_write_and_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is answered, in order."""
    started: list[str] = []
    start = TaskGroup.start

    def counting(group: TaskGroup, work, done=None) -> None:  # type: ignore[no-untyped-def]
        started.append(work.__name__)
        start(group, work, done)

    monkeypatch.setattr(TaskGroup, "start", counting)

    async def story() -> None:
        async with regions("us") as world, raw_client(world) as client:
            await publish(world, 20)
            await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest)
            ids = await flow(client, 20)
            started.clear()
            client.writer.write(
                b"".join(
                    frame_of(encode_ack(1, [(*id_, None)], request_id=number))
                    for number, id_ in enumerate(ids)
                )
            )
            answers = [(await client.next()).ackResponse for _ in ids]
            assert [answer.request_id for answer in answers] == list(range(20))
            assert not any(answer.HasField("error") for answer in answers)
            assert started == ["confirm"]

    asyncio.run(story())


def test_unsubscribe_sends_the_other_consumers_away() -> None:
    async def story() -> None:
        async with regions("us") as world, raw_client(world) as client, raw_client(world) as other:
            await client.subscribe(subType=pb.CommandSubscribe.Shared)
            await other.subscribe(subType=pb.CommandSubscribe.Shared)
            request = pb.CommandUnsubscribe(consumer_id=1, request_id=9, force=True)
            answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE, unsubscribe=request))
            assert answer.success.request_id == 9
            assert (await other.next()).close_consumer.consumer_id == 1
            assert all(not topic.subscriptions for topic in world.running["us"].directory.serving.values())

    asyncio.run(story())
