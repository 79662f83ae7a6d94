"""Strategies for non-persistent topics: a dispatched message is done with, and never redelivered."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.delayed import LATEST_MS
from emulator.core.dispatch.key_shared import KeyShared
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.single_active import SingleActive
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import Candidate, Delivery, DispatchLimits, Read, SubscriptionType


class _AtMostOnce(DispatchStrategy):
    def offer(self, read: Read, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        """Nothing is kept until it is due: a delay counts for nothing."""
        deliveries = super().offer(read, candidates, LATEST_MS)
        for delivery in deliveries:
            entry_id = candidates[delivery.place].entry_id
            self.cursor.ack(entry_id)
            self.acked(delivery.consumer, entry_id)
        return deliveries


class SingleActiveOnce(_AtMostOnce, SingleActive):
    """EXCLUSIVE and FAILOVER."""


class SharedOnce(_AtMostOnce, Shared):
    """SHARED."""


class KeySharedOnce(_AtMostOnce, KeyShared):
    """KEY_SHARED. A key never waits for its former owner, since no consumer holds unacknowledged messages."""


def at_most_once(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """The strategy that serves subscriptions of a type."""
    match type_:
        case SubscriptionType.EXCLUSIVE | SubscriptionType.FAILOVER:
            return SingleActiveOnce(cursor, limits)
        case SubscriptionType.SHARED:
            return SharedOnce(cursor, limits)
        case SubscriptionType.KEY_SHARED:
            return KeySharedOnce(cursor, limits)
