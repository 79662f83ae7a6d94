"""Messages without a receipt in time fail, each at its own deadline. Under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import ClientError, ClientSettings
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"
SETTINGS = ClientSettings(send_timeout_seconds=5.0)


@pytest.mark.world("us", "eu")
async def test_each_message_is_given_up_when_its_own_time_is_over(world: World) -> None:
    loop = asyncio.get_running_loop()
    producer = await world.client("us", place="eu", settings=SETTINGS).producer(TOPIC)
    await producer.send(b"answered, and no reason to give up what follows any sooner")
    await asyncio.sleep(3)
    world.hold("us", "eu")
    began = loop.time()
    first = producer.send_nowait(b"first")
    await asyncio.sleep(2)
    second = producer.send_nowait(b"second")
    for waiting, seconds in ((first, 5), (second, 7)):
        with pytest.raises(ClientError, match="no receipt in time") as refusal:
            await waiting
        assert not refusal.value.definite
        assert loop.time() - began == pytest.approx(seconds)
    world.heal()
    await producer.send(b"third")


async def test_what_is_answered_in_time_is_not_given_up_later(world: World) -> None:
    producer = await world.client("us", settings=SETTINGS).producer(TOPIC)
    for _ in range(20):
        await producer.send(b"in time")
        await asyncio.sleep(1)
