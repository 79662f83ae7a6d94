"""Compress payloads as clients do. `payloads.py` decompresses them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any, Final


class Compression(IntEnum):
    """Numbers are the protocol's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4

    def check(self) -> None:
        """ValueError when this machine has no library for it."""
        try:
            self.compress(b"")
        except ImportError as problem:
            raise ValueError(f"to compress with {self.name}, install {problem.name}") from None

    def compress(self, payload: bytes) -> bytes:
        """ImportError when there is no library for it."""
        return _COMPRESSORS[self](payload)


def _library(name: str) -> Any:
    return import_module(name)


_COMPRESSORS: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.NONE: lambda payload: payload,
    Compression.LZ4: lambda payload: _library("lz4.block").compress(payload, store_size=False),
    Compression.ZLIB: zlib.compress,
    Compression.ZSTD: lambda payload: _library("zstandard").ZstdCompressor().compress(payload),
    Compression.SNAPPY: lambda payload: _library("snappy").compress(payload),
}
