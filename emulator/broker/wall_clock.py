"""A region's wall clock, which somebody may set wrong (`geoemu skew`). Timers and monotonic time know nothing of it."""

from __future__ import annotations

from collections.abc import Callable


class ShiftedClock:
    """Call it for the time in milliseconds since 1970."""

    def __init__(self, base: Callable[[], int], ahead_ms: int = 0) -> None:
        self._base = base
        self.ahead_ms = ahead_ms
        """How far it is ahead of the machine's; behind if negative."""

    def __call__(self) -> int:
        return self._base() + self.ahead_ms
