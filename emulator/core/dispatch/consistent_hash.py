"""Assignment of keys to consumers by hash slots: consistent hashing or ranges, as Pulsar's Key_Shared.

AUTO_SPLIT is consistent hashing, as in Pulsar 4.0: each consumer has a hundred points on a ring of the slots 1 to
65,535 and owns the slots up to each of its points. A joining consumer takes slots from others; a leaving consumer's
slots go to others; no other slot changes its owner. Consumers with equal names have different points.
STICKY: each consumer names ranges of the slots 0 to 65,535.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import Final

from emulator.core.dispatch.types import ConsumerState, KeySharing
from emulator.errors import ProtocolError, ServerError
from emulator.model.hashing import murmur3

SLOTS: Final = 65_536
RING_SLOTS: Final = SLOTS - 1
"""Number of slots on the ring: slot 0 is excluded, since upstream reserves it for "no hash"."""
POINTS_PER_CONSUMER: Final = 100
OWNER_CACHE_MAX: Final = 8_192
"""Maximum number of slots per subscription whose owners are cached."""
RANGES_MAX: Final = 1_000
"""Maximum number of hash ranges of one sticky consumer."""
KEY_BYTES_MAX: Final = 512
"""Maximum size of a key that is hashed directly; of a longer key its digest is hashed."""


def hash_of(key: bytes) -> int:
    """Return Murmur3 (32 bits, seed 0) of a key without the sign bit, as Pulsar does. Unlike in Pulsar, a key longer
    than KEY_BYTES_MAX is replaced by its digest: Murmur3 in Python is slow, and clients choose their keys."""
    if len(key) > KEY_BYTES_MAX:
        key = blake2b(key, digest_size=16).digest()
    return _hash_of_short(key)


@lru_cache(maxsize=16_384)
def _hash_of_short(key: bytes) -> int:
    return murmur3(key) & 0x7FFF_FFFF


def ring_slot(key_hash: int) -> int:
    """Return the slot of a hash on the ring of AUTO_SPLIT."""
    return key_hash % RING_SLOTS + 1


def range_slot(key_hash: int) -> int:
    """Return the slot of a hash in the ranges of STICKY consumers. As upstream, no key has slot 0."""
    return key_hash % SLOTS or 1


class SlotOwners:
    """The consumers of one subscription and their slots."""

    def __init__(self) -> None:
        self._points: dict[int, list[ConsumerState]] = {}
        """AUTO_SPLIT: slot -> consumers with a point there, in order of arrival. The first one owns the slots from the
        previous point, exclusive, to this slot, inclusive."""
        self._slots: list[int] = []
        """Invariant: the keys of `_points`, sorted."""
        self._name_index: dict[ConsumerState, int] = {}
        """AUTO_SPLIT: number that distinguishes consumers with equal names, the lowest free one."""
        self._ranges: list[tuple[int, int, ConsumerState]] = []
        """STICKY: (first slot, last slot, consumer), sorted by the first slot."""
        self._sharing: KeySharing | None = None
        """The consumers' common mode; None without consumers."""
        self._owner_cache: dict[int, ConsumerState | None] = {}
        """Cached owners of slots; emptied when a consumer joins or leaves."""

    @property
    def may_reorder(self) -> bool:
        return self._sharing is not None and self._sharing.may_reorder

    def slot_of(self, key_hash: int) -> int:
        """Return the slot of a key's hash in the mode of the consumers."""
        sharing = self._sharing
        return range_slot(key_hash) if sharing is not None and sharing.is_sticky else ring_slot(key_hash)

    def check(self, sharing: KeySharing) -> None:
        """Check a joining consumer's mode. Raises ProtocolError(ConsumerAssignError) for invalid ranges, and for a mode
        or ranges that conflict with those of the other consumers."""
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
        of_others = [(first, last) for first, last, _ in self._ranges]
        own: list[tuple[int, int]] = []
        for first, last in ranges:
            if not 0 <= first <= last < SLOTS:
                raise ProtocolError(
                    ServerError.ConsumerAssignError, f"range {first}..{last}: must lie in 0..{SLOTS - 1}"
                )
            for used, whose in (of_others, "another consumer's"), (own, "another range of the same consumer"):
                if any(first <= used_last and used_first <= last for used_first, used_last in used):
                    raise ProtocolError(
                        ServerError.ConsumerAssignError, f"range {first}..{last} conflicts with {whose}"
                    )
            own.append((first, last))

    def add(self, consumer: ConsumerState, sharing: KeySharing) -> None:
        """Add a consumer that passed `check`."""
        self._sharing = sharing
        self._owner_cache.clear()
        if sharing.is_sticky:
            for first, last in sharing.ranges:
                insort(self._ranges, (first, last, consumer), key=_first)
            return
        self._name_index[consumer] = self._free_name_index(consumer.name)
        for slot in self._points_of(consumer):
            self._points.setdefault(slot, []).append(consumer)
        self._slots = sorted(self._points)

    def _free_name_index(self, name: str) -> int:
        used = {index for one, index in self._name_index.items() if one.name == name}
        return next(index for index in count() if index not in used)

    def _points_of(self, consumer: ConsumerState) -> Iterator[int]:
        """Yield the slots of a consumer's points. NUL separates the parts, so all consumers hash different texts."""
        prefix = f"{consumer.name}\0{self._name_index[consumer]}\0"
        for number in range(POINTS_PER_CONSUMER):
            yield ring_slot(hash_of(f"{prefix}{number}".encode()))

    def remove(self, consumer: ConsumerState) -> None:
        self._owner_cache.clear()
        if consumer in self._name_index:
            self._remove_points(consumer)
        self._ranges = [one for one in self._ranges if one[2] is not consumer]
        if not self._points and not self._ranges:
            self._sharing = None

    def _remove_points(self, consumer: ConsumerState) -> None:
        for slot in self._points_of(consumer):
            self._points[slot].remove(consumer)
            if not self._points[slot]:
                del self._points[slot]
        self._slots = sorted(self._points)
        del self._name_index[consumer]

    def owner_of(self, slot: int) -> ConsumerState | None:
        """Return the consumer that owns a slot; None: no consumer has the slot in its ranges (STICKY), or there are no
        consumers."""
        try:
            return self._owner_cache[slot]
        except KeyError:
            if len(self._owner_cache) >= OWNER_CACHE_MAX:
                self._owner_cache.clear()
            owner = self._owner_cache[slot] = self._find(slot)
            return owner

    def _find(self, slot: int) -> ConsumerState | None:
        if self._points:
            at = bisect_left(self._slots, slot)
            return self._points[self._slots[at if at < len(self._slots) else 0]][0]
        at = bisect_left(self._ranges, slot + 1, key=_first) - 1
        if at >= 0 and slot <= self._ranges[at][1]:
            return self._ranges[at][2]
        return None


def _first(range_: tuple[int, int, object]) -> int:
    return range_[0]
