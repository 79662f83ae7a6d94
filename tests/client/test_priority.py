"""PIP-440 in the client: a fixed priority, and the order of reconnects; against a scripted broker."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, ClientSettings
from emulator.client.types import PRIORITY_MAX, PRIORITY_MIN, return_delay_seconds
from emulator.wire import pulsar_pb2 as pb
from tests.client.scripted import QUICK, Script, ScriptedBroker

WAIT = AccessMode.WAIT_FOR_EXCLUSIVE


def delaying(seconds: float) -> ClientSettings:
    return ClientSettings(backoff_seconds=0.01, priority_delay_seconds=seconds)


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
async def test_a_priority_that_is_no_int32_is_rejected_before_a_request(
    script: Script, priority: int
) -> None:
    """Before the broker receives it."""
    with pytest.raises(ValueError, match="priority"):
        await script.client.producer("orders", access_mode=WAIT, priority=priority)
    assert not script.creates


@pytest.mark.parametrize("priority", [PRIORITY_MIN, PRIORITY_MAX])
async def test_the_ends_of_int32_are_sent_as_they_are(script: Script, priority: int) -> None:
    """Signed."""
    producer = await script.client.producer("orders", access_mode=WAIT, priority=priority)
    assert script.creates[0].queue_priority == priority
    assert producer.priority == priority


async def test_the_priority_of_a_producer_cannot_be_set(script: Script) -> None:
    """Read-only after creation: setting it raises, and the old one stays."""
    producer = await script.client.producer("orders", access_mode=WAIT, priority=3)
    with pytest.raises(AttributeError):
        producer.priority = 4  # type: ignore[misc]
    assert producer.priority == 3


async def returned(
    script: Script, priorities: list[int], settings: ClientSettings, mode: AccessMode = WAIT
) -> list[int]:
    """Return the order in which producers of these priorities, each with a client of its own, reconnect after a
    loss."""
    for priority in priorities:
        client = await script.another_client(settings)
        await client.producer("orders", access_mode=mode, priority=priority)
    script.drop_connections()
    await script.until_creates(2 * len(priorities))
    return [create.queue_priority for create in script.creates[len(priorities) :]]


async def test_after_a_loss_the_highest_priority_asks_first(script: Script) -> None:
    """A producer with a significantly lower priority delays its request."""
    order = await returned(script, [-100, 0, 100, 10], delaying(1.0))
    assert order == [100, 10, 0, -100]


async def test_no_producer_delays_where_priorities_do_not_count(script: Script) -> None:
    """Other modes have no queue: they reconnect long before the delay of their priority is over."""
    order = await returned(script, [-100, 100], delaying(60.0), AccessMode.EXCLUSIVE)
    assert sorted(order) == [-100, 100]


async def test_the_delay_can_be_turned_off(script: Script) -> None:
    """Setting 0."""
    assert await returned(script, [PRIORITY_MIN], delaying(0.0)) == [PRIORITY_MIN]


async def test_a_lost_place_in_the_queue_is_requested_again_by_priority(script: Script) -> None:
    """Also for producers that waited when the connection was lost."""
    script.accept(ready=False)
    opening = []
    for priority in (-100, 100):
        client = await script.another_client(delaying(1.0))
        opening.append(asyncio.create_task(client.producer("orders", access_mode=WAIT, priority=priority)))
        await script.until_creates(len(opening))
    script.drop_connections()
    await script.until_creates(4)
    assert [create.queue_priority for create in script.creates[2:]] == [100, -100]
    for task in opening:
        task.cancel()
    await asyncio.wait(opening)


async def test_a_broker_that_does_not_know_priorities_may_promote_in_another_order(script: Script) -> None:
    """That is no error: the lower one is promoted first, then the higher one, and both publish."""
    waiting: list[tuple[ScriptedBroker, pb.CommandProducer]] = []

    def queue(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        waiting.append((broker, create))
        broker.succeed(create, ready=False)

    script.on_create = queue
    opening = []
    for priority in (-5, 5):
        client = await script.another_client(QUICK)
        opening.append(asyncio.create_task(client.producer("orders", access_mode=WAIT, priority=priority)))
        await script.until_creates(len(opening))
    for epoch, (broker, create) in enumerate(waiting):
        broker.succeed(create, epoch=epoch)
    producers = await asyncio.wait_for(asyncio.gather(*opening), 5)
    assert [producer.topic_epoch for producer in producers] == [0, 1]
    for producer in producers:
        assert (await asyncio.wait_for(producer.send(b"x"), 5)).entry == 0
