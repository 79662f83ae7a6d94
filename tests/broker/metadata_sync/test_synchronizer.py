"""Metadata events between clusters: regions of several clusters, each cluster with its own store."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from emulator.broker.admin.region_metrics import metadata_metrics
from emulator.broker.explain.topics import explain
from emulator.broker.metadata_sync import cluster_state
from emulator.broker.metadata_sync.event_topic import EventTopic
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.broker.region import Region
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import InitialPosition
from emulator.core.metadata.merge import CLOCK_AHEAD_MS_MAX, MetadataTransaction, Overruled
from emulator.core.policies.topics import DEDUPLICATION, REPLICATION_CLUSTERS
from emulator.model.stored_keys import SYNC_LEASE_PATH, NamespacePath, SyncRecordPath, TenantPath
from tests.broker.metadata_sync.clusters import (
    EVENTS,
    NAMESPACE,
    SIDES,
    THREE,
    TOPIC,
    TWO,
    are_alike,
    clusters,
    create,
    documents,
    soon,
    synchronizer,
)
from tests.broker.regions import Regions

pytestmark = [pytest.mark.within(120), pytest.mark.usefixtures("simulation")]


async def test_a_policy_set_in_one_cluster_applies_in_another() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        topic = await eu.directory.acquire(TOPIC, OpenMode.CREATE)
        assert not topic.state.deduplicates
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: topic.state.deduplicates)
        await eu.policies.set(NAMESPACE, DEDUPLICATION, False)
        await soon(lambda: us.policies.of_namespace("acme/orders", DEDUPLICATION) is False)
        await us.metadata.put(NAMESPACE.text, None)
        await soon(lambda: not eu.policies.has_namespace("acme/orders"))


async def test_the_race_of_the_proposal_converges() -> None:
    """Three clusters change one policy in the same millisecond: the one whose name sorts first wins."""
    async with clusters(THREE) as world:
        await create(world.running["us"])
        await soon(lambda: all(one.policies.has_namespace("acme/orders") for one in world.running.values()))
        await soon(lambda: are_alike(world))
        for one in world.names:
            for other in world.names:
                if one < other:
                    world.cut(one, other)
        frozen_ms = world.running["us"].environment.wall_clock_ms() + 60_000
        values = {"us": ("us",), "eu": ("us", "eu"), "ap": ("us", "eu", "ap")}
        for name, region in world.running.items():
            assert region.metadata.shared is not None
            object.__setattr__(region.metadata.shared, "wall_clock_ms", lambda: frozen_ms)
            await region.policies.set(NAMESPACE, REPLICATION_CLUSTERS, values[name])
        for one in world.names:
            for other in world.names:
                if one < other:
                    world.heal(one, other)
        await soon(lambda: are_alike(world))
        for region in world.running.values():  # americas sorts first
            of = region.policies.of_namespace
            await soon(lambda of=of: of("acme/orders", REPLICATION_CLUSTERS) == ("us",))
        await soon(lambda: [name for name in world.names if undone(world, name)] == ["eu", "ap"])


def undone(world: Regions, name: str) -> int:
    return synchronizer(world.running[name]).metrics.undone


async def test_a_region_added_in_one_cluster_is_replicated_to_from_all() -> None:
    async with clusters(TWO) as world, world.client("us") as here, world.client("eu") as there:
        us, eu = world.running["us"], world.running["eu"]
        await create(us, ("us",))
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        producer = await here.producer(TOPIC)
        await producer.send(b"before")
        await us.policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))
        await soon(lambda: "eu" in us.directory.serving[TOPIC].replicators)
        await soon(lambda: TOPIC in eu.directory.serving)
        await soon(lambda: "us" in eu.directory.serving[TOPIC].replicators)
        consumer = await there.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
        await producer.send(b"after")
        assert [(await consumer.receive()).payload for _ in range(2)] == [b"before", b"after"]


async def test_when_the_sync_leader_is_killed_another_region_takes_over() -> None:
    async with clusters(SIDES) as world:
        await create(world.running["us-east"])
        await soon(lambda: are_alike(world))
        leader = leader_of(world, "americas")
        other = next(name for name in ("us-east", "us-west") if name != leader)
        world.cut(leader, "eu")
        await world.running[leader].policies.set(NAMESPACE, DEDUPLICATION, True)
        await world.crash(leader)
        await soon(lambda: leader_of(world, "americas") == other)
        eu = world.running["eu"].policies
        await soon(lambda: eu.of_namespace("acme/orders", DEDUPLICATION))
        await world.running["eu"].policies.set(NAMESPACE, DEDUPLICATION, False)
        west = world.running[other].policies
        await soon(lambda: west.of_namespace("acme/orders", DEDUPLICATION) is False)
        await soon(lambda: are_alike(world))


def leader_of(world: Regions, cluster: str) -> str:
    change = world.configurations[cluster].values.get(SYNC_LEASE_PATH.text)
    assert change is not None
    assert change.value is not None
    name: str = json.loads(change.value)["region"]
    synchronizer = world.running[name].synchronizer if name in world.running else None
    return name if synchronizer is not None and synchronizer.leader is not None else ""


async def test_a_sync_leader_that_stops_releases_its_lease() -> None:
    async with clusters(SIDES) as world:
        await soon(lambda: SYNC_LEASE_PATH.text in world.configurations["americas"].values)
        await soon(lambda: leader_of(world, "americas") != "")
        leader = leader_of(world, "americas")
        other = next(name for name in ("us-east", "us-west") if name != leader)
        await world.stop(leader)
        await soon(lambda: leader_of(world, "americas") == other)


@pytest.mark.long
async def test_a_cluster_that_lost_its_store_and_its_log_gets_everything_back() -> None:
    async with clusters(THREE) as world:
        await create(world.running["ap"])
        await soon(lambda: world.running["us"].policies.has_namespace("acme/orders"))
        await world.running["us"].policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: are_alike(world))
        before = documents(world, "europe")
        await world.crash("eu")
        await world.crash("ap")  # the cluster that created the namespace cannot send it
        world.configurations["europe"].__init__()  # type: ignore[misc]
        world.disks["eu"].__init__()  # type: ignore[misc]
        await world.start("eu")
        await soon(lambda: documents(world, "europe") == before)
        await world.start("ap")
        await soon(lambda: are_alike(world))


async def test_both_sides_of_a_cut_continue_and_lose_nothing() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: are_alike(world))
        world.cut("us", "eu")
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await eu.policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("eu",))
        await eu.metadata.put(TenantPath("other").text, b'{"adminRoles": ["boss"]}')
        world.heal("us", "eu")
        await soon(lambda: are_alike(world))
        await soon(lambda: us.policies.of_namespace("acme/orders", REPLICATION_CLUSTERS) == ("eu",))
        assert us.policies.of_namespace("acme/orders", DEDUPLICATION) is True
        await soon(lambda: "other" in us.policies.tenants())


@pytest.mark.parametrize("hybrid", [False, True])
async def test_a_clock_that_is_ahead_wins_for_a_while_unless_clocks_are_hybrid(hybrid: bool) -> None:
    async with clusters(TWO, metadata_sync_hybrid_clocks=hybrid) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(eu)
        world.skews_ms["us"] = 200_000
        await soon(lambda: us.policies.has_namespace("acme/orders"))
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION))
        if hybrid:
            await eu.policies.set(NAMESPACE, DEDUPLICATION, False)
            await soon(lambda: us.policies.of_namespace("acme/orders", DEDUPLICATION) is False)
        else:
            with pytest.raises(Overruled, match="cluster americas, whose clock was"):
                await eu.policies.set(NAMESPACE, DEDUPLICATION, False)
        await soon(lambda: are_alike(world))


async def test_an_excluded_path_is_not_synchronised() -> None:
    async with clusters(TWO, metadata_sync_excluded_paths="namespace/acme/, tenant/secret") as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await us.metadata.put(TenantPath("secret").text, b"{}")
        await us.metadata.put(TenantPath("told").text, b"{}")
        await soon(lambda: "told" in eu.policies.tenants())
        await soon(lambda: "acme" in eu.policies.tenants())
        assert not eu.policies.has_namespace("acme/orders")
        assert "secret" not in eu.policies.tenants()


async def test_an_invalid_message_in_the_event_topic_is_skipped() -> None:
    """Malformed and forged events are counted and skipped; those after them are applied."""
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        channel = await EventTopic.open(eu, EVENTS, lambda: None)
        forged = {"version": 1, "kind": "standing", "source": "americas", "vector": {}, "asks": False}
        for payload in (b"nonsense", b"[]", b"\xff", json.dumps(forged).encode()):
            await channel.publish([payload])
        channel.close()
        await create(eu)
        await soon(lambda: us.policies.has_namespace("acme/orders"))
        figures = synchronizer(us).metrics
        await soon(lambda: figures.refused == 4)


async def test_a_topology_that_is_read_again_overwrites_nothing() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await soon(lambda: are_alike(world))
        await us.metadata.put(TenantPath("public").text, None)
        await soon(lambda: "public" not in eu.policies.tenants())
        await world.stop("eu")
        world.configurations["europe"].__init__()  # type: ignore[misc]
        await world.start("eu")
        await soon(lambda: are_alike(world))
        await soon(lambda: "public" not in world.running["eu"].policies.tenants())


async def test_a_tombstone_goes_when_every_cluster_has_it_and_not_before() -> None:
    async with clusters(THREE) as world:
        us, record = world.running["us"], SyncRecordPath(NAMESPACE.text).text
        await create(us, ("us",))
        await soon(lambda: are_alike(world))
        await world.stop("ap")
        await us.metadata.put(NAMESPACE.text, None)
        await us.metadata.put(TenantPath("seen").text, b"{}")
        await soon(lambda: "seen" in world.running["eu"].policies.tenants())
        assert record in world.configurations["americas"].values
        await world.start("ap")
        stores = world.configurations.values()
        await soon(lambda: not any(record in store.values for store in stores))
        await create(world.running["ap"])
        await soon(lambda: us.policies.has_namespace("acme/orders"))
        await soon(lambda: are_alike(world))


async def test_a_tombstone_dated_ahead_goes_once_the_clock_reaches_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clusters that are idle then did not check the tombstone again."""
    monkeypatch.setattr(cluster_state, "TOMBSTONES_SECONDS", 0.0)
    async with clusters(TWO) as world:
        us, record = world.running["us"], SyncRecordPath(NAMESPACE.text).text
        world.skews_ms["us"] = CLOCK_AHEAD_MS_MAX + 100_000
        await create(us, ("us",))
        await soon(lambda: are_alike(world))
        await us.metadata.put(NAMESPACE.text, None)
        await soon(lambda: record not in world.configurations["americas"].values)
        await asyncio.sleep(1.0)
        assert record in world.configurations["europe"].values
        world.skews_ms["eu"] = 101_000
        await soon(lambda: record not in world.configurations["europe"].values)


