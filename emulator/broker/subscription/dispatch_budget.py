"""How much one subscription may hand out now: what its own rate allows and, in its turn, what its topic's does."""

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
"""Messages that it may hand out when it has read them, and where they were reserved."""


class Budget:
    """Owned by its HandingOut."""

    def __init__(self, topic: SubscriptionHost, owner: QueuedTask, subscription: str) -> None:
        self._topic = topic
        self._owner = owner
        self._throttle_of = topic.region.environment.components.throttle_of
        self._throttle = self._made(topic.subscriptions.rate_of(subscription))

    def set_rate(self, rate: RateLimit) -> None:
        """Of this subscription, from now on."""
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
        """How long nothing may go, for an owner that has something to hand out; 0: something may go now."""
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
        """What the topic allows goes to the one that has waited longest; where nothing is kept nobody waits."""
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
        """The owner has no use for its turn."""
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
        """No more than may go now."""
        for throttle in self._throttles:
            read = read._replace(entries_max=throttle.portion(read.entries_max))
        return read

    def reserve(self, read: Read) -> Held:
        """What may go when that has been read, whatever others hand out meanwhile."""
        return [(one, one.reserve(read.entries_max, _now_ms())) for one in self._throttles]

    def release(self, held: Held) -> None:
        """The read has ended; what goes of it is taken next."""
        for throttle, reserved in held:
            throttle.release(reserved, _now_ms())
        self._wake_next()

    def take(self, entries: Sequence[StoredEntry], deliveries: Sequence[Delivery]) -> None:
        """These go now."""
        messages = sum(max(1, entries[index].messages) for _, index, _, _ in deliveries)
        size_bytes = sum(len(entries[index].data) for _, index, _, _ in deliveries)
        for throttle in self._throttles:
            throttle.take(messages, size_bytes, _now_ms())


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
