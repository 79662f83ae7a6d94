"""Our client's transactions and transaction keys, with real coordinators and topics."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.region import Region
from emulator.client import (
    EARLIEST,
    Batching,
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    ExpiredTransaction,
    InitialPosition,
    Producer,
    Transaction,
)
from emulator.errors import ServerError, StorageError
from emulator.model.transaction_names import TransactionStatus
from emulator.storage.memory import MemoryStore
from tests.broker.regions import QUICK, Regions, regions, until

KEY = "task"
TOPIC = "persistent://public/default/orders"


def status(world: Regions, transaction: Transaction) -> TransactionStatus | None:
    return world.running["us"].coordinators.status(transaction.id)


async def stored(client: Client, topic: str) -> list[bytes]:
    reader = await client.reader(topic, EARLIEST)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload)
    await reader.close()
    return found


def keyed(world: Regions, key: str = KEY) -> Client:
    return Client(f"pulsar://127.0.0.1:{world.ports['us']}", settings=QUICK, transaction_key=key)


async def test_messages_of_a_transaction_become_visible_together_when_it_commits() -> None:
    async with regions("us") as world, world.client("us") as client:
        orders, bills = await client.producer("orders"), await client.producer("bills")
        transaction = await client.new_transaction()
        await orders.send(b"1", transaction=transaction)
        await bills.send(b"2", transaction=transaction)
        assert await stored(client, "orders") == await stored(client, "bills") == []
        await transaction.commit()
        assert (await stored(client, "orders"), await stored(client, "bills")) == ([b"1"], [b"2"])
        await transaction.commit()
        with pytest.raises(ClientError) as problem:
            await orders.send(b"3", transaction=transaction)
        assert problem.value.code is ServerError.NotAllowedError


async def test_a_block_that_raises_aborts() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        with pytest.raises(KeyError):
            await _fail_within(client, producer)
        async with await client.new_transaction() as transaction:
            await producer.send(b"yes", transaction=transaction)
        assert await stored(client, "orders") == [b"yes"]


async def _fail_within(client: Client, producer: Producer) -> None:
    async with await client.new_transaction() as failing:
        await producer.send(b"no", transaction=failing)
        raise KeyError


async def test_a_topic_refuses_messages_of_a_transaction_it_was_not_added_to() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        transaction = await client.new_transaction()
        with pytest.raises(ClientError, match="was not added to it"):
            producer.send_nowait(b"1", transaction=transaction)


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        (ClientError("timeout", definite=False), 2),
        (ClientError("busy", definite=True, code=ServerError.TooManyRequests), 2),
        (ClientError("committed", definite=True, code=ServerError.InvalidTxnStatus), 1),
        (ClientError("unknown", definite=True, code=ServerError.TransactionNotFound), 1),
        (ExpiredTransaction("fenced", definite=True, code=ServerError.NotAllowedError), 1),
    ],
    ids=str,
)
async def test_a_failed_registration_is_repeated_by_the_next_send_unless_the_transaction_has_ended(
    monkeypatch: pytest.MonkeyPatch, failure: ClientError, attempts: int
) -> None:
    async with regions("us") as world, world.client("us") as client:
        producer, transaction = await client.producer("orders"), await client.new_transaction()
        add, added = client.coordinators.add, []

        async def fail_once(transaction: Transaction, topic: str, subscription: str | None) -> None:
            added.append(topic)
            if len(added) == 1:
                raise failure
            await add(transaction, topic, subscription)

        monkeypatch.setattr(client.coordinators, "add", fail_once)
        with pytest.raises(ClientError, match=str(failure)):
            await producer.send(b"1", transaction=transaction)
        if attempts == 1:
            with pytest.raises(ClientError, match=str(failure)):
                await producer.send(b"2", transaction=transaction)
        else:
            await producer.send(b"2", transaction=transaction)
            await transaction.commit()
            assert await stored(client, "orders") == [b"2"]
        assert added == ["orders"] * attempts


async def test_a_decision_reaches_its_topic_after_a_crash() -> None:
    """Killed between the decision and the marker: after the restart the coordinator notifies the topic."""
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        transaction = await client.new_transaction()
        await producer.send(b"1", transaction=transaction)
        coordinator = world.running["us"].coordinators.get(transaction.id.most)
        coordinator.notifier.notify_now = lambda _: None  # type: ignore[method-assign]
        coordinator.notifier.notify_all = _never  # type: ignore[method-assign]
        ending = asyncio.ensure_future(transaction.commit())
        await until(lambda: status(world, transaction) is TransactionStatus.COMMITTING)
        await world.crash("us")
        await world.start("us")
        await ending
        assert await stored(client, "orders") == [b"1"]


async def _never(*anything: object) -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_topic_whose_store_fails_is_notified_again() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        transaction = await client.new_transaction()
        await producer.send(b"1", transaction=transaction)
        region = world.running["us"]
        _fail_the_marker(region)
        await transaction.commit()
        assert await stored(client, "orders") == [b"1"]


def _fail_the_marker(region: Region) -> None:
    """Let the topic's next append fail, as on a disk that is full for a moment."""
    store = region.store
    assert isinstance(store, MemoryStore)
    topic = next(iter(region.directory.serving.values()))
    real = topic.append_own_soon

    def failing(*arguments: object) -> None:
        topic.append_own_soon = real  # type: ignore[method-assign]
        store.fail_next_group(StorageError("full for a moment", definite=True))
        real(*arguments)  # type: ignore[arg-type]

    topic.append_own_soon = failing  # type: ignore[method-assign]


