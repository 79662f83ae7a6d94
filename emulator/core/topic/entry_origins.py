"""Which entries of one log originate in regions that updates of replicated subscriptions did not name.

An update that does not name a region acknowledges no message of that region (INV-5). A log stores the origin of each
entry in the entry itself; nothing else of it is recorded when entries are stored, so publishing costs nothing. The
origins are read from the log when an update needs them, once for each entry between the lowest cursor and the newest
message of that region. Until they are read, any entry of that range may be a message of that region.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from emulator.core.cursor.id_set import PART_BITS, IdSet, mask_of


class OriginRange(NamedTuple):
    """Entries whose origins are to be read: first..last, both included."""

    region: str
    first: int
    last: int


class EntryOrigins:
    """The known origins of entries, per region that an update did not name. One bit per entry and such region."""

    def __init__(self) -> None:
        self._read: dict[str, IdSet] = {}
        """Region -> entries for which it is known whether they originate there."""
        self._of: dict[str, IdSet] = {}
        """Region -> entries that originate there, among those of `_read`."""

    def add_possibly_of(self, found: IdSet, region: str, first: int, last: int) -> None:
        """Add to `found` the ids of first..last, both included, that originate in a region or may do so."""
        read, of = self._read.get(region, _NONE).parts, self._of.get(region, _NONE).parts
        for number in range(first >> PART_BITS, (last >> PART_BITS) + 1):
            of_others = read.get(number, 0) & ~of.get(number, 0)
            if bits := mask_of(number, first, last) & ~of_others:
                found.parts[number] = found.parts.get(number, 0) | bits

    def unread(self, region: str, first: int, last: int) -> OriginRange | None:
        """Return the part of first..last, both included, that contains all entries with an unknown origin; None: there
        are none."""
        read = self._read.get(region, _NONE)
        first += read.run_from(first)
        last = read.last_absent(first, last)
        return OriginRange(region, first, last) if first <= last else None

    def learn(self, read: OriginRange, origins: Iterable[tuple[int, str | None]]) -> None:
        """Record the origins of all entries of a range that was read: (id, origin region) of those that exist."""
        self._read.setdefault(read.region, IdSet()).add_range(read.first, read.last)
        self._of.setdefault(read.region, IdSet()).update(
            entry_id for entry_id, region in origins if region == read.region
        )

    def forget_below(self, entry_id: int) -> None:
        """Forget the origins of entries that every cursor has passed, in whole parts."""
        for ids in (*self._read.values(), *self._of.values()):
            ids.drop_parts_below(entry_id)


_NONE = IdSet()
