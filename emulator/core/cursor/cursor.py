"""The cursor of one subscription: the entries of one log that the subscription has acknowledged.

Entry ids are plain integers (a topic has one ledger per region) and may have gaps. The component that finds a gap
acknowledges the missing ids.

       everything acknowledged   partly acknowledged    unread
    ───────────────────────────┤○ ● ● ○ ◐ ○ ● ├──────────────▶ log
                     mark-delete    ranges           ○ not acknowledged   ● acknowledged   ◐ part of a batch

    mark-delete   the largest id such that it and all smaller ids are acknowledged. Moves forward only, except by
                  `seek` (INV-8). Only mark-delete is sent to other regions (PIP-33).
    ranges        maximal runs of acknowledged ids beyond mark-delete.
    batch sets    the unacknowledged messages of a partly acknowledged batch entry, one bit each.

A cursor is *ahead of its peers* when consumers of its own region acknowledged messages that no update of another region
covers (PIP-33). Only the position of such a cursor is sent to other regions. Otherwise a region that only applied
another region's updates would undo a seek back in that region.

Acknowledging in order costs one comparison; any other acknowledgement sets one bit in one part of 4,096 ids. The cursor
records which parts changed; `core/cursor/stored_format.py` stores them. A stored cursor may lag, which only redelivers
messages after a crash; it never contains more than consumers acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from emulator.core.cursor.id_set import PART_BITS, IdSet
from emulator.core.replication.ack_claims import StoredClaims

WORD_BITS = 64
_WORD = (1 << WORD_BITS) - 1


class Holding(Protocol):
    """Acknowledgements of open transactions at a subscription (core.transactions.pending_acks)."""

    def holds(self, entry_id: int) -> bool:
        """Whether open transactions acknowledged the whole entry."""
        ...

    def held_bits(self, entry_id: int) -> tuple[int, int]:
        """Return (messages of a batch that open transactions acknowledged, one bit each; batch size). (0, 0): the entry
        is not partly acknowledged by transactions."""
        ...


class UnappliedUpdate(NamedTuple):
    """The highest position that one region sent while the subscription was not replicated here."""

    entry_id: int
    """Entry id in the log of this region."""
    named: tuple[str, ...]
    """Regions whose positions the update contains."""


class Cursor:
    """The position of one subscription, which owns it. Every change increments `version`."""

    __slots__ = (
        "_acked",
        "ahead_of_peers",
        "changed_parts",
        "claims",
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
        """Largest id such that it and all smaller ids are acknowledged. Only `seek` may lower it (INV-8)."""
        self._acked = IdSet()
        """Acknowledged ids beyond mark-delete. Ids up to mark-delete may be in the set or not."""
        self.open_bits: dict[int, int] = {}
        """Entry id -> messages of the batch that are NOT acknowledged, bit i for index i. Invariant: not 0, and the
        entry itself is not acknowledged."""
        self.ahead_of_peers = False
        """Whether consumers here acknowledged messages that no update of another region covers."""
        self.highest_acked = -1
        """Highest id that consumers or updates have acknowledged since the last seek; -1: none. `ack_range` does not
        change it."""
        self.replicated = False
        """Whether the position is replicated to and from other regions (PIP-33). Set by `set_replicated` and
        `disable_replication`."""
        self.replication_disabled = False
        """Whether an administrator turned replication off: a SUBSCRIBE that requests it does not turn it on again."""
        self.unapplied: dict[str, UnappliedUpdate] = {}
        """Updates received while not replicated, by source region. Set by `note_unapplied` and `take_unapplied`."""
        self.claims = StoredClaims()
        """Individual acknowledgements of other regions for entries that were not read yet
        (`core.replication.individual_acks`)."""
        self.properties: dict[str, str] = {}
        """Subscription properties that the client set, for administrators. Set by `set_properties`."""
        self.held: Holding | None = None
        """Acknowledgements of open transactions: not effective yet, but their messages are not dispatched."""
        self.version = 0
        """Number of changes since this object was created; not stored."""
        # Differences from the stored cursor, for `CursorParts`.
        self.generation = 0
        """Generation of the acknowledgements: each seek begins a new one, and within one the set only grows."""
        self.newest_generation = 0
        """Highest generation that a stored part may have; the next seek uses a higher one."""
        self.head_changed = True
        self.changed_parts: set[int] = set()

    # Acknowledgements of consumers.

    def ack(self, entry_id: int) -> bool:
        """Acknowledge one entry. Returns False when it was acknowledged already."""
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

    def ack_run(self, first: int, last: int) -> bool:
        """Acknowledge the ids first..last, both included, as `ack` does one by one. Returns False when all of them were
        acknowledged already."""
        newest = self._acked.last_absent(first, last) if self._acked else last
        if not self._ack_range(first, last):
            return False
        self.ahead_of_peers = True
        if newest > self.highest_acked:
            self.highest_acked = newest
        return True

    def ack_cumulative(self, entry_id: int) -> bool:
        """Acknowledge all ids up to and including `entry_id`. Returns False when it is not beyond mark-delete."""
        if not self.ack_range(self.mark_delete + 1, entry_id):
            return False
        self.ahead_of_peers = True
        self.highest_acked = max(self.highest_acked, entry_id)
        return True

    def ack_batch(self, entry_id: int, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledge the messages of a batch whose bit in `ack_set` is clear; words that a client omits are clear.
        Returns whether that completed the entry."""
        return self.keep_open(entry_id, bits_of(ack_set), batch_size)

    def keep_open(self, entry_id: int, kept: int, batch_size: int, *, by_consumer: bool = True) -> bool:
        """Acknowledge the messages of a batch whose bit in `kept` is clear. Returns whether this completed the entry.
        `by_consumer`: whether consumers of this region acknowledged them."""
        if self.is_acked(entry_id):
            return False
        every_bit = (1 << batch_size) - 1
        before = self.open_bits.get(entry_id, every_bit)
        after = before & kept
        if not after:
            return self.ack(entry_id) if by_consumer else self.ack_range(entry_id, entry_id)
        if after != before:
            self.open_bits[entry_id] = after
            self.changed_parts.add(entry_id >> PART_BITS)
            self.version += 1
        return False

    # Acknowledgements by the broker.

    def ack_range(self, first: int, last: int) -> bool:
        """Acknowledge the ids first..last, both included, as the broker does for markers, gaps and trimmed entries.
        Returns False when nothing changed."""
        return self._ack_range(first, last)

    def _ack_range(self, first: int, last: int) -> bool:
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
        """Acknowledge all ids up to and including `entry_id`, except those in `unseen`.

        Applies a position from another region: consumers here still receive the entries that the region never received.
        When the position changes the cursor and covers all acknowledgements here, the cursor is no longer ahead of its
        peers. Returns False when nothing changed.
        """
        version = self.version
        excluded = unseen if isinstance(unseen, IdSet) else IdSet.of(one for one in unseen if one >= 0)
        kept = excluded.first_between(self.mark_delete + 1, entry_id)
        self.ack_range(self.mark_delete + 1, entry_id if kept is None else kept - 1)
        if kept is not None and (changed := self._acked.add_range_except(kept, entry_id, excluded)):
            self.changed_parts.update(changed)
            for one in [one for one in self.open_bits if one in self._acked]:
                del self.open_bits[one]
            self._advance(self.mark_delete)
            self.version += 1
        if self.version == version:
            return False
        if entry_id >= self.highest_acked:
            self.highest_acked, self.ahead_of_peers = entry_id, False
        return True

    def ack_hidden(self, hidden: IdSet) -> bool:
        """Move mark-delete past the ids of `hidden` that directly follow it, such as markers: no consumer receives
        these, and a subscription without consumers would never pass them. Returns whether mark-delete moved."""
        version = self.version
        while run := hidden.run_from(self.mark_delete + 1):
            self.ack_range(self.mark_delete + 1, self.mark_delete + run)
        return self.version != version

    def seek(self, next_entry_id: int, end_entry_id: int = 0) -> None:
        """Acknowledge all ids before `next_entry_id`, and none from it on. Unapplied updates and claims are forgotten.
        Later claims do not concern entries below `end_entry_id`, the end of the log: they are delivered again."""
        self.mark_delete = next_entry_id - 1
        self._acked.clear()
        self.open_bits.clear()
        self.highest_acked, self.ahead_of_peers = -1, False
        self.unapplied.clear()
        self.claims.seek(end_entry_id)
        self.newest_generation += 1
        self.generation = self.newest_generation
        self.head_changed = True
        self.changed_parts.clear()
        self.version += 1

    # Queries.

    def is_acked(self, entry_id: int) -> bool:
        """Whether the whole entry is acknowledged."""
        if entry_id <= self.mark_delete:
            return True
        return entry_id in self._acked

    @property
    def has_only_mark_delete(self) -> bool:
        """Whether every id beyond mark-delete is known to be unacknowledged in whole, also by open transactions."""
        return not self._acked and not self.open_bits and self.held is None

    def is_acked_or_held(self, entry_id: int) -> bool:
        """Whether the whole entry is acknowledged, counting acknowledgements of open transactions."""
        if self.is_acked(entry_id):
            return True
        if self.held is None:
            return False
        return self.held.holds(entry_id) or self._unacked_bits(entry_id) == 0

    def _unacked_bits(self, entry_id: int) -> int | None:
        """Return the messages of a batch that no acknowledgement covers, one bit each; None: all. Acknowledgements of
        open transactions count."""
        left = self.open_bits.get(entry_id)
        if self.held is None:
            return left
        held, size = self.held.held_bits(entry_id)
        if not held:
            return left
        return ((1 << size) - 1 if left is None else left) & ~held

    def ack_set_of(self, entry_id: int) -> tuple[int, ...] | None:
        """Return the messages of a batch that no acknowledgement covers, as signed 64-bit words for the wire; None: the
        entry is not partly acknowledged. Acknowledgements of open transactions count."""
        bits = self._unacked_bits(entry_id)
        return None if bits is None else words_of(bits)

    def next_unacked(self, from_entry_id: int) -> int:
        """Return the smallest unacknowledged id >= `from_entry_id`."""
        entry_id = max(from_entry_id, self.mark_delete + 1)
        return entry_id + self._acked.run_from(entry_id)

    @property
    def acked_ranges(self) -> list[tuple[int, int]]:
        """Acknowledged runs beyond mark-delete as (first, last), both included, in ascending order."""
        return [run for run in self._acked.runs() if run[0] > self.mark_delete]

    def copy_acked(self) -> IdSet:
        """Return a copy of the acknowledged ids beyond mark-delete; it may also contain ids up to mark-delete."""
        copy = IdSet()
        copy.parts.update(self._acked.parts)
        return copy

    def acked_bits(self, part: int) -> int:
        """Return the acknowledged ids of one part, one bit each."""
        bits = self._acked.parts.get(part, 0)
        passed = self.mark_delete + 1 - (part << PART_BITS)
        return bits | ((1 << passed) - 1) if passed > 0 else bits

    def unacked_count(self, upto_exclusive: int, not_counting: IdSet | None = None) -> int:
        """Return the number of unacknowledged ids below `upto_exclusive` that are not in `not_counting`.

        Ids without an entry count until they are acknowledged.
        """
        first, last = self.mark_delete + 1, upto_exclusive - 1
        if last < first:
            return 0
        count = last - first + 1 - self._acked.count(first, last)
        if not_counting is not None:
            count -= not_counting.count(first, last) - not_counting.count(first, last, among=self._acked)
        return count

    # State other than acknowledgements.

    def set_replicated(self, replicated: bool) -> None:
        """Set whether the position is replicated. True also revokes `disable_replication`."""
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
        """Record the position of an update that is not applied. Only the highest one of each source is stored."""
        known = self.unapplied.get(source)
        if known is None or entry_id > known.entry_id:
            self.unapplied[source] = UnappliedUpdate(entry_id, tuple(named))
            self._touch_head()

    def take_unapplied(self) -> dict[str, UnappliedUpdate]:
        """Remove and return the recorded updates, by source region."""
        unapplied, self.unapplied = self.unapplied, {}
        if unapplied:
            self._touch_head()
        return unapplied

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription properties."""
        if properties != self.properties:
            self.properties = dict(properties)
            self._touch_head()

    def _touch_head(self) -> None:
        self.head_changed = True
        self.version += 1

    def restore(self, parts: Mapping[int, int]) -> None:
        """Add stored acknowledgements (part -> one bit per id) while a cursor is loaded."""
        self._acked.parts.update({part: bits for part, bits in parts.items() if bits})
        self._advance(self.mark_delete)

    # Moving mark-delete.

    def _advance(self, mark_delete: int) -> None:
        """Move mark-delete forward to `mark_delete` and past the acknowledged ids that directly follow it."""
        before, self.mark_delete = self.mark_delete, mark_delete
        self.head_changed = True
        if self._acked:
            self.mark_delete += self._acked.run_from(mark_delete + 1)
            if (before + 1) >> PART_BITS != (self.mark_delete + 1) >> PART_BITS:
                self._acked.drop_parts_below(self.mark_delete + 1)


def bits_of(words: Sequence[int]) -> int:
    """Return one number from 64-bit words, lowest first, signed or unsigned."""
    return int.from_bytes(struct.pack(f"<{len(words)}Q", *[word & _WORD for word in words]), "little")


def words_of(bits: int) -> tuple[int, ...]:
    """Return a number as signed 64-bit words, lowest first."""
    count = -(-bits.bit_length() // WORD_BITS)
    return struct.unpack(f"<{count}q", bits.to_bytes(count * WORD_BITS // 8, "little"))


def _remove_range(by_id: dict[int, int], first: int, last: int) -> None:
    if last - first < len(by_id):
        done = [entry_id for entry_id in range(first, last + 1) if entry_id in by_id]
    else:
        done = [entry_id for entry_id in by_id if first <= entry_id <= last]
    for entry_id in done:
        del by_id[entry_id]
