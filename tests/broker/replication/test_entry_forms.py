"""The replicated form of an entry is built once for all remote regions, and cached up to a bound."""

from __future__ import annotations

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.replication.entry_forms import FORMS_BYTES_MAX, ReplicatedEntryCache
from emulator.broker.topic.entry_cache import StoredEntry
from emulator.model.values import Position
from emulator.wire.codec_hot.publishing import begin_of_send, send_frame
from emulator.wire.entry import plain_entry, with_replication
from emulator.wire.message_metadata import scan_entry


def entry(entry_id: int, size: int = 100) -> StoredEntry:
    data = plain_entry("p", entry_id, 1, bytes(size))
    return StoredEntry(entry_id, data, scan_entry(data))


def test_a_form_is_the_end_of_the_send_frame() -> None:
    log = ReplicatedEntryCache("us", MemoryBudget("forms")).of_log(7)
    one = entry(5)
    form = log.add(one)
    data = with_replication(one.data, "us", Position(7, 5))
    assert begin_of_send(3, form, None) + form.data == send_frame(3, 5, data=data)


def test_forms_are_found_by_log_and_schema_version() -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    form = cache.of_log(7).add(entry(5))
    cache.trim()
    assert cache.of_log(7).forms == {5: form}
    assert not cache.of_log(8).forms
    assert not cache.of_log(7, b"").forms, "of an entry whose version was removed"


def test_the_oldest_forms_are_dropped_and_memory_is_charged() -> None:
    account = MemoryBudget("forms")
    cache = ReplicatedEntryCache("us", account)
    for entry_id in range(100):
        cache.of_log(7).add(entry(entry_id, 100_000))
        cache.of_log(8, b"1").add(entry(entry_id, 1_000))
        cache.trim()
        assert 0 < account.held_bytes <= FORMS_BYTES_MAX
    kept = [*cache.of_log(7).forms]
    assert kept == [*range(kept[0], 100)] == [*cache.of_log(8, b"1").forms]
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
