"""The newest entries of all topics share one pool, and their memory is counted."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emulator
from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.topic.entry_cache import (
    BLOCK_BYTES,
    ENTRY_OVERHEAD_BYTES,
    READ_BYTES,
    EntryCache,
    EntryCachePool,
)
from emulator.broker.topic.new_entries import EntryGroup, NewEntries
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.compiled import compiled_digest
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, plain_entry, with_replication
from emulator.wire.message_metadata import scan_entry


def entries(first: int, count: int, size: int = 100) -> NewEntries:
    """Build entries like those that a producer sends."""
    found = NewEntries()
    for entry_id in range(first, first + count):
        data = plain_entry("producer", 2**40 + entry_id, 2**41 + entry_id, bytes(size))
        found.append(StoredEntry(2**30 + entry_id, data, scan_entry(data)))
    return found


def tail_of(pool: EntryCachePool) -> EntryCache:
    return EntryCache(2**30, pool)


def ids(found: list[StoredEntry] | None) -> list[int] | None:
    return None if found is None else [entry.entry_id - 2**30 for entry in found]


def test_a_group_is_found_by_its_own_ids_only() -> None:
    """Ids of a Kafka log have gaps, also before the first cached entry: a replicator passes over a found group."""
    cache = tail_of(EntryCachePool(MemoryBudget("cache")))
    cache.extend(entries(2, 3, BLOCK_BYTES))
    group = EntryGroup(2**30 + 7, [b"data"] * 3, 12, "us")
    of_group = NewEntries()
    of_group.append_group(group)
    cache.extend(of_group)
    found = [cache.group_with(2**30 + entry_id) for entry_id in range(12)]
    assert found == [None] * 7 + [group] * 3 + [None] * 2


def see_every_kind() -> None:
    """The memory of an entry must not depend on the fields of earlier ones."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, marker_type=10)
    metadata.num_messages_in_batch, metadata.num_chunks_from_msg, metadata.chunk_id = 2, 2, 0
    metadata.replicate_to.append("eu")
    scan_entry(with_replication(build_entry(metadata, b""), "us", Position(1, 2)))


MADE_HERE = [
    tracemalloc.Filter(True, f"*/{name}")
    for name in (
        "tests/broker/topic/test_entry_cache.py",
        "wire/*.py",
        "broker/topic/entry_cache.py",
        "broker/topic/new_entries.py",
        "broker/topic/stored_entry.py",
    )
]
"""Threads left by earlier tests may also allocate memory."""


def test_a_read_ends_with_the_block_that_makes_it_large() -> None:
    """Otherwise one read of large entries would write the whole cache to a client that does not read."""
    cache = tail_of(EntryCachePool(MemoryBudget("cache")))
    for number in range(10):
        cache.extend(entries(number, 1, READ_BYTES // 3))
    assert ids(cache.read(2**30, 500)) == [0, 1, 2]
    assert ids(cache.read(2**30 + 9, 500)) == [9]
    assert ids(cache.read(2**30 + 3, 2)) == [3, 4]


@pytest.mark.long
def test_an_entry_is_charged_with_its_real_memory() -> None:
    """In the compiled build an entry uses less than it is charged with: its numbers are no objects there."""
    see_every_kind()
    account = MemoryBudget("tails")
    tail = tail_of(EntryCachePool(account))
    tail.extend(entries(0, 100))
    gc.collect()
    before = account.held_bytes
    tracemalloc.start()
    try:
        for first in range(100, 20_100, 200):
            tail.extend(entries(first, 200))
        snapshot = tracemalloc.take_snapshot().filter_traces(MADE_HERE)
        held = sum(trace.size for trace in snapshot.traces)
    finally:
        tracemalloc.stop()
    charged = account.held_bytes - before
    assert held <= charged <= (1.2 if compiled_digest(Path(emulator.__file__).parent) is None else 1.3) * held


def test_over_the_limit_the_oldest_block_of_any_topic_is_dropped() -> None:
    account = MemoryBudget("tails", limit_bytes=3 * BLOCK_BYTES)
    pool = EntryCachePool(account)
    quiet, busy = tail_of(pool), tail_of(pool)
    quiet.extend(entries(0, 10))
    for first in range(0, 1_000, 50):
        busy.extend(entries(first, 50))
    assert quiet.read(2**30, 10) is None
    assert ids(quiet.read(2**30 + 10, 10)) == []
    assert account.held_bytes <= 3 * BLOCK_BYTES
    assert ids(busy.read(2**30 + 990, 100)) == list(range(990, 1_000))


def test_a_closed_topic_releases_all_memory() -> None:
    account = MemoryBudget("tails")
    pool = EntryCachePool(account)
    one, other = tail_of(pool), tail_of(pool)
    one.extend(entries(0, 500))
    other.extend(entries(0, 5))
    one.close()
    assert account.held_bytes == sum(len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in entries(0, 5))
    other.close()
    assert account.held_bytes == 0


def test_a_pool_with_limit_zero_caches_nothing() -> None:
    tail = tail_of(EntryCachePool(MemoryBudget("tails", limit_bytes=0)))
    tail.extend(entries(0, 3))
    assert tail.read(2**30 + 2, 10) is None
    assert tail.read(2**30 + 3, 10) == []


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(0, 3_000)), max_size=30),
    st.integers(0, 4 * BLOCK_BYTES),
)
def test_the_cached_entries_are_the_newest(appends: list[tuple[int, int, int]], limit: int) -> None:
    pool = EntryCachePool(MemoryBudget("tails", limit_bytes=limit))
    tails = [tail_of(pool) for _ in range(3)]
    ends = [0, 0, 0]
    for which, count, size in appends:
        tails[which].extend(entries(ends[which], count, size))
        ends[which] += count
        for tail, end in zip(tails, ends, strict=True):
            start = tail.start_entry_id - 2**30
            assert ids(tail.read(tail.start_entry_id, 10_000)) == list(range(start, end))
            middle = (start + end) // 2
            assert ids(tail.read(2**30 + middle, 7)) == list(range(middle, min(middle + 7, end)))
