"""Searches the log of a topic for snapshots and updates of subscriptions from before the topic was loaded (INV-120)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.broker.topic.view import PublishingTopic
from emulator.core.cursor.id_set import IdSet
from emulator.errors import StorageError
from emulator.model.markers import Snapshot, SubscriptionUpdate

if TYPE_CHECKING:
    from emulator.broker.topic.stored_entry import StoredEntry

SEARCH_ENTRIES = 4_096
"""Number of newest entries of the log that are searched for snapshots from before a restart."""
SEARCH_MARKERS_MAX = 100
"""Maximum number of markers among them that are read: the newest ones."""
SEARCH_BYTES = 1_048_576


class LogSearch:
    """Searches the log of a topic for snapshots and updates from before the topic was loaded, once per load."""

    def __init__(
        self,
        topic: PublishingTopic,
        found_snapshot: Callable[[Snapshot], None],
        found_update: Callable[[StoredEntry, SubscriptionUpdate], None],
    ) -> None:
        self._topic = topic
        self._found_snapshot = found_snapshot
        self._found_update = found_update
        self._begun = False
        self._closed = False

    def begin(self) -> None:
        """Search the log. No effect after the first call."""
        if not self._begun:
            self._begun = True
            self._topic.region.spawn(self._run())

    def close(self) -> None:
        self._closed = True

    async def _run(self) -> None:
        state = self._topic.state
        end = state.readable_end
        hidden_ids = list(state.visibility.hidden.between(max(0, end - SEARCH_ENTRIES), end - 1))
        for first, last in IdSet.of(hidden_ids[-SEARCH_MARKERS_MAX:]).runs():
            try:
                entries = await self._topic.reading.read(first, last - first + 1, SEARCH_BYTES)
            except StorageError:
                return  # the next snapshot replaces those that were not found
            for entry in entries:
                if not self._closed:
                    self._found(entry)

    def _found(self, entry: StoredEntry) -> None:
        marker = entry.marker
        if isinstance(marker, Snapshot) and self.is_of_this_log(marker):
            self._found_snapshot(with_time(marker, entry))
        elif isinstance(marker, SubscriptionUpdate):
            self._found_update(entry, marker)

    def is_of_this_log(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot that was read from the log stems from this topic, not from an older one of its name."""
        return snapshot.local_position.ledger == self._topic.ledger_id


def with_time(snapshot: Snapshot, entry: StoredEntry) -> Snapshot:
    """Return a snapshot with the time at which its marker, in `entry`, was written."""
    return replace(snapshot, taken_ms=entry.info.publish_time_ms)
