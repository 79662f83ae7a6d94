"""Topics are loaded at their first use and unloaded when no client uses them (docs/components/topic-directory.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from emulator.broker.topic_directory.loaded_topic import NEXT_STATES, LoadState, LoadStateChange, OpenMode
from emulator.broker.topic_directory.stored_topics import LogKind, kind_of
from emulator.client import InitialPosition
from emulator.core.policies.topics import REPLICATION_CLUSTERS
from emulator.errors import ProtocolError, StorageError
from emulator.model.stored_keys import (
    STARTS_KEY,
    CheckpointKey,
    CursorKey,
    NamespacePath,
    PendingWorkKey,
    keys_of_topic,
    parse_key,
)
from emulator.model.values import TopicName
from emulator.storage.contract import Versioned
from emulator.storage.memory import MemoryStore
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"


def store_of(world: Regions, name: str = "us") -> MemoryStore:
    store = world.running[name].store
    assert isinstance(store, MemoryStore)
    return store


async def soon(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start it, and let it run until it has to wait."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    return task


async def test_a_concurrent_lookup_does_not_fail_the_first_producer() -> None:
    """D1: both used to share one outcome, that of the question: not found, permanently."""
    async with regions("us") as world:
        directory = world.running["us"].directory
        store_of(world).hold()
        question = await soon(directory.acquire(TOPIC, OpenMode.EXISTING))
        producer = await soon(directory.acquire(TOPIC, OpenMode.CREATE))
        store_of(world).release()
        with pytest.raises(ProtocolError, match="not found"):
            await question
        assert await producer is directory.serving[TOPIC]


async def test_a_lookup_after_the_first_producer_gets_its_topic() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        store_of(world).hold()
        producer = await soon(directory.acquire(TOPIC, OpenMode.CREATE))
        question = await soon(directory.acquire(TOPIC, OpenMode.EXISTING))
        store_of(world).release()
        assert await producer is await question


@pytest.mark.parametrize("name", ["orders" + "-partition-7" * 300, "orders-partition-" + "9" * 5_000])
async def test_a_topic_may_have_the_name_of_a_strange_partition(name: str) -> None:
    async with regions("us") as world, world.client("us") as client:
        consumer = await client.subscribe(name, "s")
        await (await client.producer(name)).send(b"one")
        assert (await consumer.receive()).payload == b"one"


async def test_a_missing_topic_that_a_lookup_is_opening_does_not_exist() -> None:
    """Its name was in use, so that creating the partitioned topic failed."""
    async with regions("us") as world:
        region = world.running["us"]
        directory = region.directory
        question = await soon(directory.acquire(TOPIC, OpenMode.EXISTING))
        assert directory.state_of(TOPIC) is LoadState.OPENING
        assert not directory.exists(TOPIC)
        creating = await soon(region.partitioned.create(TopicName.parse(TOPIC), 2))
        with pytest.raises(ProtocolError, match="not found"):
            await question
        await creating
        assert region.partitioned.count(TopicName.parse(TOPIC)) == 2


async def test_a_topic_that_is_being_created_exists() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        producer = await soon(directory.acquire(TOPIC, OpenMode.CREATE))
        assert directory.state_of(TOPIC) is LoadState.OPENING
        assert directory.exists(TOPIC)
        await producer


async def test_a_failure_rejects_the_waiting_requests_and_the_next_one_loads_again() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        store_of(world).fail_next_group(StorageError("no", definite=True))
        with pytest.raises(StorageError):
            await directory.acquire(TOPIC, OpenMode.CREATE)
        assert directory.state_of(TOPIC) is LoadState.ABSENT
        assert await directory.acquire(TOPIC, OpenMode.CREATE) is directory.serving[TOPIC]


async def test_a_topic_whose_log_is_not_created_is_created_by_the_next_request() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        store_of(world).fail_next_group(StorageError("the disk is full", definite=True))
        first, second = (directory.acquire(TOPIC, OpenMode.CREATE) for _ in range(2))
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the disk is full"] * 2
        assert directory.state_of(TOPIC) is LoadState.ABSENT
        assert not directory.exists(TOPIC)
        assert (await directory.acquire(TOPIC, OpenMode.CREATE)).is_new


async def test_a_topic_of_a_namespace_that_is_deleted_while_its_log_is_created_does_not_serve() -> None:
    async with regions("us") as world:
        region = world.running["us"]
        store_of(world).hold()
        request = await soon(region.directory.acquire(TOPIC, OpenMode.CREATE))
        del region.policies.existing["public/default"]
        store_of(world).release()
        with pytest.raises(ProtocolError, match="does not exist"):
            await request
        assert not region.directory.serving


async def test_a_deletion_waits_until_the_topic_is_created() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        store_of(world).hold()
        creating = await soon(directory.acquire(TOPIC, OpenMode.CREATE))
        deleting = await soon(directory.delete(TOPIC, force=True))
        store_of(world).release()
        await asyncio.gather(creating, deleting)
        assert not directory.exists(TOPIC)
        assert (await directory.acquire(TOPIC, OpenMode.CREATE)).is_new


async def test_a_region_may_stop_while_a_topic_is_created() -> None:
    async with regions("us") as world:
        store_of(world).hold()
        creating = await soon(world.running["us"].directory.acquire(TOPIC, OpenMode.CREATE))
        await world.stop("us")
        with pytest.raises(ProtocolError, match="stopping"):
            await creating
        await world.start("us")
        assert await world.running["us"].directory.acquire(TOPIC, OpenMode.CREATE)


async def test_a_topic_that_is_replicated_once_its_log_is_created_is_loaded_after_a_crash() -> None:
    """D3: the policy was not known when the creation began."""
    async with regions("us", "eu") as world:
        region = world.running["us"]
        await region.policies.set(NamespacePath("public/default"), REPLICATION_CLUSTERS, ("us",))
        store_of(world).hold()
        creating = await soon(region.directory.acquire(TOPIC, OpenMode.CREATE))
        await region.policies.set(NamespacePath("public/default"), REPLICATION_CLUSTERS, ("us", "eu"))
        store_of(world).release()
        assert list((await creating).replicators) == ["eu"]
        assert store_of(world).get(PendingWorkKey(TOPIC).text) is not None


async def test_a_cancelled_request_has_no_effect_on_others() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        store_of(world).hold()
        first = await soon(directory.acquire(TOPIC, OpenMode.CREATE))
        second = await soon(directory.acquire(TOPIC, OpenMode.EXISTING))
        first.cancel()
        store_of(world).release()
        assert await second is directory.serving[TOPIC]


async def test_an_idle_topic_is_unloaded_and_loaded_again_unchanged() -> None:
    async with regions("us", topic_idle_ms=50) as world:
        moves: list[LoadStateChange] = []
        directory = world.running["us"].directory
        directory.observe(moves.append)
        async with world.client("us") as client:
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            producer = await client.producer(TOPIC)
            for number in range(3):
                await producer.send(b"%d" % number)
            await consumer.acknowledge(await consumer.receive())
        await until(lambda: not directory.serving)
        assert directory.names("public/default") == [TOPIC]
        async with world.client("us") as client:
            consumer = await client.subscribe(TOPIC, "s")
            assert (await consumer.receive()).payload == b"1"
        states = [(move.incarnation, move.after.name) for move in moves]
        assert states[:4] == [(1, "OPENING"), (1, "SERVING"), (1, "LEAVING"), (1, "ABSENT")]
        assert states[4:6] == [(2, "OPENING"), (2, "SERVING")]


async def test_a_request_during_an_unload_waits_and_loads_the_topic_again() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        former = await directory.acquire(TOPIC, OpenMode.CREATE)
        leaving = await soon(directory.unload(TOPIC, "a test"))
        await until(lambda: directory.state_of(TOPIC) is not LoadState.SERVING)
        again = await directory.acquire(TOPIC, OpenMode.EXISTING)
        await leaving
        assert former.closed
        assert again is not former
        assert not again.closed


async def test_a_deleted_topic_leaves_nothing_behind() -> None:
    """A cursor that outlives its log would make a subscription of the next topic with that name skip messages."""
    async with regions("us") as world:
        directory = world.running["us"].directory
        async with world.client("us") as client:
            await client.subscribe(TOPIC, "s")
            await client.subscribe(TOPIC + "-other", "s")
            with pytest.raises(ProtocolError, match="producers or consumers"):
                await directory.delete(TOPIC, force=False)
        await until(lambda: not world.running["us"].clients.connections)
        await asyncio.gather(
            directory.delete(TOPIC, force=True), directory.delete(TOPIC, force=True), return_exceptions=True
        )
        assert directory.names("public/default") == [TOPIC + "-other"]
        left = [parse_key(text) for text, _ in store_of(world).scan("")]
        assert [key for key in left if isinstance(key, CursorKey)] == [CursorKey(TOPIC + "-other", "s")]
        with pytest.raises(ProtocolError, match="not found"):
            await directory.delete(TOPIC, force=True)


async def test_the_rows_of_a_topic_are_not_read_only_while_it_has_no_log() -> None:
    """D6."""
    async with regions("us") as world:
        directory = world.running["us"].directory
        assert (await directory.acquire(TOPIC, OpenMode.CREATE)).is_new
        await directory.unload(TOPIC, "the test requests it")
        topic = await directory.acquire(TOPIC, OpenMode.CREATE)
        assert not topic.is_new
        await topic.termination.terminate()
        await directory.unload(TOPIC, "the test requests it")
        assert (await directory.acquire(TOPIC, OpenMode.CREATE)).is_terminated
        await directory.delete(TOPIC, force=True)
        topic = await directory.acquire(TOPIC, OpenMode.CREATE)
        assert topic.is_new
        assert not topic.is_terminated
        assert not any(store_of(world).scan(prefix) for prefix in keys_of_topic(TOPIC))


async def test_a_pending_checkpoint_does_not_outlive_the_deletion_of_its_topic() -> None:
    async with regions("us") as world:
        directory = world.running["us"].directory
        topic = await directory.acquire(TOPIC, OpenMode.CREATE)
        store_of(world).hold()
        topic.checkpoints.write()
        deleting = await soon(directory.delete(TOPIC, force=True))
        await until(lambda: directory.state_of(TOPIC) is not LoadState.SERVING)
        await asyncio.sleep(0)
        store_of(world).release()
        await deleting
        left = [parse_key(text) for text, _ in store_of(world).scan("")]
        assert [key for key in left if isinstance(key, CheckpointKey)] == []


@pytest.mark.parametrize("step", ["erase", "forget_owing"])
async def test_a_deletion_or_unload_that_fails_unexpectedly_is_not_reported_as_success(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a failure is a bug. The name can be used again."""

    async def broken(*_: object, **__: object) -> bool:
        raise RuntimeError("a bug")

    async with regions("us") as world:
        directory = world.running["us"].directory
        await directory.acquire(TOPIC, OpenMode.CREATE)
        with monkeypatch.context() as patch:
            patch.setattr(directory._opener, step, broken)
            with pytest.raises(StorageError, match="a bug"):
                await (
                    directory.delete(TOPIC, force=True)
                    if step == "erase"
                    else directory.unload(TOPIC, "a test")
                )
        assert await directory.acquire(TOPIC, OpenMode.EXISTING) is directory.serving[TOPIC]


