"""Sends to one other region what a topic that keeps nothing has now, and counts what the topic forgets before that.

What waits here was never sent: for the pace that the replicator has to keep, for receipts, or for the number of a
schema. It waits as long as the topic remembers it, and is dropped with it. What was under way when a link broke is
not counted: it may have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.entry_cache import StoredEntry
from emulator.broker.topic.view import ReplicatorHost
from emulator.core.flow.meters import Drops, UnsentEntries
from emulator.core.replication.progress import Forwarding

if TYPE_CHECKING:
    from emulator.broker.replication.link import PeerLink


class ForgettingTopic(ReplicatorHost, Protocol):
    """What such a replicator asks of its topic besides."""

    dropped_for: dict[str, Drops]
    """By region."""

    @property
    def remembered_entry_id(self) -> int:
        """The oldest entry that can still be read."""
        ...

    def now_ms(self) -> int: ...


class LiveReplicator(Replicator):
    """Of a topic that keeps nothing."""

    def __init__(self, topic: ReplicatorHost, peer: PeerLink) -> None:
        super().__init__(topic, peer)
        self._forgetting = cast(ForgettingTopic, topic)
        self._waiting = UnsentEntries()

    def offer(self, entries: Sequence[StoredEntry]) -> None:
        """The topic has these, its newest ones: send what may go, pass what cannot wait."""
        for entry in entries:
            info = entry.info
            decision = self._forwarding(
                self.remote, info.replicated_from, info.replicate_to, info.marker_type
            )
            if decision is Forwarding.SEND:
                self._waiting.add(entry.entry_id, entry.messages)
        self.pump()
        self._drop_before(self._forgetting.remembered_entry_id)
        if entries and not self.life.is_connected:  # nobody listens there now
            self._drop_before(entries[-1].entry_id + 1)

    def _send(self, entries: Sequence[StoredEntry]) -> None:
        # What was asked for may have been passed before it came.
        entries = [entry for entry in entries if entry.entry_id >= self.progress.next_entry_id]
        if entries:
            self._drop_before(entries[0].entry_id)
        super()._send(entries)
        self._waiting.take_before(self.progress.next_entry_id)

    def _drop_before(self, entry_id: int) -> None:
        """Pass what has a smaller id, and count what of it was never sent."""
        dropped = self._waiting.take_before(entry_id)
        if dropped:
            drops = self._forgetting.dropped_for.setdefault(
                self.remote, self.topic.region.environment.components.drops()
            )
            drops.count(dropped, self._forgetting.now_ms())
        if self.progress.next_entry_id < entry_id:
            self.progress.skipped(entry_id - 1)
