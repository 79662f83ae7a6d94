"""Rate limits: token buckets that may be overdrawn once, so that the average rate holds for portions of any size.

The tokens of one period may be used at once. After an overdraft (by a batch, a large message) no more tokens are taken
until it is refilled. A slow operation (a read from a disk) first reserves the tokens of its messages: other operations
cannot use them, and the bucket does not refill them. The bytes of a read are unknown in advance, so under a limit of
bytes one read runs at a time. Tasks that share a limit wait in a `FairQueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol


class RateLimit(NamedTuple):
    """A limit of messages and bytes per period; 0: unlimited."""

    messages: int
    size_bytes: int
    period_seconds: int
    relative: bool = False
    """Whether the publish rate is added to each limit that is not 0."""

    @property
    def is_limited(self) -> bool:
        return self.messages > 0 or self.size_bytes > 0


UNLIMITED: Final = RateLimit(0, 0, 1)


READ_MS: Final = 10.0
"""Wait that is returned while only a running read delays the next operation."""


FOLLOW_MS: Final = 1_000.0
"""Interval at which a relative rate is computed again, and maximum wait under one."""

Published = Callable[[], tuple[float, float]]
"""Returns the present publish rate: messages and bytes per second."""


class _Bucket:
    """A token bucket. Invariant: left and reserved tokens together never exceed the tokens of one period."""

    __slots__ = ("_amount", "_at_ms", "_left", "_most", "_per_ms", "_period_ms", "_reserved")

    def __init__(self, amount: int, period_seconds: int, now_ms: float) -> None:
        self._amount = amount
        self._period_ms = period_seconds * 1000
        self._most = self._left = float(amount)
        self._per_ms = amount / self._period_ms
        self._at_ms = now_ms
        self._reserved = 0

    def add_per_second(self, more: float, now_ms: float) -> None:
        """Set the tokens per second that are added to the bucket's own rate."""
        self._fill(now_ms)
        self._per_ms = self._amount / self._period_ms + more / 1000
        self._most = self._per_ms * self._period_ms

    def _fill(self, now_ms: float) -> None:
        self._left = min(self._most - self._reserved, self._left + (now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms

    def wait_ms(self, now_ms: float) -> float:
        """Return the time until a whole token is available; 0: one is available now."""
        self._fill(now_ms)
        # Wait for a whole token: rounding could make a shorter wait end too early, followed by waits of no time.
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_ms

    @property
    def whole(self) -> int:
        """Number of whole tokens available, but at least 1."""
        return max(1, int(self._left))

    def take(self, amount: int, now_ms: float) -> None:
        self._fill(now_ms)  # before taking: a full bucket must not be refilled for the time that it was full
        self._left -= amount

    def reserve(self, amount: int, now_ms: float) -> int:
        """Reserve up to `amount` of the available tokens and return how many were reserved."""
        self._fill(now_ms)
        reserved = max(0, min(amount, int(self._left)))
        self._left -= reserved
        self._reserved += reserved
        return reserved

    def release(self, amount: int, now_ms: float) -> None:
        self._fill(now_ms)
        self._left += amount
        self._reserved -= amount


class Throttle:
    """Enforces one rate limit."""

    def __init__(self, rate: RateLimit, now_ms: float, published: Published | None = None) -> None:
        """`published` returns the publish rate; it is used for a relative rate only."""
        self.rate = rate
        self._published = published if rate.relative else None
        self._followed_ms = now_ms - FOLLOW_MS
        self._messages = _Bucket(rate.messages, rate.period_seconds, now_ms) if rate.messages else None
        self._bytes = _Bucket(rate.size_bytes, rate.period_seconds, now_ms) if rate.size_bytes else None
        self._reads = 0
        """Number of running reads."""

    def wait_ms(self, now_ms: float) -> float:
        """Return the time after which the caller checks again whether a message may be sent; 0: one may be sent now."""
        self._follow(now_ms)
        of_read = READ_MS if self._bytes is not None and self._reads else 0.0
        budgets = (self._messages, self._bytes)
        wait_ms = max((one.wait_ms(now_ms) for one in budgets if one is not None), default=0.0) or of_read
        return wait_ms if self._published is None else min(wait_ms, FOLLOW_MS)

    def _follow(self, now_ms: float) -> None:
        """Add the publish rate to the limits, if the rate is relative."""
        if self._published is None or now_ms - self._followed_ms < FOLLOW_MS:
            return
        self._followed_ms = now_ms
        for budget, more in zip((self._messages, self._bytes), self._published(), strict=True):
            if budget is not None:
                budget.add_per_second(more, now_ms)

    def portion(self, entries_max: int) -> int:
        """Return how many of `entries_max` entries may be sent at once, if each has one message; at least 1."""
        return entries_max if self._messages is None else min(entries_max, self._messages.whole)

    def take(self, messages: int, size_bytes: int, now_ms: float) -> None:
        """Use the tokens of these messages and bytes."""
        if self._messages is not None:
            self._messages.take(messages, now_ms)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_ms)

    def reserve(self, messages: int, now_ms: float) -> int:
        """Begin a read: reserve tokens for up to `messages`, not for bytes. Returns how many were reserved."""
        self._reads += 1
        return 0 if self._messages is None else self._messages.reserve(messages, now_ms)

    def release(self, messages: int, now_ms: float) -> None:
        """End a read: return its reserved tokens. The caller then takes those of the messages that it sends."""
        self._reads -= 1
        if self._messages is not None:
            self._messages.release(messages, now_ms)


def throttle_of(rate: RateLimit, now_ms: float, published: Published | None = None) -> Throttle | None:
    """Return the throttle of a rate limit; None: it is unlimited."""
    return Throttle(rate, now_ms, published) if rate.is_limited else None


class ThrottleFactory(Protocol):
    """The type of `throttle_of`, which a simulation may replace."""

    def __call__(
        self, rate: RateLimit, now_ms: float, published: Published | None = None
    ) -> Throttle | None: ...


class QueuedTask(Protocol):
    """A task in a `FairQueue`."""

    def schedule(self) -> None:
        """Run the task soon, because it may be the next one. It must use its turn or leave the queue."""
        ...


class FairQueue:
    """A FIFO queue of tasks that wait for a shared rate limit, so that fast tasks cannot starve the others. A task that
    is next and cannot use its turn must leave, or it blocks all tasks behind it."""

    def __init__(self) -> None:
        self._queue: dict[QueuedTask, None] = {}

    @property
    def first(self) -> QueuedTask | None:
        return next(iter(self._queue), None)

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def is_next(self, one: QueuedTask) -> bool:
        """Return whether no other task has waited longer."""
        first = self.first
        return first is None or first is one

    def wait(self, one: QueuedTask) -> None:
        """Append the task, unless it is queued already."""
        self._queue.setdefault(one)

    def leave(self, one: QueuedTask) -> None:
        """Remove a task that had its turn or needs none."""
        self._queue.pop(one, None)
