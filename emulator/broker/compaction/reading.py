"""A topic as read by consumers that read compacted: the compacted log below the horizon, the topic's own from there
on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emulator.core.topic.state import LastData

if TYPE_CHECKING:
    from emulator.broker.compaction.view import CompactedView
    from emulator.broker.topic.entry_cache import StoredEntry


class CompactedTopic(Protocol):
    @property
    def ledger_id(self) -> int: ...
    @property
    def first_entry_id(self) -> int: ...
    @property
    def readable_end(self) -> int: ...
    @property
    def last_data(self) -> LastData | None: ...

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None: ...

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]: ...


class CompactedReading:
    """Reads one topic. Without a compacted log it reads the topic's own."""

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self.view: CompactedView | None = None

    @property
    def ledger_id(self) -> int:
        return self._topic.ledger_id

    @property
    def horizon(self) -> int:
        """Everything below this id was compacted."""
        return 0 if self.view is None else self.view.row.horizon

    @property
    def first_entry_id(self) -> int:
        """Entries trimmed from the topic's log may still be in the compacted one."""
        return self._topic.first_entry_id if self.view is None else 0

    @property
    def readable_end(self) -> int:
        return self._topic.readable_end

    @property
    def last_data(self) -> LastData | None:
        """If everything was compacted, the last message that is left."""
        last = self._topic.last_data
        if self.view is None or (last is not None and last.entry_id >= self.horizon):
            return last
        row = self.view.row
        if row.last_entry_id < 0:
            return None
        return LastData(row.last_entry_id, row.last_index + 1 if row.last_index >= 0 else -1)

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """As `Topic.recent`."""
        return None if from_entry_id < self.horizon else self._topic.recent(from_entry_id, entries_max)

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """As `Topic.read`: every existing entry from an id on, in order."""
        view = self.view
        if view is not None and from_entry_id < view.row.horizon:
            entries = await view.read(from_entry_id, entries_max, bytes_max)
            if entries:
                return entries
            from_entry_id = view.row.horizon
        return await self._topic.read(from_entry_id, entries_max, bytes_max)