async def test_a_transaction_without_its_client_blocks_a_topic_no_longer_than_its_time_out() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        transaction = await client.new_transaction(timeout_seconds=0.2)
        await producer.send(b"no", transaction=transaction)
        await producer.send(b"behind")
        await until(lambda: status(world, transaction) is TransactionStatus.ABORTED)
        assert await stored(client, "orders") == [b"behind"]
        with pytest.raises(ClientError, match="timed out") as problem:
            await transaction.commit()
        assert problem.value.definite


async def test_coordinators_take_turns() -> None:
    async with regions("us") as world, world.client("us") as client:
        begun = [await client.new_transaction() for _ in range(8)]
        assert {transaction.id.most for transaction in begun} == {0, 1, 2, 3}


async def test_a_client_gets_an_error_where_transactions_are_not_enabled() -> None:
    async with regions("us", transaction_coordinators=0) as world, world.client("us") as client:
        with pytest.raises(ClientError, match="not enabled"):
            await client.new_transaction()


async def shared(client: Client) -> Consumer:
    return await client.subscribe(
        "orders", "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
    )


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("commits", [True, False])
async def test_acknowledgements_count_when_their_transaction_commits(commits: bool, batched: bool) -> None:
    """One by one, also of messages inside a batch. An abort redelivers them."""
    async with regions("us") as world, world.client("us") as client:
        batching = Batching(messages_max=3, delay_ms_max=10_000) if batched else None
        producer = await client.producer("orders", batching=batching)
        consumer = await shared(client)
        await asyncio.gather(*(producer.send(bytes([n])) for n in range(3)))
        given = [await consumer.receive() for _ in range(3)]
        transaction = await client.new_transaction()
        await consumer.acknowledge(given[0], given[1], transaction=transaction)
        await (transaction.commit() if commits else transaction.abort())
        await consumer.close()
        again = await shared(client)
        expected = [b"\x02"] if commits else [b"\x00", b"\x01", b"\x02"]
        back = [await again.receive() for _ in expected]
        assert sorted(message.payload for message in back) == expected
        await again.acknowledge(*back, confirmed=True)
        subscription = world.running["us"].directory.serving[TOPIC].subscriptions["s"]
        await until(lambda: subscription.backlog() == 0)


async def test_a_message_that_one_transaction_holds_is_a_conflict_for_another() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer, consumer = await client.producer("orders"), await shared(client)
        await producer.send(b"1")
        message = await consumer.receive()
        one, two = await client.new_transaction(), await client.new_transaction()
        await consumer.acknowledge(message, transaction=one)
        with pytest.raises(ClientError) as problem:
            await consumer.acknowledge(message, transaction=two)
        assert problem.value.code is ServerError.TransactionConflict
        await one.commit()
        await two.commit()


