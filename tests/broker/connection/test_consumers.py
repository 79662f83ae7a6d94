"""Requests of consumers: their effect, and the order of the broker's responses."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.topic.reading import last_message
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.client import Batching
from emulator.core.topic.state import UNKNOWN_MESSAGES
from emulator.model.values import BEFORE_EVERYTHING
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_ack, encode_flow
from emulator.wire.frames import frame_of
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions


async def publish(world: Regions, count: int) -> None:
    async with world.client("us") as client:
        producer = await client.producer("orders")
        for number in range(count):
            await producer.send(b"%d" % number)


async def flow(client: RawClient, count: int) -> list[tuple[int, int]]:
    """Grant `count` permits; return the ids of the messages that arrive."""
    client.writer.write(frame_of(encode_flow(1, count)))
    ids = [(await client.next()).message.message_id for _ in range(count)]
    return [(id_.ledgerId, id_.entryId) for id_ in ids]


async def test_a_seek_disconnects_the_consumer_before_it_succeeds() -> None:
    """In the other order the C++ client ends at the position of the seek before this one."""
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


async def test_a_producer_may_create_an_initial_subscription() -> None:
    """The subscription keeps every message published before its first consumer connects."""
    async with regions("us") as world, raw_client(world) as client:
        request = pb.CommandProducer(
            topic="orders", producer_id=1, request_id=1, initial_subscription_name="s"
        )
        await client.ask(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=request))
        await publish(world, 2)
        await client.subscribe(initialPosition=pb.CommandSubscribe.Latest)
        assert len(await flow(client, 2)) == 2


async def test_acknowledgements_of_one_chunk_share_one_write_and_one_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each gets a response, in order."""
    started: list[str] = []

    async with regions("us") as world, raw_client(world) as client:
        (connection,) = world.running["us"].clients.connections
        start = connection.tasks.start

        def counting(work, done=None) -> None:  # type: ignore[no-untyped-def]
            started.append(work.__name__)
            start(work, done)

        monkeypatch.setattr(connection.tasks, "start", counting)
        await publish(world, 20)
        await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest)
        ids = await flow(client, 20)
        started.clear()
        client.writer.write(
            b"".join(
                frame_of(encode_ack(1, [(*id_, None)], request_id=number)) for number, id_ in enumerate(ids)
            )
        )
        answers = [(await client.next()).ackResponse for _ in ids]
        assert [answer.request_id for answer in answers] == list(range(20))
        assert not any(answer.HasField("error") for answer in answers)
        assert started == ["_confirm"]


async def test_unsubscribe_disconnects_the_other_consumers() -> None:
    async with regions("us") as world, raw_client(world) as client, raw_client(world) as other:
        await client.subscribe(subType=pb.CommandSubscribe.Shared)
        await other.subscribe(subType=pb.CommandSubscribe.Shared)
        request = pb.CommandUnsubscribe(consumer_id=1, request_id=9, force=True)
        answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE, unsubscribe=request))
        assert answer.success.request_id == 9
        assert (await other.next()).close_consumer.consumer_id == 1
        assert all(not topic.subscriptions for topic in world.running["us"].directory.serving.values())


async def publish_batch(world: Regions, size: int) -> None:
    async with world.client("us") as client:
        producer = await client.producer("orders", batching=Batching(messages_max=size, delay_ms_max=10_000))
        await asyncio.gather(*(producer.send_nowait(b"%d" % number) for number in range(size)))


async def test_a_seek_into_a_batch_leaves_what_comes_before_acknowledged() -> None:
    """A client that reconnects drops these itself; another consumer could not know them."""
    async with regions("us") as world, raw_client(world) as client:
        await publish_batch(world, 5)
        shared = {"subType": pb.CommandSubscribe.Shared}
        await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest, **shared)
        ((ledger_id, entry_id),) = await flow(client, 1)
        seek = pb.CommandSeek(consumer_id=1, request_id=5)
        seek.message_id.ledgerId, seek.message_id.entryId = ledger_id, entry_id
        seek.message_id.batch_index = 2
        seek.message_id.ack_set.append(0b11100)
        await client.ask(pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=seek))
        assert (await client.next()).success.request_id == 5
        await client.subscribe(**shared)
        client.writer.write(frame_of(encode_flow(1, 10)))
        message = (await client.next()).message
        assert (message.message_id.entryId, list(message.ack_set)) == (entry_id, [0b11100])


