"""SHARED: entries go to consumers that have permits, in turns.

What a consumer gives back (negative acknowledgement, disconnect) waits in `replay` and is handed out again before
anything new. Every id below the read end is acknowledged, in one consumer's `pending`, or in `replay` (R1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emulator.core.cursor import Cursor
from emulator.core.dispatch.contract import Candidate, ConsumerState, Delivery, Limits, Read, Wake, bits_set
from emulator.core.dispatch.strategy import ENTRIES_PER_READ_MAX, Strategy
from emulator.core.id_set import IdSet

RUN_ENTRIES = 16
"""How many entries in a row one consumer gets before it is the next one's turn."""


class Shared(Strategy):
    """Consumers of the best priority take turns while they have permits and hold less than they may."""

    def __init__(self, cursor: Cursor, limits: Limits) -> None:
        super().__init__(cursor, limits)
        self.replay = IdSet()
        """To be handed out again."""
        self._redelivery_counts: dict[int, int] = {}
        """Of what was given back and is not acknowledged."""
        self._turn = 0

    def next(self, end_entry_id: int, now_ms: int) -> Read | Wake | None:
        permits = sum(consumer.permits for consumer in self.consumers if self._may_serve(consumer))
        if permits <= 0:
            return None
        if self.replay:
            return self._read_replay(end_entry_id, permits)
        return self._read_new(end_entry_id, permits)

    def _read_replay(self, end_entry_id: int, permits: int) -> Read:
        """From the first id of `replay` on, no further than the last one that such a read may reach."""
        first = self.replay.first
        last = self.replay.last_before(first + min(permits, ENTRIES_PER_READ_MAX))
        return Read(first, last - first + 1, end_entry_id, self._token)

    def _may_serve(self, consumer: ConsumerState) -> bool:
        return (
            consumer.can_receive and consumer.pending.messages < self.limits.unacked_messages_per_consumer_max
        )

    def _hand_out(self, candidates: Sequence[Candidate]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        consumer, run = None, 0
        for index, candidate in enumerate(candidates):
            entry_id = candidate.entry_id
            is_new = entry_id >= self._read_end
            if not is_new and entry_id not in self.replay:
                continue
            if consumer is None or run >= RUN_ENTRIES or not self._may_serve(consumer):
                consumer, run = self._next_in_turn(), 0
                if consumer is None:
                    break
            if is_new:
                self._pass_to(entry_id)
            else:
                self.replay.discard(entry_id)
            if candidate.hidden:
                self.cursor.ack_range(entry_id, entry_id)
            elif not self.cursor.is_acked(entry_id):
                run += 1
                deliveries.append(self._deliver(consumer, index, entry_id, candidate.messages))
        return deliveries

    def _deliver(self, consumer: ConsumerState, index: int, entry_id: int, messages: int) -> Delivery:
        ack_set = self.cursor.ack_set_of(entry_id)
        open_messages = messages if ack_set is None else bits_set(ack_set)
        consumer.permits -= open_messages
        consumer.pending.add(entry_id, open_messages)
        return Delivery(consumer, index, self._redelivery_counts.get(entry_id, 0), ack_set)

    def _next_in_turn(self) -> ConsumerState | None:
        """Round robin among those of the best priority that can take something."""
        able = [consumer for consumer in self.consumers if self._may_serve(consumer)]
        if not able:
            return None
        best = min(consumer.priority for consumer in able)
        able = [consumer for consumer in able if consumer.priority == best]
        self._turn += 1
        return able[self._turn % len(able)]

    def _pass_gap(self, from_entry_id: int, entry_id: int) -> None:
        if entry_id > from_entry_id:
            super()._pass_gap(from_entry_id, entry_id)
            self.moved()

    # What happens.

    def joined(self, consumer: ConsumerState, now_ms: int) -> None:
        self.consumers.append(consumer)

    def left(self, consumer: ConsumerState) -> None:
        self.consumers.remove(consumer)
        self._give_back(consumer, list(consumer.pending.by_entry))
        if not self.consumers:
            self.rewound()

    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        pending = consumer.pending
        if entry_id not in pending.by_entry:
            holder = self._holder_of(entry_id)
            if holder is None:
                if not messages_left:
                    self._forget(entry_id)
                return
            pending = holder.pending
        if messages_left:
            pending.shrink(entry_id, messages_left)
            return
        pending.take(entry_id)
        if self._redelivery_counts:
            self._redelivery_counts.pop(entry_id, None)

    def _holder_of(self, entry_id: int) -> ConsumerState | None:
        """Consumers may acknowledge what others hold."""
        return next((one for one in self.consumers if entry_id in one.pending.by_entry), None)

    def _forget(self, entry_id: int) -> None:
        self.replay.discard(entry_id)
        self._redelivery_counts.pop(entry_id, None)

    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        self._give_back(consumer, list(consumer.pending.by_entry) if entry_ids is None else entry_ids)

    def _give_back(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            if consumer.pending.take(entry_id) is not None:
                self._redelivery_counts[entry_id] = self._redelivery_counts.get(entry_id, 0) + 1
                self.replay.add(entry_id)

    def moved(self) -> None:
        """Take out of the books what is acknowledged now."""
        cursor = self.cursor
        for consumer in self.consumers:
            for entry_id in [one for one in consumer.pending.by_entry if cursor.is_acked(one)]:
                consumer.pending.take(entry_id)
        for entry_id in [one for one in self.replay if cursor.is_acked(one)]:
            self.replay.discard(entry_id)
        for entry_id in [one for one in self._redelivery_counts if cursor.is_acked(one)]:
            del self._redelivery_counts[entry_id]

    def rewound(self) -> None:
        super().rewound()
        self.replay.clear()
        self._redelivery_counts.clear()
        for consumer in self.consumers:
            consumer.pending.clear()

    def batch_size(self, consumer: ConsumerState, entry_id: int) -> int | None:
        holder = consumer if entry_id in consumer.pending.by_entry else self._holder_of(entry_id)
        if holder is None or self.cursor.ack_set_of(entry_id) is not None:
            return None
        return holder.pending.by_entry[entry_id]
