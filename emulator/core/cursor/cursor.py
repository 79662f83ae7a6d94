"""What one subscription has acknowledged of one log.

Entry ids are plain ints (a topic has one ledger per region) and may have gaps: an id that no entry has is acknowledged
like any other by the component that finds the gap.

        everything acknowledged      holes            unread
    ───────────────────────────┤○ ● ● ○ ◐ ○ ● ├──────────────▶ log
                     mark-delete    ranges           ○ not acknowledged   ● acknowledged   ◐ part of a batch

    mark-delete   the largest id up to which nothing is missing. Moves forward only, except by `seek`
                  (INV-8). Only this is sent to other regions (PIP-33).
    ranges        maximal runs of acknowledged ids beyond mark-delete.
    batch sets    for a batch entry that is acknowledged in part: which of its messages are not, one bit each.

A cursor is *ahead of its peers* when consumers of its own region acknowledged messages that no update of another region
covers (PIP-33). Only such a cursor is sent to other regions: a region that merely followed would undo a seek back in
the region that it followed.

Acknowledging in order costs one comparison, anything else one bit in one part of 4,096 ids. The cursor remembers which
parts changed; `core/cursor/stored_format.py` stores them. A cursor that is written late only repeats messages after a
crash; a cursor never contains more than consumers acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from emulator.core.cursor.id_set import PART_BITS, IdSet

WORD_BITS = 64
_WORD = (1 << WORD_BITS) - 1


class Holding(Protocol):
    """What open transactions acknowledged at a subscription (core.transactions.pending_acks)."""

    def holds(self, entry_id: int) -> bool:
        """All of the entry."""
        ...

    def held_bits(self, entry_id: int) -> tuple[int, int]:
        """(messages of a batch that are held, how many it has); (0, 0) when nothing of it is held in part."""
        ...


class UnappliedUpdate(NamedTuple):
    """The newest position that one region sent while the subscription was not replicated here."""

    entry_id: int
    """In our log."""
    named: tuple[str, ...]
    """Regions whose positions the update contains."""


class Cursor:
    """One subscription's position. Owned by one subscription; every change grows `version`."""

    __slots__ = (
        "_acked",
        "ahead_of_peers",
        "changed_parts",
        "generation",
        "head_changed",
        "held",
        "highest_acked",
        "mark_delete",
        "newest_generation",
        "open_bits",
        "properties",
        "replicated",
        "replication_disabled",
        "unapplied",
        "version",
    )

    def __init__(self, mark_delete: int) -> None:
        self.mark_delete = mark_delete
        """Every id <= this is acknowledged. Only `seek` lowers it (INV-8)."""
        self._acked = IdSet()
        """Ids beyond mark-delete. What it says of ids up to mark-delete has no meaning."""
        self.open_bits: dict[int, int] = {}
        """Entry id -> its messages that are NOT acknowledged, bit i for index i. Invariant: not 0, and the
        entry itself is not acknowledged."""
        self.ahead_of_peers = False
        """Consumers here acknowledged messages that no update of another region covers."""
        self.highest_acked = -1
        """Highest id that a consumer or an update acknowledged; markers and gaps passed on the way do not
        count."""
        self.replicated = False
        """Its position is carried to other regions (PIP-33), and theirs here. Change through `set_replicated` and
        `disable_replication`."""
        self.replication_disabled = False
        """An administrator turned replication off: a SUBSCRIBE that requests it does not turn it on again."""
        self.unapplied: dict[str, UnappliedUpdate] = {}
        """By source region; only while it is not replicated. Change through `note_unapplied`, `take_unapplied`."""
        self.properties: dict[str, str] = {}
        """What its client says about it; for people. Change through `set_properties`."""
        self.held: Holding | None = None
        """Acknowledgements of open transactions, or None: not effective yet; their messages are not dispatched."""
        self.version = 0
        """Grows with every change since this object was made; not stored."""
        # What differs from the store; for `CursorParts`.
        self.generation = 0
        """Grows with each seek. Within one generation acknowledgements only grow."""
        self.newest_generation = 0
        """No stored part has a newer one, so the next seek's is free."""
        self.head_changed = True
        self.changed_parts: set[int] = set()

    # Consumers acknowledge.

    def ack(self, entry_id: int) -> bool:
        """Acknowledge one entry. False when it already was."""
        if entry_id == self.mark_delete + 1:
            self._advance(entry_id)
        elif entry_id <= self.mark_delete or not self._acked.add(entry_id):
            return False
        else:
            self.changed_parts.add(entry_id >> PART_BITS)
        if self.open_bits:
            self.open_bits.pop(entry_id, None)
        self.version += 1
        self.ahead_of_peers = True
        if entry_id > self.highest_acked:
            self.highest_acked = entry_id
        return True

    def ack_cumulative(self, entry_id: int) -> bool:
        """Acknowledge everything up to and including `entry_id`. False when it is not beyond mark-delete."""
        if not self.ack_range(self.mark_delete + 1, entry_id):
            return False
        self.ahead_of_peers = True
        self.highest_acked = max(self.highest_acked, entry_id)
        return True

    def ack_batch(self, entry_id: int, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledge the messages of a batch whose bit in `ack_set` is clear (set = not acknowledged;
        words that a client left out are clear). True when that completed the entry."""
        return self.keep_open(entry_id, bits_of(ack_set), batch_size)

    def keep_open(self, entry_id: int, kept: int, batch_size: int) -> bool:
        """Acknowledge the messages of a batch whose bit in `kept` is clear. True when that completed the entry."""
        if self.is_acked(entry_id):
            return False
        every_bit = (1 << batch_size) - 1
        before = self.open_bits.get(entry_id, every_bit)
        after = before & kept
        if not after:
            return self.ack(entry_id)
        if after != before:
            self.open_bits[entry_id] = after
            self.changed_parts.add(entry_id >> PART_BITS)
            self.version += 1
        return False

    # Others do.

    def ack_range(self, first: int, last: int) -> bool:
        """Pass all ids first..last, both included: markers, gaps, what was trimmed. False when that changed
        nothing."""
        if last <= self.mark_delete or last < first:
            return False
        if first <= self.mark_delete + 1:
            first = self.mark_delete + 1
            self._advance(last)
        else:
            changed = self._acked.add_range(first, last)
            if not changed:
                return False
            self.changed_parts.update(changed)
        if self.open_bits:
            _remove_range(self.open_bits, first, last)
        self.version += 1
        return True

    def ack_cumulative_except(self, entry_id: int, unseen: Iterable[int]) -> bool:
        """Acknowledge everything up to and including `entry_id` except `unseen`, which stays as it is.

        Applies a position from another region: entries that it never received are left to consumers here. When
        the update contains acknowledgements that are new here, and covers all that we have, we are not ahead of
        that region any more. False when nothing changed.
        """
        version = self.version
        first = self.mark_delete + 1
        for kept in sorted({one for one in unseen if first <= one <= entry_id}):
            self.ack_range(first, kept - 1)
            first = kept + 1
        self.ack_range(first, entry_id)
        if self.version == version:
            return False
        if entry_id >= self.highest_acked:
            self.highest_acked, self.ahead_of_peers = entry_id, False
        return True

    def ack_hidden(self, hidden: IdSet) -> bool:
        """Let mark-delete pass those of `hidden` (ids no consumer ever receives: markers) that directly follow it.
        Without this a subscription without consumers would stay behind its trailing markers for ever. True when it
        moved."""
        version = self.version
        while run := hidden.run_from(self.mark_delete + 1):
            self.ack_range(self.mark_delete + 1, self.mark_delete + run)
        return self.version != version

    def seek(self, next_entry_id: int) -> None:
        """Everything before `next_entry_id` counts as acknowledged, nothing from it on."""
        self.mark_delete = next_entry_id - 1
        self._acked.clear()
        self.open_bits.clear()
        self.highest_acked, self.ahead_of_peers = -1, False
        self.unapplied.clear()
        self.newest_generation += 1
        self.generation = self.newest_generation
        self.head_changed = True
        self.changed_parts.clear()
        self.version += 1

    # Asking.

    def is_acked(self, entry_id: int) -> bool:
        """Whether all of the entry is acknowledged."""
        if entry_id <= self.mark_delete:
            return True
        return entry_id in self._acked

    def is_taken(self, entry_id: int) -> bool:
        """Whether all of the entry is acknowledged, or held by open transactions."""
        if self.is_acked(entry_id):
            return True
        if self.held is None:
            return False
        return self.held.holds(entry_id) or self._bits_left(entry_id) == 0

    def _bits_left(self, entry_id: int) -> int | None:
        """Messages of a batch that are neither acknowledged nor held; None: all."""
        left = self.open_bits.get(entry_id)
        if self.held is None:
            return left
        held, size = self.held.held_bits(entry_id)
        if not held:
            return left
        return ((1 << size) - 1 if left is None else left) & ~held

    def ack_set_of(self, entry_id: int) -> tuple[int, ...] | None:
        """The messages of a batch still not acknowledged, nor held by open transactions, as signed 64-bit words for the
        wire; None when that is all of the entry or nothing."""
        bits = self._bits_left(entry_id)
        return None if bits is None else words_of(bits)

    def next_unacked(self, from_entry_id: int) -> int:
        """Smallest id >= `from_entry_id` that is not acknowledged."""
        entry_id = max(from_entry_id, self.mark_delete + 1)
        return entry_id + self._acked.run_from(entry_id)

    @property
    def acked_ranges(self) -> list[tuple[int, int]]:
        """Acknowledged runs beyond mark-delete, ascending, ends included."""
        return [run for run in self._acked.runs() if run[0] > self.mark_delete]

    def acked_bits(self, part: int) -> int:
        """Which ids of one part are acknowledged, a bit each."""
        bits = self._acked.parts.get(part, 0)
        passed = self.mark_delete + 1 - (part << PART_BITS)
        return bits | ((1 << passed) - 1) if passed > 0 else bits

    def unacked_count(self, upto_exclusive: int, not_counting: IdSet | None = None) -> int:
        """Ids below `upto_exclusive` that are not acknowledged, leaving out those in `not_counting`.

        Ids without an entry count until they are acknowledged.
        """
        first, last = self.mark_delete + 1, upto_exclusive - 1
        if last < first:
            return 0
        count = last - first + 1 - self._acked.count(first, last)
        if not_counting is not None:
            count -= not_counting.count(first, last) - not_counting.count(first, last, among=self._acked)
        return count

    # What is kept besides.

    def set_replicated(self, replicated: bool) -> None:
        """Whether the position is carried to other regions. True also revokes `disable_replication`."""
        disabled = self.replication_disabled and not replicated
        if (replicated, disabled) != (self.replicated, self.replication_disabled):
            self.replicated, self.replication_disabled = replicated, disabled
            self._touch_head()

    def disable_replication(self) -> None:
        """Turn replication off until `set_replicated(True)`."""
        if self.replicated or not self.replication_disabled:
            self.replicated, self.replication_disabled = False, True
            self._touch_head()

    def note_unapplied(self, source: str, entry_id: int, named: Iterable[str]) -> None:
        """Remember the position of an update that is not applied; one per source, the highest."""
        known = self.unapplied.get(source)
        if known is None or entry_id > known.entry_id:
            self.unapplied[source] = UnappliedUpdate(entry_id, tuple(named))
            self._touch_head()

    def take_unapplied(self) -> dict[str, UnappliedUpdate]:
        """Return what `note_unapplied` remembered, and forget it."""
        unapplied, self.unapplied = self.unapplied, {}
        if unapplied:
            self._touch_head()
        return unapplied

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """What its client says about it."""
        if properties != self.properties:
            self.properties = dict(properties)
            self._touch_head()

    def _touch_head(self) -> None:
        self.head_changed = True
        self.version += 1

    def restore(self, parts: Mapping[int, int]) -> None:
        """While a stored cursor is read: these ids, bits by part, are acknowledged too."""
        self._acked.parts.update({part: bits for part, bits in parts.items() if bits})
        self._advance(self.mark_delete)

    # Moving.

    def _advance(self, mark_delete: int) -> None:
        """Everything up to `mark_delete`, which lies beyond the present one, is acknowledged; and what follows it."""
        before, self.mark_delete = self.mark_delete, mark_delete
        self.head_changed = True
        if self._acked:
            self.mark_delete += self._acked.run_from(mark_delete + 1)
            if (before + 1) >> PART_BITS != (self.mark_delete + 1) >> PART_BITS:
                self._acked.drop_parts_below(self.mark_delete + 1)


def bits_of(words: Sequence[int]) -> int:
    """One number from 64-bit words, lowest first, signed or not."""
    return int.from_bytes(struct.pack(f"<{len(words)}Q", *[word & _WORD for word in words]), "little")


def words_of(bits: int) -> tuple[int, ...]:
    """Signed 64-bit words, lowest first."""
    count = -(-bits.bit_length() // WORD_BITS)
    return struct.unpack(f"<{count}q", bits.to_bytes(count * WORD_BITS // 8, "little"))


def _remove_range(by_id: dict[int, int], first: int, last: int) -> None:
    if last - first < len(by_id):
        done = [entry_id for entry_id in range(first, last + 1) if entry_id in by_id]
    else:
        done = [entry_id for entry_id in by_id if first <= entry_id <= last]
    for entry_id in done:
        del by_id[entry_id]
