"""What one subscription has acknowledged of one log.

Entry ids are plain ints (a topic has one ledger per region) and may have gaps: an id that no entry carries is
acknowledged like any other by whoever notices the gap.

        everything acknowledged      holes            unread
    ───────────────────────────┤○ ● ● ○ ◐ ○ ● ├──────────────▶ log
                     mark-delete    ranges           ○ not acknowledged   ● acknowledged   ◐ part of a batch

    mark-delete   the largest id up to which nothing is missing. Moves forward only, except by `seek`
                  (INV-8). The one thing that travels to other regions (PIP-33).
    ranges        maximal runs of acknowledged ids beyond mark-delete.
    batch sets    for a batch entry that is acknowledged in part: which of its messages are not, one bit each.

A cursor *leads* when consumers of its own region are ahead of what other regions have told it (PIP-33). Only
one that leads tells others: a region that merely followed would undo a seek back in the region that it
followed.

Acknowledging in order costs one comparison; anything else one binary search in the list of ranges.

The shell writes `to_bytes()` when `version` has changed. A cursor that is written late only repeats messages
after a crash; a cursor never claims more than consumers said.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from emulator.errors import StorageError

FORMAT_VERSION = 1
WORD_BITS = 64
_WORD = (1 << WORD_BITS) - 1


class Cursor:
    """One subscription's position. Owned by one subscription; every change grows `version`."""

    __slots__ = (
        "_acked_upto",
        "_firsts",
        "_lasts",
        "_open_bits",
        "leads",
        "mark_delete",
        "properties",
        "replicated",
        "version",
    )

    def __init__(self, mark_delete: int) -> None:
        self.mark_delete = mark_delete
        """Every id <= this is acknowledged. Only `seek` lowers it (INV-8)."""
        self._firsts: list[int] = []
        """First id of each range, ascending. Invariant: > mark_delete + 1, ranges neither touch nor
        overlap."""
        self._lasts: list[int] = []
        """Last id (inclusive) of each range, same index."""
        self._open_bits: dict[int, int] = {}
        """Entry id -> its messages that are NOT acknowledged, bit i for index i. Invariant: not 0, and the
        entry itself is not acknowledged."""
        self.leads = False
        """Consumers here acknowledged something that no update of another region has told us."""
        self._acked_upto = -1
        """Highest id that a consumer or an update acknowledged; markers and gaps passed on the way do not
        count."""
        self.replicated = False
        """Its position is carried to other regions (PIP-33). Change through `set_replicated`."""
        self.properties: dict[str, str] = {}
        """What clients and admins attach. Change through `set_property`."""
        self.version = 0
        """Grows with every change since this object was made; not stored."""

    # Consumers acknowledge.

    def ack(self, entry_id: int) -> bool:
        """Acknowledge one entry. False when it already was."""
        if entry_id == self.mark_delete + 1:
            self.mark_delete = entry_id
            if self._firsts and self._firsts[0] == entry_id + 1:
                self._absorb_first_range()
        elif not self._add_range(entry_id, entry_id):
            return False
        if self._open_bits:
            self._open_bits.pop(entry_id, None)
        self.version += 1
        self.leads = True
        if entry_id > self._acked_upto:
            self._acked_upto = entry_id
        return True

    def ack_cumulative(self, entry_id: int) -> bool:
        """Acknowledge everything up to and including `entry_id`. False when it is not beyond mark-delete."""
        if not self.ack_range(self.mark_delete + 1, entry_id):
            return False
        self.leads = True
        self._acked_upto = max(self._acked_upto, entry_id)
        return True

    def ack_batch(self, entry_id: int, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledge the messages of a batch whose bit in `ack_set` is clear (facts 4.8: set = not
        acknowledged; words a client left out are clear). True when that completed the entry."""
        if self.is_acked(entry_id):
            return False
        every_bit = (1 << batch_size) - 1
        before = self._open_bits.get(entry_id, every_bit)
        after = before & _bits_of(ack_set)
        if not after:
            return self.ack(entry_id)
        if after != before:
            self._open_bits[entry_id] = after
            self.version += 1
        return False

    def ack_cumulative_batch(self, entry_id: int, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledge everything before `entry_id`, and that entry as `ack_batch` does."""
        self.ack_cumulative(entry_id - 1)
        return self.ack_batch(entry_id, ack_set, batch_size)

    # Others do.

    def ack_range(self, first: int, last: int) -> bool:
        """Pass all ids first..last, both included: markers, gaps, what was trimmed. False when that changed
        nothing."""
        if last < first or not self._add_range(first, last):
            return False
        self._forget_open_bits(first, last)
        self.version += 1
        return True

    def ack_cumulative_except(self, entry_id: int, unseen: Iterable[int]) -> bool:
        """Acknowledge everything up to and including `entry_id` except `unseen`, which stays as it is.

        How a position from another region is applied: what that region never received is left to consumers
        here. Whoever told us something new and all that is known here leads from now on. False when nothing
        changed.
        """
        version = self.version
        first = self.mark_delete + 1
        for kept in sorted({one for one in unseen if first <= one <= entry_id}):
            self.ack_range(first, kept - 1)
            first = kept + 1
        self.ack_range(first, entry_id)
        if self.version == version:
            return False
        if entry_id >= self._acked_upto:
            self._acked_upto, self.leads = entry_id, False
        return True

    def ack_hidden(self, hidden: Sequence[int]) -> bool:
        """Let mark-delete pass those of `hidden` (sorted ids no consumer is ever given: markers) that
        directly follow it. Without this a subscription nobody reads would stay behind its trailing markers
        for ever. True when it moved."""
        version = self.version
        at = bisect_right(hidden, self.mark_delete)
        while at < len(hidden) and hidden[at] <= self.mark_delete + 1:
            self.ack_range(hidden[at], hidden[at])
            at += 1
        return self.version != version

    def seek(self, next_entry_id: int) -> None:
        """Everything before `next_entry_id` counts as acknowledged, nothing from it on."""
        self.mark_delete = next_entry_id - 1
        self._firsts.clear()
        self._lasts.clear()
        self._open_bits.clear()
        self._acked_upto, self.leads = -1, False
        self.version += 1

    # Asking.

    def is_acked(self, entry_id: int) -> bool:
        """Whether all of the entry is acknowledged."""
        if entry_id <= self.mark_delete:
            return True
        at = bisect_right(self._firsts, entry_id) - 1
        return at >= 0 and entry_id <= self._lasts[at]

    def ack_set_of(self, entry_id: int) -> tuple[int, ...] | None:
        """The messages of a batch still not acknowledged, as signed 64-bit words for the wire; None when the
        entry is acknowledged as a whole or not at all."""
        bits = self._open_bits.get(entry_id)
        return None if bits is None else _words_of(bits)

    def next_unacked(self, from_entry_id: int) -> int:
        """Smallest id >= `from_entry_id` that is not acknowledged."""
        entry_id = max(from_entry_id, self.mark_delete + 1)
        at = bisect_right(self._firsts, entry_id) - 1
        if at >= 0 and entry_id <= self._lasts[at]:
            return self._lasts[at] + 1
        return entry_id

    @property
    def acked_ranges(self) -> list[tuple[int, int]]:
        """Acknowledged runs beyond mark-delete, ascending, ends included."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def unacked_count(self, upto_exclusive: int, not_counting: Sequence[int] = ()) -> int:
        """Ids below `upto_exclusive` that are not acknowledged, leaving out those in `not_counting` (sorted).

        Ids without an entry count as long as nobody acknowledged them.
        """
        count = _plain_ids(self.mark_delete + 1, upto_exclusive, not_counting)
        for first, last in zip(self._firsts, self._lasts, strict=True):
            if first >= upto_exclusive:
                break
            count -= _plain_ids(first, min(last + 1, upto_exclusive), not_counting)
        return count

    # What is kept besides.

    def set_replicated(self, replicated: bool) -> None:
        """Whether the position is carried to other regions."""
        if replicated != self.replicated:
            self.replicated = replicated
            self.version += 1

    def set_property(self, name: str, value: str) -> None:
        """Attach a property, replacing one of the same name."""
        if self.properties.get(name) != value:
            self.properties[name] = value
            self.version += 1

    def to_bytes(self) -> bytes:
        """All of it, for the store."""
        state = {
            "format": FORMAT_VERSION,
            "mark_delete": self.mark_delete,
            "ranges": self.acked_ranges,
            "batches": {entry_id: _words_of(bits) for entry_id, bits in self._open_bits.items()},
            "acked_upto": self._acked_upto,
            "leads": self.leads,
            "replicated": self.replicated,
            "properties": self.properties,
        }
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Cursor:
        """Read `to_bytes`. StorageError when `data` is anything else: a guess would lose messages."""
        try:
            state = json.loads(data)
            if state["format"] != FORMAT_VERSION:
                raise ValueError(f"format {state['format']!r} instead of {FORMAT_VERSION}")
            cursor = cls(int(state["mark_delete"]))
            for first, last in state["ranges"]:
                cursor.ack_range(int(first), int(last))
            for entry_id, words in state["batches"].items():
                cursor._open_bits[int(entry_id)] = _bits_of(words)
            cursor._acked_upto, cursor.leads = int(state["acked_upto"]), bool(state["leads"])
            cursor.replicated = bool(state["replicated"])
            cursor.properties = {str(name): str(value) for name, value in state["properties"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise StorageError(f"stored cursor cannot be read: {problem}", definite=True) from problem
        cursor.version = 0
        return cursor

    def __repr__(self) -> str:
        return f"Cursor(mark_delete={self.mark_delete}, ranges={self.acked_ranges}, open={self._open_bits})"

    # Ranges.

    def _add_range(self, first: int, last: int) -> bool:
        """Make first..last acknowledged; False when it was. Ranges it touches melt into one."""
        if first <= self.mark_delete + 1:
            if last <= self.mark_delete:
                return False
            self.mark_delete = last
            self._melt_below_mark_delete()
            return True
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            if self._firsts[begin] <= first and last <= self._lasts[begin]:
                return False
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = (first,)
        self._lasts[begin:end] = (last,)
        return True

    def _melt_below_mark_delete(self) -> None:
        """Mark-delete moved: ranges it reached are part of it."""
        reached = bisect_right(self._firsts, self.mark_delete + 1)
        if reached:
            self.mark_delete = max(self.mark_delete, self._lasts[reached - 1])
            del self._firsts[:reached], self._lasts[:reached]

    def _absorb_first_range(self) -> None:
        self.mark_delete = self._lasts[0]
        del self._firsts[0], self._lasts[0]

    def _forget_open_bits(self, first: int, last: int) -> None:
        if not self._open_bits:
            return
        if last - first < len(self._open_bits):
            done = [entry_id for entry_id in range(first, last + 1) if entry_id in self._open_bits]
        else:
            done = [entry_id for entry_id in self._open_bits if first <= entry_id <= last]
        for entry_id in done:
            del self._open_bits[entry_id]


def _plain_ids(first: int, end: int, hidden: Sequence[int]) -> int:
    """How many ids in [first, end) are not in `hidden`."""
    if end <= first:
        return 0
    return end - first - (bisect_left(hidden, end) - bisect_left(hidden, first))


def _bits_of(words: Sequence[int]) -> int:
    """One number from 64-bit words, lowest first, signed or not."""
    bits = 0
    for index, word in enumerate(words):
        bits |= (word & _WORD) << (WORD_BITS * index)
    return bits


def _words_of(bits: int) -> tuple[int, ...]:
    """Signed 64-bit words, lowest first."""
    words = []
    while bits:
        word = bits & _WORD
        words.append(word - (1 << WORD_BITS) if word >> (WORD_BITS - 1) else word)
        bits >>= WORD_BITS
    return tuple(words)
