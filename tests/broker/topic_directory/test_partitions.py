"""Partitioned topics: created, grown, deleted, found by clients, and carried to clusters that share no store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.broker.region import Region
from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.config.region import BrokerSettings, LinkShape, NamespaceConfig
from emulator.config.topology import Cluster, Link, Topology
from emulator.config.topology import Region as DeclaredRegion
from emulator.errors import ProtocolError
from emulator.model.values import TopicName
from emulator.simulation.faults import FailingDisk
from emulator.simulation.world import SERVICE_PORT, World, world

ORDERS = "persistent://public/default/orders"
PATH = "/admin/v2/persistent/public/default/orders"
AUTO = "/admin/v2/namespaces/public/default/autoTopicCreation"


def broker_of(w: World, region: str = "us") -> Region:
    broker = w.regions[region].broker
    assert broker is not None
    return broker


def count_in(w: World, region: str = "us") -> int:
    return broker_of(w, region).partitioned.count(TopicName.parse(ORDERS))


async def asked(
    w: World, method: str, target: str, body: object = None, region: str = "us"
) -> tuple[int, Any]:
    answer = await w.ask_admin(region, method, target, body)
    try:
        return answer.status, json.loads(answer.body or b"null")
    except ValueError:
        return answer.status, answer.body.decode()


def play(
    story: Callable[[World], Awaitable[None]], *names: str, settings: BrokerSettings | None = None
) -> None:
    with world(*(names or ("us",)), settings=settings) as w:

        async def whole() -> None:
            await w.ready()
            await story(w)

        w.play(whole())


@pytest.mark.parametrize("body", [4, "4", {"partitions": 4, "properties": {"owner": "billing"}}])
def test_a_partitioned_topic_has_its_partitions_at_once(body: object) -> None:
    async def story(w: World) -> None:
        assert await asked(w, "PUT", f"{PATH}/partitions", body) == (204, None)
        status, found = await asked(w, "GET", f"{PATH}/partitions")
        assert (status, found["partitions"]) == (200, 4)
        assert found["properties"] == (body["properties"] if isinstance(body, dict) else {})
        _, names = await asked(w, "GET", "/admin/v2/persistent/public/default")
        assert names == [f"{ORDERS}-partition-{index}" for index in range(4)]
        assert await asked(w, "GET", "/admin/v2/persistent/public/default/partitioned") == (200, [ORDERS])

    play(story)


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
def test_a_number_that_cannot_be_meant_is_refused(body: object, status: int) -> None:
    async def story(w: World) -> None:
        assert (await asked(w, "PUT", f"{PATH}/partitions", body))[0] == status
        assert count_in(w) == 0

    play(story)


def test_a_name_is_a_partitioned_topic_or_a_topic_of_its_own() -> None:
    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 2)
        assert (await asked(w, "PUT", f"{PATH}/partitions", 2))[0] == 409
        assert (await asked(w, "PUT", PATH))[0] == 409
        assert await asked(w, "PUT", f"{PATH}-plain") == (204, None)
        assert (await asked(w, "PUT", f"{PATH}-plain"))[0] == 409
        assert (await asked(w, "PUT", f"{PATH}-plain/partitions", 2))[0] == 409
        assert (await asked(w, "PUT", f"{PATH}-partition-0/partitions", 2))[0] == 412

    play(story)


def test_partitions_only_grow() -> None:
    async def story(w: World) -> None:
        assert (await asked(w, "POST", f"{PATH}/partitions", 4))[0] == 404
        await asked(w, "PUT", f"{PATH}/partitions", 2)
        assert await asked(w, "POST", f"{PATH}/partitions", 4) == (204, None)
        for smaller in (4, 3, 0):
            assert (await asked(w, "POST", f"{PATH}/partitions", smaller))[0] == 406
        assert count_in(w) == 4
        assert broker_of(w).directory.exists(f"{ORDERS}-partition-3")

    play(story)


def test_a_partitioned_topic_goes_with_its_partitions() -> None:
    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 2)
        producer = await w.client("us").producer(f"{ORDERS}-partition-1")
        status, reason = await asked(w, "DELETE", f"{PATH}/partitions")
        assert (status, "has producers or consumers" in reason["reason"]) == (412, True)
        assert count_in(w) == 2
        await producer.close()
        assert await asked(w, "DELETE", f"{PATH}/partitions") == (204, None)
        assert (count_in(w), broker_of(w).directory.all_names()) == (0, [])
        assert (await asked(w, "DELETE", f"{PATH}/partitions"))[0] == 404

    play(story)


def test_a_topic_is_deleted_with_all_that_belongs_to_it() -> None:
    async def story(w: World) -> None:
        producer = await w.client("us").producer(ORDERS)
        await producer.send(b"gone")
        assert (await asked(w, "DELETE", PATH))[0] == 412
        await producer.close()
        assert await asked(w, "DELETE", PATH) == (204, None)
        assert (await asked(w, "DELETE", PATH))[0] == 404
        assert broker_of(w).directory.all_names() == []

    play(story)


def test_no_client_creates_a_partition_beyond_the_number_nor_the_root() -> None:
    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 2)
        for name in (ORDERS, f"{ORDERS}-partition-2"):
            with pytest.raises(Exception, match="not found"):
                await w.client("us").producer(name)

    play(story)


def test_where_topics_are_not_created_by_themselves_partitions_are_there_all_the_same() -> None:
    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 2)
        await (await w.client("us").producer(f"{ORDERS}-partition-0")).send(b"hello")
        with pytest.raises(Exception, match="not found"):
            await w.client("us").producer("persistent://public/default/another")
        assert await asked(w, "PUT", "/admin/v2/persistent/public/default/another") == (204, None)
        await (await w.client("us").producer("persistent://public/default/another")).send(b"hello")

    play(story, settings=BrokerSettings(allow_auto_topic_creation=False))


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
def test_a_policy_of_auto_creation_that_is_none_is_refused(value: object, expected: int, rule: str) -> None:
    async def story(w: World) -> None:
        status, reason = await asked(w, "POST", AUTO, value)
        assert status == expected
        assert rule in reason["reason"]

    play(story)


def test_a_namespace_may_forbid_what_the_region_allows() -> None:
    async def story(w: World) -> None:
        policy = {
            "allowAutoTopicCreation": False,
            "topicType": "non-partitioned",
            "defaultNumPartitions": None,
        }
        assert await asked(w, "POST", AUTO, policy) == (204, None)
        assert await asked(w, "GET", AUTO) == (200, policy)
        with pytest.raises(Exception, match="not found"):
            await w.client("us").producer(ORDERS)
        assert await asked(w, "DELETE", AUTO) == (204, None)
        await w.client("us").producer(ORDERS)

    play(story)


def test_partitioned_stats_are_those_of_all_partitions() -> None:
    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 2)
        for index in range(2):
            client = w.client("us")
            await client.subscribe(f"{ORDERS}-partition-{index}", "s")
            await (await client.producer(f"{ORDERS}-partition-{index}")).send(b"hello")
        _, found = await asked(w, "GET", f"{PATH}/partitioned-stats")
        assert found["metadata"]["partitions"] == 2
        assert found["subscriptions"]["s"]["msgBacklog"] == 2
        assert len(found["publishers"]) == 2
        assert set(found["partitions"]) == {f"{ORDERS}-partition-{index}" for index in range(2)}

    play(story)


def test_the_regions_of_a_cluster_know_at_once() -> None:
    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 3)
        await w.simulation.until(lambda: count_in(w, "eu") == 3)
        await w.simulation.until(
            lambda: all(
                broker_of(w, "eu").directory.exists(f"{ORDERS}-partition-{index}") for index in range(3)
            )
        )

    play(story, "us", "eu")


@contextmanager
def clusters() -> Iterator[World]:
    """Two regions, each in a cluster of its own."""
    names = ("us", "eu")
    made = World(
        Topology(
            name="world",
            path=Path("topology.yaml"),
            clusters=tuple(
                Cluster(
                    f"c-{name}", (DeclaredRegion(name, f"c-{name}", host=name, service_port=SERVICE_PORT),)
                )
                for name in names
            ),
            links=tuple(
                Link(one, two, LinkShape(latency_ms=20.0)) for one in names for two in names if one != two
            ),
            namespaces=(NamespaceConfig("public/default", names, deduplication=True),),
        )
    )
    try:
        yield made
    finally:
        made.close()


def test_clusters_without_a_common_store_learn_and_grow_through_their_links() -> None:
    with clusters() as w:

        async def story() -> None:
            await w.ready()
            await asked(w, "PUT", f"{PATH}/partitions", 2)
            await w.simulation.until(lambda: count_in(w, "eu") == 2)
            await asked(w, "POST", f"{PATH}/partitions", 5, region="eu")
            await w.simulation.until(lambda: count_in(w, "us") == 5)
            await (await w.client("us").producer(f"{ORDERS}-partition-4")).send(b"hello")
            await w.quiet()
            assert len(w.regions["eu"].disk.entries(f"{ORDERS}-partition-4")) == 1

        w.play(story())


@pytest.mark.parametrize("grown_in", ["us", "eu"])
def test_a_new_partition_begins_with_the_subscriptions_of_the_others_in_every_region(grown_in: str) -> None:
    """N4: whoever reads the topic asks once a minute whether it has grown, and must not have lost anything then."""
    with clusters() as w:

        async def story() -> None:
            await w.ready()
            await asked(w, "PUT", f"{PATH}/partitions", 2)
            await w.simulation.until(lambda: count_in(w, "eu") == 2)
            for region in ("us", "eu"):
                consumer = await w.client(region).subscribe(
                    f"{ORDERS}-partition-0", f"of-{region}", replicated=True
                )
                await consumer.client.close()
            await (await w.client("us").reader(f"{ORDERS}-partition-0")).close()
            await asked(w, "POST", f"{PATH}/partitions", 3, region=grown_in)
            await w.simulation.until(lambda: count_in(w, "us") == count_in(w, "eu") == 3)
            await (await w.client(grown_in).producer(f"{ORDERS}-partition-2")).send(b"early")
            await w.quiet()
            for region in ("us", "eu"):
                late = await w.client(region).subscribe(f"{ORDERS}-partition-2", f"of-{region}")
                async with asyncio.timeout(10):
                    assert (await late.receive()).payload == b"early"
                new = broker_of(w, region).directory.serving[f"{ORDERS}-partition-2"]
                assert new.subscriptions[f"of-{region}"].cursor.replicated
                assert all(name.startswith("of-") for name in new.subscriptions), (
                    "readers are carried nowhere"
                )

        w.play(story())


def test_a_new_partition_begins_with_the_subscriptions_of_the_others_in_all_regions_of_a_cluster() -> None:
    """N4: the regions that were not asked to grow it know the number from their store, and nobody tells them."""

    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 1)
        consumer = await w.client("eu").subscribe(f"{ORDERS}-partition-0", "billing")
        await consumer.client.close()
        await asked(w, "POST", f"{PATH}/partitions", 2)
        await (await w.client("us").producer(f"{ORDERS}-partition-1")).send(b"early")
        await w.quiet()
        late = await w.client("eu").subscribe(f"{ORDERS}-partition-1", "billing")
        async with asyncio.timeout(10):
            assert (await late.receive()).payload == b"early"

    play(story, "us", "eu")


def test_a_partition_that_could_not_be_opened_at_once_begins_with_the_subscriptions_of_the_others() -> None:
    """N4: growing it was interrupted, by a crash or a disk that fails, and the number counts all the same."""

    async def story(w: World) -> None:
        await asked(w, "PUT", f"{PATH}/partitions", 1)
        consumer = await w.client("us").subscribe(f"{ORDERS}-partition-0", "billing")
        await consumer.client.close()
        FailingDisk(0.0, 0.0, "us", 1.0).begin(w)
        await asked(w, "POST", f"{PATH}/partitions", 2)
        assert count_in(w) == 2
        w.kill("us")
        w.regions["us"].disk.repair()
        w.start("us")
        await w.ready()
        await (await w.client("us").producer(f"{ORDERS}-partition-1")).send(b"early")
        late = await w.client("us").subscribe(f"{ORDERS}-partition-1", "billing")
        async with asyncio.timeout(10):
            assert (await late.receive()).payload == b"early"

    play(story)


def test_who_has_a_topic_partitioned_is_told_when_not_all_partitions_could_be_opened_and_may_ask_again() -> (
    None
):
    """Other clusters hear of a topic by its partitions: «done» must mean that they will."""
    with clusters() as w:

        async def story() -> None:
            await w.ready()
            FailingDisk(0.0, 0.0, "us", 1.0).begin(w)
            status, _ = await asked(w, "PUT", f"{PATH}/partitions", 2)
            assert (status, count_in(w)) == (503, 2)
            assert (await asked(w, "POST", f"{PATH}/createMissedPartitions"))[0] == 503
            w.regions["us"].disk.repair()
            assert (await asked(w, "POST", f"{PATH}/createMissedPartitions"))[0] == 204
            await w.simulation.until(lambda: count_in(w, "eu") == 2)

        w.play(story())


def test_what_only_looks_like_a_partition_begins_with_nothing() -> None:
    """N3, N4: its topic has no partitions."""

    async def story(w: World) -> None:
        await (await w.client("us").subscribe(f"{ORDERS}-partition-0", "billing")).client.close()
        await (await w.client("us").producer(f"{ORDERS}-partition-1")).send(b"hello")
        assert not broker_of(w).directory.serving[f"{ORDERS}-partition-1"].subscriptions

    play(story)


def test_what_is_partitioned_while_a_link_is_cut_is_learned_afterwards() -> None:
    with clusters() as w:

        async def story() -> None:
            await w.ready()
            w.cut("us", "eu")
            await asked(w, "PUT", f"{PATH}/partitions", 2)
            await (await w.client("us").producer(f"{ORDERS}-partition-1")).send(b"hello")
            await asyncio.sleep(5)
            assert count_in(w, "eu") == 0
            w.heal()
            await w.simulation.until(lambda: count_in(w, "eu") == 2)
            await w.quiet()

        w.play(story())


def test_a_topic_of_its_own_in_another_cluster_is_named_and_left_alone() -> None:
    with clusters() as w:

        async def story() -> None:
            await w.ready()
            w.cut("us", "eu")
            await (await w.client("eu").producer(ORDERS)).send(b"mine")
            await asked(w, "PUT", f"{PATH}/partitions", 2)
            w.heal()
            await w.simulation.until(
                lambda: (
                    "is a topic of its own here"
                    in broker_of(w).directory.serving[f"{ORDERS}-partition-0"].replicators["eu"].life.why_not
                )
            )
            assert count_in(w, "eu") == 0
            assert not broker_of(w, "eu").directory.exists(f"{ORDERS}-partition-0")

        w.play(story())


def test_a_number_that_a_peer_cannot_mean_is_refused() -> None:
    class Liar:
        def ask_partitions(self, topic: str) -> asyncio.Future[int]:
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            answer.set_result(4_000_000_000)
            return answer

    async def story(w: World) -> None:
        broker = broker_of(w)
        lied_to = PartitionedTopics(broker.metadata, broker.policies, {"eu": Liar()}, creates_by_default=True)
        with pytest.raises(ProtocolError, match="there may be 1 to 10000"):
            await lied_to.learn(broker.directory, "eu", TopicName.parse(f"{ORDERS}-partition-0"))
        assert count_in(w) == 0

    play(story)
