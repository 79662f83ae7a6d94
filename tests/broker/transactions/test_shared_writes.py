"""Writes that many transactions wait for together: one failure affects no other, and no response is sent too early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.errors import StorageError
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import raw_client
from tests.broker.regions import regions, until
from tests.broker.transactions.coordinator_requests import (
    KEY,
    begin,
    connect,
    end,
    end_command,
    home,
    store_of,
)


async def test_a_region_that_stops_while_a_key_is_granted_breaks_no_write_that_others_wait_for() -> None:
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    async with regions("us") as world, raw_client(world) as client:
        region = world.running["us"]
        store, number = store_of(world), home(world)
        await connect(client, number, key=KEY)
        store.hold()
        asking = asyncio.create_task(connect(client, number, key=KEY, epoch=0))
        journal = region.coordinators.get(number).keys._journal
        await until(lambda: journal.newest is not None and not journal.newest.done())
        region._tasks.close()
        for _ in range(5):
            await asyncio.sleep(0)
        store.release()
        for _ in range(20):
            await asyncio.sleep(0)
        asking.cancel()
    assert broken == []


async def test_a_holder_of_a_key_before_a_store_failure_is_closed_by_the_next_holder() -> None:
    async with regions("us") as world, raw_client(world) as first, raw_client(world) as second:
        region = world.running["us"]
        number = home(world)
        assert (await connect(first, number, key=KEY)).epoch == 0
        store = store_of(world)
        store.fail_next_group(StorageError("the disk is away", definite=True))
        assert (await begin(second, number)).error == pb.PersistenceError
        await until(lambda: number in region.coordinators._loaded)
        assert (await connect(second, number, key=KEY)).epoch == 1
        with pytest.raises(EOFError):
            await first.next()


async def test_no_response_reveals_a_decision_that_is_not_durable() -> None:
    """Nor by a rejection: after a kill the transaction would be open, and could end the other way (TX1)."""
    async with regions("us") as world, raw_client(world) as first, raw_client(world) as second:
        txn = await begin(first)
        region = world.running["us"]
        store = store_of(world)
        store.hold()
        first.send(end_command(txn, commit=True))
        name = TxnId(txn.txnid_most_bits, txn.txnid_least_bits)
        await until(lambda: region.coordinators.status(name) is TransactionStatus.COMMITTING)
        other = asyncio.create_task(end(second, txn, commit=False))
        for _ in range(200):
            await asyncio.sleep(0)
        assert not other.done()
        store.release()
        assert (await other).error == pb.InvalidTxnStatus
        assert not (await first.next()).endTxnResponse.HasField("error")


@pytest.mark.parametrize("begins", [True, False])
async def test_no_response_reveals_an_epoch_that_is_not_durable(begins: bool) -> None:
    """After a kill the former owner would still have the key (TX8)."""
    async with regions("us") as world, raw_client(world) as first, raw_client(world) as second:
        region = world.running["us"]
        store, number = store_of(world), home(world)
        await connect(first, number, key=KEY, process="first")
        await end(first, await begin(first, number))
        store.hold()
        newer = asyncio.create_task(connect(second, number, key=KEY, process="second"))
        book = region.coordinators.get(number).keys.book
        await until(lambda: book.last_epoch("", KEY) == 1)
        asking = begin(first, number) if begins else connect(first, number, key=KEY, epoch=2)
        request = asyncio.create_task(asking)
        for _ in range(200):
            await asyncio.sleep(0)
        assert not request.done()
        store.release()
        assert (await newer).epoch == 1
        await asyncio.wait([request])
        told_of_it_or_closed = isinstance(request.exception(), EOFError) or request.result().HasField("error")
        assert told_of_it_or_closed


async def test_a_key_has_a_holder_until_the_holder_s_connection_is_closed() -> None:
    """After a refused connect whose write failed, every connection that may have had the key is closed."""
    async with regions("us") as world, raw_client(world) as first, raw_client(world) as second:
        region = world.running["us"]
        store, number = store_of(world), home(world)
        await connect(first, number, key=KEY)
        store.fail_next_group(StorageError("the disk is away", definite=True))
        assert (await connect(second, number, key=KEY)).error == pb.PersistenceError
        await until(lambda: number in region.coordinators._loaded)
        assert (await connect(second, number, key=KEY)).epoch == 1
        with pytest.raises(EOFError):
            await first.next()
        coordinator = region.coordinators.get(number)
        assert list(coordinator.keys.holders["", KEY]) == [next(iter(region.clients.connections))]
        await coordinator.keys.delete("", KEY)
        assert coordinator.keys.holders == {}
        with pytest.raises(EOFError):
            await second.next()