async def test_read_process_write_is_exactly_once_over_a_crash_at_each_step() -> None:
    """A consumed message is acknowledged in the transaction that publishes its result."""
    async with regions("us") as world, world.client("us") as client:
        source = await client.producer("orders")
        for number in range(6):
            await source.send(b"%d" % number)
        consumer, target = await shared(client), await client.producer("bills")
        for number in range(6):
            await _process_one(world, client, consumer, target, crash_at=number % 3)
        assert sorted(await stored(client, "bills")) == [b"%d" % number for number in range(6)]


async def _process_one(
    world: Regions, client: Client, consumer: Consumer, target: Producer, *, crash_at: int
) -> None:
    """Retry until one more message is processed. The region is killed once: before the end, while it ends, or after
    it."""
    while True:
        message = await consumer.receive()
        transaction = await client.new_transaction()
        try:
            await target.send(message.payload, transaction=transaction)
            await consumer.acknowledge(message, transaction=transaction)
            await _end_with_a_crash(world, transaction, crash_at)
            return
        except ClientError:
            assert status(world, transaction) is not TransactionStatus.COMMITTED
            await transaction.abort()


async def _end_with_a_crash(world: Regions, transaction: Transaction, crash_at: int) -> None:
    ending = asyncio.ensure_future(transaction.commit())
    if crash_at == 0:
        await asyncio.sleep(0)
    elif crash_at == 1:
        await until(lambda: status(world, transaction) is not TransactionStatus.OPEN)
    else:
        await ending
    await world.crash("us")
    await world.start("us")
    await ending


# Keys.


async def test_the_second_task_with_a_key_fences_the_first_at_once() -> None:
    """The scenario of the proposal: the first task's messages are aborted, so nothing waits for a timeout; its later
    requests fail as expired; the second task works undisturbed."""
    async with regions("us") as world, keyed(world) as first, keyed(world) as second:
        one = await first.producer("orders")
        lost = await first.new_transaction()
        await one.send(b"of the first", transaction=lost)
        two = await second.producer("orders")
        async with await second.new_transaction() as transaction:
            assert status(world, lost) is TransactionStatus.ABORTED
            await two.send(b"of the second", transaction=transaction)
        assert await stored(second, "orders") == [b"of the second"]
        with pytest.raises(ExpiredTransaction):
            await one.send(b"late", transaction=lost)
        with pytest.raises((ExpiredTransaction, ClientError)) as problem:
            await lost.commit()
        assert problem.value.definite
        assert second.coordinators.epoch == 1


async def test_a_client_that_takes_its_key_fences_the_one_before_without_beginning_anything() -> None:
    async with regions("us") as world, keyed(world) as first, keyed(world) as second:
        lost = await first.new_transaction()
        await second.coordinators.take_key()
        assert status(world, lost) is TransactionStatus.ABORTED
        assert (first.coordinators.epoch, second.coordinators.epoch) == (0, 1)


async def test_a_fenced_client_may_not_begin_again() -> None:
    async with regions("us") as world, keyed(world) as first, keyed(world) as second:
        await first.new_transaction()
        await second.new_transaction()
        with pytest.raises(ClientError, match="stale") as problem:
            await first.new_transaction()
        assert problem.value.code is ServerError.NotAllowedError


async def test_a_client_continues_with_its_key_after_a_crash_of_the_region() -> None:
    async with regions("us") as world, keyed(world) as client:
        lost = await client.new_transaction()
        await world.crash("us")
        await world.start("us")
        async with await client.new_transaction():
            assert client.coordinators.epoch == 1
            assert status(world, lost) is TransactionStatus.ABORTED


async def test_clients_of_different_keys_and_of_none_do_not_disturb_each_other() -> None:
    async with (
        regions("us") as world,
        keyed(world) as first,
        keyed(world, "other") as second,
        world.client("us") as third,
    ):
        begun = [await client.new_transaction() for client in (first, second, third)]
        for transaction in begun:
            assert status(world, transaction) is TransactionStatus.OPEN
            await transaction.commit()


def test_a_key_with_the_separator_is_refused_before_any_request() -> None:
    with pytest.raises(ValueError, match="must not contain '&'"):
        Client("pulsar://localhost", transaction_key="a&b")