async def test_explain_shows_which_event_won_which_lost_and_which_cluster_lacks_it() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION))
        await eu.policies.set(NAMESPACE, DEDUPLICATION, False)
        await soon(lambda: us.policies.of_namespace("acme/orders", DEDUPLICATION) is False)

        def told() -> tuple[str, tuple[str, ...]]:
            answer = explain(us, "metadata", "namespace/acme/orders")
            return answer.why, answer.waits_for

        await soon(lambda: told()[1] == ())
        assert re.search(r"policies/deduplication is false by europe #\d+ at 20", told()[0])
        assert re.search(r"true of americas #\d+ at [\d:.TZ-]+ lost to europe #\d+ at 20", told()[0])
        world.cut("us", "eu")
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        assert told()[1] == ("cluster europe to confirm 1 of these changes",)


async def test_clusters_that_exclude_different_paths_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await us.metadata.put(NamespacePath("acme/bills").text, b"{}")
        await soon(lambda: are_alike(world))
        assert "excluded_paths" not in caplog.text
        await world.stop("eu")
        await world.start("eu", metadata_sync_excluded_paths="namespace/acme/orders,tenant/test")
        eu = world.running["eu"]
        await soon(lambda: differing(us) == differing(eu) == 1)
        await us.policies.set(NAMESPACE, DEDUPLICATION, True)
        await us.policies.set(NamespacePath("acme/bills"), DEDUPLICATION, True)
        await soon(lambda: eu.policies.of_namespace("acme/bills", DEDUPLICATION))
        assert not eu.policies.of_namespace("acme/orders", DEDUPLICATION)
        here, there = (
            explain(us, "metadata", "namespace/acme/orders"),
            explain(eu, "metadata", "namespace/acme/orders"),
        )
        assert "cluster europe excludes the path" in here.why
        assert "namespace/acme/orders, so the path is local to this cluster; americas did not" in there.why
        assert "excludes the path" not in explain(us, "metadata", "namespace/acme/bills").why
        lines = [one.getMessage() for one in caplog.records if "excluded_paths differ" in one.getMessage()]
        assert len(lines) == 2, lines
        assert "namespace/acme/orders, tenant/test is excluded in europe but not here" in "".join(lines)


def differing(region: Region) -> float:
    found = {name: value for name, _, value in metadata_metrics(region)}
    return found["geoemu_metadata_clusters_with_other_exclusions"]


@pytest.mark.slow
async def test_a_new_cluster_receives_ten_thousand_namespaces_soon() -> None:
    async with clusters(TWO) as world:
        us = world.running["us"]
        await create(us)
        await soon(lambda: are_alike(world))
        await world.stop("eu")
        world.configurations["europe"].__init__()  # type: ignore[misc]
        world.disks["eu"].__init__()  # type: ignore[misc]
        shared = us.metadata.shared
        assert isinstance(shared, SyncSettings)

        def many(transaction: MetadataTransaction) -> None:
            for number in range(10_000):
                path = NamespacePath(f"acme/n{number}").text
                transaction.change(path, b'{"policies": {"deduplication": true}}', is_seed=False)

        await us.metadata.transact(shared.transaction(many))
        await world.start("eu")
        last = NamespacePath("acme/n9999").text
        await soon(lambda: last in world.configurations["europe"].values)
        await soon(lambda: are_alike(world))
