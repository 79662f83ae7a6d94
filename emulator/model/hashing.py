"""Hash functions of keys that Pulsar's clients and brokers use."""

from __future__ import annotations

from enum import Enum
from typing import Final

_MASK: Final = 0xFFFF_FFFF


def murmur3(data: bytes) -> int:
    """Return MurmurHash3 x86 32 with seed 0."""
    hashed, whole = 0, len(data) & ~3
    for at in range(0, whole, 4):
        hashed ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        hashed = (hashed << 13 | hashed >> 19) & _MASK
        hashed = (hashed * 5 + 0xE654_6B64) & _MASK
    if rest := data[whole:]:
        hashed ^= _mixed(int.from_bytes(rest, "little"))
    hashed ^= len(data)
    hashed = ((hashed ^ hashed >> 16) * 0x85EB_CA6B) & _MASK
    hashed = ((hashed ^ hashed >> 13) * 0xC2B2_AE35) & _MASK
    return hashed ^ hashed >> 16


def _mixed(block: int) -> int:
    block = (block * 0xCC9E_2D51) & _MASK
    block = (block << 15 | block >> 17) & _MASK
    return (block * 0x1B87_3593) & _MASK


INT_MAX: Final = 0x7FFF_FFFF


class KeyHash(Enum):
    """A hash function of keys."""

    JAVA_STRING = "Java's String.hashCode, the default of clients"
    MURMUR3 = "MurmurHash3 of the key in UTF-8"

    def __call__(self, key: str) -> int:
        """Return the hash of a key, 0 to 2^31 - 1."""
        return (murmur3(key.encode()) if self is KeyHash.MURMUR3 else _java_string(key)) & INT_MAX


def _java_string(text: str) -> int:
    """Return Java's hash of a text, computed from its UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return hashed
