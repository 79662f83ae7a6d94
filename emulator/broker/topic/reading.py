"""Reads the readable entries of a topic, from memory or from its log, and converts the message ids of clients to entry
ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from emulator.broker.topic.checkpoints import Checkpoints
from emulator.broker.topic.entry_cache import EntryCache
from emulator.broker.topic.metrics import TopicMetrics
from emulator.broker.topic.new_entries import EntryGroup
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.core.topic.state import UNKNOWN_MESSAGES, LastData, TopicState
from emulator.errors import CheckpointDamaged
from emulator.model.values import BEFORE_EVERYTHING, Position
from emulator.storage.contract import Log


class Readable(Protocol):
    """A source of messages: a topic, or the compacted form of a topic (`compaction.compacted_log`)."""

    @property
    def ledger_id(self) -> int:
        """Ledger id of the topic's log: the first half of every position here."""
        ...

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry that is not trimmed."""
        ...

    @property
    def readable_end(self) -> int: ...
    @property
    def last_data(self) -> LastData | None: ...

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """Return up to `entries_max` readable entries from an id on, from memory; None when the store must be read."""
        ...

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Return readable entries from an id on, from memory or the store. StorageError when the store fails."""
        ...


class TopicReading:
    """Reads one topic, which owns this object."""

    def __init__(
        self,
        log: Log,
        cache: EntryCache,
        state: TopicState,
        checkpoints: Checkpoints,
        metrics: TopicMetrics,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`failed`: callback that loads the topic again."""
        self.ledger_id = log.ledger_id
        self.cache = cache
        """Cache of the newest entries."""
        self.floor = 0
        """Id below which entries were, or are being, trimmed since the topic was loaded; no cursor may move there."""
        self._log = log
        self._state = state
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._reload_topic = failed

    @property
    def first_entry_id(self) -> int:
        return max(self._log.first_entry_id, self.floor)

    @property
    def readable_end(self) -> int:
        return self._state.readable_end

    @property
    def last_data(self) -> LastData | None:
        return self._state.last_data

    @property
    def last_position(self) -> Position:
        """Position of the newest readable entry, marker or not, even if it was trimmed; (ledger, -1) when there was
        none."""
        return Position(self.ledger_id, self._state.readable_end - 1)

    @property
    def last_stored_position(self) -> Position:
        """As `last_position`, of the newest durable entry, readable or not."""
        return Position(self.ledger_id, self._state.stored_end - 1)

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """As `Readable.recent`. None also when it is unknown which entries are hidden."""
        entries = self.cache.read(from_entry_id, entries_max)
        if entries is None:
            return None
        try:
            return self._readable(from_entry_id, entries)
        except CheckpointDamaged:
            return None  # the next read from the store raises the error

    def recent_parts(self, from_entry_id: int, entries_max: int) -> list[Sequence[StoredEntry]] | None:
        """Return what `recent` returns, in parts: messages of groups, which become objects only if one of them is
        accessed, and other entries."""
        state = self._state
        if state.buffer.open_from is not None or from_entry_id <= state.visibility.last_aborted:
            entries = self.recent(from_entry_id, entries_max)
            return None if entries is None else [entries]
        return self.cache.read_parts(from_entry_id, entries_max)

    async def read_parts(
        self, from_entry_id: int, entries_max: int, bytes_max: int
    ) -> list[Sequence[StoredEntry]]:
        """Return what `read` returns, in parts as those of `recent_parts`."""
        cached = self.recent_parts(from_entry_id, entries_max)
        return [await self.read(from_entry_id, entries_max, bytes_max)] if cached is None else cached

    def group_with(self, entry_id: int) -> EntryGroup | None:
        """Return the group of plain messages that contains an entry; None: it is not in memory, or in no group."""
        return self.cache.group_with(entry_id)

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """As `Readable.read`. CheckpointDamaged, a StorageError: see `remember_from`."""
        cached = self.recent(from_entry_id, entries_max)
        if cached is not None:
            return cached
        entries = await self._log.read(from_entry_id, entries_max, bytes_max)
        self._metrics.storing.read += len(entries)
        end = self._state.readable_end
        return self._readable(
            from_entry_id, [StoredEntry.read(entry_id, data) for entry_id, data in entries if entry_id < end]
        )

    def _readable(self, from_entry_id: int, entries: list[StoredEntry]) -> list[StoredEntry]:
        """Return the entries before the first one of an open transaction, and mark those of aborted transactions as
        hidden. CheckpointDamaged when it is unknown which were aborted."""
        state = self._state
        visibility = state.visibility
        if state.buffer.open_from is not None:
            end = state.readable_end
            entries = [entry for entry in entries if entry.entry_id < end]
        if from_entry_id <= visibility.last_aborted:
            if from_entry_id < visibility.known_from:
                self.remember_from(from_entry_id)
            for entry in entries:
                if entry.entry_id in visibility.hidden:
                    entry.hidden = True
        return entries

    def remember_from(self, entry_id: int) -> None:
        """Load which entries are hidden from an id on, for a cursor that moves back to it. CheckpointDamaged when a
        part of the checkpoint cannot be read: then the checkpoint is deleted and the topic loaded again from its
        log."""
        try:
            self._checkpoints.remember_from(entry_id)
        except CheckpointDamaged as damage:
            self._checkpoints.discard().add_done_callback(lambda done: done.exception())
            self._reload_topic(damage)
            raise


_LATEST = 2**63 - 1


def start_of(source: Readable, message_id: Position) -> int:
    """Return the first entry id for a reader that starts at `message_id`. It includes that message, as SEEK does in
    Pulsar's broker: clients that exclude it drop it themselves. An id of an older log of the topic, or a negative entry
    id, means the beginning; "latest", or an id of a newer log, the end."""
    ledger_id, entry_id = message_id
    if ledger_id == _LATEST or ledger_id > source.ledger_id:
        return source.readable_end
    if ledger_id < source.ledger_id or entry_id < 0:
        return source.first_entry_id
    return min(max(entry_id, source.first_entry_id), source.readable_end)


def begin_of(source: Readable, message_id: Position | None, *, from_earliest: bool) -> int:
    """Return the first entry id of a new subscription: from the request's message id, else the log's beginning or
    end."""
    if message_id is not None:
        return start_of(source, message_id)
    return source.first_entry_id if from_earliest else source.readable_end


async def published_from(source: Readable, publish_time_ms: int) -> int:
    """Return the id of the first entry published at or after a time; the readable end when there is none. StorageError.

    Binary search, as upstream does: publish times of several origins are only nearly sorted, so entries close to the
    time may be on either side of the result.
    """
    low, high = source.first_entry_id, source.readable_end
    while low < high:
        middle = (low + high) // 2
        entries = await source.read(middle, 1, 1)
        if not entries or entries[0].entry_id >= high or entries[0].info.publish_time_ms >= publish_time_ms:
            high = middle
        else:
            low = entries[0].entry_id + 1
    return low


async def last_message(source: Readable) -> tuple[Position, int]:
    """Return the position of the newest entry that consumers can receive, and the index of its last message. The index
    is -1 for an entry that is no batch; the position is -1:-1 when there is no such entry. Markers and messages of open
    or aborted transactions do not count: readers would hang. StorageError."""
    if source.last_data is None or source.last_data[0] < source.first_entry_id:
        return BEFORE_EVERYTHING, -1
    entry_id, messages = source.last_data
    if messages == UNKNOWN_MESSAGES:
        found = await source.read(entry_id, 1, 1)
        if not found or found[0].entry_id != entry_id:
            return BEFORE_EVERYTHING, -1  # it was trimmed meanwhile
        info = found[0].info
        messages = info.num_messages if info.is_batch else -1
    return Position(source.ledger_id, entry_id), messages - 1 if messages > 0 else -1
