"""KEY_SHARED: the messages of a key go to one consumer, in order, while consumers join and leave.

An entry cannot be dispatched yet when the owner of its slot cannot receive it, when an earlier entry of its slot waits
(or one that an aborted transaction released: its slot is unknown until it is read), when another consumer holds
unacknowledged entries of the slot (draining: the slot has moved), or when no consumer owns the slot. Such an entry is
set aside (DI1): for the owner in the first two cases, for its slot in the other two. Entries that are aside for a
consumer with permits are read again, up to its permits, before new entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch.consistent_hash import SlotOwners
from emulator.core.dispatch.multiple_consumers import MultipleConsumers
from emulator.core.dispatch.strategy import WaitingMessages
from emulator.core.dispatch.types import Candidate, ConsumerState, DispatchLimits, Read

ASIDE_MAX: Final = 20_000
ASIDE_PER_CONSUMER: Final = 2_000
"""Limits of the number of entries aside: in all, and multiplied by the number of consumers. When one is reached no new
entries are read, so that one slow consumer cannot make the broker read the whole log. Both numbers are upstream's."""


AHEAD_ENTRIES: Final = 32
"""Minimum of the limit of new entries per read. It applies, for example, while some consumers have no permits."""


AsideKey = TypeVar("AsideKey", int, ConsumerState)


class SlotHolder:
    """The consumer that holds unacknowledged entries of a slot, and their number."""

    __slots__ = ("consumer", "entries", "slot")

    def __init__(self, slot: int, consumer: ConsumerState) -> None:
        self.slot = slot
        self.consumer = consumer
        self.entries = 0


