"""Which consumer a key belongs to: slots, ranges, and the hash that clients know (Pulsar's Key_Shared).

A key's hash is one of 65,536 slots. AUTO_SPLIT: each consumer stands at a hundred points of a ring, by its name, and
has the slots up to each of them; one that comes or goes moves its own share only. STICKY: consumers say which slots
they want.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from emulator.errors import ProtocolError, ServerError
from emulator.murmur import murmur3

SLOTS: Final = 65_536
POINTS_PER_CONSUMER: Final = 100
FOUND_MAX: Final = 8_192
"""Slots whose owner is remembered: there may be many subscriptions."""
RANGES_MAX: Final = 1_000
"""Of one sticky consumer."""
KEY_BYTES_MAX: Final = 512
"""Longer keys are hashed by their digest."""


class Named(Protocol):
    """A consumer: its name says where it stands on the ring."""

    @property
    def name(self) -> str: ...


Owner = TypeVar("Owner", bound=Named)


class KeySharing(NamedTuple):
    """How a consumer wants to share keys; all of one subscription say the same, but for their ranges."""

    is_sticky: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    """STICKY: slots first..last, both included."""
    may_reorder: bool = False
    """A key may go to its new consumer before the old one has acknowledged what it holds of it."""


AUTO_SPLIT: Final = KeySharing()


def slot_of(key: bytes) -> int:
    """Murmur3 (32 bits, seed 0) without its sign, as all of Pulsar counts it. Of a key that is longer
    than any that means something, a digest is counted: hashing is Python's work, and clients choose their keys."""
    if len(key) > KEY_BYTES_MAX:
        key = blake2b(key, digest_size=16).digest()
    return _slot_of_short(key)


@lru_cache(maxsize=16_384)
def _slot_of_short(key: bytes) -> int:
    return (murmur3(key) & 0x7FFF_FFFF) % SLOTS


class Shares(Generic[Owner]):
    """Who has which slots."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int, Owner]] = []
        """(slot, serial, consumer), sorted: a consumer has the slots from behind the point before up to its own."""
        self._ranges: list[tuple[int, int, Owner]] = []
        """(first, last, consumer), sorted."""
        self._slots: list[int] = []
        """Where the points are. Invariant: the first of each of `_points`."""
        self._sharing: KeySharing | None = None
        self._serial = 0
        self._found: dict[int, Owner | None] = {}
        """Slots that were asked for since somebody came or went."""

    @property
    def may_reorder(self) -> bool:
        return self._sharing is not None and self._sharing.may_reorder

    def check(self, sharing: KeySharing) -> None:
        """ProtocolError for a consumer that does not fit those that are there."""
        if sharing.is_sticky:
            self._check_ranges(sharing.ranges)
        agreed = self._sharing
        if agreed is not None and (agreed.is_sticky, agreed.may_reorder) != (
            sharing.is_sticky,
            sharing.may_reorder,
        ):
            raise ProtocolError(
                ServerError.ConsumerAssignError,
                "the consumers of a Key_Shared subscription must have one mode",
            )

    def _check_ranges(self, ranges: Sequence[tuple[int, int]]) -> None:
        if not ranges:
            raise ProtocolError(
                ServerError.ConsumerAssignError, "a sticky consumer must name ranges of hashes"
            )
        if len(ranges) > RANGES_MAX:
            sentence = f"a sticky consumer may name {RANGES_MAX} ranges of hashes, not {len(ranges)}"
            raise ProtocolError(ServerError.ConsumerAssignError, sentence)
        taken = [(first, last) for first, last, _ in self._ranges]
        for first, last in ranges:
            if not 0 <= first <= last < SLOTS:
                raise ProtocolError(
                    ServerError.ConsumerAssignError, f"range {first}..{last}: must lie in 0..{SLOTS - 1}"
                )
            if any(first <= other_last and other_first <= last for other_first, other_last in taken):
                raise ProtocolError(
                    ServerError.ConsumerAssignError,
                    f"range {first}..{last} conflicts with another consumer's",
                )
            taken.append((first, last))

    def add(self, consumer: Owner, sharing: KeySharing) -> None:
        """It was checked."""
        self._sharing = sharing
        self._found.clear()
        if sharing.is_sticky:
            for first, last in sharing.ranges:
                insort(self._ranges, (first, last, consumer), key=_first)
            return
        self._serial += 1
        for number in range(POINTS_PER_CONSUMER):
            point = slot_of(f"{consumer.name}{number}".encode())
            insort(self._points, (point, self._serial, consumer), key=_first_two)
        self._slots = [point[0] for point in self._points]

    def remove(self, consumer: Owner) -> None:
        self._found.clear()
        self._points = [point for point in self._points if point[2] is not consumer]
        self._slots = [point[0] for point in self._points]
        self._ranges = [one for one in self._ranges if one[2] is not consumer]
        if not self._points and not self._ranges:
            self._sharing = None

    def owner_of(self, slot: int) -> Owner | None:
        """None: no consumer has this slot (STICKY)."""
        try:
            return self._found[slot]
        except KeyError:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            owner = self._found[slot] = self._find(slot)
            return owner

    def _find(self, slot: int) -> Owner | None:
        if self._points:
            at = bisect_left(self._slots, slot)
            return self._points[at if at < len(self._points) else 0][2]
        at = bisect_left(self._ranges, slot + 1, key=_slot) - 1
        if at >= 0 and slot <= self._ranges[at][1]:
            return self._ranges[at][2]
        return None


def _slot(point: tuple[int, int, object]) -> int:
    return point[0]


_first = _slot


def _first_two(point: tuple[int, int, object]) -> tuple[int, int]:
    return point[0], point[1]
