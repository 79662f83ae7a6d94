"""The newest entries of the topics' logs, in memory.

Consumers and replicators that keep up read here, others from the store. The cache holds durable entries only ("visible"
comes after "durable").

All topics of a region share one pool (docs/components/memory.md). A topic's entries are in blocks, and each block is
charged with the memory that it uses. Over the limit the pool drops the oldest block of any topic. Dropped entries are
read from the store, so the limit affects speed and never what a consumer receives.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import Final

from emulator.broker.memory_budgets import MemoryBudget, Reservation
from emulator.core.dispatch.consistent_hash import hash_of
from emulator.model.markers import Marker
from emulator.model.values import MessageChunk
from emulator.wire.markers import stored_marker
from emulator.wire.message_metadata import (
    EntryInfo,
    chunk_of,
    scan_entry,
    scan_for_dispatch,
    sticky_key,
)

NOT_COMPUTED: Final = -1


class StoredEntry:
    """An entry of the log, with the properties that dispatch needs of every entry."""

    __slots__ = ("_info", "_key_hash", "data", "due_ms", "entry_id", "hidden", "marker", "messages")

    def __init__(self, entry_id: int, data: bytes, info: EntryInfo, marker: Marker | None = None) -> None:
        self.entry_id = entry_id
        self.data = data
        self.messages = info.num_messages
        self.due_ms = info.deliver_at_time_ms or 0
        self.hidden = info.marker_type is not None
        """Whether consumers never receive the entry: it is a marker, or a message of an aborted transaction (set by the
        topic when it reads the entry)."""
        self.marker = marker
        """The decoded marker; None for messages, and for markers that this region cannot decode or does not process."""
        self._info: EntryInfo | None = info
        self._key_hash = NOT_COMPUTED

    @classmethod
    def read(cls, entry_id: int, data: bytes) -> StoredEntry:
        """Decode an entry from the store. Of a message, only the fields that dispatch needs are decoded."""
        messages, hidden, due_ms = scan_for_dispatch(data)
        if hidden:
            info = scan_entry(data)
            return cls(entry_id, data, info, stored_marker(data, info))
        entry = object.__new__(cls)
        entry.entry_id = entry_id
        entry.data = data
        entry.messages, entry.hidden, entry.marker = messages, False, None
        entry.due_ms = due_ms
        entry._info = None
        entry._key_hash = NOT_COMPUTED
        return entry

    @property
    def info(self) -> EntryInfo:
        """The metadata, decoded at the first access."""
        if self._info is None:
            self._info = scan_entry(self.data)
        return self._info

    @property
    def is_decoded(self) -> bool:
        """Whether `info` is at hand."""
        return self._info is not None

    @property
    def replicated_from(self) -> str | None:
        """The region in which the entry originates, if it is another one."""
        return self.info.replicated_from

    @property
    def chunk(self) -> MessageChunk | None:
        """The chunk that the entry contains, for SHARED subscriptions; None: the entry contains whole messages."""
        if self._info is not None and self._info.num_chunks <= 1:
            return None
        return chunk_of(self.data)

    @property
    def is_aborted(self) -> bool:
        """Whether it is a message of an aborted transaction."""
        return self.hidden and self.info.marker_type is None

    @property
    def key_hash(self) -> int:
        """Hash of the entry's sticky key for KEY_SHARED; computed at the first access."""
        if self._key_hash == NOT_COMPUTED:
            self._key_hash = hash_of(sticky_key(self.data))
        return self._key_hash


class PlainEntry(StoredEntry):
    """A plain message of a group (`wire.codec_hot.send_groups`). Its metadata is decoded when it is needed."""

    __slots__ = ()
    chunk = None
    replicated_from = None

    def __init__(self, entry_id: int, data: bytes) -> None:
        self.entry_id = entry_id
        self.data = data
        self.messages, self.hidden, self.marker, self.due_ms = 1, False, None, 0
        self._info = None
        self._key_hash = NOT_COMPUTED


class PlainReplica(StoredEntry):
    """A plain message of a group from another region (`wire.codec_hot.replica_groups`), otherwise as a `PlainEntry`."""

    __slots__ = ("_replicated_from",)
    chunk = None

    def __init__(self, entry_id: int, data: bytes, replicated_from: str) -> None:
        self.entry_id = entry_id
        self.data = data
        self.messages, self.hidden, self.marker, self.due_ms = 1, False, None, 0
        self._replicated_from = replicated_from
        self._info = None
        self._key_hash = NOT_COMPUTED

    @property
    def replicated_from(self) -> str:
        return self._replicated_from


ENTRY_OVERHEAD_BYTES = 432
"""Memory of an entry besides its data: the objects' headers, metadata, numbers, the hash of its key, a slot in a list.
A test measures it."""
BLOCK_BYTES = 65_536
"""Size, in memory, from which on a block accepts no further entries."""

READ_BYTES = 4_194_304
"""Memory of the blocks from which on a read ends."""


class Block:
    """Consecutive entries of one topic, which are dropped together."""

    __slots__ = ("cache", "charge", "entries", "first_entry_id")

    def __init__(self, cache: EntryCache, first_entry_id: int, charge: Reservation) -> None:
        self.cache = cache
        self.first_entry_id = first_entry_id
        self.entries: list[StoredEntry] = []
        self.charge = charge

    @property
    def is_full(self) -> bool:
        return self.charge.size_bytes >= BLOCK_BYTES

    def add(self, entries: list[StoredEntry]) -> None:
        self.entries += entries
        size = sum([len(entry.data) for entry in entries]) + ENTRY_OVERHEAD_BYTES * len(entries)
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

    def extend(self, entries: list[StoredEntry]) -> None:
        """Add one or more entries, which must follow all cached ones."""
        if not self._blocks or self._blocks[-1].is_full:
            self._blocks.append(self._pool.open_block(self, entries[0].entry_id))
        self._blocks[-1].add(entries)
        self._pool.make_room()

    def forget_oldest(self, block: Block) -> None:
        """Drop the oldest block; called by the pool."""
        assert self._blocks[0] is block, "blocks are dropped oldest first"
        del self._blocks[0]
        self.start_entry_id = block.entries[-1].entry_id + 1

    def read(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """Return up to `entries_max` entries from an id on; None when the id is below the cached ones. The first block
        that makes them READ_BYTES or more is the last one: a client that does not read is not sent the whole cache."""
        if from_entry_id < self.start_entry_id:
            return None
        found: list[StoredEntry] = []
        size_bytes = 0
        at = bisect_right(self._blocks, from_entry_id, key=_first_id) - 1
        for block in islice(self._blocks, max(at, 0), None):
            start = bisect_left(block.entries, from_entry_id, key=_id)
            found += block.entries[start : start + entries_max - len(found)]
            size_bytes += block.charge.size_bytes
            if len(found) == entries_max or (found and size_bytes >= READ_BYTES):
                break
        return found

    def close(self) -> None:
        """Release all memory to the pool. No entry may be added afterwards."""
        self._pool.release(self._blocks)
        self._blocks.clear()


_id: Final = attrgetter("entry_id")
_first_id: Final = attrgetter("first_entry_id")
