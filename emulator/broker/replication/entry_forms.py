"""Entries in the form in which they are replicated, computed once for all remote regions.

The replicators of a topic are rarely far apart, so a region caches the newest forms, up to a bound. They are not stored
with the entries that topics cache: they would double that memory, long after they were sent.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.topic.entry_cache import StoredEntry
from emulator.model.values import Position
from emulator.wire.entry import with_replication

FORMS_BYTES_MAX = 4_194_304
"""Limit of one region: two windows of 1,000 entries of 1 KiB. Larger entries are copied, which costs them little."""
FORM_OVERHEAD_BYTES = 300
"""Memory of a form besides its bytes: their header, its key, its slots."""

_new_tuple: Final = tuple.__new__
"""Creates a NamedTuple in half the time of its constructor; values in the order of the fields."""


class ReplicatedEntryCache:
    """One per region."""

    def __init__(self, region: str, account: MemoryBudget) -> None:
        self._region = region
        self._charge = account.charge(0)
        self._forms: dict[tuple[int, int] | tuple[int, int, bytes], bytes] = {}
        """By position, and by the remote schema version where that differs from the local one."""
        self._oldest_first: deque[tuple[int, int] | tuple[int, int, bytes]] = deque()
        self._held_bytes = 0

    def of(self, ledger_id: int, entry: StoredEntry, schema_version: bytes | None = None) -> bytes:
        """Return the replicated form of an entry. `schema_version`: its schema's version in the remote region, if
        different."""
        place = (ledger_id, entry.entry_id)
        key = place if schema_version is None else (*place, schema_version)
        form = self._forms.get(key)
        if form is None:
            position = _new_tuple(Position, place)
            form = with_replication(entry.data, self._region, position, schema_version)
            self._forms[key] = form
            self._oldest_first.append(key)
            self._held_bytes += len(form) + FORM_OVERHEAD_BYTES
        return form

    def trim(self) -> None:
        """Drop the oldest forms over the bound; called after each batch."""
        while self._held_bytes > FORMS_BYTES_MAX:
            form = self._forms.pop(self._oldest_first.popleft())
            self._held_bytes -= len(form) + FORM_OVERHEAD_BYTES
        self._charge.resize(self._held_bytes)