async def test_after_a_crash_only_topics_with_pending_work_are_loaded() -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        await (await client.producer(TOPIC)).send(b"x")
        assert store_of(world).get(PendingWorkKey(TOPIC).text) is not None
        world.cut("us", "eu")
        await (await client.producer(TOPIC)).send(b"owed")
        await world.crash("us")
        await world.start("us")
        directory = world.running["us"].directory
        await until(lambda: TOPIC in directory.serving and not directory.owing)
        world.heal("us", "eu")

        def is_replicated() -> bool:
            topic = world.running["eu"].directory.serving.get(TOPIC)
            return topic is not None and topic.state.stored_end == 2

        await until(is_replicated)


async def test_after_an_orderly_stop_a_topic_without_pending_work_is_not_loaded() -> None:
    async with regions("us", "eu") as world:
        async with world.client("us") as client:
            await (await client.producer(TOPIC)).send(b"x")
        topic = world.running["us"].directory.serving[TOPIC]
        await until(lambda: topic.replicators["eu"].backlog == 0)
        await world.stop("eu")
        await world.stop("us")
        await world.start("us")
        assert store_of(world).get(PendingWorkKey(TOPIC).text) is None
        assert not world.running["us"].directory.owing


async def test_a_region_starts_with_logs_that_it_cannot_serve(caplog: pytest.LogCaptureFixture) -> None:
    """D5: the start used to fail permanently."""

    async with regions("us") as world:
        await store_of(world).open_log("no topic at all")
        await store_of(world).open_log("persistent://gone/away/orders")
        await world.stop("us")
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await world.start("us")
        assert world.running["us"].directory.names("public/default") == []
    lines = [
        record.getMessage() for record in caplog.records if "which are not changed" in record.getMessage()
    ]
    assert len(lines) == 1
    assert "'no topic at all' is not a topic name" in lines[0]
    assert "the namespace of persistent://gone/away/orders was deleted" in lines[0]


