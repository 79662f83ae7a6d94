"""Concurrent requests that create tenants, namespaces and topics do not exceed their limits together."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from emulator.client import ClientError
from emulator.config.broker_settings import BrokerSettings
from emulator.simulation.world import CLIENT_SETTINGS, World
from tests.broker.regions import broker_of
from tests.broker.topologies import clusters

TWO_REGIONS = pytest.mark.world(
    topology=clusters(
        ("us", "eu"),
        settings=BrokerSettings(tenants_max=4, namespaces_per_tenant_max=3, topics_per_tenant_max=5),
    )
)
"""Regions of one cluster, which share their configuration store. There are the tenant public and public/default."""
REQUESTS = 12
TOPICS = "/admin/v2/persistent/public/default"
TOPICS_MAX = "/admin/v2/namespaces/public/default/maxTopicsPerNamespace"


async def statuses(world: World, *requests: tuple[str, str, object]) -> Counter[int]:
    """Send requests to both regions in turn, all at the same time, and return how often each status was returned."""

    async def status(number: int, method: str, target: str, body: object) -> int:
        region = list(world.regions)[number % len(world.regions)]
        return (await world.ask_admin(region, method, target, body, seconds=20)).status

    return Counter(
        await asyncio.gather(*(status(number, *request) for number, request in enumerate(requests)))
    )


@TWO_REGIONS
@pytest.mark.parametrize("seed", range(3))
async def test_tenants_and_namespaces_of_all_regions_of_a_cluster_count(world: World, seed: int) -> None:
    await world.ready()
    body = {"allowedClusters": ["us", "eu"]}
    tenants = [("PUT", f"/admin/v2/tenants/t{number}", body) for number in range(REQUESTS)]
    found = await statuses(world, *tenants)
    assert found == {204: 3, 412: REQUESTS - 3}
    # A region receives later what another one created.
    await world.simulation.until(lambda: len(broker_of(world, "us").policies.tenants()) == 4)
    names = json.loads((await world.ask_admin("us", "GET", "/admin/v2/tenants")).body)
    namespaces = [("PUT", f"/admin/v2/namespaces/public/n{number}", None) for number in range(REQUESTS)]
    assert await statuses(world, *namespaces) == {204: 2, 412: REQUESTS - 2}
    await world.simulation.until(lambda: len(broker_of(world, "eu").policies.namespaces()) == 3)
    assert len(json.loads((await world.ask_admin("eu", "GET", "/admin/v2/namespaces/public")).body)) == 3
    existing = next(name for name in names if name.startswith("t"))
    assert await statuses(world, ("PUT", f"/admin/v2/tenants/{existing}", body)) == {409: 1}
    assert await statuses(world, ("DELETE", f"/admin/v2/tenants/{existing}", None)) == {204: 1}
    await world.simulation.until(lambda: existing not in broker_of(world, "eu").policies.tenants())
    assert await statuses(world, *tenants) == {409: 2, 204: 1, 412: REQUESTS - 3}


@pytest.mark.parametrize("body", [None, 2])
async def test_topics_count_while_they_are_created(world: World, body: object) -> None:
    """Two partitioned topics were created, of which one had no room for its partitions."""
    await world.ask_admin("us", "POST", TOPICS_MAX, 5)
    suffix = "" if body is None else "/partitions"
    found = await statuses(
        world, *(("PUT", f"{TOPICS}/t{number}{suffix}", body) for number in range(REQUESTS))
    )
    refused = 405 if body is None else 412
    assert found == ({204: 5, refused: 7} if body is None else {204: 2, refused: 10})
    region = broker_of(world)
    assert len(region.directory.all_names()) == (5 if body is None else 4)
    assert len(region.partitioned.names("public/default")) == (0 if body is None else 2)


async def test_growing_topics_count(world: World) -> None:
    await world.ask_admin("us", "POST", TOPICS_MAX, 6)
    for name in ("a", "b"):
        await world.ask_admin("us", "PUT", f"{TOPICS}/{name}/partitions", 2)
    found = await statuses(world, *(("POST", f"{TOPICS}/{name}/partitions", 4) for name in ("a", "b")))
    assert found == {204: 1, 412: 1}
    assert len(broker_of(world).directory.all_names()) == 6
    assert broker_of(world).directory.counts.reserved == {}


async def test_topics_with_partitions_that_are_created_on_use_count(world: World) -> None:
    await world.ask_admin("us", "POST", TOPICS_MAX, 5)
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    await world.ask_admin("us", "POST", "/admin/v2/namespaces/public/default/autoTopicCreation", policy)
    client = world.client("us", settings=replace(CLIENT_SETTINGS, asks_for_partitions=True))
    outcomes = await asyncio.gather(*(client.producer(f"t{n}") for n in range(6)), return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, BaseException)]
    assert len(refused) == 4
    assert all(isinstance(one, ClientError) and "maximum number of topics" in str(one) for one in refused)
    assert len(broker_of(world).directory.all_names()) == 4


async def test_the_limit_applies_where_topics_are_not_created_on_use(world: World) -> None:
    await world.ask_admin("us", "POST", TOPICS_MAX, 1)
    policy = {"allowAutoTopicCreation": False}
    await world.ask_admin("us", "POST", "/admin/v2/namespaces/public/default/autoTopicCreation", policy)
    assert await statuses(world, *(("PUT", f"{TOPICS}/t{n}", None) for n in range(3))) == {204: 1, 405: 2}
    assert (await world.ask_admin("us", "GET", f"{TOPICS}/missing/stats")).status == 404


async def test_a_deleted_topic_makes_room(world: World) -> None:
    await world.ask_admin("us", "POST", TOPICS_MAX, 3)
    await world.client("us").producer("non-persistent://public/default/loaded")
    assert await statuses(world, *(("PUT", f"{TOPICS}/t{n}", None) for n in range(3))) == {204: 2, 405: 1}
    (name, _) = broker_of(world).directory.all_names()
    assert (await world.ask_admin("us", "DELETE", f"{TOPICS}/{name.rpartition('/')[2]}")).status == 204
    assert (await world.ask_admin("us", "PUT", f"{TOPICS}/t4")).status == 204
    assert (await world.ask_admin("us", "PUT", f"{TOPICS}/t5")).status == 405


async def test_names_are_not_listed_for_each_new_topic(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.ask_admin("us", "POST", TOPICS_MAX, 30)
    directory = broker_of(world).directory
    lists: list[None] = []
    monkeypatch.setattr(directory.counts, "_existing", lambda: lists.append(None) or directory.all_names())
    client = world.client("us")
    for number in range(30):
        await client.producer(f"t{number}")
    with pytest.raises(ClientError, match="maximum number of topics"):
        await client.producer("one-more")
    assert len(lists) == 1
