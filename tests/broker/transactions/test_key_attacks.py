"""Attacks on a transaction key by clients that were refused it, that do not read, or that delete it meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from emulator.broker.transactions.coordinator import KEY_LOG
from emulator.client import InitialPosition
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, StorageError
from emulator.model.transaction_names import TransactionStatus, TxnId, coordinator_of
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.coordinator_requests import (
    KEY,
    TOPIC,
    add_partition,
    add_subscription,
    begin,
    connect,
    end,
    home,
    status,
)


async def test_a_client_that_was_refused_a_key_begins_no_transaction() -> None:
    """Not even after it has read the refusal, until it is granted the key."""
    async with regions("us") as world, raw_client(world) as stale, raw_client(world) as newest:
        number = home(world)
        await connect(newest, number, key=KEY)
        assert (await connect(stale, number, key=KEY, epoch=-2)).error == pb.NotAllowedError
        answer = await begin(stale, number)
        assert answer.error == pb.NotAllowedError
        assert "refused" in answer.message
        assert not (await begin(stale, (number + 1) % 4)).HasField("error")
        assert (await connect(stale, number, key=KEY)).epoch == 1
        txn = await begin(stale, number)
        async with raw_client(world) as third:
            assert (await connect(third, number, key=KEY)).epoch == 2
            assert status(world, txn) is TransactionStatus.ABORTED


async def flooded(world: Regions, client: RawClient, *, entries: int = 300) -> None:
    """Send more than its socket accepts, and let it read nothing."""
    async with world.client("us") as publisher:
        producer = await publisher.producer("orders")
        await asyncio.gather(*(producer.send(bytes(100_000)) for _ in range(entries)))
    await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest)
    client.send(
        pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=10_000))
    )
    topic = world.running["us"].directory.serving[TOPIC]
    (consumer,) = topic.subscriptions["s"].dispatcher.strategy.consumers
    await until(lambda: consumer.blocked)


async def test_a_fenced_client_that_does_not_read_loses_its_consumers_at_once() -> None:
    """A task that lost contact does not read; its consumer must not outlive its key."""
    async with regions("us") as world, raw_client(world) as frozen, raw_client(world) as newcomer:
        number = home(world)
        await connect(frozen, number, key=KEY)
        await flooded(world, frozen)
        subscription = world.running["us"].directory.serving[TOPIC].subscriptions["s"]
        assert (await connect(newcomer, number, key=KEY)).epoch == 1
        await until(lambda: not subscription.dispatcher.strategy.consumers)
        taken = await newcomer.subscribe()
        assert taken.type == pb.BaseCommand.SUCCESS, taken


async def test_deleting_a_key_during_a_connect_fences_the_client_that_was_granted_it() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        coordinator = world.running["us"].coordinators.get(number)
        for _ in range(20):
            async with raw_client(world) as racer:
                attempt = asyncio.ensure_future(connect(racer, number, key=KEY))
                await until(lambda: ("", KEY) in coordinator.keys.book.keys)
                await coordinator.keys.delete("", KEY)
                await asyncio.wait([attempt])
                assert attempt.exception() is None or isinstance(attempt.exception(), EOFError)
        assert ("", KEY) not in coordinator.keys.book.keys
        assert (await connect(client, number, key=KEY)).epoch == 40


async def test_of_two_concurrent_deletions_of_a_key_one_is_refused() -> None:
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        txn = await begin(client, number)
        coordinator = world.running["us"].coordinators.get(number)
        outcomes = await asyncio.gather(
            *(coordinator.keys.delete("", KEY) for _ in range(2)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), ProtocolError]
        assert status(world, txn) is TransactionStatus.ABORTED


async def test_of_two_clients_that_race_for_a_key_the_one_with_the_higher_epoch_has_it() -> None:
    async with regions("us") as world:
        number = home(world)
        racers = [await RawClient.connect(world) for _ in range(8)]
        answers = await asyncio.gather(
            *(connect(racer, number, key=KEY) for racer in racers), return_exceptions=True
        )
        told = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert all(isinstance(answer, EOFError | pb.CommandTcClientConnectResponse) for answer in answers)
        assert max(answer.epoch for answer in told) == len(racers) - 1
        assert len({answer.epoch for answer in told}) == len(told)
        winner = racers[answers.index(max(told, key=lambda answer: answer.epoch))]
        assert not (await begin(winner, number)).HasField("error")
        for racer in racers:
            if racer is not winner:
                with pytest.raises((EOFError, ConnectionError)):
                    await begin(racer, number)
            racer.writer.transport.abort()


async def test_no_client_continues_the_transaction_of_a_deleted_key() -> None:
    async with regions("us") as world, raw_client(world) as owner, raw_client(world) as other:
        number = home(world)
        await connect(owner, number, key=KEY)
        txn = await begin(owner, number)
        await world.running["us"].coordinators.get(number).keys.delete("", KEY)
        for answer in (
            await add_partition(other, txn),
            await add_subscription(other, txn, "s"),
            await end(other, txn),
        ):
            assert answer.error == pb.NotAllowedError
            assert EXPIRED_TRANSACTION in answer.message
        assert not (await end(other, txn, commit=False)).HasField("error")


async def test_beside_a_log_of_keys_that_cannot_be_read_the_number_of_coordinators_stays() -> None:
    """Its keys would start afresh elsewhere, with epochs that they already had."""
    async with regions("us") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        await connect(client, (other := (number + 1) % 4), key=(deleted := key_at(other)))
        await world.running["us"].coordinators.get(other).keys.delete("", deleted)
        await world.crash("us")
        await damage_keys(world, number)
        await world.start("us")
        async with raw_client(world) as again:
            answer = await connect(again, number, key=KEY)
        assert answer.error == pb.TransactionCoordinatorNotFound
        await world.crash("us")
        world.settings["us"] = replace(world.settings["us"], transaction_coordinators=5)
        with pytest.raises(StorageError, match=r"cannot become 5: coordinator .* cannot be read"):
            await world.start("us")


def key_at(number: int) -> str:
    return next(key for key in map(str, range(100)) if coordinator_of(key, 4) == number)


async def damage_keys(world: Regions, number: int) -> None:
    store = await MemoryStore.open(world.disks["us"], "us")
    log = await store.open_log(f"{KEY_LOG}{number}")
    await log.append([b'["granted","","task","many","",1]'])
    await store.close()


async def test_pending_acknowledgements_end_with_their_subscription() -> None:
    """The transaction ends all the same, and a new subscription of that name starts with every message."""
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        await producer.send(b"1")
        consumer = await client.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
        transaction = await client.new_transaction()
        await consumer.acknowledge(await consumer.receive(), transaction=transaction)
        await consumer.unsubscribe()
        await transaction.commit()
        anew = await client.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
        assert (await anew.receive()).payload == b"1"


@pytest.mark.parametrize("version", ["", "\x1b[2J\n", "'; DROP --", "\u202e" * 10, "v" * 60_000])
async def test_the_client_version_is_stored_with_a_key_as_a_short_printable_text(version: str) -> None:
    """The client sends its own name; it is stored, and shown to operators."""
    async with regions("us") as world:
        async with raw_client(world, handshake=False) as client:
            greeting = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
            greeting.connect.client_version = version
            greeting.connect.protocol_version = 19
            client.send(greeting)
            assert (await client.next()).type == pb.BaseCommand.CONNECTED
            await connect(client, home(world), key=KEY)
            await world.crash("us")
        await world.start("us")
        named = world.running["us"].coordinators.get(home(world)).keys.book.keys["", KEY].client
        assert named.isprintable()
        assert len(named) < 200


async def test_the_transactions_of_a_key_survive_checkpoints_deletion_and_restarts_until_they_are_forgotten() -> (
    None
):
    """No transaction of another key is listed, and none twice."""
    async with regions("us", transaction_outcomes_max=5) as world:
        number = home(world)
        async with raw_client(world) as client, raw_client(world) as plain:
            assert (await connect(client, number, key=KEY)).epoch == 0
            for _ in range(300):
                await end(client, await begin(client, number))
                await end(plain, await begin(plain, number))
            await world.running["us"].coordinators.get(number).keys.delete("", KEY)
        async with raw_client(world) as client:
            epoch = (await connect(client, number, key=KEY)).epoch
            newest = await begin(client, number)
            before = world.running["us"].coordinators.get(number).core.known_of_key("", KEY)
            await world.crash("us")
        await world.start("us")
        after = world.running["us"].coordinators.get(number).core.known_of_key("", KEY)
        assert after == before
        assert [one.txn.least for one in after] == sorted({one.txn.least for one in after})
        assert after[-1] == (TxnId(number, newest.txnid_least_bits), epoch, TransactionStatus.OPEN, "")
        assert len(after) < 5
        assert {one.status for one in after[:-1]} == {TransactionStatus.COMMITTED}
