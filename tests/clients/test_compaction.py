"""A compacted topic, read by common clients: by a reader and by a table view."""

from __future__ import annotations

import pytest

from emulator.broker.compaction.compaction import CompactionStatus
from tests.broker.regions import until
from tests.clients.harness import ORDERS, Scene, clients

pytestmark = [pytest.mark.real, clients("rust")]
SENT = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", "")]


async def test_readers_and_table_views_see_the_newest_value_of_each_key(scene: Scene) -> None:
    program = scene.program
    await program.producer()
    for key, payload in SENT:
        await program.send(payload, message_key=key)
    compaction = scene.region.directory.serving[ORDERS].compaction
    compaction.begin()
    await until(lambda: compaction.status is CompactionStatus.SUCCESS)
    await program.send("5", message_key="d")
    # The Java client takes a short name for a non-persistent topic: its table view would start empty.
    wanted = {"client": "us", "topic": ORDERS, "timeout_ms": 10_000}
    assert (await program.ask("read_compacted", **wanted))["messages"] == "a:3,c:4,d:5"
    assert (await program.ask("table", **wanted))["entries"] == "a:3,c:4,d:5"
