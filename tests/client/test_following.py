"""Consumers and table views of several topics keep following them after a failed attempt."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from emulator.client import ClientError, ConsumerType, MessageId
from emulator.simulation.world import World
from tests.client.scripted import scripted
from tests.client.test_several_topics import (
    FROM_THE_BEGINNING,
    NAMESPACE,
    ORDERS,
    PATH,
    admin,
    client_of,
    create,
    publish,
    received,
    several,
)


async def test_whoever_could_not_unsubscribe_goes_on_with_partitions_that_come(world: World) -> None:
    ours, theirs = client_of(world), client_of(world)
    await create(world, count=2)
    consumer = several(await ours.subscribe(ORDERS, "s", type_=ConsumerType.SHARED))
    other = await theirs.subscribe(ORDERS, "s", type_=ConsumerType.SHARED)
    with pytest.raises(ClientError):
        await consumer.unsubscribe()
    await other.close()
    await admin(world, "POST", f"{PATH}/orders/partitions", 4)
    await world.simulation.until(lambda: len(consumer.consumers) == 4)
    await publish(theirs, ORDERS, *"abcdefgh")
    assert await received(consumer, 8) == list("abcdefgh")


async def test_a_listener_that_fails_is_told_of_and_the_view_goes_on(world: World) -> None:
    client = client_of(world)
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


async def test_a_pattern_loses_nothing_of_a_topic_that_is_deleted_and_made_again(world: World) -> None:
    """INV-61: messages of the new topic are newer than the consumer."""
    client = client_of(world)
    await publish(client, f"{ORDERS}-a", "old")
    consumer = await client.subscribe(re.compile(f"{NAMESPACE}/orders-.*"), "s")
    for life in "123":
        await admin(world, "DELETE", f"{PATH}/orders-a?force=true")
        await publish(client_of(world), f"{ORDERS}-a", life)
        assert await received(consumer, 1) == [life]


async def test_a_table_view_follows_a_topic_that_is_deleted_and_made_again(world: World) -> None:
    client = client_of(world)
    await publish(client, ORDERS, "a", "b")
    view = await client.table_view(ORDERS)
    await admin(world, "DELETE", f"{PATH}/orders?force=true")
    await publish(client_of(world), ORDERS, "c")
    await world.simulation.until(lambda: "c" in view)
    async with asyncio.timeout(30):
        await view.refresh()
    assert view["c"] == b"c"


async def test_whoever_is_sent_to_no_address_asks_again() -> None:
    """A region with a wrong response now may have the right one in a moment."""
    async with scripted() as (script, client), asyncio.timeout(5):
        script.lookups_say = "http://nonsense"
        opening = asyncio.ensure_future(client.producer("orders"))
        async with asyncio.timeout(2):
            while script.asked_for_lookups < 3:
                await asyncio.sleep(0.005)
        script.lookups_say = None
        await opening


async def test_whoever_is_only_ever_sent_to_no_address_is_told_so() -> None:
    async with scripted() as (script, client), asyncio.timeout(5):
        script.lookups_say = "http://nonsense"
        with pytest.raises(ClientError, match="the lookup of orders returned 'http://nonsense'"):
            await client.producer("orders")


async def test_a_watch_that_nobody_waits_for_any_more_is_ended(world: World) -> None:
    client = client_of(world)
    await publish(client, f"{ORDERS}-a", "x")
    connection = await client.service_connection()
    pattern = re.compile(f"{NAMESPACE}/orders-.*")
    opening = asyncio.ensure_future(client.subscribe(pattern, "s"))
    while not connection.watchers and not opening.done():
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not connection.watchers
    again = await client.subscribe(pattern, "s", initial_position=FROM_THE_BEGINNING)
    assert await received(again, 1) == ["x"]


def test_ids_of_one_partition_stand_in_order_whatever_their_batches() -> None:
    assert MessageId(5, 0, 1, 2, 0) > MessageId(5, 0, 0, 3, 0)
    assert MessageId(5, 0, 0, 9, 0) < MessageId(5, 1, 0, 2, 0)
