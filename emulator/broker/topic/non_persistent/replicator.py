"""Sends the entries of a non-persistent topic to one other region, and counts entries dropped before they were sent.

Entries wait for the rate limit, for receipts of entries in flight, or for a schema version of the other region. An
entry is dropped when the topic drops it. Entries in flight when a link broke are not counted: they may have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.view import TopicView
from emulator.core.flow.meters import Drops, UnsentEntries
from emulator.core.replication.progress import Forwarding

if TYPE_CHECKING:
    from emulator.broker.replication.link import PeerLink


class NonPersistentTopicView(TopicView, Protocol):
    """A topic that retains only its newest entries, as this replicator uses it."""

    dropped_for: dict[str, Drops]
    """Dropped entries by remote region."""

    @property
    def first_retained_entry_id(self) -> int:
        """Id of the oldest entry that can still be read."""
        ...

    def now_ms(self) -> int: ...


class NonPersistentReplicator(Replicator):
    """The replicator of a non-persistent topic."""

    def __init__(self, topic: TopicView, peer: PeerLink) -> None:
        super().__init__(topic, peer)
        self._non_persistent = cast(NonPersistentTopicView, topic)
        self._unsent = UnsentEntries()

    def offer(self, entries: Sequence[StoredEntry]) -> None:
        """Send the topic's new entries as far as possible, and drop unsent ones that the topic no longer holds."""
        for entry in entries:
            info = entry.info
            decision = self._forwarding(
                self.remote, info.replicated_from, info.replicate_to, info.marker_type
            )
            if decision is Forwarding.SEND:
                self._unsent.add(entry.entry_id, entry.messages)
        self.pump()
        self._drop_before(self._non_persistent.first_retained_entry_id)
        if entries and not self.lifecycle.is_connected:
            self._drop_before(entries[-1].entry_id + 1)

    def _send(self, parts: Sequence[Sequence[StoredEntry]]) -> None:
        # Entries of this read may have been skipped before it ended.
        next_id = self.progress.next_entry_id
        entries = [entry for part in parts for entry in part if entry.entry_id >= next_id]
        if entries:
            self._drop_before(entries[0].entry_id)
        super()._send([entries])
        self._unsent.take_before(self.progress.next_entry_id)

    def _drop_before(self, entry_id: int) -> None:
        """Skip entries below an id, and count those that were never sent."""
        dropped = self._unsent.take_before(entry_id)
        if dropped:
            drops = self._non_persistent.dropped_for.setdefault(
                self.remote, self.topic.region.environment.components.topics.drops()
            )
            drops.count(dropped, self._non_persistent.now_ms())
        if self.progress.next_entry_id < entry_id:
            self.progress.skipped(entry_id - 1)
