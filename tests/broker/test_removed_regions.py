"""A region that will not return is taken out of all policies; its links are refused until its removal is revoked."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.broker.explain.topics import explain
from emulator.core.policies.topics import REPLICATION_CLUSTERS
from emulator.model.stored_keys import NamespacePath, RemovedRegionPath
from emulator.model.values import TopicName
from tests.broker.regions import Regions, regions, until
from tests.broker.replication.test_replication import TOPIC
from tests.broker.subscription.test_partial_snapshots import replicated
from tests.broker.subscription.test_replicated_status import ask
from tests.broker.subscription.test_replicated_subscriptions import FROM_THE_START, backlog, consume

AP = "/geoemu/v1/removed-regions/ap"


async def state(world: Regions, region: str) -> dict[str, Any]:
    response = await ask(world, region, "GET", AP)
    assert response.status == 200
    return dict(response.json())


def replicated_between(world: Regions, region: str) -> set[str]:
    policies = world.running[region].policies
    return set(policies.of_topic(TopicName.parse(TOPIC))[REPLICATION_CLUSTERS])


async def test_positions_are_replicated_again_after_the_removal_of_a_dead_region() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"x")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)
        await world.crash("ap")
        await producer.send(b"y")
        await consume(consumer, 1)
        await until(lambda: bool(replicated(world, "us").snapshots.controller.absence.since_ms))
        assert backlog(world, "eu") == 1
        response = await ask(world, "us", "PUT", AP)
        assert response.status == 200, response.body
        await until(lambda: backlog(world, "eu") == 0, 2)
        assert replicated_between(world, "us") == replicated_between(world, "eu") == {"us", "eu"}


async def test_a_removed_region_is_refused_when_it_returns_until_its_removal_is_revoked() -> None:
    """Both sides state why, and a restart of the refusing region changes nothing."""
    async with regions("us", "eu", "ap", clusters={"ap": "asia"}) as world:
        await world.crash("ap")
        await until(lambda: not world.running["us"].peers["ap"].connected)
        assert (await ask(world, "us", "PUT", AP)).status == 200
        await world.crash("us")
        await world.start("us")
        await world.start("ap")
        here, there = world.running["us"].peers["ap"], world.running["ap"].peers["us"]
        await until(lambda: "ap was removed at" in there.why_not)
        assert there.why_not.startswith("us refuses the link: region ap was removed at")
        assert here.why_not.startswith("ap was removed at"), here.why_not
        assert not here.connected
        assert "ap" not in str(world.running["us"].waiting_for(set(world.names)))
        assert explain(world.running["us"], "link", "us ap").causes == ("link-removed",)
        assert (await ask(world, "us", "DELETE", AP)).status in (200, 204)
        await until(lambda: here.connected and there.connected)
        assert (await state(world, "eu"))["removed"] is None


async def test_a_removed_region_that_returns_waits_for_no_link() -> None:
    """It knows its removal from the store of its cluster. Otherwise `geoemu start` would wait until its time limit."""
    async with regions("us", "eu", "ap") as world:
        await world.crash("ap")
        await until(lambda: not world.running["us"].peers["ap"].connected)
        assert (await ask(world, "us", "PUT", AP)).status == 200
        await world.start("ap")
        returned = world.running["ap"]
        await until(lambda: all("ap was removed at" in returned.peers[name].why_not for name in ("us", "eu")))
        assert returned.waiting_for({"us", "eu"}) == []
        assert (await ask(world, "us", "DELETE", AP)).status in (200, 204)
        await until(lambda: all(returned.peers[name].connected for name in ("us", "eu")))


async def test_a_connected_region_is_not_removed() -> None:
    async with regions("us", "eu", "ap") as world:
        response = await ask(world, "us", "PUT", AP)
        assert response.status == 409
        assert b"a region that works is not removed" in response.body
        assert world.running["us"].metadata.get(RemovedRegionPath("ap").text) is None


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        ("us", 412, b"us cannot be removed by itself"),
        ("nowhere", 404, b"nowhere is not a region; other regions are ap, eu"),
        ("%00", 404, b"is not a region"),
    ],
)
async def test_only_other_regions_are_removed(name: str, status: int, sentence: bytes) -> None:
    async with regions("us", "eu", "ap") as world:
        for method in ("GET", "PUT", "DELETE"):
            response = await ask(world, "us", method, f"/geoemu/v1/removed-regions/{name}")
            assert response.status == status
            assert sentence in response.body


async def test_each_region_states_what_it_received_of_the_lost_one() -> None:
    async with regions("us", "eu", "ap") as world, world.client("ap") as ap:
        producer = await ap.producer(TOPIC)
        for _ in range(3):
            await producer.send(b"both")
        await until(lambda: all(_received(world, one) == 2 for one in ("us", "eu")))
        world.cut("us", "ap")
        await producer.send(b"only eu")
        await until(lambda: _received(world, "eu") == 3)
        await ap.close()
        await world.crash("ap")
        ledger = world.running["eu"].directory.serving[TOPIC].state.watermarks.highest("ap").ledger
        here, there = await state(world, "us"), await state(world, "eu")
        assert here["topics"] == [{"topic": TOPIC, "received": f"{ledger}:2"}]
        assert there["topics"] == [{"topic": TOPIC, "received": f"{ledger}:3"}]
        assert here["policies"] == [NamespacePath("public/default").text]


def _received(world: Regions, region: str) -> int:
    topic = world.running[region].directory.serving.get(TOPIC)
    return -1 if topic is None else topic.state.watermarks.highest("ap").entry


async def test_a_removed_region_may_not_be_named_by_a_policy() -> None:
    async with regions("us", "eu", "ap") as world:
        await world.crash("ap")
        await until(lambda: not world.running["us"].peers["ap"].connected)
        assert (await ask(world, "us", "PUT", AP)).status == 200
        target = "/admin/v2/namespaces/public/default/replication"
        response = await ask(world, "us", "POST", target, ["us", "eu", "ap"])
        assert response.status == 412
        assert b"ap was removed at" in response.body


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b"{}", b'{"at_ms": 1e999, "by": "us"}', b'{"at_ms": -1, "by": 2}']
)
async def test_a_damaged_record_of_a_removal_still_refuses_the_region(value: bytes) -> None:
    async with regions("us", "ap", clusters={"ap": "asia"}) as world:
        us = world.running["us"]
        await us.metadata.put(RemovedRegionPath("ap").text, value)
        await until(lambda: explain(us, "link", "us ap").causes == ("link-removed",))
        await world.crash("us")
        await world.start("us")
        assert "ap" in world.running["us"].removed_regions
