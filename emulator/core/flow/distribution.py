"""How often a figure fell into each of its classes, and how often that is in a second."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from emulator.core.flow.rates import Rate


class PerSecond(NamedTuple):
    classes: list[float]
    """One more than there are limits: what is larger than the last."""
    times: float
    total: float


class Distribution:
    """Counts only; rates are worked out when somebody asks."""

    __slots__ = ("_counts", "_limits", "_rates", "_times", "_total")

    def __init__(self, limits: Sequence[float], now_seconds: float) -> None:
        """`limits`: the largest figure of each class, in their order."""
        self._limits = limits
        self._counts = [0] * (len(limits) + 1)
        self._times = 0
        self._total = 0.0
        self._rates = [Rate(now_seconds) for _ in range(len(limits) + 3)]

    def add(self, figure: float, times: int = 1) -> None:
        self._counts[bisect_left(self._limits, figure)] += times
        self._times += times
        self._total += figure * times

    def add_each(self, figures: Sequence[int]) -> None:
        """Many at once."""
        counts, limits = self._counts, self._limits
        for figure in figures:
            counts[bisect_left(limits, figure)] += 1
        self._times += len(figures)
        self._total += sum(figures)

    def per_second(self, now_seconds: float) -> PerSecond:
        counted = [*self._counts, self._times, round(self._total)]
        *classes, times, total = (
            rate.per_second(number, now_seconds) for rate, number in zip(self._rates, counted, strict=True)
        )
        return PerSecond(classes, times, total)
