"""Memory accounting: budgets, and reservations in them.

A budget counts the bytes of its reservations, and so do its parent budgets. It never rejects a reservation: the caller
checks `is_over` and reacts itself (a connection stops reading, a cache drops entries).

Invariants: `held_bytes` is the sum of the sizes of the budget's reservations and of its child budgets; it is 0 once all
of them are released (B1).
"""

from __future__ import annotations

from types import TracebackType
from typing import Self


class MemoryBudget:
    """Bytes held for one purpose."""

    __slots__ = ("held_bytes", "limit_bytes", "name", "parent")

    def __init__(self, name: str, parent: MemoryBudget | None = None, limit_bytes: int | None = None) -> None:
        self.name = name
        self.parent = parent
        self.limit_bytes = limit_bytes
        """None: no limit."""
        self.held_bytes = 0

    def charge(self, size_bytes: int) -> Reservation:
        """Reserve bytes until the reservation is released."""
        return Reservation(self, size_bytes)

    @property
    def is_over(self) -> bool:
        """Whether more is held than the limit allows."""
        return self.limit_bytes is not None and self.held_bytes > self.limit_bytes

    def _grow(self, difference_bytes: int) -> None:
        account: MemoryBudget | None = self
        while account is not None:
            account.held_bytes += difference_bytes
            assert account.held_bytes >= 0, f"{account.name} has negative usage"
            account = account.parent

    def __repr__(self) -> str:
        return f"<Account {self.name}: {self.held_bytes} of {self.limit_bytes} bytes>"


class Reservation:
    """The bytes of one holder. Releasing it twice is harmless, and so is leaving a `with` after that."""

    __slots__ = ("_account", "size_bytes")

    def __init__(self, account: MemoryBudget, size_bytes: int) -> None:
        self._account = account
        self.size_bytes = 0
        self.resize(size_bytes)

    def resize(self, size_bytes: int) -> None:
        """Change the size."""
        assert size_bytes >= 0
        difference = size_bytes - self.size_bytes
        if difference:
            self.size_bytes = size_bytes
            self._account._grow(difference)

    def release(self) -> None:
        """Release all bytes."""
        self.resize(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
