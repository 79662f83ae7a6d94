"""Requests and errors of the client as an exclusive producer, against a scripted broker."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, ClientError, Standing
from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from tests.client.scripted import ScriptedBroker, scripted


@pytest.mark.parametrize("mode", list(AccessMode))
async def test_the_mode_and_the_priority_are_told(mode: AccessMode) -> None:
    """PIP-68's modes by their numbers; PIP-440's priority in its private field, signed."""
    async with scripted() as (script, client):
        await client.producer("orders", access_mode=mode, priority=-7)
        assert script.creates[0].producer_access_mode == mode.value
        assert script.creates[0].queue_priority == -7
        assert not script.creates[0].HasField("topic_epoch")


async def test_a_producer_in_line_waits_for_its_second_answer() -> None:
    """Not ready at first; ready later, under the same request id, with the epoch it was granted."""
    async with scripted() as (script, client):
        script.on_create = lambda broker, create: broker.succeed(create, ready=False)
        opening = asyncio.create_task(client.producer("orders", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE))
        async with asyncio.timeout(5):
            while not script.creates:
                await asyncio.sleep(0)
        done, _ = await asyncio.wait([opening], timeout=0.05)
        assert not done
        script.connections[-1].succeed(script.creates[0], epoch=4)
        producer = await asyncio.wait_for(opening, 5)
        assert producer.topic_epoch == 4
        assert (await producer.send(b"x")).entry == 0


async def test_whoever_gives_up_before_an_answer_came_says_so() -> None:
    """Otherwise the region would grant access later, and reserve the topic for a producer that is gone."""
    async with scripted() as (script, client):
        script.on_create = lambda broker, create: None
        opening = asyncio.create_task(client.producer("orders", access_mode=AccessMode.EXCLUSIVE))
        async with asyncio.timeout(5):
            while not script.creates:
                await asyncio.sleep(0)
            opening.cancel()
            while not script.closes:
                await asyncio.sleep(0)
        assert [one.producer_id for one in script.closes] == [script.creates[0].producer_id]


async def test_a_place_in_line_that_is_lost_in_the_breath_in_which_it_was_given_is_asked_for_again() -> None:
    async with scripted() as (script, client):

        def wait_and_close(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
            if len(script.creates) > 1:
                broker.succeed(create, epoch=1)
                return
            broker.succeed(create, ready=False)
            close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
            close.close_producer.producer_id = create.producer_id
            close.close_producer.request_id = 0
            broker.send(close)

        script.on_create = wait_and_close
        waiting = client.producer("orders", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        producer = await asyncio.wait_for(waiting, 5)
        assert producer.topic_epoch == 1


async def test_how_each_attempt_goes_is_told_also_after_a_lost_connection() -> None:
    async with scripted() as (script, client):
        heard: list[tuple[Standing, int | None]] = []
        script.on_create = lambda broker, create: broker.succeed(create, epoch=3)
        producer = await client.producer(
            "orders",
            access_mode=AccessMode.EXCLUSIVE,
            on_standing=lambda one, standing: heard.append((standing, one.topic_epoch)),
        )
        script.on_create = lambda broker, create: broker.succeed(create, ready=False)
        script.connections[-1].transport.abort()
        async with asyncio.timeout(5):
            while heard[-1][0] is not Standing.WAITS:
                await asyncio.sleep(0)
        script.connections[-1].succeed(script.creates[-1], epoch=4)
        await asyncio.wait_for(producer.send(b"x"), 5)
        assert heard == [
            *((Standing.ASKS, None), (Standing.OPEN, 3)),
            *((Standing.ASKS, 3), (Standing.WAITS, 3), (Standing.OPEN, 4)),
        ]


async def test_a_reconnect_tells_the_epoch_that_was_granted() -> None:
    """So that the region can distinguish the owner from a fenced producer."""
    async with scripted() as (script, client):
        script.on_create = lambda broker, create: broker.succeed(create, epoch=9)
        producer = await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
        script.connections[-1].transport.abort()
        await asyncio.wait_for(producer.send(b"x"), 5)
        assert script.creates[1].topic_epoch == 9
        assert script.creates[1].epoch == 1


async def test_a_fenced_producer_is_dead_and_says_that_its_sends_are_unknown() -> None:
    """ProducerFenced on reconnect: the client does not retry, and pending messages may have been stored."""
    async with scripted() as (script, client):
        producer = await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
        script.on_create = lambda broker, create: broker.refuse(create, ServerError.ProducerFenced)
        script.connections[-1].transport.abort()
        with pytest.raises(ClientError) as caught:
            await asyncio.wait_for(producer.send(b"x"), 5)
        assert caught.value.code is ServerError.ProducerFenced
        with pytest.raises(ClientError):
            producer.send_nowait(b"y")


@pytest.mark.parametrize("code", [ServerError.ProducerFenced, ServerError.ProducerBusy])
async def test_a_refused_create_is_definite(code: ServerError) -> None:
    """The client does not retry."""
    async with scripted() as (script, client):
        script.on_create = lambda broker, create: broker.refuse(create, code)
        with pytest.raises(ClientError) as caught:
            await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
        assert caught.value.code is code
        assert caught.value.definite
        assert len(script.creates) == 1


async def test_a_create_that_could_work_later_is_tried_again() -> None:
    """ServiceNotReady is retried."""
    async with scripted() as (script, client):

        def second_time(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
            if len(script.creates) == 1:
                broker.refuse(create, ServerError.ServiceNotReady)
            else:
                broker.succeed(create)

        script.on_create = second_time
        await asyncio.wait_for(client.producer("orders"), 5)
        assert len(script.creates) == 2
