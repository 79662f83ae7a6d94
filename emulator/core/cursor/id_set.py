"""A set of entry ids that takes little memory for runs of consecutive ids.

Each part holds 4,096 consecutive ids as one integer with one bit per id:

    part 0          part 1          part 2
    0110…           (absent: empty) 1111…

Adding, removing or testing one id touches one part of at most 512 bytes, whatever the size of the set. Runs are found
by arithmetic on whole parts: a run of a million ids takes about 250 steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

PART_BITS = 12
PART_IDS = 1 << PART_BITS
"""Number of consecutive ids in one part."""
_OFFSET = PART_IDS - 1
FULL = (1 << PART_IDS) - 1
"""A part all of whose ids are in the set."""


class IdSet:
    """A set of entry ids >= 0."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[int, int] = {}
        """Number of the part -> one bit per id. Invariant: no part is 0."""

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __contains__(self, entry_id: int) -> bool:
        return bool(self.parts.get(entry_id >> PART_BITS, 0) >> (entry_id & _OFFSET) & 1)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self.parts.values())

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs():
            yield from range(first, last + 1)

    @classmethod
    def of(cls, entry_ids: Iterable[int]) -> Self:
        found = cls()
        found.update(entry_ids)
        return found

    # Updates.

    def add(self, entry_id: int) -> bool:
        """Add an id. Returns False when it was in the set."""
        number, bit = entry_id >> PART_BITS, 1 << (entry_id & _OFFSET)
        bits = self.parts.get(number, 0)
        if bits & bit:
            return False
        self.parts[number] = bits | bit
        return True

    def update(self, entry_ids: Iterable[int]) -> None:
        """Add several ids."""
        for entry_id in entry_ids:
            self.add(entry_id)

    def unite(self, other: IdSet) -> None:
        """Add all ids of another set, part by part."""
        for number, bits in other.parts.items():
            self.parts[number] = self.parts.get(number, 0) | bits

    def add_range(self, first: int, last: int) -> list[int]:
        """Add first..last, both included. Returns the numbers of the changed parts."""
        changed = []
        for number, mask in _masks(first, last):
            bits = self.parts.get(number, 0)
            if bits & mask != mask:
                self.parts[number] = bits | mask
                changed.append(number)
        return changed

    def add_range_except(self, first: int, last: int, excluded: IdSet) -> list[int]:
        """Add the ids of first..last, both included, that are not in `excluded`. Returns the numbers of the changed
        parts."""
        changed = []
        for number, mask in _masks(first, last):
            bits = self.parts.get(number, 0)
            added = mask & ~excluded.parts.get(number, 0) & ~bits
            if added:
                self.parts[number] = bits | added
                changed.append(number)
        return changed

    def subtract(self, other: IdSet) -> None:
        """Remove all ids of another set, part by part."""
        for number in self.parts.keys() & other.parts.keys():
            self._put(number, self.parts[number] & ~other.parts[number])

    def discard(self, entry_id: int) -> bool:
        """Remove an id. Returns False when it was not in the set."""
        number, bit = entry_id >> PART_BITS, 1 << (entry_id & _OFFSET)
        bits = self.parts.get(number, 0)
        if not bits & bit:
            return False
        self._put(number, bits ^ bit)
        return True

    def drop_parts_below(self, entry_id: int) -> list[int]:
        """Remove every part that lies wholly below `entry_id`. Returns the numbers of the removed parts."""
        below = [number for number in self.parts if (number + 1) << PART_BITS <= entry_id]
        for number in below:
            del self.parts[number]
        return below

    def clear(self) -> None:
        self.parts.clear()

    def _put(self, number: int, bits: int) -> None:
        if bits:
            self.parts[number] = bits
        else:
            del self.parts[number]

    # Queries.

    @property
    def first(self) -> int:
        """The smallest id. The set must not be empty."""
        number = min(self.parts)
        bits = self.parts[number]
        return (number << PART_BITS) + (bits & -bits).bit_length() - 1

    def run_from(self, entry_id: int) -> int:
        """Return the length of the run of consecutive ids in the set that starts at `entry_id`."""
        at = entry_id
        while bits := self.parts.get(at >> PART_BITS, 0):
            offset = at & _OFFSET
            ones = _trailing_ones(bits >> offset)
            at += ones
            if offset + ones < PART_IDS:
                break
        return at - entry_id

    def last_before(self, end: int) -> int:
        """Return the largest id below `end` within the part of `end` or the part before; -1 when these have none."""
        number, offset = end >> PART_BITS, end & _OFFSET
        bits = self.parts.get(number, 0) & ((1 << offset) - 1)
        if not bits:
            number -= 1
            bits = self.parts.get(number, 0)
        return (number << PART_BITS) + bits.bit_length() - 1 if bits else -1

    def last_absent(self, first: int, last: int) -> int:
        """Return the largest id of first..last, both included, that is not in the set; -1 when all are."""
        if last < first:
            return -1
        for number in range(last >> PART_BITS, (first >> PART_BITS) - 1, -1):
            absent = mask_of(number, first, last) & ~self.parts.get(number, 0)
            if absent:
                return (number << PART_BITS) + absent.bit_length() - 1
        return -1

    def count(self, first: int, last: int, among: IdSet | None = None) -> int:
        """Return the number of ids of first..last, both included, that are in the set and, if given, in `among`."""
        if last < first:
            return 0
        low, high = first >> PART_BITS, last >> PART_BITS
        count = 0
        for number, bits in self.parts.items():
            if among is not None:
                bits &= among.parts.get(number, 0)
            if low < number < high:
                count += bits.bit_count()
            elif number in (low, high):
                count += (bits & mask_of(number, first, last)).bit_count()
        return count

    def first_between(self, first: int, last: int) -> int | None:
        """Return the smallest id within first..last, both included; None: there is none."""
        return next(self.between(first, last), None)

    def between(self, first: int, last: int) -> Iterator[int]:
        """Yield the ids of the set within first..last, both included, in ascending order. Visits no other parts."""
        for number, mask in _masks(first, last):
            base = number << PART_BITS
            for low, high in runs_of(self.parts.get(number, 0) & mask):
                yield from range(base + low, base + high + 1)

    def runs(self) -> list[tuple[int, int]]:
        """Return the maximal runs as (first, last), both included, in ascending order."""
        found: list[tuple[int, int]] = []
        for number in sorted(self.parts):
            base = number << PART_BITS
            for first, last in runs_of(self.parts[number]):
                if found and found[-1][1] == base + first - 1:
                    found[-1] = (found[-1][0], base + last)
                else:
                    found.append((base + first, base + last))
        return found


def runs_of(bits: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of set bits as (first, last), both included, in ascending order."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = _trailing_ones(bits)
        bits >>= ones
        yield at + zeros, at + zeros + ones - 1
        at += zeros + ones


def mask_of(number: int, first: int, last: int) -> int:
    """Return the bits of the ids first..last, both included, within one part."""
    base = number << PART_BITS
    low, high = max(first - base, 0), min(last - base, PART_IDS - 1)
    return (1 << (high + 1)) - (1 << low) if low <= high else 0


def _masks(first: int, last: int) -> Iterator[tuple[int, int]]:
    for number in range(first >> PART_BITS, (last >> PART_BITS) + 1):
        yield number, mask_of(number, first, last)


def _trailing_ones(bits: int) -> int:
    return (~bits & (bits + 1)).bit_length() - 1
