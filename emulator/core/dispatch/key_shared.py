"""KEY_SHARED: each key goes to one consumer, in order, while consumers come and go.

An entry cannot go out yet when its consumer takes nothing now, when an earlier entry of its slot still waits, or when
another consumer holds entries of its slot and has not acknowledged them (draining: the slot has moved). Such an entry
waits: `aside` until something changes for its slot, then in `replay`, which is handed out before anything new. So R1
holds with one set more: what lies below the read end is acknowledged, pending at one consumer, in `replay`, `delayed`,
or aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from emulator.core.cursor import Cursor
from emulator.core.dispatch.contract import Candidate, ConsumerState, Delivery, Limits
from emulator.core.dispatch.keys import Shares
from emulator.core.dispatch.shared import Shared
from emulator.core.id_set import IdSet

ASIDE_MAX: Final = 20_000
ASIDE_PER_CONSUMER: Final = 2_000
"""While so many entries are aside nothing new is read: one slow consumer may not make us read the whole log. Both
numbers are upstream's."""


class Hold:
    """One consumer has entries of a slot that it did not acknowledge."""

    __slots__ = ("consumer", "entries")

    def __init__(self, consumer: ConsumerState) -> None:
        self.consumer = consumer
        self.entries = 0


class KeyShared(Shared):
    """Slots of keys have owners; see `Shares`."""

    def __init__(self, cursor: Cursor, limits: Limits) -> None:
        super().__init__(cursor, limits)
        self.shares: Shares[ConsumerState] = Shares()
        self._holds: dict[int, Hold] = {}
        """By slot."""
        self._slot_of: dict[int, int] = {}
        """Of entries that are pending."""
        self._waiting: dict[int, IdSet] = {}
        """By slot: ids that wait, aside or in `replay`."""
        self._slot_waited_for: dict[int, int] = {}
        """By id: the slot in which it waits."""
        self._aside: dict[int, IdSet] = {}
        """By slot: those of them that are not in `replay`."""
        self._aside_count = 0
        self._passed_over: set[ConsumerState] = set()
        """Those that took nothing when something was theirs. Others' acknowledgements are no reason to look again."""

    @property
    def draining(self) -> dict[str, int]:
        """By consumer: slots that have another owner now and wait for its acknowledgements."""
        found: dict[str, int] = {}
        for slot, hold in self._holds.items():
            if self.shares.owner_of(slot) is not hold.consumer:
                found[hold.consumer.name] = found.get(hold.consumer.name, 0) + 1
        return found

    def _may_read_ahead(self) -> bool:
        aside_max = min(ASIDE_MAX, ASIDE_PER_CONSUMER * len(self.consumers))
        return self._aside_count < aside_max and super()._may_read_ahead()

    def _hand_out(self, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        horizon_ms = self.limits.horizon_ms(wall_ms)
        for index, candidate in enumerate(candidates):
            if not self._is_ready(candidate, horizon_ms):
                continue
            entry_id = candidate.entry_id
            self._take(entry_id)
            if candidate.hidden:
                self.cursor.ack_range(entry_id, entry_id)
            elif not self.cursor.is_taken(entry_id):
                delivery = self._deliver_or_wait(index, candidate)
                if delivery is not None:
                    deliveries.append(delivery)
        return deliveries

    def _deliver_or_wait(self, index: int, candidate: Candidate) -> Delivery | None:
        entry_id, slot = candidate.entry_id, candidate.key_slot
        consumer = self.shares.owner_of(slot)
        waiting = self._waiting.get(slot)
        if waiting is not None:
            waiting.discard(entry_id)
            self._slot_waited_for.pop(entry_id, None)
            if not waiting:
                del self._waiting[slot]
                waiting = None
        if consumer is not None and not self._may_serve(consumer):
            self._passed_over.add(consumer)
        if (
            consumer is None
            or not self._may_serve(consumer)
            or (waiting is not None and waiting.first < entry_id)
            or self._is_held_by_another(slot, consumer)
        ):
            self._put_aside(slot, entry_id)
            return None
        hold = self._holds.get(slot)
        if hold is None or hold.consumer is not consumer:
            hold = self._holds[slot] = Hold(consumer)
        hold.entries += 1
        self._slot_of[entry_id] = slot
        return self._deliver(consumer, index, entry_id, candidate.messages)

    def _is_held_by_another(self, slot: int, consumer: ConsumerState) -> bool:
        hold = self._holds.get(slot)
        return hold is not None and hold.consumer is not consumer and not self.shares.may_reorder

    # Waiting.

    def _put_off(self, entry_id: int, due_ms: int) -> None:
        super()._put_off(entry_id, due_ms)
        slot = self._slot_waited_for.get(entry_id)
        if slot is not None:
            self._waits_no_more(slot, entry_id)

    def _put_aside(self, slot: int, entry_id: int) -> None:
        self._wait(slot, entry_id)
        self._aside_count += self._aside.setdefault(slot, IdSet()).add(entry_id)

    def _wait(self, slot: int, entry_id: int) -> None:
        self._waiting.setdefault(slot, IdSet()).add(entry_id)
        self._slot_waited_for[entry_id] = slot

    def _try_again(self, slots: Iterable[int]) -> None:
        """Something changed for these slots."""
        for slot in slots:
            ids = self._aside.pop(slot, None)
            if ids is not None:
                self._aside_count -= len(ids)
                self.replay.update(ids)

    def _try_slots_of(self, consumer: ConsumerState) -> None:
        """The consumer can take something again."""
        if consumer in self._passed_over and self._may_serve(consumer):
            self._passed_over.discard(consumer)
            self._try_again([slot for slot in self._aside if self.shares.owner_of(slot) is consumer])

    def _settled(self, entry_id: int) -> None:
        """The entry is pending no more."""
        slot = self._slot_of.pop(entry_id, None)
        hold = None if slot is None else self._holds.get(slot)
        if slot is None or hold is None:
            return
        hold.entries -= 1
        if not hold.entries:
            del self._holds[slot]
            self._try_again([slot])

    # What happens.

    def joined(self, consumer: ConsumerState, now_ms: int) -> None:
        self.shares.check(consumer.key_sharing)
        self.shares.add(consumer, consumer.key_sharing)
        super().joined(consumer, now_ms)
        self._try_again(list(self._aside))

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        self.shares.remove(consumer)
        self._passed_over.discard(consumer)
        super().left(consumer, now_ms)
        self._try_again(list(self._aside))

    def flow(self, consumer: ConsumerState, permits: int) -> None:
        super().flow(consumer, permits)
        self._try_slots_of(consumer)

    def blocked(self, consumer: ConsumerState, *, blocked: bool) -> None:
        super().blocked(consumer, blocked=blocked)
        self._try_slots_of(consumer)

    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        super().acked(consumer, entry_id, messages_left)
        if not messages_left:
            self._settled(entry_id)
            self._try_slots_of(consumer)

    def _give_back(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        for entry_id in list(entry_ids):
            if entry_id not in consumer.pending.by_entry:
                continue
            slot = self._slot_of.get(entry_id)
            super()._give_back(consumer, [entry_id])
            if slot is not None:
                self._wait(slot, entry_id)
                self._settled(entry_id)

    def moved(self) -> None:
        super().moved()
        is_acked = self.cursor.is_acked
        for slot, waiting in list(self._waiting.items()):
            for entry_id in [one for one in waiting if is_acked(one)]:
                self._waits_no_more(slot, entry_id)
        for entry_id in [one for one in self._slot_of if is_acked(one)]:
            self._settled(entry_id)

    def _forget(self, entry_id: int) -> None:
        super()._forget(entry_id)
        slot = self._slot_waited_for.get(entry_id)
        if slot is not None:
            self._waits_no_more(slot, entry_id)

    def _waits_no_more(self, slot: int, entry_id: int) -> None:
        """It was acknowledged while it waited."""
        waiting, aside = self._waiting[slot], self._aside.get(slot)
        waiting.discard(entry_id)
        self._slot_waited_for.pop(entry_id, None)
        if not waiting:
            del self._waiting[slot]
        if aside is not None:
            self._aside_count -= aside.discard(entry_id)
            if not aside:
                del self._aside[slot]

    def rewound(self) -> None:
        super().rewound()
        self._holds.clear()
        self._slot_of.clear()
        self._waiting.clear()
        self._slot_waited_for.clear()
        self._passed_over.clear()
        self._aside.clear()
        self._aside_count = 0
