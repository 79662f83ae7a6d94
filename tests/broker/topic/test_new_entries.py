"""Entries of groups, which become objects when they are read, are read as the same entries one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic import new_entries
from emulator.broker.topic.entry_cache import EntryCache, EntryCachePool
from emulator.broker.topic.new_entries import EntryGroup, GroupSlice, NewEntries, id_at
from emulator.broker.topic.stored_entry import PlainReplica, StoredEntry
from emulator.core.replication.progress import ReplicationProgress, ReplicatorState, forwarding
from emulator.model.values import Position
from emulator.simulation.world import World, world
from emulator.wire.entry import plain_entry, with_replication
from emulator.wire.message_metadata import scan_entry
from tests.broker.replication.test_replicator import TOPIC, replicator_of

__all__ = ["world"]

FIRST = 7

parts = st.tuples(st.sampled_from([None, None, "eu", "ap"]), st.integers(1, 9), st.booleans())
"""(origin, number of entries, whether they are a group)."""
appends = st.lists(st.lists(parts, min_size=1, max_size=4), min_size=1, max_size=6)


def datas_of(first: int, count: int, origin: str | None) -> list[bytes]:
    own = [plain_entry("p", number, 1, bytes(number % 50)) for number in range(first, first + count)]
    if origin is None:
        return own
    return [with_replication(data, origin, Position(3, number)) for number, data in enumerate(own, first)]


def single(entry_id: int, data: bytes) -> StoredEntry:
    return StoredEntry(entry_id, data, scan_entry(data))


def built(first: int, of_append: list[tuple[str | None, int, bool]], *, in_groups: bool) -> NewEntries:
    found = NewEntries()
    for origin, count, is_group in of_append:
        datas = datas_of(first, count, origin)
        if is_group and in_groups:
            found.append_group(EntryGroup(first, datas, sum(map(len, datas)), origin))
        else:
            for entry_id, data in enumerate(datas, first):
                found.append(single(entry_id, data))
        first += count
    return found


def seen(entries: Any) -> list[tuple[Any, ...]] | None:
    if entries is None:
        return None
    return [(one.entry_id, one.data, one.replicated_from, one.messages, one.hidden) for one in entries]


def in_one(parts: list[Sequence[StoredEntry]] | None) -> list[tuple[Any, ...]] | None:
    """Return the entries of parts, none of which is empty, as `seen` does; their ids and data are known before."""
    if parts is None:
        return None
    assert all(parts)
    columns = [(id_at(part, index), one) for part in parts for index, one in enumerate(datas_in(part))]
    found = seen(entry for part in parts for entry in part)
    assert found is not None
    assert columns == [one[:2] for one in found]
    assert found == seen(part[index] for part in parts for index in range(len(part)))
    return found


def datas_in(part: Sequence[StoredEntry]) -> list[bytes]:
    return part.datas(0, len(part)) if isinstance(part, GroupSlice) else [entry.data for entry in part]


def number_of(of_append: list[tuple[str | None, int, bool]]) -> int:
    return sum(count for _, count, _ in of_append)


@given(appends, st.sampled_from([0, 3_000, 10**6]), st.data())
def test_a_cache_of_groups_is_read_as_one_of_single_entries(
    made: list[list[tuple[str | None, int, bool]]], limit: int, data: st.DataObject
) -> None:
    caches = {
        choice: EntryCache(FIRST, EntryCachePool(MemoryBudget("cache", limit_bytes=limit)))
        for choice in (True, False)
    }
    end = FIRST
    log: list[StoredEntry] = []
    kept: list[tuple[NewEntries, int]] = []
    for of_append in made:
        for choice, cache in caches.items():
            kept.append((built(end, of_append, in_groups=choice), number_of(of_append)))
            cache.extend(kept[-1][0])
        log += built(end, of_append, in_groups=False)
        end += number_of(of_append)
        assert caches[True].start_entry_id == caches[False].start_entry_id
        for _ in range(data.draw(st.integers(0, 2))):
            begin, entries_max = data.draw(st.integers(FIRST, end)), data.draw(st.integers(1, 12))
            in_parts = [in_one(caches[choice].read_parts(begin, entries_max)) for choice in (True, False)]
            found = [seen(caches[choice].read(begin, entries_max)) for choice in (True, False)]
            is_cached = begin >= caches[True].start_entry_id
            assert found == [seen(log[begin - FIRST :][:entries_max]) if is_cached else None] * 2
            assert in_parts == found
    assert [len(entries) for entries, _ in kept] == [count for _, count in kept], "later ones are not added"
    budgets = {choice: cache._pool._budget.held_bytes for choice, cache in caches.items()}
    assert budgets[True] == budgets[False]


def test_groups_that_are_not_read_do_not_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those behind the last entry that is asked for, nor those before the first one."""
    cache = EntryCache(FIRST, EntryCachePool(MemoryBudget("cache", limit_bytes=10**6)))
    cache.extend(built(FIRST, [(None, 5, True), ("eu", 5, True), (None, 5, True)], in_groups=True))
    monkeypatch.setattr(EntryGroup, "entries", property(lambda _: pytest.fail("objects")))
    for from_entry_id, entries_max, expected in (
        (FIRST, 5, [5]),
        (FIRST + 3, 4, [2, 2]),
        (FIRST + 15, 9, []),
    ):
        found = cache.read_parts(from_entry_id, entries_max)
        assert found is not None
        assert [len(part) for part in found] == expected


