"""A message that is sent again because its receipt was lost. Under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import ClientError
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"


@pytest.mark.world("us", "eu")
async def test_a_refusal_of_what_was_sent_before_does_not_say_that_it_is_not_stored(world: World) -> None:
    """The receipt of a message in a transaction is lost; when it is sent again its transaction is over."""
    client = world.client("us", place="eu")
    producer = await client.producer(TOPIC)
    transaction = await client.new_transaction(timeout_seconds=2)
    await producer.send(b"first", transaction=transaction)
    broker = world.regions["us"].broker
    assert broker is not None
    topic = broker.directory.serving[TOPIC]
    before = topic.state.readable_end
    world.hold("us", "eu", one_way=True)
    sending = producer.send_nowait(b"second", transaction=transaction)
    while topic.state.readable_end == before:
        await asyncio.sleep(0.001)
    world.cut("us", "eu")
    await asyncio.sleep(5)
    world.heal()
    with pytest.raises(ClientError) as refusal:
        await sending
    assert not refusal.value.definite


async def test_a_refusal_of_what_was_sent_once_says_that_it_is_not_stored(world: World) -> None:
    client = world.client("us")
    producer = await client.producer(TOPIC)
    transaction = await client.new_transaction(timeout_seconds=2)
    await producer.send(b"first", transaction=transaction)
    await asyncio.sleep(5)
    with pytest.raises(ClientError) as refusal:
        await producer.send(b"second", transaction=transaction)
    assert refusal.value.definite
