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


def test_a_replicated_form_is_computed_once() -> None:
    forms = ReplicatedEntryCache("us", MemoryBudget("forms"))
    one = entry(5)
    form = forms.form_of(7, one)
    data = with_replication(one.data, "us", Position(7, 5))
    assert begin_of_send(3, form, None) + form.data == send_frame(3, 5, data=data)
    assert forms.form_of(7, one) is form
    assert forms.form_of(8, one) != form, "of another topic"


def test_the_oldest_forms_are_dropped_and_memory_is_charged() -> None:
    account = MemoryBudget("forms")
    forms = ReplicatedEntryCache("us", account)
    first = forms.form_of(7, entry(0, 100_000))
    for entry_id in range(1, 100):
        forms.form_of(7, entry(entry_id, 100_000))
        forms.trim()
        assert 0 < account.held_bytes <= FORMS_BYTES_MAX
    assert forms.form_of(7, entry(0, 100_000)) is not first
