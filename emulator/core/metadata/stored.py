"""Decoding of the rows that metadata sync keeps in the configuration store. A row that cannot be read has one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from emulator.errors import StorageDamaged
from emulator.model.values import Change

T = TypeVar("T")
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
"""What decoding raises for bytes that no region wrote."""


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