async def test_a_subscription_keeps_the_properties_it_was_made_with_over_a_crash() -> None:
    async with regions("us") as world:
        async with raw_client(world) as client:
            said = [pb.KeyValue(key="team", value="billing")]
            await client.subscribe(subscription_properties=said)
            await client.subscribe(2, subscription="other")
        await world.crash("us")
        await world.start("us")
        async with raw_client(world) as client:
            await client.subscribe(subscription_properties=[pb.KeyValue(key="team", value="other")])
            await client.subscribe(2, subscription="other", subscription_properties=said)
            topic = world.running["us"].directory.serving["persistent://public/default/orders"]
            properties = {name: one.cursor.properties for name, one in topic.subscriptions.items()}
            assert properties == {"s": {"team": "billing"}, "other": {"team": "billing"}}
            too_many = [pb.KeyValue(key="k", value="v" * 70_000)]
            refused = await client.subscribe(3, subscription="third", subscription_properties=too_many)
            assert refused.error.error == pb.NotAllowedError
            assert "third" not in topic.subscriptions


async def test_a_reader_may_begin_at_a_publish_time() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await publish(world, 3)
        begin = pb.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
        reader = {"durable": False, "start_message_id": begin}
        await client.subscribe(start_message_rollback_duration_sec=3_600, **reader)
        assert len(await flow(client, 3)) == 3
        since_ever = {**reader, "start_message_rollback_duration_sec": 2**62}
        assert (await client.subscribe(2, subscription="other", **since_ever)).HasField("success")


async def test_a_client_that_may_not_create_topics_gets_topic_not_found() -> None:
    async with regions("us") as world, raw_client(world) as client:
        refused = await client.subscribe(force_topic_creation=False)
        assert refused.error.error == pb.TopicNotFound
        await publish(world, 1)
        assert (await client.subscribe(force_topic_creation=False)).HasField("success")


async def test_acknowledgements_of_parts_of_a_batch_are_kept_when_the_rest_is_redelivered() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await publish_batch(world, 5)
        await client.subscribe(
            initialPosition=pb.CommandSubscribe.Earliest, subType=pb.CommandSubscribe.Shared
        )
        ((ledger_id, entry_id),) = await flow(client, 1)
        client.writer.write(frame_of(encode_ack(1, [(ledger_id, entry_id, (0b01010,))])))
        redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        redeliver.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
        client.send(
            pb.BaseCommand(
                type=pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                redeliverUnacknowledgedMessages=redeliver,
            )
        )
        client.writer.write(frame_of(encode_flow(1, 10)))
        message = (await client.next()).message
        assert (list(message.ack_set), message.redelivery_count) == ([0b01010], 1)


@pytest.mark.parametrize("by", ["acknowledgement", "cumulative", "seek"])
@pytest.mark.parametrize("at_hand", [True, False])
async def test_an_ack_set_larger_than_its_batch_has_no_effect_on_others(by: str, at_hand: bool) -> None:
    """The remaining ack set was sent in the MESSAGE to the next consumer, which exceeded the size that clients
    accept."""
    async with regions("us") as world, raw_client(world) as client:
        await publish(world, 1)
        if not at_hand:
            await world.stop("us")
            await world.start("us")
            client = await RawClient.connect(world)
        await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest)
        ledger_id = world.running["us"].directory.serving["persistent://public/default/orders"].ledger_id
        words = (-2,) + (-1,) * 400_000
        if by == "seek":
            seek = pb.CommandSeek(consumer_id=1, request_id=5)
            seek.message_id.CopyFrom(pb.MessageIdData(ledgerId=ledger_id, entryId=0, ack_set=words))
            answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=seek))
        else:
            said = pb.CommandAck(consumer_id=1, request_id=5, ack_type=int(by == "cumulative"))
            said.message_id.add(ledgerId=ledger_id, entryId=0, ack_set=words)
            answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=said))
        if not at_hand:
            refusal = answer.error.error if by == "seek" else answer.ackResponse.error
            assert refusal == pb.NotAllowedError
        close = pb.CommandCloseConsumer(consumer_id=1, request_id=6)
        client.send(pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=close))
        async with raw_client(world) as other:
            while not (await other.subscribe()).HasField("success"):
                await asyncio.sleep(0)
            other.writer.write(frame_of(encode_flow(1, 1)))
            assert len((await other.next()).message.ack_set) <= 1


def test_a_last_message_trimmed_during_its_lookup_is_none() -> None:
    """For a message from before a restart, the store is read for its batch size."""

    class Trimmed:
        ledger_id, first_entry_id, last_data = 1, 0, (7, UNKNOWN_MESSAGES)

        async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
            return []

    assert asyncio.run(last_message(Trimmed())) == (BEFORE_EVERYTHING, -1)  # type: ignore[arg-type]
