"""Entries with a delivery time in the future, ordered by delivery time.

Each entry takes two numbers of eight bytes, in blocks of sorted arrays, and one bit: whether it still waits.

    starts    12:00:00        12:00:07        12:04:00
    blocks    [due, due, …]   [due, due, …]   [due, …]       ascending
              [id,  id,  …]   [id,  id,  …]   [id,  …]

A million entries take about 17 MB, whatever their times, and adding one moves at most one block. The bit of an entry
is cleared when it is dispatched or acknowledged; its numbers stay until they reach the front.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from emulator.core.cursor.id_set import IdSet

BLOCK_ENTRIES: Final = 1_024
LATEST_MS: Final = 2**63 - 1


class Delayed:
    """The delayed entries of one subscription. Times are milliseconds on one clock, at most `LATEST_MS`. Invariant: the
    bit of the first entry is set."""

    __slots__ = ("_dues", "_ids", "_starts", "_waiting", "count")

    def __init__(self) -> None:
        self._starts = array("q")
        """Earliest delivery time of each block."""
        self._dues: list[array[int]] = []
        self._ids: list[array[int]] = []
        self._waiting = IdSet()
        self.count = 0
        """Number of waiting entries."""

    def __bool__(self) -> bool:
        return self.count > 0

    def __contains__(self, entry_id: int) -> bool:
        return entry_id in self._waiting

    # Queries.

    @property
    def first_due_ms(self) -> int:
        """Earliest delivery time. There must be a waiting entry."""
        return self._starts[0]

    @property
    def first_id(self) -> int:
        """Id of the entry that is due first; of several, the one added first. There must be a waiting entry."""
        return self._ids[0][0]

    def due_run_length(self, due_ms: int, entries_max: int) -> int:
        """Return how many entries at the front of the first block are due by `due_ms` and have consecutive ids, at most
        `entries_max`. There must be a waiting entry."""
        dues, ids = self._dues[0], self._ids[0]
        first, end = ids[0], min(bisect_right(dues, due_ms), entries_max)
        return next((at for at in range(end) if ids[at] != first + at), end)

    # Updates.

    def add(self, due_ms: int, entry_id: int) -> None:
        """Add an entry that is not waiting."""
        added = self._waiting.add(entry_id)
        assert added
        self.count += 1
        at = bisect_right(self._starts, due_ms) - 1
        if at < 0:
            at = 0
        if not self._starts or (at == len(self._starts) - 1 and self._is_after_all(due_ms)):
            self._starts.append(due_ms)
            self._dues.append(array("q", (due_ms,)))
            self._ids.append(array("q", (entry_id,)))
            return
        dues = self._dues[at]
        position = bisect_right(dues, due_ms)
        dues.insert(position, due_ms)
        self._ids[at].insert(position, entry_id)
        self._starts[at] = dues[0]
        if len(dues) > BLOCK_ENTRIES:
            self._split(at)

    def _is_after_all(self, due_ms: int) -> bool:
        """Whether the last block is full and the new entry is not due before its end. The entry then begins a new
        block, so that entries added in order fill their blocks."""
        last = self._dues[-1]
        return len(last) >= BLOCK_ENTRIES and last[-1] <= due_ms

    def _split(self, at: int) -> None:
        half = BLOCK_ENTRIES // 2
        for blocks in (self._dues, self._ids):
            blocks.insert(at + 1, blocks[at][half:])
            del blocks[at][half:]
        self._starts.insert(at + 1, self._dues[at + 1][0])

    def pop_first(self) -> int:
        """Remove and return the id of the entry that is due first."""
        entry_id = self.first_id
        self.discard(entry_id)
        return entry_id

    def discard(self, entry_id: int) -> None:
        """Remove an entry, if it is waiting."""
        if self._waiting.discard(entry_id):
            self.count -= 1
            self._drop_front()

    def forget(self, acknowledged: Callable[[int], int]) -> None:
        """Remove acknowledged entries. `acknowledged(part)` returns the acknowledged ids of a part of `IdSet`, one bit
        each."""
        if not self.count:
            return
        parts = self._waiting.parts
        for number, bits in list(parts.items()):
            if not (remaining := bits & ~acknowledged(number)):
                del parts[number]
            elif remaining != bits:
                parts[number] = remaining
        self.count = len(self._waiting)
        self._drop_front()

    def clear(self) -> None:
        self._waiting.clear()
        self.count = 0
        self._drop_front()

    def _drop_front(self) -> None:
        """Remove leading entries that do not wait any more (the invariant of the class)."""
        if not self.count:
            del self._starts[:], self._dues[:], self._ids[:]
            return
        while self._ids[0][0] not in self._waiting:
            del self._dues[0][0], self._ids[0][0]
            if self._ids[0]:
                self._starts[0] = self._dues[0][0]
            else:
                del self._starts[0], self._dues[0], self._ids[0]
