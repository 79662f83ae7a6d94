"""Messages of transactions on one topic: not readable before the commit and never after an abort, through any crash."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from emulator.client import EARLIEST, Client
from emulator.errors import ServerError
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.controlled_coordinator import (
    T1,
    T2,
    T3,
    TOPIC,
    Authority,
    Transacting,
    authority_of,
    end,
    topic_of,
)


async def readable(world: Regions, name: str = "us") -> list[bytes]:
    """Return what a reader receives until `hasMessageAvailable` is false."""
    async with asyncio.timeout(30), world.client(name) as client:
        return await all_of(client)


async def all_of(client: Client) -> list[bytes]:
    reader = await client.reader(TOPIC, EARLIEST)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload)
    await reader.close()
    return found


@contextlib.asynccontextmanager
async def transacting(*txns: TxnId) -> AsyncIterator[tuple[Regions, Transacting]]:
    """A region with these open transactions, and a producer."""
    async with regions("us") as world, raw_client(world) as raw:
        authority_of(world).open(*txns)
        yield world, await Transacting.opened(raw)


async def again(world: Regions, authority: Authority) -> None:
    """Kill the region and start it."""
    await world.crash("us")
    await world.start("us")
    authority_of(world, former=authority)


async def test_messages_become_visible_with_their_commit_and_in_the_order_of_the_log() -> None:
    async with transacting(T1, T2) as (world, producer):
        for payload, txn in ((b"a", None), (b"b", T1), (b"c", None), (b"d", T2), (b"e", T1)):
            assert (await producer.send(payload, txn)).type == pb.BaseCommand.SEND_RECEIPT
        assert await readable(world) == [b"a"]
        await end(world, T1, committed=True)
        assert await readable(world) == [b"a", b"b", b"c"]
        await producer.send(b"f")
        await end(world, T2, committed=True)
        assert await readable(world) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert topic_of(world).state.buffer.committed == 2


async def test_nothing_of_an_aborted_transaction_is_ever_visible() -> None:
    """Neither live, nor from the store, nor as backlog, nor as the last message."""
    async with transacting(T1) as (world, producer):
        async with world.client("us") as client:
            live = await client.subscribe(TOPIC, "live")
            for payload, txn in ((b"a", None), (b"b", T1), (b"c", None), (b"d", T1)):
                await producer.send(payload, txn)
            await end(world, T1, committed=False)
            async with asyncio.timeout(30):
                given = [await live.receive(), await live.receive()]
            assert [one.payload for one in given] == [b"a", b"c"]
            for message in given:
                await live.acknowledge(message)
            subscription = topic_of(world).subscriptions["live"]
            await until(lambda: subscription.backlog() == 0)
        assert await readable(world) == [b"a", b"c"]


@pytest.mark.parametrize("checkpoint_entries", [1, 3, 1_000])
async def test_open_and_aborted_transactions_survive_a_restart(checkpoint_entries: int) -> None:
    """With and without a checkpoint in between."""
    async with regions("us", state_checkpoint_entries=checkpoint_entries) as world:
        authority = authority_of(world)
        authority.open(T1, T2)
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            for payload, txn in ((b"a", None), (b"b", T2), (b"c", T1), (b"d", T2), (b"e", None)):
                await producer.send(payload, txn)
            await end(world, T2, committed=False)
            for number in range(4):
                await producer.send(b"%d" % number)
        for _ in range(2):
            await again(world, authority)
            assert await readable(world) == [b"a"]
        await end(world, T1, committed=True)
        await again(world, authority)
        assert await readable(world) == [b"a", b"c", b"e", b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("checkpoint_entries", [1, 3])
async def test_open_and_aborted_transactions_survive_a_checkpoint_and_a_trim(
    checkpoint_entries: int, is_done: bool
) -> None:
    """The log begins in the middle of an aborted transaction, at the first message of an open one; or the region dies
    while it is being trimmed to that entry."""
    async with regions("us", state_checkpoint_entries=checkpoint_entries) as world:
        authority = authority_of(world)
        authority.open(T1, T2)
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            for payload, txn in ((b"a", None), (b"b", T2), (b"c", T1), (b"d", T2), (b"e", None)):
                await producer.send(payload, txn)
            await end(world, T2, committed=False)
            for number in range(4):
                await producer.send(b"%d" % number)
        topic = topic_of(world)
        trimming = asyncio.ensure_future(topic.retention.trimmer.trim(topic.state.stored_end))
        await (trimming if is_done else asyncio.sleep(0))
        await world.crash("us")
        trimming.cancel()
        await asyncio.wait([trimming])
        await world.start("us")
        authority_of(world, former=authority)
        assert await readable(world) in ([], [b"a"])
        if is_done:
            assert topic_of(world).reading.first_entry_id == 2
        await end(world, T1, committed=True)
        for _ in range(2):
            found = [one for one in await readable(world) if one != b"a"]
            assert found == [b"c", b"e", b"0", b"1", b"2", b"3"]
            await again(world, authority)


async def test_a_transaction_that_its_coordinator_forgot_is_aborted() -> None:
    """T4. Not while the coordinator is unavailable."""
    async with regions("us") as world:
        authority = authority_of(world)
        authority.open(T1)
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            await producer.send(b"a", T1)
            await producer.send(b"b")
        authority.is_away = True
        await again(world, authority)
        assert await readable(world) == []
        transactions = topic_of(world).transactions
        transactions.end_orphans()
        first = transactions._timer
        transactions.end_orphans()
        assert first is not None
        assert first.cancelled(), "one timer at a time"
        assert topic_of(world).state.buffer.open
        authority.is_away = False
        authority.known.clear()
        await until(lambda: not topic_of(world).state.buffer.open, 30)
        assert await readable(world) == [b"b"]


async def test_a_transaction_named_only_in_the_command_or_only_in_the_message_counts() -> None:
    """The Go client does the former; the log has to record it, or a restart would show the message."""
    async with regions("us") as world:
        authority = authority_of(world)
        authority.open(T1, T2)
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            await producer.send(b"a", T1, in_metadata=False)
            await producer.send(b"b", T2, in_command=False)
        await again(world, authority)
        assert await readable(world) == []
        assert [*topic_of(world).state.buffer.open] == [T1, T2]
        await end(world, T1, committed=False)
        await end(world, T2, committed=True)
        assert await readable(world) == [b"b"]


async def test_a_message_of_a_transaction_that_is_not_open_is_refused() -> None:
    """The transaction was never opened, or it has ended. The producer continues."""
    async with regions("us") as world, raw_client(world) as raw:
        authority = authority_of(world)
        producer = await Transacting.opened(raw)
        refused = await producer.send(b"a", T3)
        assert refused.send_error.error == ServerError.NotAllowedError
        assert "(0,3)" in refused.send_error.message
        authority.open(T1)
        await producer.send(b"b", T1)
        await end(world, T1, committed=True)
        late = await producer.send(b"late", T1)
        assert late.send_error.error == ServerError.NotAllowedError
        await producer.send(b"c")
        assert await readable(world) == [b"b", b"c"]


async def test_a_command_and_a_message_that_name_different_transactions_are_refused() -> None:
    async with transacting(T1, T2) as (_, producer):
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=0, publish_time=1, txnid_most_bits=0, txnid_least_bits=2
        )
        refused = await producer.send_entry(metadata, b"x", T1)
        assert refused.send_error.error == ServerError.NotAllowedError
        assert "names transaction (0,1), the entry (0,2)" in refused.send_error.message


async def test_ending_an_unknown_or_ended_transaction_writes_nothing() -> None:
    async with transacting(T1) as (world, producer):
        await producer.send(b"a", T1)
        topic = topic_of(world)
        await asyncio.gather(*[topic.transactions.end_partition(T1, True, -1) for _ in range(3)])
        assert topic.state.stored_end == 2
        await topic.transactions.end_partition(T1, True, -1)
        await topic.transactions.end_partition(T2, False, -1)
        assert topic.state.stored_end == 2


async def test_the_last_message_is_readable() -> None:
    """Otherwise a reader that learns of it waits for ever (upstream #22572). For a batch the response has its size."""
    async with transacting(T1, T2) as (world, producer):
        await producer.raw.subscribe()

        async def last() -> tuple[int, int]:
            ask = pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID)
            ask.getLastMessageId.consumer_id, ask.getLastMessageId.request_id = 1, 9
            found = (await producer.raw.ask(ask)).getLastMessageIdResponse.last_message_id
            entry_id = found.entryId if found.entryId < 2**63 else -1
            return entry_id, found.batch_index

        assert await last() == (-1, -1)
        await producer.send(b"a", T1, messages=7)
        await producer.send(b"b", T2, messages=5)
        await producer.send(b"c", T1)
        assert await last() == (-1, -1)
        await end(world, T1, committed=True)
        assert await last() == (0, 6)
        await end(world, T2, committed=False)
        assert await last() == (2, -1)


