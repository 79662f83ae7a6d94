"""Readers, table views, and the receiver queue of consumers; under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.client import EARLIEST, LATEST, Batching, Client, ClientError, ConsumerType, MessageId
from emulator.client.reader import MultiTopicReader
from emulator.simulation.world import World
from tests.client.topics import (
    NAMESPACE,
    ORDERS,
    WITH_PARTITIONS,
    client_of,
    create,
    delete,
    publish,
    received,
    restart,
)

SETTINGS = WITH_PARTITIONS
NUMBERS = [f"{number:02}" for number in range(12)]

# Readers.


async def test_a_reader_at_the_end_has_a_message_as_soon_as_one_is_stored(client: Client) -> None:
    """Also before it has received anything."""
    producer = await client.producer(ORDERS)
    await producer.send(b"before")
    reader = await client.reader(ORDERS, LATEST, receiver_queue_size=1)
    reader.pause()
    assert not await reader.has_message()
    await producer.send(b"one")
    await producer.send(b"two")
    assert await reader.has_message()
    reader.resume()
    assert [(await reader.receive()).payload for _ in range(2)] == [b"one", b"two"]
    assert not await reader.has_message()


@pytest.mark.parametrize("batching", [None, Batching(messages_max=3)], ids=["single", "batch"])
async def test_a_reader_that_begins_with_the_last_message_reads_that_one(
    client: Client, batching: Batching | None
) -> None:
    producer = await client.producer(ORDERS, batching=batching)
    await asyncio.gather(*[producer.send(b"%d" % number) for number in range(3)])
    reader = await client.reader(ORDERS, LATEST, inclusive=True)
    assert await reader.has_message()
    assert (await reader.receive()).payload == b"2"
    assert not await reader.has_message()
    empty = await client.reader(f"{ORDERS}-empty", LATEST, inclusive=True)
    assert not await empty.has_message()


async def test_after_a_seek_to_a_time_a_reader_has_the_later_messages(client: Client) -> None:
    producer = await client.producer(ORDERS)
    for number in range(3):
        await producer.send(b"%d" % number)
        await asyncio.sleep(1)
    reader = await client.reader(ORDERS, LATEST)
    times = [client.wall_clock_ms() + 10_000, client.wall_clock_ms() - 2_500, 1]
    for time_ms, expected in zip(times, (0, 2, 3), strict=True):
        await reader.seek(time_ms)
        count = 0
        while await reader.has_message():
            await reader.receive()
            count += 1
        assert count == expected, time_ms


async def test_a_reader_of_a_partitioned_topic_reads_all_of_it(world: World, client: Client) -> None:
    await create(world)
    await publish(client, ORDERS, *NUMBERS)
    reader = await client.reader(ORDERS, EARLIEST)
    assert isinstance(reader, MultiTopicReader)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload.decode())
    assert sorted(found) == NUMBERS
    with pytest.raises(ClientError, match="EARLIEST or LATEST"):
        await client.reader(ORDERS, MessageId(1, 1))


# Table views.


async def test_a_table_view_has_the_newest_value_of_each_key_and_follows(
    world: World, client: Client
) -> None:
    await create(world)
    producer = await client.producer(ORDERS)
    for key, value in (("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("c", b"")):
        await producer.send(value, key=key)
    await producer.send(b"without a key")
    view = await client.table_view(ORDERS)
    assert dict(view) == {"a": b"2", "b": b"1"}
    told: list[tuple[str, bytes | None]] = []
    view.listen(lambda key, value: told.append((key, value)), existing=True)
    await producer.send(b"3", key="a")
    await producer.send(b"", key="b")
    await view.refresh()
    assert dict(view) == {"a": b"3"}
    assert sorted(told[:2]) == [("a", b"2"), ("b", b"1")]
    assert sorted(told[2:], key=str) == [("a", b"3"), ("b", None)]
    await restart(world)
    await producer.send(b"4", key="d")
    await world.simulation.until(lambda: view.get("d") == b"4")
    await view.close()
    assert view["a"] == b"3"
    with pytest.raises(ClientError, match="closed"):
        await view.refresh()


async def test_a_failing_listener_is_reported_and_the_view_continues(client: Client) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    producer = await client.producer(ORDERS)
    view = await client.table_view(ORDERS)
    told: list[str] = []

    def listener(key: str, value: bytes | None) -> None:
        raise KeyError(key)

    view.listen(listener)
    view.listen(lambda key, value: told.append(key))
    await producer.send(b"1", key="a")
    await producer.send(b"2", key="b")
    await view.refresh()
    assert dict(view) == {"a": b"1", "b": b"2"}
    assert told == ["a", "b"]
    assert [repr(problem["exception"]) for problem in problems] == ["KeyError('a')", "KeyError('b')"]


async def test_a_table_view_follows_a_topic_that_is_deleted_and_created_again(
    world: World, client: Client
) -> None:
    await publish(client, ORDERS, "a", "b")
    view = await client.table_view(ORDERS)
    await delete(world, "orders")
    await publish(client_of(world), ORDERS, "c")
    await world.simulation.until(lambda: "c" in view)
    async with asyncio.timeout(30):
        await view.refresh()
    assert view["c"] == b"c"


# The receiver queue.


async def test_a_consumer_that_starts_paused_receives_nothing_until_it_is_resumed(
    world: World, client: Client
) -> None:
    await create(world, 2)
    for topic in (ORDERS, f"{NAMESPACE}/bills"):
        consumer = await client.subscribe(topic, "s", start_paused=True)
        await publish(client, topic, *NUMBERS)
        await asyncio.sleep(5)
        assert not consumer.waiting
        consumer.resume()
        assert await received(consumer, 12) == NUMBERS
        consumer.pause()
        consumer.pause()
        consumer.resume()
        await publish(client, topic, "more")
        assert await received(consumer, 1) == ["more"]
        await consumer.close()


async def test_a_paused_consumer_stays_paused_when_its_region_comes_back(
    world: World, client: Client
) -> None:
    consumer = await client.subscribe(ORDERS, "s", receiver_queue_size=2)
    await publish(client, ORDERS, "1", "2", "3")
    await world.simulation.until(lambda: len(consumer.waiting) == 2)
    consumer.pause()
    await restart(world)
    await publish(client, ORDERS, "4")
    await asyncio.sleep(5)
    assert not consumer.waiting
    consumer.resume()
    assert await received(consumer, 4) == ["1", "2", "3", "4"]


async def test_without_a_queue_nothing_is_requested_ahead(client: Client) -> None:
    """Two consumers without a queue: while one is busy, the other still receives messages."""
    slow, quick = [
        await client.subscribe(ORDERS, "s", type_=ConsumerType.SHARED, receiver_queue_size=0)
        for _ in range(2)
    ]
    await publish(client, ORDERS, *NUMBERS)
    async with asyncio.timeout(10):
        busy_with = await slow.receive()
        others = [(await quick.receive()).payload.decode() for _ in NUMBERS[1:]]
    assert sorted([busy_with.payload.decode(), *others]) == NUMBERS
    assert not slow.waiting
    assert not quick.waiting


async def test_without_a_queue_a_batch_is_received_message_by_message_before_the_next_request(
    client: Client,
) -> None:
    consumer = await client.subscribe(ORDERS, "s", receiver_queue_size=0)
    producer = await client.producer(ORDERS, batching=Batching(messages_max=4, delay_ms_max=1_000))
    receipts = [producer.send_nowait(number.encode()) for number in NUMBERS]
    await asyncio.gather(*receipts)
    async with asyncio.timeout(10):
        for index, number in enumerate(NUMBERS):
            assert (await consumer.receive()).payload.decode() == number
            assert len(consumer.waiting) == 3 - index % 4


async def test_without_a_queue_a_waiting_receiver_is_served_after_a_restart(
    world: World, client: Client
) -> None:
    consumer = await client.subscribe(ORDERS, "s", receiver_queue_size=0)
    receiving = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(1)
    await restart(world)
    await publish(client, ORDERS, "x")
    async with asyncio.timeout(10):
        assert (await receiving).payload == b"x"
