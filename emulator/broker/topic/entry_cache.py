"""The newest entries of the topics' logs, in memory.

Consumers and replicators that keep up read here, others from the store. The cache holds durable entries only ("visible"
comes after "durable").

All topics of a region share one pool (docs/components/memory.md). A topic's entries are in blocks, and each block is
charged with the memory that it uses. Over the limit the pool drops the oldest block of any topic. Dropped entries are
read from the store, so the limit affects speed and never what a consumer receives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from emulator.broker.memory_budgets import MemoryBudget, Reservation
from emulator.broker.topic.new_entries import (
    EntryGroup,
    NewEntries,
    Part,
    end_id,
    first_id,
    part_from,
    read_part,
)
from emulator.broker.topic.stored_entry import StoredEntry

ENTRY_OVERHEAD_BYTES = 432
"""Memory of an entry besides its data: the objects' headers, metadata, numbers, the hash of its key, a slot in a list.
A test measures it."""
BLOCK_BYTES = 65_536
"""Size, in memory, from which on a block accepts no further entries."""

READ_BYTES = 4_194_304
"""Memory of the blocks from which on a read ends."""


class Block:
    """Consecutive entries of one topic, which are dropped together."""

    __slots__ = ("cache", "charge", "first_entry_id", "parts")

    def __init__(self, cache: EntryCache, first_entry_id: int, charge: Reservation) -> None:
        self.cache = cache
        self.first_entry_id = first_entry_id
        self.parts: list[Part] = []
        self.charge = charge

    def parts_from(self, entry_id: int) -> list[Part]:
        """Return the part that contains an entry, or the first one, and those after it."""
        parts = self.parts
        if first_id(parts[-1]) <= entry_id:  # nearly always: consumers and replicators keep up
            return parts[-1:]
        return parts[max(bisect_right(parts, entry_id, key=first_id) - 1, 0) :]

    @property
    def is_full(self) -> bool:
        return self.charge.size_bytes >= BLOCK_BYTES

    def add(self, entries: NewEntries) -> None:
        for part in entries.parts:
            if isinstance(part, EntryGroup):
                self.parts.append(part)
            elif self.parts and isinstance(last := self.parts[-1], list):
                last += part
            else:
                self.parts.append([*part])
        size = entries.size_bytes + ENTRY_OVERHEAD_BYTES * entries.entry_count
        self.charge.resize(self.charge.size_bytes + size)


class EntryCachePool:
    """The memory that the caches of all topics of a region share. Over its limit the oldest block of any topic is
    dropped."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._blocks: OrderedDict[Block, None] = OrderedDict()
        """Blocks of all topics, in the order in which they were opened; so the newest entries of each topic are dropped
        last."""

    def open_block(self, cache: EntryCache, first_entry_id: int) -> Block:
        block = Block(cache, first_entry_id, self._budget.charge(0))
        self._blocks[block] = None
        return block

    def make_room(self) -> None:
        while self._budget.is_over:
            oldest, _ = self._blocks.popitem(last=False)
            oldest.charge.release()
            oldest.cache.forget_oldest(oldest)

    def release(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            del self._blocks[block]
            block.charge.release()


class EntryCache:
    """One topic's consecutive newest entries, as many as the pool allows; possibly none."""

    def __init__(self, end_entry_id: int, pool: EntryCachePool) -> None:
        self.start_entry_id = end_entry_id
        """Lowest cached id, or the end of the log if nothing is cached; lower ids must be read from the store."""
        self._pool = pool
        self._blocks: list[Block] = []

    def extend(self, entries: NewEntries) -> None:
        """Add one or more entries, which must follow all cached ones."""
        if not self._blocks or self._blocks[-1].is_full:
            self._blocks.append(self._pool.open_block(self, first_id(entries.parts[0])))
        self._blocks[-1].add(entries)
        self._pool.make_room()

    def forget_oldest(self, block: Block) -> None:
        """Drop the oldest block; called by the pool."""
        assert self._blocks[0] is block, "blocks are dropped oldest first"
        del self._blocks[0]
        self.start_entry_id = end_id(block.parts[-1])

    def read(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """Return up to `entries_max` entries from an id on; None when the id is below the cached ones. The first block
        that makes them READ_BYTES or more is the last one: a client that does not read is not sent the whole cache."""
        if from_entry_id < self.start_entry_id:
            return None
        found: list[StoredEntry] = []
        size_bytes = 0
        for block in self._blocks[max(self._block_with(from_entry_id), 0) :]:
            for part in block.parts_from(from_entry_id):
                found += read_part(part, from_entry_id, entries_max - len(found))
            size_bytes += block.charge.size_bytes
            if len(found) == entries_max or (found and size_bytes >= READ_BYTES):
                break
        return found

    def read_parts(self, from_entry_id: int, entries_max: int) -> list[Sequence[StoredEntry]] | None:
        """Return what `read` returns, in parts, none of them empty: messages of groups, and other entries."""
        if from_entry_id < self.start_entry_id:
            return None
        parts: list[Sequence[StoredEntry]] = []
        size_bytes = found = 0
        for block in self._blocks[max(self._block_with(from_entry_id), 0) :]:
            for part in block.parts_from(from_entry_id):
                entries = part_from(part, from_entry_id, entries_max - found)
                if entries:
                    parts.append(entries)
                    found += len(entries)
            size_bytes += block.charge.size_bytes
            if found == entries_max or (found and size_bytes >= READ_BYTES):
                break
        return parts

    def group_with(self, entry_id: int) -> EntryGroup | None:
        """Return the group that contains a cached entry; None: it is not cached, or in none."""
        at = self._block_with(entry_id)
        if at < 0:  # nothing is cached, or the id is in a gap of the log before the first cached entry
            return None
        part = self._blocks[at].parts_from(entry_id)[0]
        return part if isinstance(part, EntryGroup) and entry_id < part.end_entry_id else None

    def _block_with(self, entry_id: int) -> int:
        """Return the index of the block that contains an entry; -1: it is below all blocks, or there are none."""
        blocks = self._blocks
        if blocks and blocks[-1].first_entry_id <= entry_id:  # nearly always
            return len(blocks) - 1
        return bisect_right(blocks, entry_id, key=_first_id) - 1

    def close(self) -> None:
        """Release all memory to the pool. No entry may be added afterwards."""
        self._pool.release(self._blocks)
        self._blocks.clear()


_first_id: Final = attrgetter("first_entry_id")