class KeyShared(MultipleConsumers):
    """The strategy of KEY_SHARED subscriptions. `SlotOwners` assigns the slots of keys to consumers."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self.slot_owners: SlotOwners = SlotOwners()
        self._holder_of_slot: dict[int, SlotHolder] = {}
        """Slot -> its holder."""
        self._holder_of_entry: dict[int, SlotHolder] = {}
        """Id of a pending entry -> holder of its slot."""
        self._waiting: dict[int, IdSet] = {}
        """Slot -> ids that wait aside, or in `replay` after they were aside or returned by a consumer."""
        self._slot_of_waiting: dict[int, int] = {}
        """Id of a waiting entry -> its slot."""
        self._released = IdSet()
        """Ids in `replay` that an aborted transaction released: their slots are unknown until they are read."""
        self._aside_for_consumer: dict[ConsumerState, IdSet] = {}
        """Consumer -> ids aside that wait until it can receive them, after earlier entries of their slots."""
        self._aside_for_slot: dict[int, IdSet] = {}
        """Slot -> ids aside that wait until another consumer has drained the slot, or until a consumer owns it."""
        self._aside_count = 0

    @property
    def draining(self) -> dict[ConsumerState, int]:
        """Consumer -> number of slots that have another owner now and wait for the consumer's acknowledgements."""
        found: dict[ConsumerState, int] = {}
        for slot, holder in self._holder_of_slot.items():
            if self.slot_owners.owner_of(slot) is not holder.consumer:
                found[holder.consumer] = found.get(holder.consumer, 0) + 1
        return found

    def _read_new(self, end_entry_id: int, entries_max: int) -> Read | None:
        """Return a read of new entries. Their maximum is the smallest number of permits, multiplied by the number of
        consumers, but at least AHEAD_ENTRIES. Reading more for one consumer would also read entries of others, and
        setting those aside costs more than reading them later."""
        least = min((0 if one.blocked else one.permits for one in self.consumers), default=0)
        return super()._read_new(
            end_entry_id, min(entries_max, max(AHEAD_ENTRIES, least * len(self.consumers)))
        )

    def _may_read_ahead(self) -> bool:
        aside_max = min(ASIDE_MAX, ASIDE_PER_CONSUMER * len(self.consumers))
        return self._aside_count < aside_max and super()._may_read_ahead()

    def _assign_receiver(self, candidate: Candidate) -> ConsumerState | None:
        slot = self.slot_owners.slot_of(candidate.key_hash)
        consumer = self.slot_owners.owner_of(slot)
        if consumer is None or not self.limits.may_serve(consumer):
            return None
        entry_id = candidate.entry_id
        if slot in self._waiting and self._is_behind(self._waiting[slot], entry_id):
            return None
        if self._released and self._is_behind(self._released, entry_id):
            return None  # the released entry may have the same key
        holder = self._holder_of_slot.get(slot)
        if holder is None or holder.consumer is not consumer:
            if self._is_held_by_another(slot, consumer):
                return None
            holder = self._holder_of_slot[slot] = SlotHolder(slot, consumer)
        holder.entries += 1
        self._holder_of_entry[entry_id] = holder
        return consumer

    def _is_behind(self, waiting: IdSet, entry_id: int) -> bool:
        """Whether one of the waiting entries is earlier."""
        return waiting.first < entry_id

    def _is_held_by_another(self, slot: int, consumer: ConsumerState) -> bool:
        holder = self._holder_of_slot.get(slot)
        return holder is not None and holder.consumer is not consumer and not self.slot_owners.may_reorder

    # Waiting.

    def waiting(self, unread: int) -> Iterator[WaitingMessages]:
        for consumer, ids in self._aside_for_consumer.items():
            yield WaitingMessages(len(ids), consumer)
        for slot, ids in self._aside_for_slot.items():
            holder = self._holder_of_slot.get(slot)
            yield WaitingMessages(
                len(ids),
                holder=None if holder is None else holder.consumer,
                has_no_consumer=self.slot_owners.owner_of(slot) is None,
            )
        yield from super().waiting(unread)

    def _reread(self, end_entry_id: int, permits: int) -> Read | None:
        read = super()._reread(end_entry_id, permits)
        if read is None:
            for consumer, ids in self._aside_for_consumer.items():
                if self.limits.may_serve(consumer):
                    return self._read_of(ids, end_entry_id, consumer.permits)
        return read

    def _can_be_redelivered(self, entry_id: int) -> bool:
        if entry_id in self.replay:
            return True
        slot = self._slot_of_waiting.get(entry_id)
        consumer = None if slot is None else self.slot_owners.owner_of(slot)
        if consumer is None or not self.limits.may_serve(consumer):
            return False
        aside = self._aside_for_consumer.get(consumer)
        return aside is not None and entry_id in aside

    def _set_aside(self, candidate: Candidate) -> bool:
        entry_id, slot = candidate.entry_id, self.slot_owners.slot_of(candidate.key_hash)
        self._dequeue(entry_id)
        self._waiting.setdefault(slot, IdSet()).add(entry_id)
        self._slot_of_waiting[entry_id] = slot
        consumer = self.slot_owners.owner_of(slot)
        if consumer is None or self._is_held_by_another(slot, consumer):
            aside = self._aside_for_slot.setdefault(slot, IdSet())
        else:
            aside = self._aside_for_consumer.setdefault(consumer, IdSet())
        self._aside_count += aside.add(entry_id)
        return True

    def _dequeue(self, entry_id: int) -> None:
        self._released.discard(entry_id)
        slot = self._slot_of_waiting.get(entry_id)
        if slot is None or not self._remove_waiting(slot, entry_id):
            super()._dequeue(entry_id)

    def _delay(self, entry_id: int, due_ms: int) -> None:
        super()._delay(entry_id, due_ms)
        self._forget_waiting(entry_id)

    def _forget_waiting(self, entry_id: int) -> None:
        self._released.discard(entry_id)
        slot = self._slot_of_waiting.get(entry_id)
        if slot is not None:
            self._remove_waiting(slot, entry_id)

    def _remove_waiting(self, slot: int, entry_id: int) -> bool:
        """Remove an entry from those that wait in its slot. Returns whether it was aside; if not, it is in `replay`."""
        waiting, consumer = self._waiting[slot], self.slot_owners.owner_of(slot)
        waiting.discard(entry_id)
        del self._slot_of_waiting[entry_id]
        if not waiting:
            del self._waiting[slot]
        was_aside = _discard_aside(self._aside_for_slot, slot, entry_id)
        if not was_aside and consumer is not None:
            was_aside = _discard_aside(self._aside_for_consumer, consumer, entry_id)
        self._aside_count -= was_aside
        return was_aside

    def _replay_aside(self) -> None:
        """Move all entries aside into `replay`, because the owners of slots change."""
        for ids in (*self._aside_for_consumer.values(), *self._aside_for_slot.values()):
            self.replay.unite(ids)
        self._aside_for_consumer.clear()
        self._aside_for_slot.clear()
        self._aside_count = 0

    def _release_pending(self, entry_id: int) -> None:
        """Note that an entry is not pending any more. When it was the last one of its slot, the slot is released, and
        its entries aside wait for the owner."""
        holder = self._holder_of_entry.pop(entry_id, None)
        if holder is None:
            return
        holder.entries -= 1
        if not holder.entries and self._holder_of_slot.get(holder.slot) is holder:
            del self._holder_of_slot[holder.slot]
            owner = self.slot_owners.owner_of(holder.slot)
            if owner is not None and holder.slot in self._aside_for_slot:
                self._aside_for_consumer.setdefault(owner, IdSet()).unite(
                    self._aside_for_slot.pop(holder.slot)
                )

    # Events.

    def joined(self, consumer: ConsumerState, now_ms: int) -> None:
        self.slot_owners.check(consumer.key_sharing)
        self._replay_aside()
        self.slot_owners.add(consumer, consumer.key_sharing)
        super().joined(consumer, now_ms)

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        self._replay_aside()
        self.slot_owners.remove(consumer)
        super().left(consumer, now_ms)

    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        super().acked(consumer, entry_id, messages_left)
        if not messages_left:
            self._release_pending(entry_id)

    def _schedule_redelivery(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        for entry_id in list(entry_ids):
            if entry_id not in consumer.pending.by_entry:
                continue
            holder = self._holder_of_entry.get(entry_id)
            super()._schedule_redelivery(consumer, [entry_id])
            if holder is not None:
                self._waiting.setdefault(holder.slot, IdSet()).add(entry_id)
                self._slot_of_waiting[entry_id] = holder.slot
                self._release_pending(entry_id)

    def _replay_released(self, entry_id: int) -> bool:
        if entry_id in self._slot_of_waiting or not super()._replay_released(entry_id):
            return False
        self._released.add(entry_id)
        return True

    def moved(self) -> None:
        super().moved()
        is_acked = self.cursor.is_acked
        for slot, waiting in list(self._waiting.items()):
            for entry_id in [one for one in waiting if is_acked(one)]:
                self._remove_waiting(slot, entry_id)
        for entry_id in [one for one in self._holder_of_entry if is_acked(one)]:
            self._release_pending(entry_id)
        for entry_id in [one for one in self._released if is_acked(one)]:
            self._released.discard(entry_id)

    def _forget(self, entry_id: int) -> None:
        super()._forget(entry_id)
        self._forget_waiting(entry_id)

    def rewound(self) -> None:
        super().rewound()
        self._holder_of_slot.clear()
        self._holder_of_entry.clear()
        self._waiting.clear()
        self._slot_of_waiting.clear()
        self._released.clear()
        self._aside_for_consumer.clear()
        self._aside_for_slot.clear()
        self._aside_count = 0


def _discard_aside(aside: dict[AsideKey, IdSet], key: AsideKey, entry_id: int) -> bool:
    """Remove an entry from those aside for `key`. Returns False when it was not among them."""
    ids = aside.get(key)
    if ids is None or not ids.discard(entry_id):
        return False
    if not ids:
        del aside[key]
    return True
