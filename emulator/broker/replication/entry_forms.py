"""The form in which entries travel to other regions, made once for all of them.

The replicators of a topic are rarely far from each other, so a region keeps the forms it made last, up to a bound. They
are no part of the entries that topics keep in memory: they would double what those hold, long after they were sent.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.topic.entry_cache import StoredEntry
from emulator.model.values import Position
from emulator.wire.entry import with_replication

FORMS_BYTES_MAX = 4_194_304
"""Of one region. Two windows of 1,000 entries of 1 KiB; larger entries are copied, which costs them little."""
FORM_OVERHEAD_BYTES = 300
"""What a form holds besides its bytes: their header, its key, its places."""

_new_tuple: Final = tuple.__new__
"""Makes a NamedTuple in half the time of its own constructor; values in the order of the fields."""


class ReplicatedEntryCache:
    """One a region."""

    def __init__(self, region: str, account: MemoryBudget) -> None:
        self._region = region
        self._charge = account.charge(0)
        self._forms: dict[tuple[int, int] | tuple[int, int, bytes], bytes] = {}
        """By position; and by what it says of its schema, where that differs from what it says here."""
        self._oldest_first: deque[tuple[int, int] | tuple[int, int, bytes]] = deque()
        self._held_bytes = 0

    def of(self, ledger_id: int, entry: StoredEntry, schema_version: bytes | None = None) -> bytes:
        """What is sent of an entry. `schema_version`: what its schema is called there, if it is not as here."""
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
        """Keep no more than the bound: after each batch."""
        while self._held_bytes > FORMS_BYTES_MAX:
            form = self._forms.pop(self._oldest_first.popleft())
            self._held_bytes -= len(form) + FORM_OVERHEAD_BYTES
        self._charge.resize(self._held_bytes)