async def test_a_start_does_not_load_unused_topics() -> None:
    """Ten thousand topics with a cursor each: the start does no work for any of them."""
    async with regions("us") as world:
        await world.stop("us")
        disk = world.disks["us"]
        store = await MemoryStore.open(disk, "us")
        names = [f"persistent://public/default/topic-{number:05}" for number in range(10_000)]
        await asyncio.gather(*(store.open_log(name) for name in names))
        disk.values |= {CursorKey(name, "s").text: Versioned(b"{}", 0) for name in names}
        await store.close()
        await world.start("us")
        region = world.running["us"]
        assert not region.directory.serving
        assert not region.directory.owing
        assert region.directory.names("public/default") == names
        assert store_of(world).get(STARTS_KEY.text) is not None


def test_the_kinds_of_logs() -> None:
    assert kind_of(TOPIC) is LogKind.MESSAGES
    assert kind_of("compacted://public/default/orders") is LogKind.COMPACTED_VIEW
    assert kind_of("internal://public/default/orders") is LogKind.INTERNAL
    assert kind_of("orders") is None
    assert kind_of("persistent://orders") is None


def test_a_topic_that_leaves_never_serves_again() -> None:
    """D2."""
    assert LoadState.SERVING not in NEXT_STATES[LoadState.LEAVING] | NEXT_STATES[LoadState.DELETING]


async def test_a_topic_that_was_deleted_during_its_termination_begins_anew() -> None:
    """The row of the termination became durable after the deletion had looked for rows: the next topic of this name was
    terminated once it was loaded again (D6)."""
    async with regions("us") as world:
        region, store = world.running["us"], store_of(world)
        topic = await region.directory.acquire(TOPIC, OpenMode.CREATE)
        store.hold()
        terminating = await soon(topic.termination.terminate())
        deleting = await soon(region.directory.delete(TOPIC, force=True))
        for _ in range(10):
            await asyncio.sleep(0)
        store.release()
        await asyncio.gather(terminating, deleting, return_exceptions=True)
        assert [key for prefix in keys_of_topic(TOPIC) for key, _ in store.scan(prefix)] == []
