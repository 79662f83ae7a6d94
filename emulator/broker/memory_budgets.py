"""Memory budgets, and the reservations that they count.

A budget counts the bytes of its reservations, and so do its parent budgets. It never rejects a reservation: the caller
checks `is_over` and reacts itself (a connection stops reading, a cache drops entries).

Invariants: `held_bytes` is the sum of the sizes of the budget's reservations and of its child budgets; it is 0 once all
of them are released (FC1).
"""

from __future__ import annotations


class MemoryBudget:
    """Bytes held for one purpose."""

    __slots__ = ("held_bytes", "limit_bytes", "name", "parent")

    def __init__(self, name: str, parent: MemoryBudget | None = None, limit_bytes: int | None = None) -> None:
        self.name = name
        self.parent = parent
        self.limit_bytes = limit_bytes
        """Maximum of `held_bytes`; None without a limit."""
        self.held_bytes = 0

    def charge(self, size_bytes: int) -> Reservation:
        """Reserve bytes until the reservation is released."""
        return Reservation(self, size_bytes)

    @property
    def is_over(self) -> bool:
        """Whether the held bytes exceed the limit."""
        return self.limit_bytes is not None and self.held_bytes > self.limit_bytes

    def __repr__(self) -> str:
        return f"<MemoryBudget {self.name}: {self.held_bytes} of {self.limit_bytes} bytes>"


class Reservation:
    """The bytes of one holder. Releasing it twice is harmless."""

    __slots__ = ("_budget", "size_bytes")

    def __init__(self, budget: MemoryBudget, size_bytes: int) -> None:
        self._budget = budget
        self.size_bytes = 0
        self.resize(size_bytes)

    def resize(self, size_bytes: int) -> None:
        """Change the number of reserved bytes."""
        assert size_bytes >= 0
        difference = size_bytes - self.size_bytes
        if not difference:
            return
        self.size_bytes = size_bytes
        budget: MemoryBudget | None = self._budget
        while budget is not None:
            budget.held_bytes += difference
            assert budget.held_bytes >= 0, f"{budget.name} has negative usage"
            budget = budget.parent

    def release(self) -> None:
        """Release all bytes."""
        self.resize(0)
