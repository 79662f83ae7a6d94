"""How fast a counter grows: worked out when somebody asks, from two marks, so that counting costs nothing more."""

from __future__ import annotations

MARK_SECONDS = 10.0
"""A rate is of the last 10 to 20 seconds in which somebody asked, or since the beginning."""


class Rate:
    """Of one counter."""

    __slots__ = ("_mark", "_newer")

    def __init__(self, now_seconds: float) -> None:
        self._mark = self._newer = (now_seconds, 0)

    def per_second(self, count: int, now_seconds: float) -> float:
        """Given what the counter shows now."""
        if now_seconds - self._newer[0] >= MARK_SECONDS:
            self._mark, self._newer = self._newer, (now_seconds, count)
        seconds = now_seconds - self._mark[0]
        return 0.0 if seconds <= 0 else (count - self._mark[1]) / seconds
