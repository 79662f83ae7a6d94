"""SHARED and KEY_SHARED: several consumers hold unacknowledged entries; each entry is acknowledged individually.

Entries that a consumer returns (redelivery request, disconnect) or that an aborted transaction releases wait in
`replay`, and are dispatched before new ones. Entries that are not due wait in `delayed` (INV-29), ordered by delivery
time. Every id below the read end is acknowledged (possibly by an open transaction), in one consumer's `pending`, in
`replay`, in `delayed`, or set aside by the strategy until a consumer can receive it (DI1).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch.delayed import LATEST_MS, Delayed
from emulator.core.dispatch.strategy import (
    ENTRIES_PER_READ_MAX,
    DispatchStrategy,
    WaitingMessages,
    count_text,
)
from emulator.core.dispatch.types import (
    Candidate,
    ConsumerState,
    Delivery,
    DispatchLimits,
    Read,
    Wake,
    count_unacked,
    holder_of,
)
from emulator.model.reasons import NO_REASON, Cause, Reason

DELAYED_MAX: Final = 4_000_000
"""Number of delayed entries (some 70 MB) at which no new entries are read."""
AHEAD_ENTRIES: Final = 100
"""Minimum of the limit of new entries per read while entries are delayed, so that a consumer with one permit finds an
entry that is due. KEY_SHARED may lower it."""
WAKE_MS_MAX: Final = 60_000
"""Maximum time until the dispatcher notices that the wall clock was set forward."""


class MultipleConsumers(DispatchStrategy):
    """Base of the strategies of SHARED and KEY_SHARED: redelivery, delayed entries, and pending entries."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self.replay = IdSet()
        """Ids of entries that were read before and are dispatched next."""
        self.delayed = Delayed()
        """Entries that were read before they were due, and are not dispatched."""
        self._redelivery_counts: dict[int, int] = {}
        """Entry id -> number of redeliveries so far, for entries that are not acknowledged."""

    # Reading.

    def next(self, end_entry_id: int, now_ms: int, wall_ms: int) -> Read | Wake | None:
        permits = held = 0
        for consumer in self.consumers:
            held += consumer.pending.messages
            if self.limits.may_serve(consumer):
                permits += consumer.permits
        if permits <= 0 or held >= self.limits.unacked_messages_max:
            return None
        reread = self._reread(end_entry_id, permits)
        if reread is not None:
            return reread
        if not self.delayed:
            return self._read_new(end_entry_id, permits) if self._may_read_ahead() else None
        # Read due entries; otherwise new ones, which may be due; otherwise wake when the next one is due.
        horizon_ms, first_due_ms = self.limits.horizon_ms(wall_ms), self.delayed.first_due_ms
        if first_due_ms <= horizon_ms:
            entries = self.delayed.due_run_length(horizon_ms, min(permits, ENTRIES_PER_READ_MAX))
            return Read(self.delayed.first_id, entries, end_entry_id, self._token)
        read = self._read_new(end_entry_id, max(permits, AHEAD_ENTRIES)) if self._may_read_ahead() else None
        if read is not None:
            return read
        due_ms = -(-first_due_ms // self.limits.tick_ms) * self.limits.tick_ms
        return Wake(now_ms + min(due_ms - wall_ms, WAKE_MS_MAX))

    def _may_read_ahead(self) -> bool:
        return self.delayed.count < DELAYED_MAX

    def _reread(self, end_entry_id: int, permits: int) -> Read | None:
        """Return a read of entries that were read before, are not delayed and can be dispatched; None: none can."""
        return self._read_of(self.replay, end_entry_id, permits) if self.replay else None

    # Why messages wait.

    def waiting(self, unread: int) -> Iterator[WaitingMessages]:
        if unread or self.replay:
            yield WaitingMessages(unread + len(self.replay))

    def why_delayed(self, now_ms: int, wall_ms: int) -> Reason:
        if not self.delayed or self.delayed.first_due_ms <= self.limits.horizon_ms(wall_ms):
            return NO_REASON
        wait_ms = self.delayed.first_due_ms - wall_ms
        return Cause.NOT_DUE(count=count_text(self.delayed.count), wait_ms=wait_ms)

    # Dispatching.

    def _dispatch(self, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        horizon_ms, cursor, replay = self.limits.horizon_ms(wall_ms), self.cursor, self.replay
        for index, candidate in enumerate(candidates):
            if not self._delay_unless_ready(candidate, horizon_ms):
                continue
            entry_id = candidate.entry_id
            if candidate.hidden:
                self._dequeue(entry_id)
                cursor.ack_range(entry_id, entry_id)
            elif cursor.is_acked_or_held(entry_id):
                self._dequeue(entry_id)
            elif replay and candidate.chunk is not None and replay.first < entry_id:
                # Entries that were returned during the read may include earlier chunks of the message; clients discard
                # a message whose chunks are out of order.
                self._dequeue(entry_id)
                replay.add(entry_id)
            elif (consumer := self._assign_receiver(candidate)) is not None:
                self._dequeue(entry_id)
                ack_set = cursor.ack_set_of(entry_id)
                messages = candidate.messages if ack_set is None else count_unacked(ack_set)
                consumer.permits -= messages
                consumer.pending.add(entry_id, messages)
                deliveries.append(
                    Delivery(consumer, index, self._redelivery_counts.get(entry_id, 0), ack_set)
                )
            elif not self._set_aside(candidate):
                break
        return deliveries

    @abstractmethod
    def _assign_receiver(self, candidate: Candidate) -> ConsumerState | None:
        """Choose the consumer that receives the entry now and record the choice; None: no consumer can."""

    @abstractmethod
    def _set_aside(self, candidate: Candidate) -> bool:
        """Set an entry aside that no consumer can receive now. False: it and all later entries of the read stay where
        they are: unread, in `replay` or in `delayed`."""

    def _delay_unless_ready(self, candidate: Candidate, horizon_ms: int) -> bool:
        """Return whether to process the entry of a read now: dispatch it, or acknowledge it if hidden. Moves an entry
        into `delayed` that is not due, neither hidden nor acknowledged. Entries that were processed since the read
        began are skipped."""
        entry_id = candidate.entry_id
        is_due = candidate.due_ms <= horizon_ms
        if self.delayed.count > 0 and self.delayed.first_id == entry_id:
            return is_due
        if entry_id < self._read_end and not self._can_be_redelivered(entry_id):
            return False
        if is_due or candidate.hidden or self.cursor.is_acked_or_held(entry_id):
            return True
        self._delay(entry_id, candidate.due_ms)
        return False

    def _can_be_redelivered(self, entry_id: int) -> bool:
        """Whether the entry was read before and can be dispatched now."""
        return entry_id in self.replay

    def _delay(self, entry_id: int, due_ms: int) -> None:
        """Move an unread entry, or one from `replay`, into `delayed` (INV-29). An entry in `replay` is not due when an
        aborted transaction had acknowledged it before its delivery time."""
        if entry_id >= self._read_end:
            self._advance_read_end(entry_id)
        else:
            self.replay.discard(entry_id)
        self.delayed.add(min(due_ms, LATEST_MS), entry_id)

    def _dequeue(self, entry_id: int) -> None:
        """Remove an entry that is being processed from the unread entries, `replay` or `delayed`."""
        if entry_id >= self._read_end:
            self._advance_read_end(entry_id)
        elif not self.replay.discard(entry_id):
            self.delayed.pop_first()

    def _ack_gap(self, from_entry_id: int, entry_id: int) -> None:
        if entry_id > from_entry_id:
            super()._ack_gap(from_entry_id, entry_id)
            self.moved()

    # Events.

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        super().left(consumer, now_ms)
        self._schedule_redelivery(consumer, list(consumer.pending.by_entry))
        if not self.consumers:
            self.rewound()

    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        """Remove acknowledged messages from the pending entries. A consumer may acknowledge entries that are pending at
        another one."""
        pending = consumer.pending
        if entry_id not in pending.by_entry:
            holder = holder_of(entry_id, self.consumers)
            if holder is None:
                if not messages_left:
                    self._forget(entry_id)
                return
            consumer, pending = holder, holder.pending
        if messages_left:
            pending.shrink(entry_id, messages_left)
        else:
            pending.remove(entry_id)
            if self._redelivery_counts:
                self._redelivery_counts.pop(entry_id, None)
        self._may_have_capacity(consumer)

    def _may_have_capacity(self, consumer: ConsumerState) -> None:
        """React to a consumer that may be able to receive messages again."""

    def _forget(self, entry_id: int) -> None:
        self.replay.discard(entry_id)
        self.delayed.discard(entry_id)
        self._redelivery_counts.pop(entry_id, None)

    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        self._schedule_redelivery(
            consumer, list(consumer.pending.by_entry) if entry_ids is None else entry_ids
        )

    def _schedule_redelivery(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            if consumer.pending.remove(entry_id) is not None:
                self._redelivery_counts[entry_id] = self._redelivery_counts.get(entry_id, 0) + 1
                self.replay.add(entry_id)
        self._may_have_capacity(consumer)

    def released(self, entry_ids: Sequence[int]) -> None:
        """Redeliver entries that an aborted transaction had acknowledged. Unread ones are dispatched anyway, and so are
        batches that wait because the transaction had acknowledged only some of their messages."""
        for entry_id in entry_ids:
            if entry_id >= self._read_end or self.cursor.is_acked_or_held(entry_id):
                continue
            holder = holder_of(entry_id, self.consumers)
            if holder is not None:  # a batch of which the consumer holds other messages
                self._schedule_redelivery(holder, [entry_id])
            else:
                self._replay_released(entry_id)

    def _replay_released(self, entry_id: int) -> bool:
        """Add an entry that an aborted transaction released to `replay`. Returns False if it waits already to be
        dispatched: in `replay`, in `delayed` or set aside (DI1)."""
        if entry_id in self.replay or entry_id in self.delayed:
            return False
        self.replay.add(entry_id)
        self._redelivery_counts[entry_id] = self._redelivery_counts.get(entry_id, 0) + 1
        return True

    def moved(self) -> None:
        """Remove acknowledged entries from `pending`, `replay` and `delayed`."""
        cursor = self.cursor
        for consumer in self.consumers:
            for entry_id in [one for one in consumer.pending.by_entry if cursor.is_acked(one)]:
                consumer.pending.remove(entry_id)
        for entry_id in [one for one in self.replay if cursor.is_acked(one)]:
            self.replay.discard(entry_id)
        self.delayed.forget(cursor.acked_bits)
        for entry_id in [one for one in self._redelivery_counts if cursor.is_acked(one)]:
            del self._redelivery_counts[entry_id]

    def rewound(self) -> None:
        super().rewound()
        self.replay.clear()
        self.delayed.clear()
        self._redelivery_counts.clear()
        for consumer in self.consumers:
            consumer.pending.clear()

    def batch_size(self, consumer: ConsumerState, entry_id: int) -> int | None:
        holder = consumer if entry_id in consumer.pending.by_entry else holder_of(entry_id, self.consumers)
        if holder is None or self.cursor.ack_set_of(entry_id) is not None:
            return None
        return holder.pending.by_entry[entry_id]
