"""Stored state that cannot be read: rebuilt where the log contains it, otherwise its key is refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory import loaded_topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import ClientError, InitialPosition
from emulator.core.cursor.id_set import PART_IDS
from emulator.errors import CheckpointDamaged, StorageDamaged
from emulator.model.stored_keys import CheckpointKey, CheckpointPartKey, CursorKey, CursorPartKey, ProgressKey
from emulator.model.values import TopicName
from emulator.storage.memory import MemoryStore
from emulator.wire.entry import plain_entry
from tests.broker.regions import Regions, regions, until
from tests.broker.replication.test_replication import TOPIC, check_all_have, drained, publish

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

CURSOR = CursorKey(TOPIC, "s").text


async def restarted(world: Regions, values: Mapping[str, bytes]) -> None:
    """Stop us, write these rows into its store, and start it."""
    await world.stop("us")
    store = await MemoryStore.open(world.disks["us"], "us")
    for key, value in values.items():
        await store.put(key, value)
    await store.close()
    await world.start("us")


@pytest.mark.parametrize(
    "damage",
    {
        CURSOR: b"\x00\xff",
        CursorKey(TOPIC, "of a number").text: b"7",
        CursorKey(TOPIC, "of a newer format").text: b'{"format": 3}',
        CursorPartKey(TOPIC, "s", "0-0").text: b"\x02",
        CursorPartKey(TOPIC, "s", "nonsense").text: b"",
    }.items(),
    ids=lambda damage: damage[0].rpartition("/")[2],
)
async def test_a_damaged_cursor_is_named_and_prevents_loading_its_topic(damage: tuple[str, bytes]) -> None:
    """A guessed cursor would lose messages. Other topics are served as usual."""
    key, value = damage

    async with regions("us") as world:
        async with world.client("us") as client:
            await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            await publish(client, "p", 2)
        await restarted(world, {key: value})
        with pytest.raises(StorageDamaged) as refused:
            await world.running["us"].directory.acquire(TOPIC, OpenMode.EXISTING)
        assert CURSOR in str(refused.value) or key in str(refused.value)
        async with world.client("us") as client:
            await (await client.producer("another")).send(b"x")


async def broken(world: Regions) -> bytes:
    """Run two regions with messages and a damaged cursor in us; return the original cursor."""
    async with world.client("us") as us, world.client("eu") as eu:
        await us.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
        await publish(us, "p", 2)
        await publish(eu, "q", 2)
    whole = world.running["us"].store.get(CURSOR)
    assert whole is not None
    await restarted(world, {CURSOR: b"damaged"})
    return whole.value


async def test_a_damaged_topic_is_not_read_for_every_request(caplog: pytest.LogCaptureFixture) -> None:
    """Clients and the replicators of other regions ask several times a second."""

    def told() -> int:
        return sum("cannot be loaded" in line for line in caplog.messages)

    with caplog.at_level(logging.ERROR):
        async with regions("us", "eu") as world:
            await broken(world)
            await until(lambda: told() == 1)
            for _ in range(50):
                with pytest.raises(StorageDamaged, match=r"cursor/.*is damaged"):
                    await world.running["us"].directory.acquire(TOPIC, OpenMode.EXISTING)
            assert told() == 1


async def test_a_damaged_topic_is_served_after_its_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_topic, "DAMAGED_SECONDS", 0.02)

    async with regions("us", "eu") as world:
        whole = await broken(world)
        us = world.running["us"]
        with pytest.raises(StorageDamaged):
            await us.directory.acquire(TOPIC, OpenMode.EXISTING)
        await us.store.put(CURSOR, whole)
        await until(lambda: TOPIC in us.directory.serving and drained(world))
        await check_all_have(world, {"p": 2, "q": 2})


HEAD = CheckpointKey(TOPIC).text
DAMAGED_HEADS = {
    "no JSON": b"\x00\xff",
    "no object": b"[2]",
    "lacks what it needs": b'{"format": 2}',
    "of another form": b'{"format": 2, "ledger_id": 1, "next_entry_id": 9, "deduplication": 7}',
    "beyond the end of the log": b'{"format": 2, "ledger_id": 1, "next_entry_id": 999, "last_data": null, "parts": {}, '
    b'"deduplication": {"persisted": {"p": 999}}, "watermarks": {}, "known_from": 0}',
}


@pytest.mark.parametrize("head", DAMAGED_HEADS.values(), ids=DAMAGED_HEADS)
async def test_a_damaged_checkpoint_is_rebuilt_from_the_log(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with regions("us", state_checkpoint_entries=10) as world:
        async with world.client("us") as client:
            await publish(client, "p", 25)
        await restarted(world, {HEAD: head})
        async with world.client("us") as client:
            assert (await client.producer(TOPIC, name="p")).last_sequence_id == 24
        assert HEAD in caplog.text or "the log ends at 25" in caplog.text


def damaged_part(number: int) -> dict[str, bytes]:
    return {CheckpointPartKey(TOPIC, f"1-{number}").text: b"damaged"}


async def test_a_damaged_part_of_a_checkpoint_is_rebuilt_from_the_log() -> None:
    """Of markers: without it they would be backlog, or an update would skip messages that the other region never
    had."""
    async with regions("us", "eu", state_checkpoint_entries=5) as world, world.client("us") as client:
        consumer = await client.subscribe(TOPIC, "s", replicated=True)
        await publish(client, "p", 20)
        for _ in range(20):
            await consumer.acknowledge(await consumer.receive(), confirmed=True)
        topic = world.running["us"].directory.serving[TOPIC]
        await until(lambda: bool(topic.state.visibility.hidden))
        hidden = topic.state.visibility.hidden.runs()
        await restarted(world, damaged_part(0))
        topic = await world.running["us"].directory.acquire(TOPIC, OpenMode.EXISTING)
        assert topic.state.visibility.hidden.runs()[: len(hidden) - 1] == hidden[:-1]


async def test_a_seek_into_a_damaged_part_is_rejected_until_the_topic_was_rebuilt() -> None:
    """The part was not in memory: no consumer needed it before the seek."""
    async with regions("us", state_checkpoint_entries=1_000) as world, world.client("us") as client:
        consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
        producer = await client.producer(TOPIC)
        count = 2 * PART_IDS + 10
        for start in range(0, count, 500):
            messages = range(start, min(start + 500, count))
            await asyncio.gather(
                *(producer.send(b"%d" % n, replicate_to=["nowhere"] if n < 9 else ()) for n in messages)
            )
        first = await consumer.receive()
        last = first
        for _ in range(count - 1):
            last = await consumer.receive()
        await consumer.acknowledge_cumulative(last, confirmed=True)
        region = world.running["us"]
        await publish(client, "p", 1_000)
        topic = region.directory.serving[TOPIC]
        assert topic.state.visibility.known_from > 0
        await region.store.put(*damaged_part(0).popitem())
        with pytest.raises(ClientError, match=r"topic-part/.*is damaged"):
            await consumer.seek(first.id)
        await until(lambda: region.directory.serving.get(TOPIC, topic) is not topic)
        await consumer.close()
        consumer = await client.subscribe(TOPIC, "s")
        await consumer.seek(first.id)
        assert (await consumer.receive()).payload == b"0"
        again = region.directory.serving[TOPIC]
        assert list(again.state.unseen_by("ap", 100)) == list(range(9))


async def test_a_checkpoint_that_cannot_be_rebuilt_is_rejected_with_its_key() -> None:
    """The log was trimmed: its first entries, with the state of producers and other regions, are gone."""
    store = await MemoryStore.open(region="us")
    log = await store.open_log(TOPIC, create=True)
    assert log is not None
    await log.append([plain_entry("p", number, 1, b"x") for number in range(5)])
    await log.trim(3)
    await store.put(HEAD, b"damaged")
    async with regions("us") as world:
        region = world.running["us"]
        region.store = store
        with pytest.raises(CheckpointDamaged, match=r"^topic/.*damaged.*begins at entry 3"):
            await Topic.load(region, TopicName.parse(TOPIC), log, deduplicates=True, peers={})


async def test_damaged_progress_of_a_replicator_causes_resending() -> None:
    """The other region drops the duplicates."""
    async with regions("us", "eu") as world:
        async with world.client("us") as client:
            await publish(client, "p", 5)
            await until(lambda: drained(world))
        await restarted(world, {ProgressKey(TOPIC, "eu").text: b"a:b"})
        async with world.client("us") as client:
            await publish(client, "q", 5)
        await until(lambda: TOPIC in world.running["us"].directory.serving and drained(world))
        await check_all_have(world, {"p": 5, "q": 5})
