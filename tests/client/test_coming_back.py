"""A consumer that was attached, and that its region takes for another one when it reconnects."""

from __future__ import annotations

import asyncio

from emulator.config.region import BrokerSettings
from emulator.simulation.world import world

TOPIC = "persistent://public/default/orders"


def test_it_asks_again_for_as_long_as_somebody_is_in_its_place() -> None:
    """Another consumer, or its own former connection: a region notices late that a connection is gone. Other clients
    also retry."""
    with world("us", "eu", settings=BrokerSettings(keep_alive_interval_ms=1_000)) as w:

        async def scenario() -> bytes:
            consumer = await w.client("us", place="eu").subscribe(TOPIC, "billing")
            w.cut("us", "eu")
            await asyncio.sleep(10)  # both have found out
            other = await w.client("us").subscribe(TOPIC, "billing")
            w.heal()
            await asyncio.sleep(10)
            await other.close()
            await (await w.client("us").producer(TOPIC)).send(b"after all")
            return (await consumer.receive()).payload

        assert w.play(scenario()) == b"after all"
