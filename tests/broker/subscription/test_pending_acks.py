"""Acknowledgements in transactions at one subscription: durable, exclusive, applied at the commit, released by an
abort."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from emulator.broker.subscription.subscription import Subscription
from emulator.core.transactions.pending_acks import Cumulative
from emulator.errors import ServerError
from emulator.model.stored_keys import PendingAckKey
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.controlled_coordinator import (
    T1,
    T2,
    TOPIC,
    Authority,
    Transacting,
    authority_of,
    topic_of,
)

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

SHARED, EXCLUSIVE = pb.CommandSubscribe.Shared, pb.CommandSubscribe.Exclusive


class Consuming:
    """A consumer of the subscription `s` that records its messages."""

    def __init__(self, raw: RawClient, ledger: int) -> None:
        self.raw = raw
        self.ledger = ledger
        self.given: list[int] = []
        self._request_id = 100

    async def next(self) -> pb.BaseCommand:
        """Return the next response; record messages that arrive before it."""
        while (command := await self.raw.next()).type == pb.BaseCommand.MESSAGE:
            self.given.append(command.message.message_id.entryId)
        return command

    async def was_given(self) -> list[int]:
        """Return the messages so far: the response to a request arrives after them."""
        ping = pb.BaseCommand(type=pb.BaseCommand.PING)
        ping.ping.SetInParent()
        self.raw.send(ping)
        assert (await self.next()).type == pb.BaseCommand.PONG
        return self.given

    async def receive(self, count: int) -> list[int]:
        """Wait for `count` messages and return their entry ids."""
        while len(self.given) < count:
            command = await self.raw.next()
            assert command.type == pb.BaseCommand.MESSAGE
            self.given.append(command.message.message_id.entryId)
        given, self.given = self.given[:count], self.given[count:]
        return given

    async def ack(
        self,
        txn: TxnId | None,
        entry_ids: Sequence[int],
        *,
        cumulative: bool = False,
        index: int | None = None,
        size: int = 0,
    ) -> int | None:
        """Acknowledge; return the error of the response, or None."""
        self._request_id += 1
        command = pb.BaseCommand(type=pb.BaseCommand.ACK)
        ack = command.ack
        ack.consumer_id, ack.request_id = 1, self._request_id
        ack.ack_type = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        for entry_id in entry_ids:
            one = ack.message_id.add(ledgerId=self.ledger, entryId=entry_id)
            if index is not None:
                one.ack_set.append(((1 << size) - 1) & ~(1 << index))
                one.batch_size = size
        if txn is not None:
            ack.txnid_most_bits, ack.txnid_least_bits = txn
        self.raw.send(command)
        answer = await self.next()
        assert answer.type == pb.BaseCommand.ACK_RESPONSE
        assert answer.ackResponse.request_id == self._request_id
        return answer.ackResponse.error if answer.ackResponse.HasField("error") else None


def subscription_of(world: Regions) -> Subscription:
    return topic_of(world).subscriptions["s"]


async def end(world: Regions, txn: TxnId, *, committed: bool) -> None:
    authority = world.running["us"].coordinators
    assert isinstance(authority, Authority)
    authority.known[txn] = TransactionStatus.COMMITTING if committed else TransactionStatus.ABORTING
    async with asyncio.timeout(30):
        await subscription_of(world).end_subscription(txn, committed, -1)
    authority.known[txn] = TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED


async def again(world: Regions, authority: Authority) -> None:
    """Kill the region, start it, and load the topic."""
    await world.crash("us")
    await load(world, authority)


async def load(world: Regions, authority: Authority) -> None:
    region = await world.start("us")
    region.coordinators = authority
    async with world.client("us") as client:
        await client.producer(TOPIC)


def rows(world: Regions) -> list[str]:
    return [key for key, _ in world.running["us"].store.scan(PendingAckKey.prefix(TOPIC))]


@contextlib.asynccontextmanager
async def filled(
    count: int = 5, messages: int = 0, **settings: object
) -> AsyncIterator[tuple[Regions, Authority]]:
    """A region whose topic has `count` entries, and its coordinator, where T1 and T2 are open."""
    async with regions("us", **settings) as world:
        authority = authority_of(world)
        authority.open(T1, T2)
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            for number in range(count):
                await producer.send(b"%d" % number, messages=messages)
        yield world, authority


@contextlib.asynccontextmanager
async def consuming(world: Regions, type_: int, receive: int = 0) -> AsyncIterator[Consuming]:
    """A connected consumer that has received `receive` messages."""
    async with raw_client(world) as raw:
        fields = {"subType": type_, "initialPosition": pb.CommandSubscribe.Earliest}
        assert (await raw.subscribe(**fields)).type == pb.BaseCommand.SUCCESS
        flow = pb.BaseCommand(type=pb.BaseCommand.FLOW)
        flow.flow.consumer_id, flow.flow.messagePermits = 1, 100
        raw.send(flow)
        consumer = Consuming(raw, topic_of(world).ledger_id)
        await consumer.receive(receive)
        yield consumer


@pytest.mark.parametrize("type_", [SHARED, EXCLUSIVE, pb.CommandSubscribe.Key_Shared])
async def test_a_commit_applies_acknowledgements_and_an_abort_redelivers_the_messages(type_: int) -> None:
    async with filled() as (world, _), consuming(world, type_) as consumer:
        assert await consumer.receive(5) == [0, 1, 2, 3, 4]
        assert await consumer.ack(T1, [0, 1]) is None
        assert await consumer.ack(T2, [2, 3, 4]) is None
        cursor = subscription_of(world).cursor
        assert cursor.mark_delete == -1
        assert len(rows(world)) == 2
        await end(world, T1, committed=True)
        assert cursor.mark_delete == 1
        await end(world, T2, committed=False)
        assert await consumer.receive(3) == [2, 3, 4]
        assert await consumer.ack(None, [2, 3, 4]) is None
        await until(lambda: not rows(world), 30)
        assert cursor.mark_delete == 4


@pytest.mark.parametrize("committed", [True, False])
async def test_pending_acknowledgements_survive_a_restart(committed: bool) -> None:
    """No other consumer receives them meanwhile, and the transaction ends as before."""
    async with filled() as (world, authority):
        async with consuming(world, SHARED, 5) as consumer:
            assert await consumer.ack(T1, [1, 3]) is None
        await again(world, authority)
        async with consuming(world, SHARED) as consumer:
            assert await consumer.receive(3) == [0, 2, 4]
            assert await consumer.ack(T2, [3]) == ServerError.TransactionConflict
            await end(world, T1, committed=committed)
            if committed:
                assert await consumer.ack(None, [0, 2, 4]) is None
                assert subscription_of(world).cursor.mark_delete == 4
            else:
                assert await consumer.receive(2) == [1, 3]
        await again(world, authority)
        expected = 4 if committed else -1
        assert subscription_of(world).cursor.mark_delete == expected
        await until(lambda: not rows(world), 30)


async def test_a_commit_is_durable_when_it_is_answered() -> None:
    async with filled() as (world, authority):
        async with consuming(world, EXCLUSIVE, 5) as consumer:
            assert await consumer.ack(T1, [2], cumulative=True) is None
            await end(world, T1, committed=True)
        await again(world, authority)
        assert subscription_of(world).cursor.mark_delete == 2


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("committed", [True, False])
async def test_messages_of_a_decided_cumulative_acknowledgement_are_not_dispatched_after_a_reconnect(
    is_killed: bool, committed: bool
) -> None:
    """PA9: it counts and is only not applied yet. Messages that an aborted one covered are redelivered at once."""
    async with filled() as (world, authority):
        async with consuming(world, EXCLUSIVE, 5) as consumer:
            assert await consumer.ack(T1, [2], cumulative=True) is None
        authority.known[T1] = TransactionStatus.COMMITTING if committed else TransactionStatus.ABORTING
        if is_killed:
            await again(world, authority)
        async with consuming(world, EXCLUSIVE) as consumer:
            if not committed:
                assert await consumer.receive(5) == [0, 1, 2, 3, 4]
            assert await consumer.was_given() == []
            await end(world, T1, committed=committed)
            if committed:
                assert await consumer.receive(2) == [3, 4]


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (TransactionStatus.OPEN, [0, 1, 2, 3, 4]),
        (TransactionStatus.COMMITTED, [3, 4]),
        (TransactionStatus.ABORTED, [0, 1, 2, 3, 4]),
        (None, [0, 1, 2, 3, 4]),
    ],
)
async def test_nothing_is_dispatched_until_the_outcome_of_a_cumulative_acknowledgement_is_known(
    status: TransactionStatus | None, given: list[int]
) -> None:
    """PA9. An open transaction holds back nothing: PA4."""
    async with filled() as (world, authority):
        async with consuming(world, EXCLUSIVE, 5) as consumer:
            assert await consumer.ack(T1, [2], cumulative=True) is None
        authority.is_away = True
        await again(world, authority)
        async with consuming(world, EXCLUSIVE) as consumer:
            assert await consumer.was_given() == []
            authority.is_away = False
            authority.known = {} if status is None else {T1: status}
            async with asyncio.timeout(30):
                assert await consumer.receive(len(given)) == given


async def test_messages_of_a_transaction_that_its_coordinator_forgot_are_redelivered() -> None:
    """PA8. Not while the coordinator is unavailable; and acknowledgements that committed meanwhile count."""
    async with filled() as (world, authority):
        async with consuming(world, SHARED, 5) as consumer:
            assert await consumer.ack(T1, [0]) is None
            assert await consumer.ack(T2, [1]) is None
        authority.is_away = True
        await again(world, authority)
        held = subscription_of(world).pending_acks
        assert held is not None
        assert len(held.acks) == 2
        held.end_orphans()
        first = held._timer
        authority.is_away = False
        authority.known = {T2: TransactionStatus.COMMITTED}
        held.end_orphans()
        assert first is not None
        assert first.cancelled(), "one timer at a time"
        await until(lambda: not held.acks, 30)
        async with consuming(world, SHARED) as consumer:
            assert await consumer.receive(4) == [0, 2, 3, 4]


@pytest.mark.parametrize("status", [None, TransactionStatus.COMMITTED, TransactionStatus.ABORTED])
async def test_an_explanation_ends_no_transaction(status: TransactionStatus | None) -> None:
    """E3. The dispatch loop retries; the explanation set its timer."""
    async with filled() as (world, authority), consuming(world, EXCLUSIVE, 5) as consumer:
        assert await consumer.ack(T1, [2], cumulative=True) is None
        subscription = subscription_of(world)
        held = subscription.pending_acks
        assert held is not None
        authority.known = {} if status is None else {T1: status}
        subscription.dispatch_loop.why_not()
        assert held._timer is None
        subscription.dispatch_loop.pump()
        assert held._timer is not None


async def test_an_abort_that_a_subscription_lost_is_requested_again() -> None:
    """An abort gets its response before it is durable here. It is not over while other subscriptions need it, and none
    gets it twice."""
    async with filled(2) as (world, authority):
        async with consuming(world, SHARED, 2) as consumer:
            assert await consumer.ack(T1, [0]) is None
        authority.known[T1] = TransactionStatus.ABORTING
        await subscription_of(world).end_subscription(T1, False, -1)
        await again(world, authority)
        assert rows(world)
        authority.known[T1] = TransactionStatus.ABORTED
        async with consuming(world, SHARED) as consumer, asyncio.timeout(30):
            assert sorted(await consumer.receive(2)) == [0, 1]


async def test_a_conflicting_acknowledgement_is_refused_as_a_whole() -> None:
    async with filled() as (world, _), consuming(world, SHARED, 5) as consumer:
        assert await consumer.ack(T1, [1]) is None
        assert await consumer.ack(T1, [1]) is None
        assert await consumer.ack(T2, [0, 1]) == ServerError.TransactionConflict
        assert await consumer.ack(None, [2]) is None
        assert await consumer.ack(T2, [2]) == ServerError.TransactionConflict
        assert await consumer.ack(T2, [0]) is None
        shared = await consumer.ack(T2, [4], cumulative=True)
        assert shared == ServerError.NotAllowedError
        assert await consumer.ack(T2, [99]) == ServerError.NotAllowedError
        unknown = await consumer.ack(TxnId(5, 5), [3])
        assert unknown == ServerError.TransactionNotFound


async def test_of_several_cumulative_acknowledgements_the_furthest_is_held_or_none() -> None:
    async with filled() as (world, _), consuming(world, EXCLUSIVE, 5) as consumer:
        assert await consumer.ack(T2, [3]) is None
        assert await consumer.ack(T1, [1, 4], cumulative=True) == ServerError.TransactionConflict
        pending = subscription_of(world).pending_acks
        assert pending is not None
        assert list(pending.acks.by_txn) == [T2]
        assert await consumer.ack(T1, [2, 1], cumulative=True) is None
        assert pending.acks.by_txn[T1].cumulative == Cumulative(2, 0)


async def test_indexes_of_a_batch_belong_to_different_transactions() -> None:
    """Its other indexes are delivered without them."""
    async with filled(1, 3) as (world, authority):
        async with consuming(world, SHARED, 1) as consumer:
            assert await consumer.ack(T1, [0], index=0, size=3) is None
            conflict = await consumer.ack(T2, [0], index=0, size=3)
            assert conflict == ServerError.TransactionConflict
            assert await consumer.ack(T2, [0], index=2, size=3) is None
        await again(world, authority)
        async with consuming(world, SHARED) as consumer:
            command = await consumer.raw.next()
            assert command.message.ack_set == [0b010]
            await end(world, T1, committed=True)
            await end(world, T2, committed=False)
            given = await consumer.raw.next()
            assert given.message.ack_set == [0b110]
            for index in (1, 2):
                assert await consumer.ack(None, [0], index=index, size=3) is None
            assert subscription_of(world).cursor.mark_delete == 0


async def test_an_impossible_batch_size_is_refused() -> None:
    """It would allocate that number of bits."""
    async with (
        filled(count=1, messages=3, region_tail_bytes=1) as (world, _),
        consuming(world, SHARED, 1) as consumer,
    ):
        command = pb.BaseCommand(type=pb.BaseCommand.ACK)
        command.ack.consumer_id, command.ack.request_id, command.ack.ack_type = 1, 9, 0
        command.ack.message_id.add(ledgerId=consumer.ledger, entryId=0, ack_set=[6], batch_size=2**31 - 1)
        command.ack.txnid_most_bits, command.ack.txnid_least_bits = T1
        consumer.raw.send(command)
        answer = (await consumer.next()).ackResponse
        assert answer.error == ServerError.NotAllowedError


async def test_a_plain_acknowledgement_applies_to_a_message_held_by_a_transaction() -> None:
    async with filled(2) as (world, _), consuming(world, SHARED, 2) as consumer:
        assert await consumer.ack(T1, [0, 1]) is None
        assert await consumer.ack(None, [0]) is None
        await end(world, T1, committed=False)
        assert await consumer.receive(1) == [1]
        assert subscription_of(world).cursor.mark_delete == 0


async def test_a_seek_drops_pending_acknowledgements() -> None:
    """PA7: a later commit skips no message that the seek redelivers."""
    async with filled() as (world, authority):
        async with consuming(world, SHARED, 5) as consumer:
            assert await consumer.ack(T1, [0, 1, 2]) is None
            await subscription_of(world).seek(0)
            await end(world, T1, committed=True)
            await until(lambda: not rows(world), 30)
        await again(world, authority)
        async with consuming(world, SHARED) as consumer:
            assert await consumer.receive(5) == [0, 1, 2, 3, 4]


async def test_unsubscribing_drops_pending_acknowledgements() -> None:
    async with filled() as (world, _), consuming(world, SHARED, 5) as consumer:
        assert await consumer.ack(T1, [0, 1, 2]) is None
        unsubscribe = pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE)
        unsubscribe.unsubscribe.consumer_id, unsubscribe.unsubscribe.request_id = 1, 7
        consumer.raw.send(unsubscribe)
        assert (await consumer.next()).type == pb.BaseCommand.SUCCESS
        assert rows(world) == []
        assert "s" not in topic_of(world).subscriptions


async def test_a_consumer_that_takes_over_does_not_get_held_messages() -> None:
    """One by one; cumulatively acknowledged messages are delivered again, and no other transaction can acknowledge
    them."""
    async with filled() as (world, authority):
        async with consuming(world, EXCLUSIVE) as consumer:
            await consumer.receive(5)
            assert await consumer.ack(T1, [1]) is None
        async with consuming(world, EXCLUSIVE) as consumer:
            assert await consumer.receive(4) == [0, 2, 3, 4]
            await end(world, T1, committed=False)
            assert await consumer.receive(5) == [0, 1, 2, 3, 4]
            assert await consumer.ack(T2, [3], cumulative=True) is None
            authority.open(TxnId(0, 9))
            conflict = await consumer.ack(TxnId(0, 9), [4], cumulative=True)
            assert conflict == ServerError.TransactionConflict
            conflict = await consumer.ack(TxnId(0, 9), [2])
            assert conflict == ServerError.TransactionConflict


async def test_a_commit_of_unwritten_acknowledgements_loses_none_of_another_transaction() -> None:
    """T1 commits right after an acknowledgement without a response; T2 acknowledges while the commit is being
    written."""
    async with filled() as (world, authority):
        async with consuming(world, EXCLUSIVE, 5) as consumer:
            store = world.running["us"].store
            assert isinstance(store, MemoryStore)
            store.hold()
            await unanswered(world, consumer, T1, 1)
            ending = asyncio.ensure_future(end(world, T1, committed=True))
            await asyncio.sleep(0)
            await unanswered(world, consumer, T2, 2)
            pending = subscription_of(world).pending_acks
            assert pending is not None
            writing = asyncio.ensure_future(pending.persisted())
            await asyncio.sleep(0)
            store.release()
            async with asyncio.timeout(30):
                await asyncio.gather(ending, writing)
        await again(world, authority)
        pending = subscription_of(world).pending_acks
        assert pending is not None
        assert list(pending.acks.by_txn) == [T2]
        assert subscription_of(world).cursor.is_acked(1)


async def test_committed_acknowledgements_are_stored_before_their_rows_are_deleted() -> None:
    """The region is killed before the cursor is durable: the coordinator sends the commit again, and the pending-ack
    rows name the messages."""
    async with filled() as (world, authority):
        async with consuming(world, EXCLUSIVE, 5) as consumer:
            await unanswered(world, consumer, T1, 1)
            subscription = subscription_of(world)
            subscription.stored_cursor.persisted = _never  # type: ignore[method-assign]
            ending = asyncio.ensure_future(end(world, T1, committed=True))
            await until(lambda: subscription.cursor.is_acked(1), 30)
            await world.crash("us")
            ending.cancel()
        await load(world, authority)
        await end(world, T1, committed=True)
        assert subscription_of(world).cursor.is_acked(1)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


async def unanswered(world: Regions, consumer: Consuming, txn: TxnId, entry_id: int) -> None:
    """Send an acknowledgement without a request id. Returns when the subscription has it in memory."""
    command = pb.BaseCommand(type=pb.BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 1, pb.CommandAck.Individual
    command.ack.txnid_most_bits, command.ack.txnid_least_bits = txn
    command.ack.message_id.add(ledgerId=consumer.ledger, entryId=entry_id)
    consumer.raw.send(command)

    def arrived() -> bool:
        pending = subscription_of(world).pending_acks
        return pending is not None and txn in pending.acks.by_txn

    await until(arrived, 30)
