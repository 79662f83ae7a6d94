"""The replicated form of an entry is built once for all remote regions, and cached up to a bound."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.replication.entry_forms import FORMS_BYTES_MAX, ReplicatedEntryCache
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.model.values import Position
from emulator.wire.codec_hot.message_runs import MessageRun
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import plain_entry, with_replication
from emulator.wire.message_metadata import scan_entry


def entry(entry_id: int, size: int = 100) -> StoredEntry:
    data = plain_entry("p", entry_id, 1, bytes(size))
    return StoredEntry(entry_id, data, scan_entry(data))


def test_a_form_is_the_end_of_the_send_frame() -> None:
    log = ReplicatedEntryCache("us", MemoryBudget("forms")).of_log(7)
    one = entry(5)
    data = with_replication(one.data, "us", Position(7, 5))
    assert b"".join(log.add(one).frames(3, 0, 1, None, 10**7)) == send_frame(3, 5, data=data)


def test_forms_are_found_by_log_and_schema_version() -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    form = cache.of_log(7).add(entry(5))
    cache.trim()
    assert cache.of_log(7).find(5) is form
    assert cache.of_log(7).find(4) is cache.of_log(7).find(6) is None
    assert not len(cache.of_log(8))
    assert not len(cache.of_log(7, b"")), "of an entry whose version was removed"


def test_the_oldest_forms_are_dropped_and_memory_is_charged() -> None:
    account = MemoryBudget("forms")
    cache = ReplicatedEntryCache("us", account)
    for entry_id in range(100):
        cache.of_log(7).add(entry(entry_id, 100_000))
        cache.of_log(8, b"1").add(entry(entry_id, 1_000))
        cache.trim()
        assert 0 < account.held_bytes <= FORMS_BYTES_MAX
    kept = cache.of_log(7).entry_ids
    assert kept == [*range(kept[0], 100)] == cache.of_log(8, b"1").entry_ids
    assert 30 < len(kept) < 50


def test_a_group_beyond_the_bound_is_dropped_as_a_whole() -> None:
    account = MemoryBudget("forms")
    cache = ReplicatedEntryCache("us", account)
    log = cache.of_log(7)
    for entry_id in range(100):
        log.add(entry(entry_id, 100_000))
    cache.trim()
    cache.trim()
    assert account.held_bytes == 0
    assert cache.of_log(7) is not log, "logs without forms are not kept"


def stored(*entry_ids: int) -> list[StoredEntry]:
    """Entries as they are read from the store: not decoded."""
    return [StoredEntry.read(one, plain_entry("p", one, 1, b"x")) for one in entry_ids]


@pytest.mark.parametrize("in_runs", [False, True])
def test_runs_of_a_log_do_not_overlap(in_runs: bool) -> None:
    """A replicator that is behind builds what is missing before the run of another one, up to it."""
    log = ReplicatedEntryCache("us", MemoryBudget("forms")).of_log(7, in_runs=in_runs)
    entries = stored(*range(130, 170))
    later = log.plain_run(entries, 20)
    assert later is not None
    assert (later.first_entry_id, len(later)) == (150, 20)
    earlier = log.plain_run(entries, 4)
    assert earlier is not None
    assert (earlier.first_entry_id, len(earlier)) == (134, 16)
    assert isinstance(earlier, MessageRun) == isinstance(later, MessageRun) == in_runs
    assert log.plain_run(entries, 22) is later
    assert log.plain_run(entries, 19) is earlier
    assert log.entry_ids == [*range(134, 170)]


def test_the_run_that_was_built_first_is_dropped_first() -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    for entry_id in (9, 5, 7, 3):
        cache.of_log(7).add(entry(entry_id, 1_100_000))
        cache.trim()
    assert cache.of_log(7).entry_ids == [3, 5, 7]


def test_the_memory_of_a_run_is_at_most_what_is_charged() -> None:
    account = MemoryBudget("forms")
    cache = ReplicatedEntryCache("us", account)
    entries = stored(*range(500))
    gc.collect()
    tracemalloc.start()
    run = cache.of_log(7).plain_run(entries, 0)
    assert run is not None
    run.frames(3, 0, len(run), None, 10**7)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cache.trim()
    assert used * 0.7 < account.held_bytes
    assert account.held_bytes < used * 1.5
