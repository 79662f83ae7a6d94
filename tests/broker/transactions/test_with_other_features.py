"""Transactions combined with compaction, delayed delivery, trimming and expiry."""

from __future__ import annotations

import asyncio
import time

from emulator.client import Client, Consumer, ConsumerType, InitialPosition
from emulator.model.transaction_names import TransactionStatus
from emulator.simulation.virtual_time import EPOCH_MS
from emulator.simulation.world import World
from tests.broker.compaction.test_compaction import TOPIC, compact, left
from tests.broker.regions import regions


async def in_transaction(
    client: Client, *pairs: tuple[str, bytes], commit: bool, deliver_at_ms: int | None = None
) -> None:
    producer = await client.producer(TOPIC)
    transaction = await client.new_transaction()
    for key, payload in pairs:
        await producer.send(payload, key=key, transaction=transaction, deliver_at_ms=deliver_at_ms)
    await (transaction.commit() if commit else transaction.abort())
    await producer.close()


async def test_a_compacted_topic_keeps_the_newest_committed_message_of_each_key(world: World) -> None:
    """An aborted message supersedes nothing, and an open one is compacted later."""
    client = world.client("us")
    await in_transaction(client, ("a", b"1"), ("b", b"1"), commit=True)
    await in_transaction(client, ("a", b"aborted"), ("c", b"aborted"), commit=False)
    await in_transaction(client, ("b", b"2"), commit=True)
    await compact(world)
    assert await left(client) == [("a", b"1"), ("b", b"2")]
    producer = await client.producer(TOPIC)
    transaction = await client.new_transaction()
    await producer.send(b"3", key="a", transaction=transaction)
    await producer.send(b"plain", key="d")
    await compact(world)
    assert await left(client) == [("a", b"1"), ("b", b"2")]
    await transaction.commit()
    assert await left(client) == [("a", b"1"), ("b", b"2"), ("a", b"3"), ("d", b"plain")]
    await compact(world)
    assert await left(client) == [("b", b"2"), ("a", b"3"), ("d", b"plain")]


async def test_a_delayed_message_waits_for_its_commit_and_for_its_time(world: World) -> None:
    client = world.client("us")
    consumer = await client.subscribe(
        TOPIC, "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
    )
    due_ms = int(EPOCH_MS + 1000 * (world.simulation.now + 5))
    await in_transaction(client, ("a", b"never"), commit=False, deliver_at_ms=due_ms)
    await in_transaction(client, ("a", b"later"), commit=True, deliver_at_ms=due_ms)
    await in_transaction(client, ("a", b"now"), commit=True)
    first, second = await consumer.receive(), await consumer.receive()
    assert (first.payload, second.payload) == (b"now", b"later")
    assert world.simulation.now * 1000 + EPOCH_MS >= due_ms


async def test_a_log_is_retained_from_the_first_message_of_an_open_transaction() -> None:
    async with regions("us") as at, at.client("us") as client:
        producer = await client.producer(TOPIC)
        for number in range(3):
            await producer.send(b"%d" % number)
        transaction = await client.new_transaction()
        await producer.send(b"open", transaction=transaction)
        await producer.send(b"behind")
        topic = at.running["us"].directory.serving[TOPIC]
        need = topic.retention.trimmer.first_hold
        assert (need.entry_id, need.asker) == (3, f"transaction {transaction.id.text}")
        await topic.retention.trimmer.trim(topic.state.stored_end)
        assert topic.reading.first_entry_id == 3
        await at.crash("us")
        await at.start("us")
        await transaction.commit()
        assert [payload for _, payload in await left(client, read_compacted=False)] == [b"open", b"behind"]


async def test_a_key_s_messages_stay_in_order_while_transactions_commit_and_abort(world: World) -> None:
    client = world.client("us")
    consumers = [
        await client.subscribe(
            TOPIC, "s", type_=ConsumerType.KEY_SHARED, initial_position=InitialPosition.EARLIEST
        )
        for _ in range(2)
    ]
    for number in range(12):
        pairs = [(f"key-{key}", b"%d" % number) for key in range(4)]
        await in_transaction(client, *pairs, commit=number % 3 != 0)
    expected = [b"%d" % number for number in range(12) if number % 3]
    given: dict[str | None, list[bytes]] = {}
    done = asyncio.Event()

    async def consume(consumer: Consumer) -> None:
        while True:
            message = await consumer.receive()
            given.setdefault(message.key, []).append(message.payload)
            await consumer.acknowledge(message)
            if sum(map(len, given.values())) == 4 * len(expected):
                done.set()

    tasks = [asyncio.ensure_future(consume(consumer)) for consumer in consumers]
    await done.wait()
    for task in tasks:
        task.cancel()
    assert given == {f"key-{key}": expected for key in range(4)}


async def test_many_transactions_time_out_at_times_between_milliseconds(world: World) -> None:
    """A time in milliseconds is rounded when it becomes seconds: a coordinator that is woken too early sets another
    timer."""
    client = world.client("us")
    begun = []
    for number in range(60):
        begun.append(await client.new_transaction(1))
        await asyncio.sleep(0.0137 + number / 7_919)
    authority = world.regions["us"].broker.coordinators  # type: ignore[union-attr]
    await world.simulation.until(
        lambda: all(authority.status(one.id) is TransactionStatus.ABORTED for one in begun), within_seconds=30
    )


async def test_messages_of_an_open_transaction_and_later_ones_do_not_expire() -> None:
    """However old it is: no consumer could have read it. After the end it expires like everything else."""
    async with regions("us") as at, at.client("us") as client:
        producer = await client.producer(TOPIC)
        await (await client.subscribe(TOPIC, "s")).close()
        await producer.send(b"before")
        transaction = await client.new_transaction()
        for number in range(2):
            await producer.send(b"open %d" % number, transaction=transaction)
        await producer.send(b"behind")
        topic = at.running["us"].directory.serving[TOPIC]
        cursor = topic.subscriptions["s"].cursor
        much_later_ms = int(1000 * time.time()) + 3_600_000
        await topic.retention.expire(1_000, much_later_ms)
        assert cursor.mark_delete == 0
        await transaction.commit()
        await topic.retention.expire(1_000, much_later_ms)
        assert cursor.mark_delete >= 3
