"""Rate limits: token buckets that may be overdrawn once, so that the average rate holds for portions of any size.

The amount of one period may be used at once. An overdraft (a batch, a large message) must be refilled before anything
more is taken. A slow operation (a read from a disk) reserves its messages first: other operations cannot use them
meanwhile, and the bucket does not refill them. The bytes of a read are unknown in advance, so where bytes are limited
one read runs at a time. Tasks that share a limit wait in a `FairQueue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol


class RateLimit(NamedTuple):
    """So much in a period. 0: any amount."""

    messages: int
    size_bytes: int
    period_seconds: int
    relative: bool = False
    """What is published meanwhile is added to each amount that is not 0."""

    @property
    def is_limited(self) -> bool:
        return self.messages > 0 or self.size_bytes > 0


UNLIMITED: Final = RateLimit(0, 0, 1)


READ_MS: Final = 10.0
"""How long an operation waits for a running read to end before it tries again without having been woken."""


FOLLOW_MS: Final = 1_000.0
"""How often a relative rate is computed anew, and the longest wait for one."""

Published = Callable[[], tuple[float, float]]
"""Messages and bytes that are published per second now."""


class _Bucket:
    """Invariant: what is left and what is reserved are together never more than one period allows."""

    __slots__ = ("_amount", "_at_ms", "_left", "_most", "_per_ms", "_period_ms", "_reserved")

    def __init__(self, amount: int, period_seconds: int, now_ms: float) -> None:
        self._amount = amount
        self._period_ms = period_seconds * 1000
        self._most = self._left = float(amount)
        self._per_ms = amount / self._period_ms
        self._at_ms = now_ms
        self._reserved = 0

    def add_per_second(self, more: float, now_ms: float) -> None:
        """From now on allow this much per second beyond its own amount."""
        self._fill(now_ms)
        self._per_ms = self._amount / self._period_ms + more / 1000
        self._most = self._per_ms * self._period_ms

    def _fill(self, now_ms: float) -> None:
        self._left = min(self._most - self._reserved, self._left + (now_ms - self._at_ms) * self._per_ms)
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

    def reserve(self, amount: int, now_ms: float) -> int:
        """How much of that there is."""
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
    """Keeps one rate."""

    def __init__(self, rate: RateLimit, now_ms: float, published: Published | None = None) -> None:
        """`published` is asked for a relative rate only."""
        self.rate = rate
        self._published = published if rate.relative else None
        self._followed_ms = now_ms - FOLLOW_MS
        self._messages = _Bucket(rate.messages, rate.period_seconds, now_ms) if rate.messages else None
        self._bytes = _Bucket(rate.size_bytes, rate.period_seconds, now_ms) if rate.size_bytes else None
        self._reads = 0
        """Under way."""

    def wait_ms(self, now_ms: float) -> float:
        """How long nothing more may go; 0: something may."""
        self._follow(now_ms)
        of_read = READ_MS if self._bytes is not None and self._reads else 0.0
        budgets = (self._messages, self._bytes)
        wait_ms = max((one.wait_ms(now_ms) for one in budgets if one is not None), default=0.0) or of_read
        return wait_ms if self._published is None else min(wait_ms, FOLLOW_MS)

    def _follow(self, now_ms: float) -> None:
        """Add what is published, if the rate is relative."""
        if self._published is None or now_ms - self._followed_ms < FOLLOW_MS:
            return
        self._followed_ms = now_ms
        for budget, more in zip((self._messages, self._bytes), self._published(), strict=True):
            if budget is not None:
                budget.add_per_second(more, now_ms)

    def portion(self, entries_max: int) -> int:
        """Of entries that are to go at once: how many, if there is a message in each."""
        return entries_max if self._messages is None else min(entries_max, self._messages.whole)

    def take(self, messages: int, size_bytes: int, now_ms: float) -> None:
        """Take this amount now."""
        if self._messages is not None:
            self._messages.take(messages, now_ms)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_ms)

    def reserve(self, messages: int, now_ms: float) -> int:
        """Reserve for a read: as many of these messages as the limit allows. Their bytes are taken when it ends."""
        self._reads += 1
        return 0 if self._messages is None else self._messages.reserve(messages, now_ms)

    def release(self, messages: int, now_ms: float) -> None:
        """They go now, and are taken; or they do not."""
        self._reads -= 1
        if self._messages is not None:
            self._messages.release(messages, now_ms)


def throttle_of(rate: RateLimit, now_ms: float, published: Published | None = None) -> Throttle | None:
    """None: nothing to keep."""
    return Throttle(rate, now_ms, published) if rate.is_limited else None


class ThrottleFactory(Protocol):
    """`throttle_of`, or what a simulation puts in its place."""

    def __call__(
        self, rate: RateLimit, now_ms: float, published: Published | None = None
    ) -> Throttle | None: ...


class QueuedTask(Protocol):
    """A task that is scheduled when its turn may have come."""

    def schedule(self) -> None:
        """Use the turn soon, or leave the queue."""
        ...


class FairQueue:
    """A FIFO of tasks that wait for a shared budget: the longest waiting task goes first, so that fast tasks cannot
    starve the others. A task that is next and cannot use its turn must leave, or it blocks all tasks behind it."""

    def __init__(self) -> None:
        self._queue: dict[QueuedTask, None] = {}

    @property
    def first(self) -> QueuedTask | None:
        return next(iter(self._queue), None)

    def is_next(self, one: QueuedTask) -> bool:
        """Return whether no other task has waited longer."""
        first = self.first
        return first is None or first is one

    def wait(self, one: QueuedTask) -> None:
        """Append the task, or keep its place if it already waits."""
        self._queue.setdefault(one)

    def leave(self, one: QueuedTask) -> None:
        """Remove the task: it had its turn, or needs none."""
        self._queue.pop(one, None)
