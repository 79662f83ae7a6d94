"""PIP-440 in the client: a fixed priority, and the order of reconnects; against a scripted broker."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from emulator.client import AccessMode, Client, ClientError, ClientSettings, Producer
from emulator.client.types import PRIORITY_MAX, PRIORITY_MIN, return_delay_seconds
from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from tests.client.scripted import Script, ScriptedBroker, scripted

WAIT = AccessMode.WAIT_FOR_EXCLUSIVE


async def until(script: Script, creates: int) -> None:
    """Wait until this number of producers were requested, in all."""
    async with asyncio.timeout(5):
        while len(script.creates) < creates:
            await asyncio.sleep(0.001)


def test_the_delay_falls_with_the_priority_and_stays_within_its_bounds() -> None:
    """Strictly, for usual numbers; over all of int32 between zero and the maximum."""
    chosen = [PRIORITY_MIN, -1000, -100, -10, -1, 0, 1, 10, 100, 1000, PRIORITY_MAX]
    delays = [return_delay_seconds(priority, 0.5) for priority in chosen]
    assert delays == sorted(delays, reverse=True)
    assert len(set(delays)) == len(delays)
    assert delays[0] == pytest.approx(0.5)
    assert delays[chosen.index(0)] == 0.25
    assert 0 <= delays[-1] < 1e-6


@pytest.mark.parametrize("priority", [PRIORITY_MIN - 1, PRIORITY_MAX + 1, 2**40, True, 1.5, "7"])
async def test_a_priority_that_is_no_int32_is_refused_and_nothing_is_asked(priority: int) -> None:
    """Before the broker receives it."""
    async with scripted() as (script, client):
        with pytest.raises(ValueError, match="priority"):
            await client.producer("orders", access_mode=WAIT, priority=priority)
        assert not script.creates


@pytest.mark.parametrize("priority", [PRIORITY_MIN, PRIORITY_MAX])
async def test_the_ends_of_int32_are_told_as_they_are(priority: int) -> None:
    """Signed."""
    async with scripted() as (script, client):
        producer = await client.producer("orders", access_mode=WAIT, priority=priority)
        assert script.creates[0].queue_priority == priority
        assert producer.priority == priority


async def test_the_priority_of_a_producer_cannot_be_set() -> None:
    """Read-only after creation: setting it raises, and the old one stays."""
    async with scripted() as (_, client):
        producer = await client.producer("orders", access_mode=WAIT, priority=3)
        with pytest.raises(AttributeError):
            producer.priority = 4  # type: ignore[misc]
        assert producer.priority == 3


async def returned(settings: ClientSettings, priorities: list[int], mode: AccessMode) -> list[int]:
    """Return the order in which producers of these priorities, each with a client of its own, reconnect after a
    loss."""
    async with contextlib.AsyncExitStack() as stack:
        script, _ = await stack.enter_async_context(scripted())
        for priority in priorities:
            client = await stack.enter_async_context(Client(script.url, settings=settings))
            await client.producer("orders", access_mode=mode, priority=priority)
        for connection in list(script.connections):
            connection.transport.abort()
        await until(script, 2 * len(priorities))
        return [create.queue_priority for create in script.creates[len(priorities) :]]


def test_after_a_loss_the_highest_priority_asks_first() -> None:
    """A producer with a significantly lower priority delays its request."""
    settings = ClientSettings(backoff_seconds=0.01, priority_delay_seconds=1.0)
    order = asyncio.run(returned(settings, [-100, 0, 100, 10], WAIT))
    assert order == [100, 10, 0, -100]


def test_nobody_holds_back_where_priorities_do_not_count() -> None:
    """Other modes have no queue: they reconnect long before the delay of their priority is over."""
    settings = ClientSettings(backoff_seconds=0.01, priority_delay_seconds=60.0)
    order = asyncio.run(returned(settings, [-100, 100], AccessMode.EXCLUSIVE))
    assert sorted(order) == [-100, 100]


def test_the_delay_can_be_turned_off() -> None:
    """Setting 0."""
    settings = ClientSettings(backoff_seconds=0.01, priority_delay_seconds=0.0)
    assert asyncio.run(returned(settings, [PRIORITY_MIN], WAIT)) == [PRIORITY_MIN]


async def test_a_place_in_line_that_was_lost_is_asked_for_again_by_priority() -> None:
    """Also for producers that waited when the connection was lost."""
    settings = ClientSettings(backoff_seconds=0.01, priority_delay_seconds=1.0)
    async with contextlib.AsyncExitStack() as stack:
        script, _ = await stack.enter_async_context(scripted())
        script.on_create = lambda broker, create: broker.succeed(create, ready=False)
        opening = []
        for priority in (-100, 100):
            client = await stack.enter_async_context(Client(script.url, settings=settings))
            opening.append(
                asyncio.create_task(client.producer("orders", access_mode=WAIT, priority=priority))
            )
            await until(script, len(opening))
        for connection in list(script.connections):
            connection.transport.abort()
        await until(script, 4)
        assert [create.queue_priority for create in script.creates[2:]] == [100, -100]
        for task in opening:
            task.cancel()
        await asyncio.wait(opening)


async def test_a_broker_that_does_not_know_priorities_may_promote_in_another_order() -> None:
    """That is no error: the lower one is promoted first, then the higher one, and both publish."""
    async with contextlib.AsyncExitStack() as stack:
        script, one = await stack.enter_async_context(scripted())
        two = await stack.enter_async_context(Client(script.url))
        waiting: list[tuple[ScriptedBroker, pb.CommandProducer]] = []

        def queue(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
            waiting.append((broker, create))
            broker.succeed(create, ready=False)

        script.on_create = queue
        low = asyncio.create_task(one.producer("orders", access_mode=WAIT, priority=-5))
        await until(script, 1)
        high = asyncio.create_task(two.producer("orders", access_mode=WAIT, priority=5))
        await until(script, 2)
        for epoch, (broker, create) in enumerate(waiting):
            broker.succeed(create, epoch=epoch)
        producers: list[Producer] = [await asyncio.wait_for(low, 5), await asyncio.wait_for(high, 5)]
        assert [producer.topic_epoch for producer in producers] == [0, 1]
        for producer in producers:
            assert (await asyncio.wait_for(producer.send(b"x"), 5)).entry == 0


@pytest.mark.parametrize("in_line", [True, False], ids=["in line", "before the first answer"])
async def test_a_create_that_is_cancelled_leaves_the_line_at_once(in_line: bool) -> None:
    """The close request names the producer of the create request."""
    async with scripted() as (script, client):
        if in_line:
            script.on_create = lambda broker, create: broker.succeed(create, ready=False)
        else:
            script.on_create = lambda broker, create: None
        opening = asyncio.create_task(client.producer("orders", access_mode=WAIT))
        await until(script, 1)
        done, _ = await asyncio.wait([opening], timeout=0.05)
        assert not done
        opening.cancel()
        async with asyncio.timeout(5):
            while not script.closes:
                await asyncio.sleep(0.001)
        assert [close.producer_id for close in script.closes] == [script.creates[0].producer_id]
        assert (await asyncio.gather(opening, return_exceptions=True))[0].__class__ is (
            asyncio.CancelledError
        )


async def test_a_producer_that_was_fenced_after_a_loss_never_asks_again() -> None:
    """Permanently: each send fails with ProducerFenced, and no other request follows."""
    async with scripted() as (script, client):
        script.on_create = lambda broker, create: broker.succeed(create, epoch=3)
        producer = await client.producer("orders", access_mode=WAIT, priority=100)
        script.on_create = lambda broker, create: broker.refuse(create, ServerError.ProducerFenced)
        script.connections[-1].transport.abort()
        for _ in range(3):
            with pytest.raises(ClientError) as caught:
                await asyncio.wait_for(producer.send(b"x"), 5)
            assert caught.value.code is ServerError.ProducerFenced
        assert [create.topic_epoch for create in script.creates[1:]] == [3]
