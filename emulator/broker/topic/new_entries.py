"""The entries of one append of a topic, in log order: single ones, and groups of plain messages in columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from emulator.broker.topic.stored_entry import PlainEntry, PlainReplica, StoredEntry

_id: Final = attrgetter("entry_id")


class EntryGroup:
    """Plain messages whose ids follow each other, all published here or all received from one region. They become
    objects at the first access: in a region without consumers nothing reads the messages of other regions."""

    __slots__ = ("_datas", "_entries", "end_entry_id", "first_entry_id", "replicated_from", "size_bytes")

    def __init__(
        self, first_entry_id: int, datas: list[bytes], size_bytes: int, replicated_from: str | None
    ) -> None:
        self.first_entry_id = first_entry_id
        self.end_entry_id = first_entry_id + len(datas)
        self.size_bytes = size_bytes
        """Size of the data."""
        self.replicated_from = replicated_from
        """The region in which they originate, if it is another one."""
        self._datas = datas
        self._entries: list[StoredEntry] | None = None
        """None until the first access; then `_datas` is empty."""

    def __len__(self) -> int:
        return self.end_entry_id - self.first_entry_id

    def datas(self, begin: int, end: int) -> list[bytes]:
        """Return the bytes of the messages with these indexes."""
        if self._entries is None:
            return self._datas[begin:end]
        return [entry.data for entry in self._entries[begin:end]]

    def is_decoded(self, index: int) -> bool:
        """Whether the metadata of the message with this index was decoded."""
        return self._entries is not None and self._entries[index].is_decoded

    @property
    def entries(self) -> list[StoredEntry]:
        if self._entries is None:
            numbered, origin = enumerate(self._datas, self.first_entry_id), self.replicated_from
            if origin is None:
                self._entries = [PlainEntry(*one) for one in numbered]
            else:
                self._entries = [PlainReplica(entry_id, data, origin) for entry_id, data in numbered]
            self._datas = []
        return self._entries


class GroupSlice(Sequence[StoredEntry]):
    """Messages of a group that follow each other, not empty. They become objects at the first access to one of them."""

    __slots__ = ("_begin", "_end", "_group")

    def __init__(self, group: EntryGroup, from_entry_id: int, entries_max: int) -> None:
        """`from_entry_id`: below the end of the group; a lower id than the first one means that one."""
        self._group = group
        self._begin = max(from_entry_id - group.first_entry_id, 0)
        self._end = min(self._begin + entries_max, len(group))

    @property
    def first_entry_id(self) -> int:
        return self._group.first_entry_id + self._begin

    @property
    def replicated_from(self) -> str | None:
        """The region in which the messages originate, if it is another one."""
        return self._group.replicated_from

    def datas(self, index: int, entries_max: int) -> list[bytes]:
        """Return the bytes of up to `entries_max` messages from this index on."""
        begin = self._begin + index
        return self._group.datas(begin, min(begin + entries_max, self._end))

    def is_decoded(self, index: int) -> bool:
        """Whether the metadata of the message with this index was decoded."""
        return self._group.is_decoded(self._begin + index)

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._group.entries[self._begin : self._end][index]
        return self._group.entries[range(self._begin, self._end)[index]]


def id_at(entries: Sequence[StoredEntry], index: int) -> int:
    """Return the id of an entry, without creating the objects of a `GroupSlice`."""
    return entries.first_entry_id + index if isinstance(entries, GroupSlice) else entries[index].entry_id


Part = list[StoredEntry] | EntryGroup
"""Entries that are in no group, or those of one. Not empty."""


def first_id(part: Part) -> int:
    return part.first_entry_id if isinstance(part, EntryGroup) else part[0].entry_id


def end_id(part: Part) -> int:
    return part.end_entry_id if isinstance(part, EntryGroup) else part[-1].entry_id + 1


def read_part(part: Part, from_entry_id: int, entries_max: int) -> list[StoredEntry]:
    """Return up to `entries_max` entries from an id on."""
    entries = part.entries if isinstance(part, EntryGroup) else part
    if entries[-1].entry_id == from_entry_id:  # nearly always in a log with little traffic
        return entries[-1:] if entries_max > 0 else []
    start = bisect_left(entries, from_entry_id, key=_id)
    return entries[start : start + entries_max]


def part_from(part: Part, from_entry_id: int, entries_max: int) -> Sequence[StoredEntry]:
    """Return what `read_part` returns, of a group as a `GroupSlice`: its messages do not become objects."""
    if isinstance(part, EntryGroup):
        is_any = entries_max > 0 and from_entry_id < part.end_entry_id
        return GroupSlice(part, from_entry_id, entries_max) if is_any else ()
    return read_part(part, from_entry_id, entries_max)


class NewEntries(Sequence[StoredEntry]):
    """The entries of one append. Their ids follow each other."""

    __slots__ = ("_alone", "entry_count", "parts", "size_bytes")

    def __init__(self, entries: Iterable[StoredEntry] = ()) -> None:
        self.parts: list[Part] = []
        self.size_bytes = 0
        """Size of the data."""
        self.entry_count = 0
        """Number of entries, as `len` returns it; read several times for each append."""
        self._alone: list[StoredEntry] | None = None
        """The last part if its entries are in no group; None: it is a group, or there is none."""
        for entry in entries:
            self.append(entry)

    def append(self, entry: StoredEntry) -> None:
        self.size_bytes += len(entry.data)
        self.entry_count += 1
        if self._alone is None:
            self._alone = []
            self.parts.append(self._alone)
        self._alone.append(entry)

    def append_group(self, group: EntryGroup) -> None:
        self.size_bytes += group.size_bytes
        self.entry_count += len(group)
        self._alone = None
        self.parts.append(group)

    @property
    def alone(self) -> list[StoredEntry]:
        """The entries that are in no group: markers are among them."""
        return [entry for part in self.parts if isinstance(part, list) for entry in part]

    def __len__(self) -> int:
        return self.entry_count

    def __iter__(self) -> Iterator[StoredEntry]:
        for part in self.parts:
            yield from part.entries if isinstance(part, EntryGroup) else part

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]
