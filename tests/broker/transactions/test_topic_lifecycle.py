"""Topics that are unloaded, deleted, terminated while a transaction is open there."""

from __future__ import annotations

import pytest

from emulator.broker.admin.ledger_stats import ledger_info
from emulator.client import Client, ClientError, ConsumerType, InitialPosition, Transaction
from emulator.model.stored_keys import TerminatedKey
from emulator.model.transaction_names import TransactionStatus
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.topic.test_transaction_buffer import readable
from tests.broker.transactions.controlled_coordinator import TOPIC


async def _opened(client: Client) -> Transaction:
    """Open a transaction with one message in the topic, and close its producer."""
    producer = await client.producer(TOPIC)
    await producer.send(b"before")
    transaction = await client.new_transaction()
    await producer.send(b"within", transaction=transaction)
    await producer.close()
    return transaction


def status(world: Regions, transaction: Transaction) -> TransactionStatus | None:
    return world.running["us"].coordinators.status(transaction.id)


@pytest.mark.parametrize("committed", [True, False])
async def test_an_open_transaction_survives_the_unloading_of_its_topic(committed: bool) -> None:
    async with regions("us") as world, world.client("us") as client:
        transaction = await _opened(client)
        directory = world.running["us"].directory
        await directory.unload(TOPIC, "a test")
        assert await readable(world) == [b"before"]
        await directory.unload(TOPIC, "a test")
        await (transaction.commit() if committed else transaction.abort())
        assert await readable(world) == [b"before", *([b"within"] if committed else [])]
        await directory.unload(TOPIC, "a test")
        assert await readable(world) == [b"before", *([b"within"] if committed else [])]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_deleted_topic_ends_with_its_transactions_and_a_new_one_knows_nothing_of_them(
    committed: bool,
) -> None:
    async with regions("us") as world, world.client("us") as client:
        transaction = await _opened(client)
        await world.running["us"].directory.delete(TOPIC, force=True)
        producer = await client.producer(TOPIC)
        await producer.send(b"anew")
        assert await readable(world) == [b"anew"]
        await (transaction.commit() if committed else transaction.abort())
        await producer.send(b"after")
        assert await readable(world) == [b"anew", b"after"]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_terminated_topic_ends_once_its_transactions_have(committed: bool) -> None:
    async with regions("us") as world, world.client("us") as client, raw_client(world) as raw:
        transaction = await _opened(client)
        earliest = pb.CommandSubscribe.Earliest
        assert (await raw.subscribe(topic=TOPIC, initialPosition=earliest)).type == pb.BaseCommand.SUCCESS
        flow = pb.BaseCommand(type=pb.BaseCommand.FLOW)
        flow.flow.consumer_id, flow.flow.messagePermits = 1, 100
        raw.send(flow)
        first = (await raw.next()).message
        ack = pb.BaseCommand(type=pb.BaseCommand.ACK)
        ack.ack.consumer_id, ack.ack.ack_type = 1, pb.CommandAck.Individual
        ack.ack.message_id.add().CopyFrom(first.message_id)
        raw.send(ack)
        await world.running["us"].directory.serving[TOPIC].termination.terminate()
        with pytest.raises(ClientError):
            await client.producer(TOPIC)
        await (transaction.commit() if committed else transaction.abort())
        answers = []
        while not answers or answers[-1] != pb.BaseCommand.REACHED_END_OF_TOPIC:
            command = await raw.next()
            answers.append(command.type)
            if command.type == pb.BaseCommand.MESSAGE:
                ack.ack.message_id[0].CopyFrom(command.message.message_id)
                raw.send(ack)
        message = [pb.BaseCommand.MESSAGE] if committed else []
        assert answers == [*message, pb.BaseCommand.REACHED_END_OF_TOPIC]
        assert await readable(world) == [b"before", *([b"within"] if committed else [])]


async def test_no_message_of_an_open_transaction_follows_the_last_position_of_a_terminated_topic() -> None:
    async with regions("us") as world, world.client("us") as client:
        transaction = await _opened(client)
        region = world.running["us"]
        topic = region.directory.serving[TOPIC]
        last = await topic.termination.terminate()
        assert last == Position(topic.ledger_id, 1), "(0) before the transaction, (1) within"
        stored = region.store.get(TerminatedKey(TOPIC).text)
        assert stored is not None
        assert stored.value == str(last).encode()
        assert ledger_info(topic)["terminatedPosition"] == {"ledgerId": topic.ledger_id, "entryId": 1}
        await transaction.commit()
        assert await readable(world) == [b"before", b"within"]


@pytest.mark.parametrize("committed", [True, False])
async def test_an_abort_does_not_redeliver_messages_that_were_acknowledged_outside_of_it(
    committed: bool,
) -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        for number in range(3):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe(
            TOPIC, "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
        )
        messages = [await consumer.receive() for _ in range(3)]
        transaction = await client.new_transaction()
        for message in messages:
            await consumer.acknowledge(message, transaction=transaction)
        await consumer.acknowledge(messages[1])
        await (transaction.commit() if committed else transaction.abort())
        subscription = world.running["us"].directory.serving[TOPIC].subscriptions["s"]
        if committed:
            await until(lambda: subscription.cursor.mark_delete == 2, 30)
            return
        again = [(await consumer.receive()).payload for _ in range(2)]
        assert sorted(again) == [b"0", b"2"]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_remote_region_receives_the_committed_messages_of_a_reloaded_topic(committed: bool) -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        transaction = await _opened(client)
        await world.running["us"].directory.unload(TOPIC, "a test")
        await world.crash("us")
        await world.start("us")
        await (transaction.commit() if committed else transaction.abort())
        producer = await client.producer(TOPIC)
        await producer.send(b"after")
        expected = [b"before", *([b"within"] if committed else []), b"after"]
        while (found := await readable(world, "eu")) != expected:
            assert found == expected[: len(found)]
