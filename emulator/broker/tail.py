"""The recent end of a topic's log, in memory.

Live consumers and replicators read here and only those that lag go to the store. Holds durable entries only
("visible" comes after "durable").
"""

from __future__ import annotations

from bisect import bisect_left

from emulator.wire.metadata import EntryInfo, scan_entry


class StoredEntry:
    """An entry with its parsed metadata."""

    __slots__ = ("data", "entry_id", "info", "replicated")

    def __init__(self, entry_id: int, data: bytes, info: EntryInfo) -> None:
        self.entry_id = entry_id
        self.data = data
        self.info = info
        self.replicated: bytes | None = None
        """Its form for other regions, made once for all of them."""

    @classmethod
    def parse(cls, entry_id: int, data: bytes) -> StoredEntry:
        return cls(entry_id, data, scan_entry(data))


class TailCache:
    """Consecutive newest entries, bounded by their bytes."""

    def __init__(self, end_entry_id: int, bytes_max: int) -> None:
        self.start_entry_id = end_entry_id
        """Every entry with an id >= this is here. Below, ask the store."""
        self._entries: list[StoredEntry] = []
        self._ids: list[int] = []
        self._bytes = 0
        self._bytes_max = bytes_max

    def extend(self, entries: list[StoredEntry]) -> None:
        """Add entries that follow all others."""
        self._entries += entries
        for entry in entries:
            self._ids.append(entry.entry_id)
            self._bytes += len(entry.data)
        if self._bytes > self._bytes_max:
            self._shrink()

    def _shrink(self) -> None:
        """Drop the older half at once, so that dropping costs little per entry."""
        drop = 0
        while drop < len(self._entries) - 1 and self._bytes > self._bytes_max // 2:
            self._bytes -= len(self._entries[drop].data)
            drop += 1
        del self._entries[:drop], self._ids[:drop]
        self.start_entry_id = self._ids[0]

    def read(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """Entries from an id on; None when it lies before what is kept here."""
        if from_entry_id < self.start_entry_id:
            return None
        at = bisect_left(self._ids, from_entry_id)
        return self._entries[at : at + entries_max]
