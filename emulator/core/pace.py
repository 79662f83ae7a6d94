"""How fast: a budget that fills with time and may be overdrawn once, so that the average holds whatever the portions.

What one period allows may go at once. What was taken beyond that (a batch, a large message) has to be waited for
before anything more is taken.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Pace(NamedTuple):
    """So much in a period. 0: any amount."""

    messages: int
    size_bytes: int
    period_seconds: int

    @property
    def is_limited(self) -> bool:
        return self.messages > 0 or self.size_bytes > 0


UNLIMITED: Final = Pace(0, 0, 1)


class _Bucket:
    """Invariant: never more than one period allows."""

    __slots__ = ("_at_ms", "_left", "_most", "_per_ms")

    def __init__(self, amount: int, period_seconds: int, now_ms: float) -> None:
        self._most = self._left = float(amount)
        self._per_ms = amount / (period_seconds * 1000)
        self._at_ms = now_ms

    def _fill(self, now_ms: float) -> None:
        self._left = min(self._most, self._left + (now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms

    def wait_ms(self, now_ms: float) -> float:
        """Until there is something again; 0: there is."""
        self._fill(now_ms)
        # A whole unit: a wait that rounding makes too short would be followed by another one of no time.
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_ms

    @property
    def whole(self) -> int:
        """What may go now."""
        return max(1, int(self._left))

    def take(self, amount: int, now_ms: float) -> None:
        self._fill(now_ms)  # first: what a full one was not given until now it is not given afterwards
        self._left -= amount


class Throttle:
    """Keeps one rate."""

    def __init__(self, rate: Pace, now_ms: float) -> None:
        self.rate = rate
        self._messages = _Bucket(rate.messages, rate.period_seconds, now_ms) if rate.messages else None
        self._bytes = _Bucket(rate.size_bytes, rate.period_seconds, now_ms) if rate.size_bytes else None

    def wait_ms(self, now_ms: float) -> float:
        """How long nothing more may go; 0: something may."""
        return max(
            (one.wait_ms(now_ms) for one in (self._messages, self._bytes) if one is not None), default=0.0
        )

    def portion(self, entries_max: int) -> int:
        """Of entries that are to go at once: how many, if there is a message in each."""
        return entries_max if self._messages is None else min(entries_max, self._messages.whole)

    def take(self, messages: int, size_bytes: int, now_ms: float) -> None:
        """So much goes now."""
        if self._messages is not None:
            self._messages.take(messages, now_ms)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_ms)


def throttle_of(rate: Pace, now_ms: float) -> Throttle | None:
    """None: nothing to keep."""
    return Throttle(rate, now_ms) if rate.is_limited else None
