"""Reads a topic's entries, from memory or from its log, without those that are not readable yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emulator.broker.topic.entry_cache import StoredEntry, TailCache
from emulator.broker.topic.metrics import TopicMetrics
from emulator.errors import CheckpointDamaged

if TYPE_CHECKING:
    from emulator.broker.topic.checkpoints import Checkpoints
    from emulator.core.topic.state import TopicState
    from emulator.storage.contract import Log


class ReadTopic(Protocol):
    """The topic, as this module needs it."""

    log: Log
    tail: TailCache
    state: TopicState
    checkpoints: Checkpoints
    metrics: TopicMetrics

    def failed(self, failure: BaseException) -> None: ...


class TopicReading:
    """Owned by its topic."""

    def __init__(self, topic: ReadTopic) -> None:
        self._topic = topic

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """Return entries from an id on that are in memory. None: the log must be read."""
        entries = self._topic.tail.read(from_entry_id, entries_max)
        if entries is None:
            return None
        try:
            return self._readable(from_entry_id, entries)
        except CheckpointDamaged:
            return None  # the next read from the store raises the error

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Return entries from an id on. StorageError when the store fails."""
        cached = self.recent(from_entry_id, entries_max)
        if cached is not None:
            return cached
        entries = await self._topic.log.read(from_entry_id, entries_max, bytes_max)
        self._topic.metrics.storing.read += len(entries)
        end = self._topic.state.readable_end
        return self._readable(
            from_entry_id, [StoredEntry.read(entry_id, data) for entry_id, data in entries if entry_id < end]
        )

    def _readable(self, from_entry_id: int, entries: list[StoredEntry]) -> list[StoredEntry]:
        """Return the entries before the first one of an open transaction; those of aborted ones are hidden.
        CheckpointDamaged when it is unknown which were aborted."""
        state = self._topic.state
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
        """Prepare for a cursor that is about to move back to an id. CheckpointDamaged when the checkpoint's part cannot
        be read: then the topic is loaded again, from its log."""
        checkpoints = self._topic.checkpoints
        try:
            checkpoints.remember_from(entry_id)
        except CheckpointDamaged as damage:
            checkpoints.discard().add_done_callback(lambda done: done.exception())
            self._topic.failed(damage)
            raise