async def test_the_last_position_and_seeks_stay_before_what_is_open() -> None:
    async with transacting(T1) as (world, producer):
        await producer.send(b"a")
        await producer.send(b"b", T1)
        await producer.send(b"c")
        topic = topic_of(world)
        assert topic.reading.last_position.entry == 0
        async with world.client("us") as client:
            newcomer = await client.subscribe(TOPIC, "latest")
            await end(world, T1, committed=True)
            async with asyncio.timeout(30):
                assert [(await newcomer.receive()).payload for _ in range(2)] == [b"b", b"c"]


@pytest.mark.long
@pytest.mark.parametrize("committed", [True, False])
async def test_a_late_reader_skips_aborted_messages(committed: bool) -> None:
    """Also after its state was dropped from memory, and a restart."""
    async with regions("us", state_checkpoint_entries=50) as world:
        authority = authority_of(world)
        authority.open(T1)
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            for number in range(4_200):
                await producer.send(b"%d" % number, T1 if number % 100 == 7 else None)
            await end(world, T1, committed=committed)
            for number in range(200):
                await producer.send(b"after %d" % number)
            topic = topic_of(world)
            await until(lambda: topic.state.visibility.known_from > 0, 30)
        expected = [b"%d" % number for number in range(4_200) if committed or number % 100 != 7]
        expected += [b"after %d" % number for number in range(200)]
        assert await readable(world) == expected
        await again(world, authority)
        assert await readable(world) == expected


async def test_a_region_without_transactions_refuses_them_with_a_clear_error() -> None:
    async with regions("us", transaction_coordinators=0) as world, raw_client(world) as raw:
        assert world.running["us"].coordinators.status(T1) is None
        producer = await Transacting.opened(raw)
        refused = await producer.send(b"a", T1)
        assert refused.send_error.message == "Transactions are not enabled."
        assert TransactionStatus.OPEN not in [world.running["us"].coordinators.status(T2)]


async def test_the_entries_of_a_batch_with_a_marker_are_released_once_it_is_durable() -> None:
    """A topic kept those of its newest one for ever, up to the largest append."""
    async with transacting(T1) as (world, producer):
        await producer.send(b"one", T1)
        await end(world, T1, committed=True)
        assert topic_of(world).transactions._batch is None
