"""Rates, distributions and drop counts of the broker's statistics. Rates are computed when the statistics are read."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

MARK_SECONDS = 10.0
"""Minimum time between two marks. A rate that is read often covers the last 10 to 20 seconds, others more."""


class Rate:
    """The rate of one counter."""

    __slots__ = ("_mark", "_newer")

    def __init__(self, now_seconds: float) -> None:
        self._mark = self._newer = (now_seconds, 0)

    def per_second(self, count: int, now_seconds: float) -> float:
        """Return the rate since the mark, and move the mark. `count`: present value of the counter."""
        if now_seconds - self._newer[0] >= MARK_SECONDS:
            self._mark, self._newer = self._newer, (now_seconds, count)
        seconds = now_seconds - self._mark[0]
        return 0.0 if seconds <= 0 else (count - self._mark[1]) / seconds


class PerSecond(NamedTuple):
    """The rates of a distribution."""

    classes: list[float]
    """Figures per second in each class; the last class has the figures above the last limit."""
    times: float
    """Figures per second."""
    total: float
    """Sum of the figures per second."""


class Distribution:
    """A histogram of figures, with the rates of its classes, their number and their sum."""

    __slots__ = ("_counts", "_limits", "_mark", "_newer", "_times", "_total")

    def __init__(self, limits: Sequence[float], now_seconds: float) -> None:
        """`limits`: the largest figure of each class, in ascending order."""
        self._limits = limits
        self._counts = [0] * (len(limits) + 1)
        self._times = 0
        self._total = 0.0
        self._mark = self._newer = (now_seconds, self._figures())
        """As in `Rate`, but for all figures at once, because they are always read together."""

    def add(self, figure: float, times: int = 1) -> None:
        self._counts[bisect_left(self._limits, figure)] += times
        self._times += times
        self._total += figure * times

    def add_each(self, figures: Sequence[int]) -> None:
        """Add several figures at once."""
        counts, limits = self._counts, self._limits
        lowest = bisect_left(limits, min(figures, default=0))
        if lowest == bisect_left(limits, max(figures, default=0)):  # nearly always: entries of about one size
            counts[lowest] += len(figures)
        else:
            for figure in figures:
                counts[bisect_left(limits, figure)] += 1
        self._times += len(figures)
        self._total += sum(figures)

    def per_second(self, now_seconds: float) -> PerSecond:
        figures = self._figures()
        if now_seconds - self._newer[0] >= MARK_SECONDS:
            self._mark, self._newer = self._newer, (now_seconds, figures)
        marked_at, marked = self._mark
        seconds = now_seconds - marked_at
        *classes, times, total = (
            0.0 if seconds <= 0 else (now - then) / seconds for now, then in zip(figures, marked, strict=True)
        )
        return PerSecond(classes, times, total)

    def _figures(self) -> tuple[int, ...]:
        return (*self._counts, self._times, round(self._total))


WINDOW_MS: Final = 60_000


class Drops:
    """The dropped messages of one subscription or replicator. The rate covers the last minute: the present window, and
    the proportional part of the window before."""

    def __init__(self) -> None:
        self.total = 0
        self._window = 0
        self._in_window = 0
        self._before = 0

    def count(self, messages: int, now_ms: int) -> None:
        self._advance_window(now_ms)
        self.total += messages
        self._in_window += messages

    def rate(self, now_ms: int) -> float:
        """Return the dropped messages per second."""
        self._advance_window(now_ms)
        part_of_before = 1 - now_ms % WINDOW_MS / WINDOW_MS
        return (self._in_window + self._before * part_of_before) * 1000 / WINDOW_MS

    def _advance_window(self, now_ms: int) -> None:
        window = now_ms // WINDOW_MS
        if window == self._window:
            return
        self._before = self._in_window if window == self._window + 1 else 0
        self._in_window, self._window = 0, window


class UnsentEntries:
    """Entries that were offered and neither sent nor dropped, in the order of their ids."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, int]] = deque()
        """(entry id, number of messages), by ascending id."""

    def add(self, entry_id: int, messages: int) -> None:
        assert not self._entries or entry_id > self._entries[-1][0], "entries are offered in log order"
        self._entries.append((entry_id, messages))

    def take_before(self, entry_id: int) -> int:
        """Remove the entries with a smaller id and return the number of their messages."""
        messages = 0
        while self._entries and self._entries[0][0] < entry_id:
            messages += self._entries.popleft()[1]
        return messages
