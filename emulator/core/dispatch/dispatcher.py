"""The dispatcher of one subscription: admits consumers, chooses the strategy, applies acknowledgements. Strategies for
non-persistent topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from emulator.core.cursor.cursor import WORD_BITS, Cursor
from emulator.core.dispatch.delayed import LATEST_MS
from emulator.core.dispatch.key_shared import KeyShared
from emulator.core.dispatch.multiple_consumers import MultipleConsumers
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.single_active import SingleActive
from emulator.core.dispatch.strategy import DispatchStrategy, count_text, reasons_of
from emulator.core.dispatch.types import (
    Candidate,
    ConsumerState,
    Delivery,
    DispatchLimits,
    Read,
    SubscriptionType,
    count_unacked,
)
from emulator.errors import ProtocolError, ServerError
from emulator.model.reasons import Cause, Reason, first_of

StrategyFactory = Callable[[SubscriptionType, Cursor, DispatchLimits], DispatchStrategy]
_Strategy = Callable[[Cursor, DispatchLimits], DispatchStrategy]

_STRATEGIES: Final[Mapping[SubscriptionType, _Strategy]] = {
    SubscriptionType.EXCLUSIVE: SingleActive,
    SubscriptionType.FAILOVER: SingleActive,
    SubscriptionType.SHARED: Shared,
    SubscriptionType.KEY_SHARED: KeyShared,
}


def strategy_for(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """Return the strategy that serves subscriptions of a type."""
    return _STRATEGIES[type_](cursor, limits)


class Dispatcher:
    """The dispatcher of one subscription, which owns it. The subscription calls `strategy` directly for events that do
    not depend on the subscription type."""

    def __init__(
        self, cursor: Cursor, limits: DispatchLimits, strategy_for: StrategyFactory = strategy_for
    ) -> None:
        self.cursor = cursor
        self.type = SubscriptionType.EXCLUSIVE
        """Type of the connected consumers, set by the first one; meaningless without consumers."""
        self._limits = limits
        self._strategy_for = strategy_for
        self.strategy = strategy_for(self.type, cursor, limits)
        """The strategy that serves the consumers; replaced when the first consumer joins."""

    @property
    def delayed_entries(self) -> int:
        """Number of entries that were read and are not due yet."""
        strategy = self.strategy
        return strategy.delayed.count if isinstance(strategy, MultipleConsumers) else 0

    @property
    def is_full(self) -> bool:
        """SHARED, KEY_SHARED: whether the consumers together have the maximum number of unacknowledged messages, or
        more."""
        held = sum(consumer.pending.messages for consumer in self.strategy.consumers)
        return held >= self._limits.unacked_messages_max

    # Why messages wait.

    def why_not(self, unread: int, unacked: int, now_ms: int, wall_ms: int) -> Reason:
        """Return why the subscription's messages are not consumed; NO_REASON: there are none, or they are dispatched
        now.

        `unread`: number of messages from `read_entry_id` on. `unacked`: number of unacknowledged messages before it.
        """
        return first_of(self._reasons(unread, unacked, now_ms, wall_ms))

    def _reasons(self, unread: int, unacked: int, now_ms: int, wall_ms: int) -> Iterator[Reason]:
        yield self.strategy.why_delayed(now_ms, wall_ms)
        groups = list(self.strategy.waiting(unread))
        serves_one = self.strategy.active is not None
        unacknowledged = (
            unacked if serves_one else sum(one.pending.messages for one in self.strategy.consumers)
        )
        if groups and self.is_full:
            yield Cause.SUBSCRIPTION_UNACKED_MAX(
                unacknowledged=unacknowledged, limit=self._limits.unacked_messages_max
            )
        yield from reasons_of(groups, self.strategy.consumers, self._limits, unacked if serves_one else None)
        if unacknowledged:
            yield Cause.NOT_ACKNOWLEDGED(count=count_text(unacknowledged))

    # Consumers join.

    def joined(self, consumer: ConsumerState, type_: SubscriptionType, now_ms: int) -> None:
        """Admit a consumer. Raises ProtocolError: ConsumerBusy when the connected consumers have another type or are
        exclusive; ConsumerAssignError when a Key_Shared consumer's mode or ranges are invalid or conflict."""
        if not self.strategy.consumers:
            self.strategy, self.type = self._strategy_for(type_, self.cursor, self._limits), type_
        elif type_ is not self.type:
            raise ProtocolError(
                ServerError.ConsumerBusy, f"Subscription is of different type: {self.type.name}"
            )
        elif type_ is SubscriptionType.EXCLUSIVE:
            raise ProtocolError(ServerError.ConsumerBusy, "Exclusive consumer is already connected")
        self.strategy.joined(consumer, now_ms)

    # Consumers acknowledge.

    def acknowledge(
        self,
        consumer: ConsumerState,
        entries: Iterable[tuple[int, Sequence[int] | None]],
        end_entry_id: int,
    ) -> None:
        """Acknowledge these (entry id, ack set) individually. Negative ids, and ids from `end_entry_id` on, which no
        consumer received, are ignored."""
        cursor, strategy = self.cursor, self.strategy
        for entry_id, ack_set in entries:
            if not 0 <= entry_id < end_entry_id:
                continue
            if ack_set:
                self._acknowledge_batch(consumer, entry_id, ack_set)
            else:
                cursor.ack(entry_id)
                strategy.acked(consumer, entry_id)

    def acknowledge_runs(
        self, consumer: ConsumerState, runs: Iterable[tuple[int, int]], end_entry_id: int
    ) -> None:
        """Acknowledge the whole entries of these runs, (first, last), both included, as `acknowledge` does one by one.
        No id is negative."""
        for first, last in runs:
            last = min(last, end_entry_id - 1)  # the run is empty if all of its ids are beyond the log
            if first == last:
                self.cursor.ack(first)
            else:
                self.cursor.ack_run(first, last)
            self.strategy.acked_run(consumer, first, last)

    def _acknowledge_batch(self, consumer: ConsumerState, entry_id: int, ack_set: Sequence[int]) -> None:
        size = self.strategy.batch_size(consumer, entry_id) or WORD_BITS * len(ack_set)
        if self.cursor.ack_batch(entry_id, ack_set, size):
            self.strategy.acked(consumer, entry_id)
        elif (still_open := self.cursor.ack_set_of(entry_id)) is not None:
            self.strategy.acked(consumer, entry_id, count_unacked(still_open))

    def held(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        """Note that an open transaction of the consumer acknowledged these entries, or messages of them; the cursor's
        `held` contains them. Only their other messages remain pending."""
        for entry_id in entry_ids:
            remaining = (
                () if self.cursor.is_acked_or_held(entry_id) else self.cursor.ack_set_of(entry_id) or ()
            )
            self.strategy.acked(consumer, entry_id, count_unacked(remaining))

    def acknowledge_cumulative(
        self, entries: Iterable[tuple[int, Sequence[int] | None]], end_entry_id: int
    ) -> None:
        """Acknowledge all messages up to each of these (entry id, ack set). Ids from `end_entry_id` on are ignored. For
        SHARED and KEY_SHARED everything is ignored, because a consumer does not know what others have acknowledged."""
        if self.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            return
        for entry_id, ack_set in entries:
            if entry_id >= end_entry_id:
                continue
            if ack_set:
                self.cursor.ack_cumulative(entry_id - 1)
                self.cursor.ack_batch(entry_id, ack_set, WORD_BITS * len(ack_set))
            else:
                self.cursor.ack_cumulative(entry_id)
        self.strategy.moved()


class _AtMostOnce(DispatchStrategy):
    """Mixin for non-persistent topics: a dispatched message counts as acknowledged and is never redelivered."""

    def offer(self, read: Read, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        """Dispatch entries whether or not they are due, and acknowledge each dispatched one."""
        deliveries = super().offer(read, candidates, LATEST_MS)
        for delivery in deliveries:
            entry_id = candidates[delivery.candidate_index].entry_id
            self.cursor.ack(entry_id)
            self.acked(delivery.consumer, entry_id)
        return deliveries


class SingleActiveOnce(_AtMostOnce, SingleActive):
    """EXCLUSIVE and FAILOVER subscriptions of a non-persistent topic."""


class SharedOnce(_AtMostOnce, Shared):
    """SHARED subscriptions of a non-persistent topic."""


class KeySharedOnce(_AtMostOnce, KeyShared):
    """KEY_SHARED subscriptions of a non-persistent topic. A slot never waits for its former owner, because no consumer
    holds unacknowledged messages."""


_AT_MOST_ONCE: Final[Mapping[SubscriptionType, _Strategy]] = {
    SubscriptionType.EXCLUSIVE: SingleActiveOnce,
    SubscriptionType.FAILOVER: SingleActiveOnce,
    SubscriptionType.SHARED: SharedOnce,
    SubscriptionType.KEY_SHARED: KeySharedOnce,
}


def at_most_once(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """Return the strategy of a non-persistent topic that serves subscriptions of a type."""
    return _AT_MOST_ONCE[type_](cursor, limits)
