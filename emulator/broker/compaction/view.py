"""Reads the compacted log of a topic by the ids that its entries have in the topic's own log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from struct import Struct
from typing import Final

from emulator.broker.compaction.stored import CompactedRow
from emulator.broker.topic.entry_cache import StoredEntry
from emulator.storage.contract import Log

_ID: Final = Struct(">Q")
PLACES_MAX: Final = 64
"""Number of sequential readers whose position is found without a search."""


def encode_record(entry_id: int, data: bytes) -> bytes:
    """Encode an entry of the compacted log: its id in the topic's log, then its bytes."""
    return _ID.pack(entry_id) + data


class CompactedView:
    """One generation. Many readers use it; it is dropped when the last read after `retire` has ended."""

    def __init__(self, log: Log, row: CompactedRow) -> None:
        self.log = log
        self.row = row
        self._places: OrderedDict[int, int] = OrderedDict()
        """Id in the topic's log -> id here of the first entry at or behind it; where reads ended."""
        self._reads = 0
        self._unread: Callable[[], None] | None = None

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Return entries from an id of the topic's log on; empty at the end. StorageError when the store fails."""
        self._reads += 1
        try:
            at = await self._place_of(from_entry_id)
            found = await self.log.read(at, entries_max, bytes_max)
        finally:
            self._reads -= 1
            self._tell_if_unread()
        if not found:
            return []
        entries = [StoredEntry.read(_ID.unpack_from(data)[0], data[_ID.size :]) for _, data in found]
        self._remember(entries[-1].entry_id + 1, found[-1].entry_id + 1)
        return entries

    def _remember(self, entry_id: int, place: int) -> None:
        self._places[entry_id] = place
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)

    async def _place_of(self, entry_id: int) -> int:
        """Binary search; ids here may have gaps, too (S3)."""
        known = self._places.pop(entry_id, None)
        if known is not None:
            return known
        low, high = self.log.first_entry_id, self.log.next_entry_id
        while low < high:
            middle = (low + high) // 2
            found = await self.log.read(middle, 1, 1)
            if not found or found[0].entry_id >= high or _ID.unpack_from(found[0].data)[0] >= entry_id:
                high = middle
            else:
                low = found[0].entry_id + 1
        return low

    def retire(self, unread: Callable[[], None]) -> None:
        """Accept no new reads. `unread` is called once, when the last read has ended."""
        self._unread = unread
        self._tell_if_unread()

    def _tell_if_unread(self) -> None:
        if self._unread is not None and self._reads == 0:
            tell, self._unread = self._unread, None
            tell()
