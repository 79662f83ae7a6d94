"""Checkpoints of a topic: a lost one only costs time, and its size does not grow without need."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from emulator.broker.topic.checkpoints import Checkpoints
from emulator.core.cursor.id_set import PART_IDS
from emulator.core.topic.state import TopicState
from emulator.errors import StorageError
from emulator.model.stored_keys import CheckpointKey
from emulator.storage.memory import MemoryDisk, MemoryStore
from tests.broker.regions import regions
from tests.broker.replication.test_replication import TOPIC, publish
from tests.core.topic.test_state import Says


class FailingStore(MemoryStore):
    """Fails puts while `failing` is set, and refuses a key whose put failed until it is read (S5)."""

    failing = False

    def put(self, key: str, value: bytes, *, expected_version: int | None = None) -> asyncio.Future[int]:
        if not self.failing:
            return super().put(key, value, expected_version=expected_version)
        lane, _ = self._keys.issue_put(key, expected_version)
        failure = StorageError("the disk said no", definite=True)
        lane.failed(failure)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(failure)
        return future


async def test_a_checkpoint_that_failed_once_is_written_later() -> None:
    """It used to be refused until the topic was loaded again."""
    store = FailingStore(MemoryDisk(), 0)
    state = TopicState("us", deduplicates=True)
    checkpoints = Checkpoints(store, TOPIC, 1, state)
    state.fold(0, Says(marker_type=10))
    store.failing = True
    checkpoints.write()
    store.failing = False
    state.fold(1, Says(sequence_id=7))
    async with asyncio.timeout(5):
        while state.visibility.is_writing:
            await asyncio.sleep(0)
        checkpoints.write()
        while store.get(CheckpointKey(TOPIC).text) is None or state.visibility.is_writing:
            await asyncio.sleep(0)
    again = TopicState("us", deduplicates=True)
    assert Checkpoints(store, TOPIC, 1, again).restore() == 2
    assert again.last_sequence_id("p") == 7
    assert again.visibility.hidden.runs() == [(0, 0)]
    await store.close()


async def test_a_cursor_that_moves_back_finds_state_dropped_from_memory() -> None:
    """Otherwise markers would be backlog again, and an update of another region would skip messages that it never
    had."""
    store = await MemoryStore.open(MemoryDisk(), "us")
    state = TopicState("us", deduplicates=False)
    checkpoints = Checkpoints(store, TOPIC, 1, state)
    for entry_id in range(2 * PART_IDS):
        state.fold(entry_id, Says(replicate_to=("eu",)))
    checkpoints.write()
    async with asyncio.timeout(5):
        while state.visibility.is_writing:
            await asyncio.sleep(0)
    state.visibility.forget_below(2 * PART_IDS)
    assert list(state.unseen_by("ap", 10)) == []
    checkpoints.remember_from(3)
    assert list(state.unseen_by("ap", 10)) == list(range(11))
    await store.close()


async def test_a_region_continues_from_its_checkpoint() -> None:
    """A producer receives its last sequence id, although no entry before the checkpoint is read again."""
    async with regions("us", state_checkpoint_entries=10) as world:
        async with world.client("us") as client:
            await publish(client, "p", 25)
        await world.crash("us")
        await world.start("us")
        async with world.client("us") as client:
            producer = await client.producer(TOPIC, name="p")
            assert producer.last_sequence_id == 24


async def test_a_topic_that_fails_during_dispatch_writes_no_checkpoint() -> None:
    """Its state in memory may be wrong."""
    async with regions("us", state_checkpoint_entries=1) as world, world.client("us") as client:
        producer = await client.producer(TOPIC, name="p")
        await producer.send(b"0")
        topic = world.running["us"].directory.serving[TOPIC]
        written = topic.checkpoints.write = Mock()  # type: ignore[method-assign]
        dispatch = topic._dispatch_to_subscriptions

        def fail() -> None:
            dispatch()
            topic.failed(StorageError("the disk said no", definite=True))

        topic._dispatch_to_subscriptions = fail  # type: ignore[method-assign]
        for number in range(5):
            await producer.send(b"%d" % number)
        assert topic.closed
        assert not written.called
