"""Partitioned topics: created, grown, deleted, found by clients, and synchronised to clusters with another store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.client import ClientError
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.errors import ProtocolError
from emulator.model.values import TopicName
from emulator.simulation.world import CLIENT_SETTINGS, SERVICE_PORT, World
from tests.broker.regions import broker_of
from tests.swarm.faults import FailingDisk

ORDERS = "persistent://public/default/orders"
PATH = "/admin/v2/persistent/public/default/orders"
AUTO = "/admin/v2/namespaces/public/default/autoTopicCreation"


def count_in(w: World, region: str = "us") -> int:
    return broker_of(w, region).partitioned.count(TopicName.parse(ORDERS))


async def admin_request(
    w: World, method: str, target: str, body: object = None, region: str = "us"
) -> tuple[int, Any]:
    answer = await w.ask_admin(region, method, target, body)
    try:
        return answer.status, json.loads(answer.body or b"null")
    except ValueError:
        return answer.status, answer.body.decode()


@pytest.mark.parametrize("body", [4, "4", {"partitions": 4, "properties": {"owner": "billing"}}])
async def test_a_partitioned_topic_has_its_partitions_at_once(world: World, body: object) -> None:
    assert await admin_request(world, "PUT", f"{PATH}/partitions", body) == (204, None)
    status, found = await admin_request(world, "GET", f"{PATH}/partitions")
    assert (status, found["partitions"]) == (200, 4)
    assert found["properties"] == (body["properties"] if isinstance(body, dict) else {})
    _, names = await admin_request(world, "GET", "/admin/v2/persistent/public/default")
    assert names == [f"{ORDERS}-partition-{index}" for index in range(4)]
    assert await admin_request(world, "GET", "/admin/v2/persistent/public/default/partitioned") == (
        200,
        [ORDERS],
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (0, 406),
        (-1, 406),
        (10_001, 406),
        ("many", 406),
        (True, 406),
        (None, 400),
        ({"partitions": 2, "properties": 3}, 400),
    ],
)
async def test_an_invalid_number_of_partitions_is_rejected(world: World, body: object, status: int) -> None:
    assert (await admin_request(world, "PUT", f"{PATH}/partitions", body))[0] == status
    assert count_in(world) == 0


async def test_a_name_is_a_partitioned_topic_or_a_topic_of_its_own(world: World) -> None:
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    assert (await admin_request(world, "PUT", f"{PATH}/partitions", 2))[0] == 409
    assert (await admin_request(world, "PUT", PATH))[0] == 409
    assert await admin_request(world, "PUT", f"{PATH}-plain") == (204, None)
    assert (await admin_request(world, "PUT", f"{PATH}-plain"))[0] == 409
    assert (await admin_request(world, "PUT", f"{PATH}-plain/partitions", 2))[0] == 409
    assert (await admin_request(world, "PUT", f"{PATH}-partition-0/partitions", 2))[0] == 412


async def test_partitions_only_grow(world: World) -> None:
    assert (await admin_request(world, "POST", f"{PATH}/partitions", 4))[0] == 404
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    assert await admin_request(world, "POST", f"{PATH}/partitions", 4) == (204, None)
    for smaller in (4, 3, 0):
        assert (await admin_request(world, "POST", f"{PATH}/partitions", smaller))[0] == 406
    assert count_in(world) == 4
    assert broker_of(world).directory.exists(f"{ORDERS}-partition-3")


async def test_a_topic_does_not_grow_beyond_the_maximum_of_its_namespace(world: World) -> None:
    """The larger number was in force although its partitions could not be created, and could not be taken back."""
    most = "/admin/v2/namespaces/public/default/maxTopicsPerNamespace"
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    await admin_request(world, "POST", most, 3)
    status, reason = await admin_request(world, "POST", f"{PATH}/partitions", 4)
    assert (status, "maximum number of topics in namespace: 3" in reason["reason"]) == (412, True)
    assert count_in(world) == 2
    assert await admin_request(world, "POST", f"{PATH}/partitions", 3) == (204, None)
    await admin_request(world, "POST", most, 1)
    assert (await admin_request(world, "POST", f"{PATH}/partitions", 4))[0] == 412
    assert (await admin_request(world, "POST", f"{PATH}/createMissedPartitions"))[0] == 204
    await admin_request(world, "DELETE", most)
    assert await admin_request(world, "POST", f"{PATH}/partitions", 4) == (204, None)


async def test_no_topic_is_created_with_more_partitions_on_use_than_its_namespace_may_have(
    world: World,
) -> None:
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    await admin_request(world, "POST", AUTO, policy)
    await admin_request(world, "POST", "/admin/v2/namespaces/public/default/maxTopicsPerNamespace", 2)
    client = world.client("us", settings=replace(CLIENT_SETTINGS, asks_for_partitions=True))
    with pytest.raises(ClientError, match="maximum number of topics in namespace: 2"):
        await client.producer(ORDERS)
    assert (count_in(world), broker_of(world).directory.all_names()) == (0, [])


async def test_a_partitioned_topic_is_deleted_with_its_partitions(world: World) -> None:
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    producer = await world.client("us").producer(f"{ORDERS}-partition-1")
    status, reason = await admin_request(world, "DELETE", f"{PATH}/partitions")
    assert (status, "has producers or consumers" in reason["reason"]) == (412, True)
    assert count_in(world) == 2
    await producer.close()
    assert await admin_request(world, "DELETE", f"{PATH}/partitions") == (204, None)
    assert (count_in(world), broker_of(world).directory.all_names()) == (0, [])
    assert (await admin_request(world, "DELETE", f"{PATH}/partitions"))[0] == 404


async def test_a_topic_is_deleted_with_all_that_belongs_to_it(world: World) -> None:
    producer = await world.client("us").producer(ORDERS)
    await producer.send(b"gone")
    assert (await admin_request(world, "DELETE", PATH))[0] == 412
    await producer.close()
    assert await admin_request(world, "DELETE", PATH) == (204, None)
    assert (await admin_request(world, "DELETE", PATH))[0] == 404
    assert broker_of(world).directory.all_names() == []


async def test_no_client_creates_a_partition_beyond_the_number_nor_the_root(world: World) -> None:
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    for name in (ORDERS, f"{ORDERS}-partition-2"):
        with pytest.raises(Exception, match="not found"):
            await world.client("us").producer(name)


@pytest.mark.world(settings=BrokerSettings(allow_auto_topic_creation=False))
async def test_partitions_exist_where_topics_are_not_created_on_use(world: World) -> None:
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    await (await world.client("us").producer(f"{ORDERS}-partition-0")).send(b"hello")
    with pytest.raises(Exception, match="not found"):
        await world.client("us").producer("persistent://public/default/another")
    assert await admin_request(world, "PUT", "/admin/v2/persistent/public/default/another") == (204, None)
    await (await world.client("us").producer("persistent://public/default/another")).send(b"hello")


@pytest.mark.parametrize(
    ("value", "expected", "rule"),
    [
        ({}, 400, "does not say allowAutoTopicCreation"),
        (
            {"allowAutoTopicCreation": True, "topicType": "round"},
            412,
            "neither partitioned nor non-partitioned",
        ),
        (
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
            412,
            "cannot be less than 1",
        ),
    ],
)
async def test_an_invalid_auto_creation_policy_is_rejected(
    world: World, value: object, expected: int, rule: str
) -> None:
    status, reason = await admin_request(world, "POST", AUTO, value)
    assert status == expected
    assert rule in reason["reason"]


async def test_a_namespace_may_forbid_what_the_region_allows(world: World) -> None:
    policy = {"allowAutoTopicCreation": False, "topicType": "non-partitioned", "defaultNumPartitions": None}
    assert await admin_request(world, "POST", AUTO, policy) == (204, None)
    assert await admin_request(world, "GET", AUTO) == (200, policy)
    with pytest.raises(Exception, match="not found"):
        await world.client("us").producer(ORDERS)
    assert await admin_request(world, "DELETE", AUTO) == (204, None)
    await world.client("us").producer(ORDERS)


async def test_partitioned_stats_are_those_of_all_partitions(world: World) -> None:
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    for index in range(2):
        client = world.client("us")
        await client.subscribe(f"{ORDERS}-partition-{index}", "s")
        await (await client.producer(f"{ORDERS}-partition-{index}")).send(b"hello")
    _, found = await admin_request(world, "GET", f"{PATH}/partitioned-stats")
    assert found["metadata"]["partitions"] == 2
    assert found["subscriptions"]["s"]["msgBacklog"] == 2
    assert len(found["publishers"]) == 2
    assert set(found["partitions"]) == {f"{ORDERS}-partition-{index}" for index in range(2)}


@pytest.mark.world("us", "eu")
async def test_the_regions_of_a_cluster_know_at_once(world: World) -> None:
    await admin_request(world, "PUT", f"{PATH}/partitions", 3)
    await world.simulation.until(lambda: count_in(world, "eu") == 3)
    await world.simulation.until(
        lambda: all(
            broker_of(world, "eu").directory.exists(f"{ORDERS}-partition-{index}") for index in range(3)
        )
    )


def clusters() -> Topology:
    """Two regions, each in a cluster of its own."""
    names = ("us", "eu")
    return Topology(
        name="world",
        path=Path("topology.yaml"),
        clusters=tuple(
            ClusterSpec(f"c-{name}", (RegionSpec(name, f"c-{name}", host=name, service_port=SERVICE_PORT),))
            for name in names
        ),
        links=tuple(
            LinkSpec(one, two, LinkShape(latency_ms=20.0)) for one in names for two in names if one != two
        ),
        namespaces=(NamespaceConfig("public/default", names, deduplication=True),),
    )


@pytest.mark.world(topology=clusters())
async def test_clusters_without_a_common_store_learn_and_grow_through_their_links(world: World) -> None:
    await world.ready()
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    await world.simulation.until(lambda: count_in(world, "eu") == 2)
    await admin_request(world, "POST", f"{PATH}/partitions", 5, region="eu")
    await world.simulation.until(lambda: count_in(world, "us") == 5)
    await (await world.client("us").producer(f"{ORDERS}-partition-4")).send(b"hello")
    await world.quiet()
    assert len(world.regions["eu"].medium.entries(f"{ORDERS}-partition-4")) == 1


@pytest.mark.parametrize("grown_in", ["us", "eu"])
@pytest.mark.world(topology=clusters())
async def test_a_new_partition_begins_with_the_subscriptions_of_the_others_in_every_region(
    world: World, grown_in: str
) -> None:
    """N4: a consumer of the topic polls once a minute for new partitions, and must not have lost messages by then."""
    await world.ready()
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    await world.simulation.until(lambda: count_in(world, "eu") == 2)
    for region in ("us", "eu"):
        consumer = await world.client(region).subscribe(
            f"{ORDERS}-partition-0", f"of-{region}", replicated=True
        )
        await consumer.client.close()
    await (await world.client("us").reader(f"{ORDERS}-partition-0")).close()
    await admin_request(world, "POST", f"{PATH}/partitions", 3, region=grown_in)
    await world.simulation.until(lambda: count_in(world, "us") == count_in(world, "eu") == 3)
    await (await world.client(grown_in).producer(f"{ORDERS}-partition-2")).send(b"early")
    await world.quiet()
    for region in ("us", "eu"):
        late = await world.client(region).subscribe(f"{ORDERS}-partition-2", f"of-{region}")
        async with asyncio.timeout(10):
            assert (await late.receive()).payload == b"early"
        new = broker_of(world, region).directory.serving[f"{ORDERS}-partition-2"]
        assert new.subscriptions[f"of-{region}"].cursor.replicated
        assert all(name.startswith("of-") for name in new.subscriptions), "readers are not copied"


@pytest.mark.world("us", "eu")
async def test_a_new_partition_begins_with_the_subscriptions_of_the_others_in_all_regions_of_a_cluster(
    world: World,
) -> None:
    """N4: the regions that did not get the request read the new number from their store; no other region sends it."""
    await admin_request(world, "PUT", f"{PATH}/partitions", 1)
    consumer = await world.client("eu").subscribe(f"{ORDERS}-partition-0", "billing")
    await consumer.client.close()
    await admin_request(world, "POST", f"{PATH}/partitions", 2)
    await (await world.client("us").producer(f"{ORDERS}-partition-1")).send(b"early")
    await world.quiet()
    late = await world.client("eu").subscribe(f"{ORDERS}-partition-1", "billing")
    async with asyncio.timeout(10):
        assert (await late.receive()).payload == b"early"


async def test_a_partition_that_could_not_be_opened_at_once_begins_with_the_subscriptions_of_the_others(
    world: World,
) -> None:
    """N4: the growth was interrupted by a crash or a failing disk, and the new number counts all the same."""
    await admin_request(world, "PUT", f"{PATH}/partitions", 1)
    consumer = await world.client("us").subscribe(f"{ORDERS}-partition-0", "billing")
    await consumer.client.close()
    FailingDisk(0.0, 0.0, "us", 1.0).begin(world)
    await admin_request(world, "POST", f"{PATH}/partitions", 2)
    assert count_in(world) == 2
    world.kill("us")
    world.regions["us"].medium.repair()
    world.start("us")
    await world.ready()
    await (await world.client("us").producer(f"{ORDERS}-partition-1")).send(b"early")
    late = await world.client("us").subscribe(f"{ORDERS}-partition-1", "billing")
    async with asyncio.timeout(10):
        assert (await late.receive()).payload == b"early"


@pytest.mark.world(topology=clusters())
async def test_creating_partitions_fails_when_one_cannot_be_opened_and_may_be_repeated(world: World) -> None:
    """Other clusters learn of a topic from its partitions: a success must mean that they will."""
    await world.ready()
    FailingDisk(0.0, 0.0, "us", 1.0).begin(world)
    status, _ = await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    assert (status, count_in(world)) == (503, 2)
    assert (await admin_request(world, "POST", f"{PATH}/createMissedPartitions"))[0] == 503
    world.regions["us"].medium.repair()
    assert (await admin_request(world, "POST", f"{PATH}/createMissedPartitions"))[0] == 204
    await world.simulation.until(lambda: count_in(world, "eu") == 2)


async def test_a_topic_named_like_a_partition_inherits_no_subscription(world: World) -> None:
    """N3, N4: its topic has no partitions."""
    await (await world.client("us").subscribe(f"{ORDERS}-partition-0", "billing")).client.close()
    await (await world.client("us").producer(f"{ORDERS}-partition-1")).send(b"hello")
    assert not broker_of(world).directory.serving[f"{ORDERS}-partition-1"].subscriptions


@pytest.mark.world(topology=clusters())
async def test_a_topic_partitioned_during_a_cut_is_learned_afterwards(world: World) -> None:
    await world.ready()
    world.cut("us", "eu")
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    await (await world.client("us").producer(f"{ORDERS}-partition-1")).send(b"hello")
    await asyncio.sleep(5)
    assert count_in(world, "eu") == 0
    world.heal()
    await world.simulation.until(lambda: count_in(world, "eu") == 2)
    await world.quiet()


@pytest.mark.world(topology=clusters())
async def test_a_conflicting_topic_of_another_cluster_is_reported_and_not_changed(world: World) -> None:
    await world.ready()
    world.cut("us", "eu")
    await (await world.client("eu").producer(ORDERS)).send(b"mine")
    await admin_request(world, "PUT", f"{PATH}/partitions", 2)
    world.heal()
    await world.simulation.until(
        lambda: (
            "is a topic of its own here"
            in broker_of(world).directory.serving[f"{ORDERS}-partition-0"].replicators["eu"].lifecycle.why_not
        )
    )
    assert count_in(world, "eu") == 0
    assert not broker_of(world, "eu").directory.exists(f"{ORDERS}-partition-0")


async def test_an_invalid_number_of_partitions_of_a_peer_is_rejected(world: World) -> None:
    class Liar:
        def request_partitions(self, topic: str) -> asyncio.Future[int]:
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            answer.set_result(4_000_000_000)
            return answer

    broker = broker_of(world)
    lied_to = PartitionedTopics(
        broker.metadata, broker.policies, {"eu": Liar()}, broker.directory, creates_by_default=True
    )
    with pytest.raises(ProtocolError, match="there may be 1 to 10000"):
        await lied_to.learn("eu", TopicName.parse(f"{ORDERS}-partition-0"))
    assert count_in(world) == 0
