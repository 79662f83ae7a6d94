"""Limits of a topic: numbers of producers, consumers and subscriptions, and the rate at which one consumer subscribes.

Errors have Pulsar's codes, so that clients know whether to retry. Each consumer has a budget of subscribes that refills
with time. A budget that was not used for one period is full and is forgotten; at most `CONSUMERS_MAX` are stored.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit, Throttle
from emulator.errors import ProtocolError, ServerError


class TopicLimits(NamedTuple):
    """Maximum numbers of connected producers and consumers, and of subscriptions, of a topic; 0: unlimited."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0

    def check_producers(self, present: int, topic: str) -> None:
        """Raise ProtocolError when one more producer would exceed the limit."""
        if 0 < self.producers <= present:
            raise ProtocolError(
                ServerError.ProducerBusy, f"Topic {topic!r} reached max producers limit: {self.producers}"
            )

    def check_consumers(self, of_topic: int, of_subscription: int, topic: str) -> None:
        """Raise ProtocolError when one more consumer would exceed a limit."""
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
        """Raise ProtocolError when one more subscription would exceed the limit."""
        if 0 < self.subscriptions <= present:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"Exceed the maximum number of subscriptions of the topic: {topic} ({self.subscriptions})",
            )


CONSUMERS_MAX: Final = 10_000
"""Maximum number of budgets per topic. Beyond it the least recently used budgets are forgotten."""


class SubscribeRateLimiter:
    """The budgets of subscribes of the consumers of one topic."""

    def __init__(self) -> None:
        self._rate: RateLimit = UNLIMITED
        self._budgets: OrderedDict[tuple[str, str, int], tuple[Throttle, float]] = OrderedDict()
        """Consumer -> (budget, time of last use), least recently used first, so that each admission takes O(1)."""

    def admit(self, consumer: tuple[str, str, int], rate: RateLimit, now_ms: float) -> bool:
        """Return whether a consumer may subscribe now; if so, its budget is reduced by one. `consumer`: (host, name,
        id). A changed rate resets all budgets."""
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
        """Forget budgets that are full again, and the least recently used ones until there is room for one more."""
        full_before_ms = now_ms - self._rate.period_seconds * 1000
        while self._budgets:
            _, used_ms = next(iter(self._budgets.values()))
            if used_ms > full_before_ms and len(self._budgets) < CONSUMERS_MAX:
                return
            self._budgets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._budgets)
