"""What has no receipt in time is given up, each message at its own time. Under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import ClientError, ClientSettings
from emulator.simulation.world import world

TOPIC = "persistent://public/default/orders"
SETTINGS = ClientSettings(send_timeout_seconds=5.0)


def test_each_message_is_given_up_when_its_own_time_is_over() -> None:
    with world("us", "eu") as w:

        async def story() -> None:
            loop = asyncio.get_running_loop()
            producer = await w.client("us", place="eu", settings=SETTINGS).producer(TOPIC)
            await producer.send(b"answered, and no reason to give up what follows any sooner")
            await asyncio.sleep(3)
            w.hold("us", "eu")
            began = loop.time()
            first = producer.send_nowait(b"first")
            await asyncio.sleep(2)
            second = producer.send_nowait(b"second")
            for waiting, seconds in ((first, 5), (second, 7)):
                with pytest.raises(ClientError, match="no receipt in time") as refusal:
                    await waiting
                assert not refusal.value.definite
                assert loop.time() - began == pytest.approx(seconds)
            w.heal()
            await producer.send(b"third")

        w.play(story())


def test_what_is_answered_in_time_is_not_given_up_later() -> None:
    with world("us") as w:

        async def story() -> None:
            producer = await w.client("us", settings=SETTINGS).producer(TOPIC)
            for _ in range(20):
                await producer.send(b"in time")
                await asyncio.sleep(1)

        w.play(story())
