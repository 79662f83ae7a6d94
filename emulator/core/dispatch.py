"""Which consumer of a subscription gets which entry next.

One dispatcher per subscription. The shell asks `wants()` where to read, reads, hands what it read to `assign()` and
writes the deliveries it gets back. Nothing here reads, writes or waits.

    EXCLUSIVE, FAILOVER   one consumer is active and gets every unacknowledged entry in log order. When the active one
                          changes, reading starts again at the first unacknowledged entry.
    SHARED                entries go to whoever has permits; what a consumer gives back (negative acknowledgement,
                          disconnect) is replayed before anything new.

A permit is one message; an entry (batch) is handed out while permits are positive, so they may go below zero
(facts of the protocol that clients rely on).

Markers and gaps are acknowledged on the subscription's behalf as they are read, so that mark-delete can pass them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from emulator.core.cursor import Cursor
from emulator.errors import ProtocolError, ServerError

ENTRIES_PER_READ_MAX = 500
SHARED_RUN_ENTRIES = 16
"""How many entries in a row one consumer of a SHARED subscription gets before it is the next one's turn."""


class SubscriptionType(Enum):
    """Numbers are the protocol's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class ReadEntry(NamedTuple):
    """What the dispatcher needs to know of an entry."""

    entry_id: int
    messages: int
    hidden: bool
    """A marker: never delivered."""


class Delivery(NamedTuple):
    """Send this entry to that consumer."""

    consumer: ConsumerState
    place: int
    """Index into the sequence given to `assign`."""
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    """Batch indexes still unacknowledged (bits set), when some already are."""


class Want(NamedTuple):
    """Read from here; at most so many entries are of use."""

    from_entry_id: int
    entries_max: int


@dataclass(slots=True, eq=False)
class ConsumerState:
    """One connected consumer."""

    name: str
    priority: int = 0
    """Lower is served first."""
    permits: int = 0
    blocked: bool = False
    """Its connection takes no more bytes for now."""
    pending: dict[int, int] = field(default_factory=dict)
    """SHARED only: entry id -> messages in it, delivered and not yet acknowledged."""
    unacked_messages: int = 0
    """SHARED only: messages in `pending`."""

    @property
    def can_receive(self) -> bool:
        return self.permits > 0 and not self.blocked


class Dispatcher:
    """Decides deliveries of one subscription. Owns its consumers' permits and what they have not acknowledged."""

    def __init__(self, cursor: Cursor, *, max_unacked_messages_per_consumer: int) -> None:
        self.cursor = cursor
        self.type = SubscriptionType.EXCLUSIVE
        """Meaningful while there are consumers; the first one decides."""
        self.consumers: list[ConsumerState] = []
        """In order of arrival."""
        self.active: ConsumerState | None = None
        """EXCLUSIVE and FAILOVER: who is served."""
        self.read_entry_id = cursor.next_unacked(cursor.mark_delete + 1)
        """Everything below was handed out, is acknowledged, or waits in `replay`."""
        self._replay: list[int] = []
        """SHARED: ids to hand out again, sorted."""
        self._redelivery_counts: dict[int, int] = {}
        self._turn = 0
        self._max_unacked = max_unacked_messages_per_consumer

    # Consumers come and go.

    def add_consumer(self, consumer: ConsumerState, type_: SubscriptionType) -> bool:
        """Admit a consumer; True when the active one changed. ProtocolError(ConsumerBusy) when its type does not fit
        those connected or an exclusive one is."""
        if self.consumers and type_ is not self.type:
            raise ProtocolError(
                ServerError.ConsumerBusy, f"Subscription is of different type: {self.type.name}"
            )
        if self.consumers and type_ is SubscriptionType.EXCLUSIVE:
            raise ProtocolError(ServerError.ConsumerBusy, "Exclusive consumer is already connected")
        self.type = type_
        self.consumers.append(consumer)
        return self._choose_active()

    def remove_consumer(self, consumer: ConsumerState) -> bool:
        """Forget a consumer; what it had not acknowledged goes to others. True when the active one changed."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        self._give_back(consumer, list(consumer.pending))
        if not self.consumers:
            self.rewind()
            self._redelivery_counts.clear()
        return self._choose_active()

    def _choose_active(self) -> bool:
        """Lowest priority number first, then who came first: a newcomer of equal rank never displaces the active."""
        if self.type is SubscriptionType.SHARED:
            return False
        chosen = min(self.consumers, key=lambda consumer: consumer.priority, default=None)
        if chosen is self.active:
            return False
        self.active = chosen
        self.rewind()
        return True

    # What a consumer tells us.

    def flow(self, consumer: ConsumerState, permits: int) -> None:
        consumer.permits += permits

    def acked(self, consumer: ConsumerState, entry_id: int) -> None:
        """`entry_id` is fully acknowledged on the cursor: it is no longer pending with anyone."""
        messages = consumer.pending.pop(entry_id, None)
        if messages is not None:
            consumer.unacked_messages -= messages
        elif self.type is SubscriptionType.SHARED:
            self._acked_by_another(entry_id)
        if self._redelivery_counts:
            self._redelivery_counts.pop(entry_id, None)

    def _acked_by_another(self, entry_id: int) -> None:
        for other in self.consumers:
            messages = other.pending.pop(entry_id, None)
            if messages is not None:
                other.unacked_messages -= messages
        at = bisect_left(self._replay, entry_id)
        if at < len(self._replay) and self._replay[at] == entry_id:
            del self._replay[at]

    def redeliver(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        """Hand these out again (None: all the consumer has). On a single-active type everything unacknowledged is
        sent again, in order, as only the active consumer may ask."""
        if self.type is not SubscriptionType.SHARED:
            if consumer is self.active:
                self.rewind()
            return
        self._give_back(consumer, list(consumer.pending) if entry_ids is None else entry_ids)

    def _give_back(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            messages = consumer.pending.pop(entry_id, None)
            if messages is None or self.cursor.is_acked(entry_id):
                continue
            consumer.unacked_messages -= messages
            self._redelivery_counts[entry_id] = self._redelivery_counts.get(entry_id, 0) + 1
            insort(self._replay, entry_id)

    def rewind(self) -> None:
        """Start reading at the first unacknowledged entry again, except what SHARED consumers still hold."""
        self._replay.clear()
        self.read_entry_id = self.cursor.next_unacked(self.cursor.mark_delete + 1)

    # Reading and handing out.

    def wants(self, end_entry_id: int) -> Want | None:
        """Where to read next, or None when nobody can take anything or there is nothing below `end_entry_id`."""
        permits = self._permits()
        if permits <= 0:
            return None
        limit = min(permits, ENTRIES_PER_READ_MAX)
        # An update from another region (PIP-33) may have moved mark-delete past what was read here.
        self.read_entry_id = max(self.read_entry_id, self.cursor.mark_delete + 1)
        if self._replay:
            return Want(self._replay[0], limit)
        return Want(self.read_entry_id, limit) if self.read_entry_id < end_entry_id else None

    def _permits(self) -> int:
        if self.type is not SubscriptionType.SHARED:
            return self.active.permits if self.active is not None and self.active.can_receive else 0
        return sum(consumer.permits for consumer in self.consumers if self._may_serve(consumer))

    def _may_serve(self, consumer: ConsumerState) -> bool:
        return consumer.can_receive and consumer.unacked_messages < self._max_unacked

    def assign(self, from_entry_id: int, entries: Sequence[ReadEntry]) -> list[Delivery]:
        """Hand out what was read: every entry from `from_entry_id` on, in log order, nothing left out. What nobody can
        take stays. A read that a rewind has overtaken is worth nothing and is dropped: passing over what it did
        not cover would acknowledge entries nobody saw."""
        if from_entry_id > self.read_entry_id:
            return []
        if self.type is SubscriptionType.SHARED:
            return self._assign_shared(entries)
        return self._assign_active(entries)

    def nothing_between(self, from_entry_id: int, entry_id: int) -> None:
        """The log has no entry in [from_entry_id, entry_id): trimmed away or never there."""
        if from_entry_id > self.read_entry_id:
            return
        if entry_id > self.read_entry_id:
            self.cursor.ack_range(self.read_entry_id, entry_id - 1)
            self.read_entry_id = entry_id
        while self._replay and from_entry_id <= self._replay[0] < entry_id:
            self.cursor.ack_range(self._replay[0], self._replay[0])
            del self._replay[0]

    def _assign_active(self, entries: Sequence[ReadEntry]) -> list[Delivery]:
        consumer, cursor = self.active, self.cursor
        deliveries: list[Delivery] = []
        if consumer is None:
            return deliveries
        for index, (entry_id, messages, hidden) in enumerate(entries):
            if entry_id < self.read_entry_id:
                continue
            if consumer.permits <= 0:
                break
            self._pass_to(entry_id)
            if hidden:
                cursor.ack_range(entry_id, entry_id)
            elif not cursor.is_acked(entry_id):
                ack_set = cursor.ack_set_of(entry_id)
                consumer.permits -= messages if ack_set is None else _bits_set(ack_set)
                deliveries.append(Delivery(consumer, index, 0, ack_set))
        return deliveries

    def _assign_shared(self, entries: Sequence[ReadEntry]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        consumer, run = None, 0
        for index, (entry_id, messages, hidden) in enumerate(entries):
            if entry_id < self.read_entry_id and not self._is_replayed(entry_id):
                continue
            if consumer is None or run >= SHARED_RUN_ENTRIES or not self._may_serve(consumer):
                consumer, run = self._next_in_turn(), 0
                if consumer is None:
                    break
            if entry_id >= self.read_entry_id:
                self._pass_to(entry_id)
            else:
                self._replay.remove(entry_id)
            if hidden:
                self.cursor.ack_range(entry_id, entry_id)
            elif not self.cursor.is_acked(entry_id):
                run += 1
                deliveries.append(self._deliver_shared(consumer, index, entry_id, messages))
        return deliveries

    def _deliver_shared(self, consumer: ConsumerState, index: int, entry_id: int, messages: int) -> Delivery:
        ack_set = self.cursor.ack_set_of(entry_id)
        open_messages = messages if ack_set is None else _bits_set(ack_set)
        consumer.permits -= open_messages
        consumer.pending[entry_id] = open_messages
        consumer.unacked_messages += open_messages
        return Delivery(consumer, index, self._redelivery_counts.get(entry_id, 0), ack_set)

    def _pass_to(self, entry_id: int) -> None:
        """Read up to and including `entry_id`; ids in between do not exist (storage promise S3)."""
        if entry_id > self.read_entry_id:
            self.cursor.ack_range(self.read_entry_id, entry_id - 1)
        self.read_entry_id = entry_id + 1

    def _is_replayed(self, entry_id: int) -> bool:
        at = bisect_left(self._replay, entry_id)
        return at < len(self._replay) and self._replay[at] == entry_id

    def _next_in_turn(self) -> ConsumerState | None:
        """Round robin among those of the best priority that can take something."""
        able = [consumer for consumer in self.consumers if self._may_serve(consumer)]
        if not able:
            return None
        best = min(consumer.priority for consumer in able)
        able = [consumer for consumer in able if consumer.priority == best]
        self._turn += 1
        return able[self._turn % len(able)]


def _bits_set(words: Sequence[int]) -> int:
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in words)
