"""What a region reports of its replication for status and dashboard, without loading any topic."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.broker.admin.request import AdminContext, AdminRequest
from emulator.broker.admin.resources import replication
from emulator.broker.admin.resources.emulator import topics
from emulator.broker.admin.resources.replication import replication_lag
from emulator.net.http_server import HttpError
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"
OTHER = "persistent://public/default/refunds"


def request(world: Regions, **query: str) -> AdminRequest:
    return AdminRequest(AdminContext(world.running["us"], {}), {}, query, None, "")


async def lag(world: Regions) -> Any:
    return await replication_lag(request(world))


async def test_messages_that_a_region_lacks_are_counted_with_the_age_of_the_oldest() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        producer, other = await us.producer(TOPIC), await us.producer(OTHER)
        await producer.send(b"x")
        await until(lambda: not any(one.backlog for one in replicators(world)))
        assert await lag(world) == []
        await world.crash("eu")
        for _ in range(3):
            await producer.send(b"x")
        await other.send(b"x")
        (row,) = await lag(world)
        assert {name: row[name] for name in ("from", "to", "topics", "messages")} == {
            **{"from": "us", "to": "eu", "topics": 2, "messages": 4}
        }
        assert row["topic"] == TOPIC
        assert row["age_ms"] >= 0
        await world.start("eu")
        await until(lambda: not any(one.backlog for one in replicators(world)))
        assert await lag(world) == []


def replicators(world: Regions) -> list[Any]:
    serving = world.running["us"].directory.serving.values()
    return [one for topic in serving for one in topic.replicators.values()]


async def test_only_the_largest_backlogs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "MEASURED_TOPICS_MAX", 1)
    async with regions("us", "eu") as world, world.client("us") as us:
        await world.crash("eu")
        producer, other = await us.producer(TOPIC), await us.producer(OTHER)
        await producer.send(b"x")
        for _ in range(3):
            await other.send(b"x")
        (row,) = await lag(world)
        assert (row["topics"], row["messages"], row["topic"]) == (2, 4, OTHER)


async def test_the_row_of_a_topic_is_returned_only_if_it_is_loaded() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        producer = await us.producer(TOPIC)
        await producer.send(b"x")
        (row,) = await topics(request(world, topic="orders"))
        assert (row["topic"], row["entries"]) == (TOPIC, 1)
        assert row["access"] == {"owner": None, "epoch": None, "waiting": [], "waiting_count": 0}
        assert await topics(request(world, topic="refunds")) == []
        assert OTHER not in world.running["us"].directory.serving
        with pytest.raises(HttpError, match="must be"):
            await topics(request(world, topic="a://b"))
