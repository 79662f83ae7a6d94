"""Producers that wait for exclusive access (PIP-440), and claims that wait for a write of the grant."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

from emulator.core.access.types import Claimant, QueueEntry


class WaitQueue:
    """The wait queue of one topic, owned by `Access`. A producer is found in logarithmic time: ten thousand may
    leave at once."""

    def __init__(self) -> None:
        self.entries: list[QueueEntry] = []
        """Producers that wait for access, sorted: the first one is promoted next."""
        self.changes = 0
        """Number of additions to and removals from `entries`."""
        self._postponed: deque[QueueEntry] | None = None
        """Claims to decide after the write of the grant, in order of arrival. Some of their producers may have left.
        Created at the first one: an empty deque uses 0.6 KB, and most topics have no exclusive producers."""
        self._by_claimant: dict[Claimant, QueueEntry] = {}
        """Every entry of `entries` and `_postponed`, except those of producers that left."""
        self._by_name: dict[str, Claimant] = {}

    def __bool__(self) -> bool:
        """Whether a producer waits for exclusive access."""
        return bool(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_empty(self) -> bool:
        """Whether no producer waits, neither for access nor for the outcome of a write."""
        return not self._by_claimant

    def named(self, name: str) -> Claimant | None:
        return self._by_name.get(name)

    def add(self, entry: QueueEntry) -> None:
        insort(self.entries, entry)
        self.changes += 1
        self._index(entry)

    def postpone(self, entry: QueueEntry) -> None:
        """Let a claim wait for the write of the grant. One that is postponed again keeps its position."""
        if self._postponed is None:
            self._postponed = deque()
        if self._postponed and entry.serial < self._postponed[0].serial:
            self._postponed.appendleft(entry)
        else:
            self._postponed.append(entry)
        self._index(entry)

    def take_postponed(self) -> Iterator[QueueEntry]:
        """Remove and yield postponed entries in order of arrival, skipping producers that left."""
        while self._postponed:
            entry = self._postponed.popleft()
            if self.remove(entry.claimant):
                yield entry

    def pop_first(self) -> Claimant:
        claimant = self.entries[0].claimant
        self.remove(claimant)
        return claimant

    def remove(self, claimant: Claimant) -> bool:
        """Remove the claim of a producer; return False if it has none here."""
        entry = self._by_claimant.pop(claimant, None)
        if entry is None:
            return False
        if self._by_name.get(claimant.producer_name) is claimant:
            del self._by_name[claimant.producer_name]
        at = bisect_left(self.entries, entry)
        if at < len(self.entries) and self.entries[at] is entry:
            del self.entries[at]
            self.changes += 1
        return True

    def _index(self, entry: QueueEntry) -> None:
        self._by_claimant[entry.claimant] = entry
        self._by_name[entry.claimant.producer_name] = entry.claimant
