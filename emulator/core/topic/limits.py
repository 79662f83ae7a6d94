"""Limits of a topic: producers, consumers and subscriptions at once, and how often one consumer may subscribe.

Errors have Pulsar's codes, so that clients know whether to retry. Each consumer has a subscribe budget that fills with
time; a full one is forgotten, so memory is bounded by the consumers of one period, and by `CONSUMERS_MAX`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit, Throttle
from emulator.errors import ProtocolError, ServerError


class TopicLimits(NamedTuple):
    """0: any number."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0

    def check_producers(self, present: int, topic: str) -> None:
        """ProtocolError when one more is too many; so do the others."""
        if 0 < self.producers <= present:
            raise ProtocolError(
                ServerError.ProducerBusy, f"Topic {topic!r} reached max producers limit: {self.producers}"
            )

    def check_consumers(self, of_topic: int, of_subscription: int, topic: str) -> None:
        if 0 < self.consumers <= of_topic:
            raise ProtocolError(
                ServerError.ConsumerBusy, f"Topic {topic!r} reached max consumers limit: {self.consumers}"
            )
        if 0 < self.consumers_per_subscription <= of_subscription:
            raise ProtocolError(
                ServerError.ConsumerBusy,
                f"Subscription reached max consumers limit: {self.consumers_per_subscription}",
            )

    def check_subscriptions(self, present: int, topic: str) -> None:
        if 0 < self.subscriptions <= present:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"Exceed the maximum number of subscriptions of the topic: {topic} ({self.subscriptions})",
            )


CONSUMERS_MAX: Final = 10_000
"""Of one topic. Beyond that the budgets that were used the longest ago are forgotten."""


class SubscribeRateLimiter:
    """Of the consumers of one topic."""

    def __init__(self) -> None:
        self._rate: RateLimit = UNLIMITED
        self._budgets: OrderedDict[tuple[str, str, int], tuple[Throttle, float]] = OrderedDict()
        """With when each was used; the one that was used last is last. Ordered, so that each admission is O(1)."""

    def admit(self, consumer: tuple[str, str, int], rate: RateLimit, now_ms: float) -> bool:
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
        while self._budgets:
            _, used_ms = next(iter(self._budgets.values()))
            if used_ms > full_before_ms and len(self._budgets) < CONSUMERS_MAX:
                return
            self._budgets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._budgets)
