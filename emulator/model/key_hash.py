"""How clients make numbers of keys, by which they choose partitions (decision 0022)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from emulator.model.murmur import murmur3

INT_MAX: Final = 0x7FFF_FFFF


class KeyHash(Enum):
    """How keys become numbers."""

    JAVA_STRING = "Java's String.hashCode, the default of clients"
    MURMUR3 = "MurmurHash3 of the key in UTF-8"

    def __call__(self, key: str) -> int:
        """Not negative."""
        return (murmur3(key.encode()) if self is KeyHash.MURMUR3 else _java_string(key)) & INT_MAX


def _java_string(text: str) -> int:
    """Over UTF-16, as Java has its strings."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return hashed
