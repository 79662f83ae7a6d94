"""EXCLUSIVE and FAILOVER: one consumer is active and gets every unacknowledged entry in log order.

When the active one changes, reading starts again at the first unacknowledged entry. A consumer that takes over from one
that is still connected waits a moment first: the one before may be acknowledging.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.core.cursor import Cursor
from emulator.core.dispatch.contract import Candidate, ConsumerState, Delivery, Limits, Read, Wake, bits_set
from emulator.core.dispatch.strategy import Strategy


class SingleActive(Strategy):
    """Who is active: the lowest priority number, then the first to come. A newcomer of equal rank displaces nobody."""

    def __init__(self, cursor: Cursor, limits: Limits) -> None:
        super().__init__(cursor, limits)
        self._paused_until_ms: int | None = None

    def next(self, end_entry_id: int, now_ms: int) -> Read | Wake | None:
        if self.active is None or not self.active.can_receive:
            return None
        if self._paused_until_ms is not None and now_ms < self._paused_until_ms:
            return Wake(self._paused_until_ms)
        return self._read_new(end_entry_id, self.active.permits)

    def _hand_out(self, candidates: Sequence[Candidate]) -> list[Delivery]:
        consumer, cursor = self.active, self.cursor
        deliveries: list[Delivery] = []
        if consumer is None:
            return deliveries
        for index, candidate in enumerate(candidates):
            if consumer.permits <= 0:
                break
            entry_id = candidate.entry_id
            self._pass_to(entry_id)
            if candidate.hidden:
                cursor.ack_range(entry_id, entry_id)
            elif not cursor.is_acked(entry_id):
                ack_set = cursor.ack_set_of(entry_id)
                consumer.permits -= candidate.messages if ack_set is None else bits_set(ack_set)
                deliveries.append(Delivery(consumer, index, 0, ack_set))
        return deliveries

    def joined(self, consumer: ConsumerState, now_ms: int) -> None:
        before = self.active
        self.consumers.append(consumer)
        self._choose_active()
        if before is not None and self.active is not before:
            self._paused_until_ms = now_ms + self.limits.failover_delay_ms

    def left(self, consumer: ConsumerState) -> None:
        self.consumers.remove(consumer)
        self._choose_active()

    def _choose_active(self) -> None:
        chosen = min(self.consumers, key=lambda consumer: consumer.priority, default=None)
        if chosen is not self.active:
            self.active = chosen
            self.rewound()

    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        """The cursor has it, and there is no other book."""

    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        """Everything unacknowledged is sent again, in order, whatever was named. Only the active consumer may ask."""
        if consumer is self.active:
            self.rewound()

    def moved(self) -> None:
        """The cursor has it, and there is no other book."""
