"""A new partition starts with the subscriptions of partition 0 (N4): which keys are written, and which are left
alone."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.components import SHIPPED
from emulator.broker.subscription.cursor_store import StoredCursor, cursors_of_topic
from emulator.broker.topic_assembly import inherit_subscriptions
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import CursorKey, CursorPartKey
from emulator.model.values import TopicName
from emulator.storage.memory import MemoryDisk, MemoryStore

FIRST, SECOND = (f"persistent://public/default/orders-partition-{index}" for index in range(2))


async def keep(
    store: MemoryStore, topic: str, name: str, mark_delete: int, *, replicated: bool = False
) -> None:
    cursor = Cursor(mark_delete)
    cursor.set_replicated(replicated)
    for step in StoredCursor(CursorKey(topic, name), CursorParts(cursor)).take_changes().puts:
        for key, value in step.items():
            await store.put(key, value)


async def begin(store: MemoryStore, topic: str = SECOND) -> None:
    log = await store.open_log(topic)
    assert log is not None
    await inherit_subscriptions(store, TopicName.parse(topic), log, SHIPPED.subscriptions)


def cursors(store: MemoryStore, topic: str = SECOND) -> dict[str, tuple[int, bool]]:
    return {
        one.key.subscription: (one.cursor.mark_delete, one.cursor.replicated)
        for one in cursors_of_topic(store, topic, CursorParts)
    }


async def test_an_inherited_subscription_begins_at_the_first_message() -> None:
    store = await MemoryStore.open(MemoryDisk())
    await keep(store, FIRST, "billing", 40)
    await keep(store, FIRST, "audit", -1, replicated=True)
    await begin(store)
    assert cursors(store) == {"audit": (-1, True), "billing": (-1, False)}


async def test_an_existing_subscription_is_not_changed() -> None:
    store = await MemoryStore.open(MemoryDisk())
    await keep(store, FIRST, "billing", 40)
    await keep(store, SECOND, "billing", 7, replicated=True)
    await begin(store)
    assert cursors(store) == {"billing": (7, True)}


async def test_a_partition_with_messages_inherits_no_subscription() -> None:
    """Its messages were published before the subscription existed."""
    store = await MemoryStore.open(MemoryDisk())
    await keep(store, FIRST, "billing", 40)
    log = await store.open_log(SECOND)
    assert log is not None
    await log.append([b"hello"])
    await begin(store)
    assert cursors(store) == {}


async def test_partition_0_inherits_no_subscription() -> None:
    store = await MemoryStore.open(MemoryDisk())
    await keep(store, FIRST, "billing", 40)
    await begin(store, FIRST)
    assert cursors(store, FIRST) == {"billing": (40, False)}


async def test_a_cursor_that_partition_0_is_writing_is_not_touched() -> None:
    """Parts of a cursor may be durable before its head is (S1). Loading a topic deletes parts without a head; here the
    topic may be in use."""
    store = await MemoryStore.open(MemoryDisk())
    part = CursorPartKey(FIRST, "billing", "0-0").text
    await store.put(part, b"acknowledged")
    await begin(store)
    await asyncio.sleep(0)
    assert store.get(part) is not None
    assert cursors(store) == {}


async def test_a_damaged_cursor_of_partition_0_is_named_by_its_key() -> None:
    store = await MemoryStore.open(MemoryDisk())
    key = CursorKey(FIRST, "billing").text
    await store.put(key, b"{}")
    with pytest.raises(StorageDamaged, match=r"cursor.*billing"):
        await begin(store)


async def test_disabled_replication_stays_disabled_in_a_new_partition() -> None:
    store = await MemoryStore.open(MemoryDisk())
    cursor = Cursor(40)
    cursor.disable_replication()
    for step in StoredCursor(CursorKey(FIRST, "billing"), CursorParts(cursor)).take_changes().puts:
        for key, value in step.items():
            await store.put(key, value)
    await begin(store)
    (new,) = cursors_of_topic(store, SECOND, CursorParts)
    assert (new.cursor.replicated, new.cursor.replication_disabled) == (False, True)
