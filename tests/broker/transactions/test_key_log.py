"""The log where a coordinator stores its keys: durable, local to a region, and closed to clients."""

from __future__ import annotations

from emulator.broker.transactions.coordinator import KEY_LOG
from emulator.client import EARLIEST
from emulator.model.transaction_names import TxnId
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import raw_client
from tests.broker.regions import regions
from tests.broker.transactions.coordinator_requests import KEY, begin, connect, end, home
from tests.broker.transactions.test_client_transactions import keyed, stored


async def test_a_key_s_epoch_and_newest_transaction_survive_a_kill_after_the_response() -> None:
    async with regions("us") as world:
        number = home(world)
        for task_number in range(3):
            async with raw_client(world) as client:
                assert (await connect(client, number, key=KEY)).epoch == task_number
                txn = await begin(client, number)
                await world.crash("us")
            await world.start("us")
            after = world.running["us"].coordinators.get(number)
            state = after.keys.book.keys["", KEY]
            assert (state.epoch, state.least) == (task_number, txn.txnid_least_bits)
            assert " at 127.0.0.1:" in state.client
            assert [one.txn.least for one in after.core.known_of_key("", KEY)] == list(range(task_number + 1))


async def test_a_region_s_keys_are_in_no_other_region_and_clients_cannot_open_their_log() -> None:
    async with regions("us", "eu") as world, raw_client(world) as client:
        number = home(world)
        await connect(client, number, key=KEY)
        await end(client, await begin(client, number))
        async with world.client("us") as plain:
            producer = await plain.producer("orders")
            await producer.send(b"what comes behind")
            for name in (f"{KEY_LOG}{number}", f"persistent://pulsar/system/__transaction_key_{number}"):
                client.ask_for_producer(1, name)
                answer = await client.next()
                assert answer.type == pb.BaseCommand.ERROR, (name, answer)
        async with world.client("eu") as there:
            reader = await there.reader("orders", EARLIEST)
            await reader.receive()
        assert f"{KEY_LOG}{number}" in world.running["us"].store.log_names()
        assert not [name for name in world.running["eu"].store.log_names() if "transaction_key" in name]
        coordinators = world.running["eu"].coordinators
        assert not any(coordinator.keys.book.keys for coordinator in coordinators.loaded)
        assert coordinators.status(TxnId(number, 0)) is None


async def test_a_client_may_continue_without_its_key() -> None:
    """The proposal's rollback: remove the key from the client's settings."""
    async with regions("us") as world:
        async with keyed(world) as with_key:
            producer = await with_key.producer("orders")
            async with await with_key.new_transaction() as transaction:
                await producer.send(b"under a key", transaction=transaction)
        async with world.client("us") as without:
            producer = await without.producer("orders")
            one, two = [await without.new_transaction() for _ in range(2)]
            await producer.send(b"without 1", transaction=one)
            await producer.send(b"without 2", transaction=two)
            await two.commit()
            await one.commit()
            assert await stored(without, "orders") == [b"under a key", b"without 1", b"without 2"]