@given(st.lists(parts, min_size=1, max_size=5), st.integers(0, 60))
def test_new_entries_are_a_sequence_of_single_ones(
    of_append: list[tuple[str | None, int, bool]], index: int
) -> None:
    groups, alone = (built(FIRST, of_append, in_groups=choice) for choice in (True, False))
    assert (len(groups), groups.size_bytes) == (len(alone), alone.size_bytes)
    assert seen(groups.alone) == seen(
        one
        for (_, count, is_group), first in zip(of_append, starts(of_append), strict=True)
        if not is_group
        for one in list(alone)[first - FIRST : first - FIRST + count]
    )
    assert seen(groups) == seen(alone)
    assert seen(groups) == seen(alone), "the second time, too"
    assert seen([groups[index % len(groups)]]) == seen([alone[index % len(groups)]])
    assert seen(alone.alone) == seen(alone)


def starts(of_append: list[tuple[str | None, int, bool]]) -> list[int]:
    found = [FIRST]
    for _, count, _ in of_append:
        found.append(found[-1] + count)
    return found[:-1]


@given(appends, st.booleans())
def test_the_group_of_each_entry_is_found(
    made: list[list[tuple[str | None, int, bool]]], reads_first: bool
) -> None:
    cache = EntryCache(FIRST, EntryCachePool(MemoryBudget("cache")))
    assert cache.group_with(FIRST) is None
    expected: dict[int, tuple[int, int, str | None] | None] = {}
    end = FIRST
    for of_append in made:
        cache.extend(built(end, of_append, in_groups=True))
        for origin, count, is_group in of_append:
            expected |= dict.fromkeys(
                range(end, end + count), (end, end + count, origin) if is_group else None
            )
            end += count
    if reads_first:
        cache.read(FIRST, 1_000)
    for entry_id, group_of_id in expected.items():
        group = cache.group_with(entry_id)
        found = None if group is None else (group.first_entry_id, group.end_entry_id, group.replicated_from)
        assert found == group_of_id
    assert cache.group_with(FIRST - 1) is None
    assert cache.group_with(end) is None


