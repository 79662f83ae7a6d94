"""Rows that metadata sync keeps in the configuration store: read and written in one transaction of the store, and
decoded with one error for a row that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from emulator.errors import StorageDamaged
from emulator.model.values import Change

T = TypeVar("T")
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
"""What decoding raises for bytes that no region wrote."""


class StoreTransaction(Protocol):
    """A configuration store inside of one transaction."""

    def get(self, path: str) -> Change | None: ...

    def put(self, path: str, value: bytes | None) -> None: ...


def decoded(change: Change | None, decode: Callable[[bytes], T], absent: T) -> T:
    """The value of a row, or `absent` when there is none. StorageDamaged, with the path, when it cannot be read."""
    if change is None or change.value is None:
        return absent
    try:
        return decode(change.value)
    except UNREADABLE as problem:
        raise StorageDamaged(
            f"{change.path} of the configuration store is damaged: {type(problem).__name__}: {problem}"
        ) from None
