"""Wall clocks of simulated hosts: they may be wrong, drift, and jump in both directions.

Only timestamps for people come from here. Timers and monotonic time belong to the loop and are unaffected.
"""

from __future__ import annotations

from collections.abc import Callable

EPOCH_MS = 1_767_225_600_000
"""Wall time at which every simulation begins: 2026-01-01 00:00:00 UTC."""


class WallClock:
    """A call returns the time in milliseconds since 1970."""

    def __init__(
        self, monotonic: Callable[[], float], *, offset_ms: float = 0.0, drift_ppm: float = 0.0
    ) -> None:
        self._monotonic = monotonic
        self._anchor_seconds = monotonic()
        self._anchor_ms = EPOCH_MS + self._anchor_seconds * 1000 + offset_ms
        self._drift_ppm = drift_ppm

    def __call__(self) -> int:
        return int(self.exact_ms())

    def exact_ms(self) -> float:
        """The time including its fraction."""
        elapsed_ms = (self._monotonic() - self._anchor_seconds) * 1000
        return self._anchor_ms + elapsed_ms * (1 + self._drift_ppm / 1_000_000)

    @property
    def offset_ms(self) -> float:
        """How far it is ahead of the true time."""
        return self.exact_ms() - (EPOCH_MS + self._monotonic() * 1000)

    @property
    def drift_ppm(self) -> float:
        """How many microseconds it gains in a second."""
        return self._drift_ppm

    @drift_ppm.setter
    def drift_ppm(self, drift_ppm: float) -> None:
        self._anchor()
        self._drift_ppm = drift_ppm

    def jump(self, milliseconds: float) -> None:
        """Set the clock forward, or back if negative."""
        self._anchor()
        self._anchor_ms += milliseconds

    def correct(self) -> None:
        """Set the clock to the true time. It continues to drift."""
        self.jump(-self.offset_ms)

    def _anchor(self) -> None:
        self._anchor_ms = self.exact_ms()
        self._anchor_seconds = self._monotonic()
