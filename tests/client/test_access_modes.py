"""Requests and errors of the client as an exclusive producer, against a scripted broker."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, ClientError, ProducerState
from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from tests.client.scripted import Script, ScriptedBroker

EXCLUSIVE, WAIT = AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE


@pytest.mark.parametrize("mode", list(AccessMode))
async def test_the_mode_and_the_priority_are_sent(script: Script, mode: AccessMode) -> None:
    """PIP-68's modes by their numbers; PIP-440's priority in its private field, signed."""
    await script.client.producer("orders", access_mode=mode, priority=-7)
    assert script.creates[0].producer_access_mode == mode.value
    assert script.creates[0].queue_priority == -7
    assert not script.creates[0].HasField("topic_epoch")


async def test_a_queued_producer_waits_for_its_second_response(script: Script) -> None:
    """Not ready at first; ready later, under the same request id, with the epoch it was granted."""
    script.accept(ready=False)
    opening = asyncio.create_task(script.client.producer("orders", access_mode=WAIT))
    await script.until_creates(1)
    done, _ = await asyncio.wait([opening], timeout=0.05)
    assert not done
    script.connections[-1].succeed(script.creates[0], epoch=4)
    producer = await asyncio.wait_for(opening, 5)
    assert producer.topic_epoch == 4
    assert (await producer.send(b"x")).entry == 0


async def test_a_producer_that_is_closed_as_soon_as_it_waits_is_requested_again(script: Script) -> None:
    def queue_and_close(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        if len(script.creates) > 1:
            broker.succeed(create, epoch=1)
            return
        broker.succeed(create, ready=False)
        close = pb.CommandCloseProducer(producer_id=create.producer_id, request_id=0)
        broker.send(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=close))

    script.on_create = queue_and_close
    producer = await asyncio.wait_for(script.client.producer("orders", access_mode=WAIT), 5)
    assert producer.topic_epoch == 1


async def test_the_state_of_each_attempt_is_reported_also_after_a_lost_connection(script: Script) -> None:
    """A reconnect sends the epoch that was granted."""
    reported: list[tuple[ProducerState, int | None]] = []
    script.accept(epoch=3)
    producer = await script.client.producer(
        "orders",
        access_mode=EXCLUSIVE,
        on_state_change=lambda one, state: reported.append((state, one.topic_epoch)),
    )
    script.accept(ready=False)
    script.drop_connections()
    await script.until(lambda: reported[-1][0] is ProducerState.WAITING)
    script.connections[-1].succeed(script.creates[-1], epoch=4)
    await asyncio.wait_for(producer.send(b"x"), 5)
    assert reported == [
        *((ProducerState.REQUESTING, None), (ProducerState.OPEN, 3)),
        *((ProducerState.REQUESTING, 3), (ProducerState.WAITING, 3), (ProducerState.OPEN, 4)),
    ]


async def test_a_reconnect_sends_the_granted_epoch(script: Script) -> None:
    """So that the region can distinguish the owner from a fenced producer."""
    script.accept(epoch=9)
    producer = await script.client.producer("orders", access_mode=EXCLUSIVE)
    script.drop_connections()
    await asyncio.wait_for(producer.send(b"x"), 5)
    assert (script.creates[1].topic_epoch, script.creates[1].epoch) == (9, 1)


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT])
async def test_a_fenced_producer_fails_its_sends_as_unknown(script: Script, mode: AccessMode) -> None:
    """ProducerFenced on reconnect: pending messages may have been stored, every later send fails, and the client does
    not request the producer again."""
    script.accept(epoch=3)
    producer = await script.client.producer("orders", access_mode=mode, priority=100)
    script.reject(ServerError.ProducerFenced)
    script.drop_connections()
    for _ in range(3):
        with pytest.raises(ClientError) as caught:
            await asyncio.wait_for(producer.send(b"x"), 5)
        assert caught.value.code is ServerError.ProducerFenced
    with pytest.raises(ClientError):
        producer.send_nowait(b"y")
    assert [create.topic_epoch for create in script.creates[1:]] == [3]


@pytest.mark.parametrize("code", [ServerError.ProducerFenced, ServerError.ProducerBusy])
async def test_a_rejected_create_is_definite(script: Script, code: ServerError) -> None:
    """The client does not retry."""
    script.reject(code)
    with pytest.raises(ClientError) as caught:
        await script.client.producer("orders", access_mode=EXCLUSIVE)
    assert (caught.value.code, caught.value.definite) == (code, True)
    assert len(script.creates) == 1


async def test_a_create_that_could_work_later_is_tried_again(script: Script) -> None:
    """ServiceNotReady is retried."""

    def accept_the_second(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        script.accept()
        broker.refuse(create, ServerError.ServiceNotReady)

    script.on_create = accept_the_second
    await asyncio.wait_for(script.client.producer("orders"), 5)
    assert len(script.creates) == 2


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT])
@pytest.mark.parametrize("in_queue", [True, False], ids=["in the queue", "before the first response"])
async def test_a_create_that_is_cancelled_closes_its_producer_at_once(
    script: Script, mode: AccessMode, in_queue: bool
) -> None:
    """The close request names the producer of the create request. Otherwise the region would grant access later, and
    reserve the topic for a producer that is gone."""
    script.accept(ready=False)
    if not in_queue:
        script.on_create = lambda broker, create: None
    opening = asyncio.create_task(script.client.producer("orders", access_mode=mode))
    await script.until_creates(1)
    done, _ = await asyncio.wait([opening], timeout=0.05)
    assert not done
    opening.cancel()
    await script.until(lambda: script.closes)
    assert [close.producer_id for close in script.closes] == [script.creates[0].producer_id]
    with pytest.raises(asyncio.CancelledError):
        await opening
