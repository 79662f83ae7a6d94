"""How often one consumer may subscribe: a client that comes back in a loop is refused rather than served each time.

Each consumer has a budget of its own, which fills with time. A full budget says nothing and is forgotten, so what is
held is bounded by who came within one period, and by `CONSUMERS_MAX` in any case.
"""

from __future__ import annotations

from typing import Final

from emulator.core.flow.rate_limit import UNLIMITED, Pace, Throttle

CONSUMERS_MAX: Final = 10_000
"""Of one topic. Beyond that the budgets that were used the longest ago are forgotten."""


class Arrivals:
    """Of the consumers of one topic."""

    def __init__(self) -> None:
        self._rate: Pace = UNLIMITED
        self._budgets: dict[tuple[str, str, int], tuple[Throttle, float]] = {}
        """With when each was used; the one that was used last is last."""

    def admit(self, consumer: tuple[str, str, int], rate: Pace, now_ms: float) -> bool:
        """Whether it may subscribe once more; then that counts."""
        if rate != self._rate:
            self._rate = rate
            self._budgets.clear()
        if not rate.is_limited:
            return True
        self._forget(now_ms)
        present = self._budgets.pop(consumer, None)
        budget = Throttle(rate, now_ms) if present is None else present[0]
        self._budgets[consumer] = (budget, now_ms)
        if budget.wait_ms(now_ms) > 0:
            return False
        budget.take(1, 0, now_ms)
        return True

    def _forget(self, now_ms: float) -> None:
        """Those that are full again, and the oldest of too many."""
        full_before_ms = now_ms - self._rate.period_seconds * 1000
        for consumer, (_, used_ms) in list(self._budgets.items()):
            if used_ms > full_before_ms and len(self._budgets) < CONSUMERS_MAX:
                return
            del self._budgets[consumer]

    def __len__(self) -> int:
        return len(self._budgets)
