"""A compacted topic, read by common clients: by a reader and by a table view."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.compaction.compaction import CompactionStatus
from tests.broker.regions import FAST, until
from tests.clients.telling import QUICK, case, driver, regions

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("client", [*QUICK, *(case(one) for one in ("java", "go"))]),
]
TOPIC = "persistent://public/default/orders"
OUTCOME_SECONDS = 120
SENT = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", "")]


async def test_readers_and_table_views_see_the_newest_value_of_each_key(client: str) -> None:
    async with (
        regions("us", settings=FAST) as world,
        driver(client) as program,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        url = f"pulsar://127.0.0.1:{world.ports['us']}"
        await program.ask("client", key="client", url=url, timeout_ms=30_000)
        await program.ask("producer", client="client", key="p", topic="orders")
        for key, payload in SENT:
            await program.ask("send", key="p", message_key=key, payload=payload)
        compaction = world.running["us"].directory.serving[TOPIC].compaction
        compaction.begin()
        await until(lambda: compaction.status is CompactionStatus.SUCCESS)
        await program.ask("send", key="p", message_key="d", payload="5")
        # The Java client takes a short name for a non-persistent topic: its table view would start empty.
        wanted = {"client": "client", "topic": TOPIC, "timeout_ms": 10_000}
        assert (await program.ask("read_compacted", **wanted))["messages"] == "a:3,c:4,d:5"
        assert (await program.ask("table", **wanted))["entries"] == "a:3,c:4,d:5"