@given(st.lists(parts, min_size=1, max_size=5), st.integers(0, 50), st.integers(0, 50), st.booleans())
@example([("eu", 9, True)], 2, 5, False)
@example([(None, 3, True), ("eu", 4, True), ("ap", 4, True), ("eu", 2, False)], 3, 13, True)
def test_a_replicator_passes_over_the_groups_of_other_regions(
    of_append: list[tuple[str | None, int, bool]], start: int, end: int, in_flight: bool
) -> None:
    """Up to the first entry that it must read, and never beyond what may be replicated."""
    cache = EntryCache(FIRST, EntryCachePool(MemoryBudget("cache")))
    cache.extend(built(FIRST, of_append, in_groups=True))
    last = FIRST + number_of(of_append)
    begin, replicable_end = min(FIRST + start, last), min(FIRST + end, last)
    progress = ReplicationProgress(begin - 1, entries_max=10, bytes_max=1_000)
    if in_flight:
        progress = ReplicationProgress(begin - 2, entries_max=10, bytes_max=1_000)
        progress.sent(begin - 1, [1])
    confirmed, changes = progress.confirmed, []
    replicator: Any = SimpleNamespace(
        remote="eu",
        progress=progress,
        topic=SimpleNamespace(state=SimpleNamespace(replicable_end=replicable_end), reading=cache),
        _forwarding=forwarding,
        _stored=SimpleNamespace(changed=lambda: changes.append(1)),
    )
    Replicator._pass_groups(replicator)
    expected = begin
    for first, (origin, count, is_group) in zip(starts(of_append), of_append, strict=True):
        if first <= expected < min(first + count, replicable_end) and is_group and origin is not None:
            expected = min(first + count, replicable_end)
    assert progress.next_entry_id == expected
    has_moved = expected > begin and not in_flight
    assert progress.confirmed == (expected - 1 if has_moved else confirmed)
    assert len(changes) == has_moved


@given(
    st.lists(parts, min_size=1, max_size=4),
    st.sampled_from([None, "state", "window", "next", "open", "dropped"]),
)
@example([("eu", 9, True), ("ap", 1, False)], None)
@example([(None, 1, False)], None)
def test_a_replicator_passes_over_an_append_only_if_pumping_would(
    of_append: list[tuple[str | None, int, bool]], obstacle: str | None
) -> None:
    entries = built(FIRST, of_append, in_groups=True)
    end = FIRST + number_of(of_append)
    progress = ReplicationProgress(FIRST - 1 - (obstacle == "next"), entries_max=1, bytes_max=1_000)
    if obstacle == "window":
        progress = ReplicationProgress(FIRST - 2, entries_max=1, bytes_max=1_000)
        progress.sent(FIRST - 1, [1])
    done: list[str] = []
    replicator: Any = SimpleNamespace(
        remote="us",
        progress=progress,
        lifecycle=SimpleNamespace(
            state=ReplicatorState.READING if obstacle == "state" else ReplicatorState.STREAMING
        ),
        peer=SimpleNamespace(writable=True),
        rate=SimpleNamespace(throttle=None),
        topic=SimpleNamespace(
            state=SimpleNamespace(replicable_end=end - (obstacle == "open")),
            reading=SimpleNamespace(
                cache=SimpleNamespace(start_entry_id=end if obstacle == "dropped" else FIRST)
            ),
        ),
        _forwarding=forwarding,
        _stored=SimpleNamespace(changed=lambda: done.append("confirmed")),
        pump=lambda: done.append("pumped"),
    )
    replicator._forwards = lambda info: Replicator._forwards(replicator, info)
    replicator._sends_any = lambda entries: Replicator._sends_any(replicator, entries)
    replicator._passes_over = lambda entries: Replicator._passes_over(replicator, entries)
    Replicator.entries_stored(replicator, entries)
    passes_over = obstacle is None and all(origin is not None for origin, *_ in of_append)
    assert done == ["confirmed" if passes_over else "pumped"]
    if passes_over:
        assert (progress.next_entry_id, progress.confirmed) == (end, end - 1)


@pytest.mark.world("us", "eu")
async def test_messages_of_another_region_become_no_objects_without_a_consumer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(
        new_entries, "PlainReplica", lambda *of_entry: made.append(of_entry[0]) or PlainReplica(*of_entry)
    )
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    await asyncio.gather(*(producer.send(b"1") for _ in range(100)))
    await world.quiet()
    back = replicator_of(world, "eu", "us")
    assert (back.backlog, back.topic.state.stored_end, made) == (0, 101, [])
    consumer = await world.client("eu").subscribe(TOPIC, "s")
    await asyncio.gather(*(producer.send(b"2") for _ in range(50)))
    assert [(await consumer.receive()).payload for _ in range(50)] == [b"2"] * 50
    assert made, "a consumer reads them"
