"""EXCLUSIVE and FAILOVER: one consumer is active and receives every unacknowledged entry in log order.

When the active consumer changes, reading starts again at the first unacknowledged entry. If the previous active
consumer is still connected, dispatch pauses first for `failover_delay_ms`: the previous one may be acknowledging.

On a partition the active consumer is the one at index (partition number mod count) among those of the best priority,
sorted by name. This spreads the partitions evenly, but a consumer that joins or leaves may change the active consumer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.strategy import DispatchStrategy, WaitingMessages
from emulator.core.dispatch.types import (
    Candidate,
    ConsumerState,
    Delivery,
    DispatchLimits,
    Read,
    Wake,
    count_unacked,
)
from emulator.model.reasons import NO_REASON, Cause, Reason

_new_delivery: Final = tuple.__new__
"""Creates a Delivery in half the time of its constructor."""


class SingleActive(DispatchStrategy):
    """The strategy of EXCLUSIVE and FAILOVER subscriptions. The active consumer has the lowest priority number. Among
    equals, it is the one that joined first; on a partition, the one that the partition's index selects."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self._paused_until_ms: int | None = None

    def next(self, end_entry_id: int, now_ms: int, wall_ms: int) -> Read | Wake | None:
        if self.active is None or not self.active.can_receive:
            return None
        if self._paused_until_ms is not None and now_ms < self._paused_until_ms:
            return Wake(self._paused_until_ms)
        return self._read_new(end_entry_id, self.active.permits)

    def waiting(self, unread: int) -> Iterator[WaitingMessages]:
        if unread and self.active is not None:
            yield WaitingMessages(unread, self.active)

    def why_delayed(self, now_ms: int, wall_ms: int) -> Reason:
        until_ms = self._paused_until_ms
        if self.active is None or until_ms is None or now_ms >= until_ms:
            return NO_REASON
        return Cause.FAILOVER_PAUSE(consumer=self.active.name, wait_ms=until_ms - now_ms)

    def _dispatch(self, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        consumer, cursor = self.active, self.cursor
        deliveries: list[Delivery] = []
        if consumer is None:
            return deliveries
        begin = self._dispatch_whole(consumer, candidates, deliveries)
        for index, candidate in enumerate(candidates[begin:], begin):
            if consumer.permits <= 0:
                break
            entry_id = candidate.entry_id
            self._advance_read_end(entry_id)
            if candidate.hidden:
                cursor.ack_range(entry_id, entry_id)
            elif not cursor.is_acked_or_held(entry_id):
                ack_set = cursor.ack_set_of(entry_id)
                consumer.permits -= candidate.messages if ack_set is None else count_unacked(ack_set)
                deliveries.append(Delivery(consumer, index, 0, ack_set))
        return deliveries

    def _dispatch_whole(
        self, consumer: ConsumerState, candidates: Sequence[Candidate], deliveries: list[Delivery]
    ) -> int:
        """Dispatch the candidates before the first one that is hidden, or does not follow the one before, if nothing
        beyond mark-delete is acknowledged, as nearly always in a backlog. Return their number."""
        if not self.cursor.has_only_mark_delete or self._read_end <= self.cursor.mark_delete:
            return 0
        read_end, permits = self._read_end, consumer.permits
        for candidate in candidates:
            if permits <= 0 or candidate.entry_id != read_end or candidate.hidden:
                break
            deliveries.append(_new_delivery(Delivery, (consumer, len(deliveries), 0, None)))
            permits -= candidate.messages
            read_end += 1
        self._read_end, consumer.permits = read_end, permits
        return len(deliveries)

    def joined(self, consumer: ConsumerState, now_ms: int) -> None:
        super().joined(consumer, now_ms)
        self._update_active(now_ms)

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        super().left(consumer, now_ms)
        self._update_active(now_ms)

    def _update_active(self, now_ms: int) -> None:
        before, chosen = self.active, self._select_active()
        if chosen is before:
            return
        self.active = chosen
        self.rewound()
        if before in self.consumers:
            self._paused_until_ms = now_ms + self.limits.failover_delay_ms

    def _select_active(self) -> ConsumerState | None:
        best_priority = min((consumer.priority for consumer in self.consumers), default=0)
        best = [consumer for consumer in self.consumers if consumer.priority == best_priority]
        if not best:
            return None
        if self.limits.partition_index < 0:
            return best[0]
        best.sort(key=lambda consumer: consumer.name)
        return best[self.limits.partition_index % len(best)]

    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        """Do nothing: the cursor contains the acknowledgement."""

    def acked_run(self, consumer: ConsumerState, first: int, last: int) -> None:
        """Do nothing, for each entry."""

    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        """Redeliver all unacknowledged entries in order, whatever `entry_ids` are, if the consumer is active."""
        if consumer is self.active:
            self.rewound()

    def released(self, entry_ids: Sequence[int]) -> None:
        """Redeliver all unacknowledged entries in order, unless all of `entry_ids` are unread."""
        if any(entry_id < self._read_end for entry_id in entry_ids):
            self.rewound()

    def moved(self) -> None:
        """Do nothing: `read_entry_id` follows the cursor."""
