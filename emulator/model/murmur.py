"""The hash that Pulsar's clients and brokers agree about."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFF_FFFF


def murmur3(data: bytes) -> int:
    """MurmurHash3 x86 32, seed 0."""
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
