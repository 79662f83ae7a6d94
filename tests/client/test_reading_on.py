"""`hasMessageAvailable` of a reader. Our own client under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import LATEST, Batching
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"


async def test_a_reader_at_the_end_says_that_there_is_more_as_soon_as_there_is(world: World) -> None:
    """Also before it has received anything."""
    client = world.client("us")
    producer = await client.producer(TOPIC)
    await producer.send(b"before")
    reader = await client.reader(TOPIC, LATEST, receiver_queue_size=1)
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
    world: World, batching: Batching | None
) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC, batching=batching)
    await asyncio.gather(*[producer.send(b"%d" % number) for number in range(3)])
    reader = await client.reader(TOPIC, LATEST, inclusive=True)
    assert await reader.has_message()
    assert (await reader.receive()).payload == b"2"
    assert not await reader.has_message()
    empty = await client.reader(f"{TOPIC}-empty", LATEST, inclusive=True)
    assert not await empty.has_message()


async def test_after_a_seek_to_a_time_a_reader_says_what_there_is_from_then_on(world: World) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC)
    for number in range(3):
        await producer.send(b"%d" % number)
        await asyncio.sleep(1)
    reader = await client.reader(TOPIC, LATEST)
    times = [client.wall_clock_ms() + 10_000, client.wall_clock_ms() - 2_500, 1]
    for time_ms, expected in zip(times, (0, 2, 3), strict=True):
        await reader.seek(time_ms)
        came = 0
        while await reader.has_message():
            await reader.receive()
            came += 1
        assert came == expected, time_ms
