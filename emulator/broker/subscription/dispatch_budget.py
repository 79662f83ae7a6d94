"""How much one subscription may dispatch now, by its own rate limit and, in its turn, by its topic's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from emulator.core.flow.rate_limit import RateLimit, Throttle
from emulator.model.reasons import NO_REASON, Cause, Reason

if TYPE_CHECKING:
    from emulator.broker.topic.entry_cache import StoredEntry
    from emulator.broker.topic.view import SubscriptionHost
    from emulator.core.dispatch import Delivery, Read
    from emulator.core.flow.fair_queue import QueuedTask

ROUNDING_MS: Final = 1.0
Held: TypeAlias = "Sequence[tuple[Throttle, int]]"
"""Messages that may be dispatched once they are read, and the rate limits where they are reserved."""


class Budget:
    """Owned by its HandingOut."""

    def __init__(self, topic: SubscriptionHost, owner: QueuedTask, subscription: str) -> None:
        self._topic = topic
        self._owner = owner
        self._throttle_of = topic.region.environment.components.topics.throttle_of
        self._throttle = self._made(topic.subscriptions.rate_of(subscription))

    def set_rate(self, rate: RateLimit) -> None:
        """Set the subscription's rate limit."""
        self._throttle = self._made(rate)

    def _made(self, rate: RateLimit) -> Throttle | None:
        return self._throttle_of(rate, _now_ms(), self._topic.metrics.publish_rate)

    @property
    def is_limited(self) -> bool:
        return self._throttle is not None or self._topic.subscriptions.throttle is not None

    @property
    def _throttles(self) -> list[Throttle]:
        both = (self._throttle, self._topic.subscriptions.throttle)
        return [one for one in both if one is not None]

    def wait_ms(self) -> float:
        """How long dispatch has to wait, for an owner that has messages to dispatch; 0: it may dispatch now."""
        mine, topics = self._throttle, self._topic.subscriptions.throttle
        if mine is None and topics is None:
            return 0.0
        now_ms = _now_ms()
        wait_ms = 0.0 if mine is None else mine.wait_ms(now_ms)
        if wait_ms > 0 or topics is None:
            self.give_way()
            return wait_ms
        return self._wait_for_turn_ms(topics.wait_ms(now_ms))

    def why_not(self) -> Reason:
        """Return the rate limit that allows no more now. Changes nothing, unlike `wait_ms`."""
        of_topic = self._topic.subscriptions.throttle
        for setting, throttle in ("subscription_dispatch_rate", self._throttle), ("dispatch_rate", of_topic):
            wait_ms = 0.0 if throttle is None else throttle.wait_ms(_now_ms())
            if wait_ms > 0:
                return Cause.DISPATCH_RATE(setting=setting, wait_ms=math.ceil(wait_ms))
        return NO_REASON

    def _wait_for_turn_ms(self, wait_ms: float) -> float:
        """The topic's rate goes to the subscription that has waited longest. Non-persistent topics have no queue."""
        turns = self._topic.subscriptions.turns
        if not self._topic.keeps_messages:
            return wait_ms
        if wait_ms <= 0 and turns.is_next(self._owner):
            turns.leave(self._owner)
            return 0.0
        turns.wait(self._owner)
        if wait_ms <= 0:
            self._wake_next()
        return max(wait_ms, ROUNDING_MS)

    def give_way(self) -> None:
        """Leave the queue: the owner has nothing to dispatch in its turn."""
        turns = self._topic.subscriptions.turns
        was_first = turns.first is self._owner
        turns.leave(self._owner)
        if was_first:
            self._wake_next()

    def _wake_next(self) -> None:
        first = self._topic.subscriptions.turns.first
        if first is not None:
            first.schedule()

    def portion(self, read: Read) -> Read:
        """Limit a read to what may be dispatched now."""
        for throttle in self._throttles:
            read = read._replace(entries_max=throttle.portion(read.entries_max))
        return read

    def reserve(self, read: Read) -> Held:
        """Reserve what may be dispatched after this read, whatever other subscriptions dispatch meanwhile."""
        return [(one, one.reserve(read.entries_max, _now_ms())) for one in self._throttles]

    def release(self, held: Held) -> None:
        """Release the reservation of a finished read; `take` then counts what is dispatched of it."""
        for throttle, reserved in held:
            throttle.release(reserved, _now_ms())
        self._wake_next()

    def take(self, entries: Sequence[StoredEntry], deliveries: Sequence[Delivery]) -> None:
        """Count these as dispatched."""
        messages = sum(max(1, entries[index].messages) for _, index, _, _ in deliveries)
        size_bytes = sum(len(entries[index].data) for _, index, _, _ in deliveries)
        for throttle in self._throttles:
            throttle.take(messages, size_bytes, _now_ms())


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
