"""One subscription's dispatch: which consumers may join, which strategy serves, what an acknowledgement does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from emulator.core.cursor.cursor import WORD_BITS, Cursor
from emulator.core.dispatch.key_shared import KeyShared
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.single_active import SingleActive
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import (
    Candidate,
    ConsumerState,
    Delivery,
    DispatchLimits,
    Read,
    SubscriptionType,
    Wake,
    bits_set,
)
from emulator.core.dispatch.waits import counted, reasons_of
from emulator.errors import ProtocolError, ServerError
from emulator.model.reasons import Cause, Reason, first_of

StrategyFactory = Callable[[SubscriptionType, Cursor, DispatchLimits], DispatchStrategy]


def strategy_for(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """The strategy that serves subscriptions of a type."""
    match type_:
        case SubscriptionType.EXCLUSIVE | SubscriptionType.FAILOVER:
            return SingleActive(cursor, limits)
        case SubscriptionType.SHARED:
            return Shared(cursor, limits)
        case SubscriptionType.KEY_SHARED:
            return KeyShared(cursor, limits)


class Dispatcher:
    """Owned by its subscription. What `DispatchStrategy` says of each method holds here."""

    def __init__(
        self, cursor: Cursor, limits: DispatchLimits, strategy_for: StrategyFactory = strategy_for
    ) -> None:
        self.cursor = cursor
        self.type = SubscriptionType.EXCLUSIVE
        """Meaningful while there are consumers; the first one decides."""
        self._limits = limits
        self._strategy_for = strategy_for
        self._strategy = strategy_for(self.type, cursor, limits)

    @property
    def consumers(self) -> Sequence[ConsumerState]:
        """In order of arrival."""
        return self._strategy.consumers

    @property
    def active(self) -> ConsumerState | None:
        """The one consumer that is served; None where several are, or none is."""
        return self._strategy.active

    @property
    def read_entry_id(self) -> int:
        return self._strategy.read_entry_id

    @property
    def delayed_entries(self) -> int:
        """How many were read and are not due yet."""
        return self._strategy.delayed_entries

    @property
    def is_full(self) -> bool:
        """SHARED, KEY_SHARED: whether its consumers hold the maximum of unacknowledged messages."""
        held = sum(consumer.pending.messages for consumer in self.consumers)
        return held >= self._limits.unacked_messages_max

    @property
    def draining(self) -> Mapping[ConsumerState, int]:
        """KEY_SHARED, by consumer: slots of keys that belong to another one once it has acknowledged what it holds."""
        return self._strategy.draining

    # Why messages wait.

    def why_not(self, unread: int, given: int, now_ms: int, wall_ms: int) -> Reason:
        """Return why its messages are not consumed; empty when there are none, or they are dispatched now.

        `unread`: messages from `read_entry_id` on. `given`: those before it that are not acknowledged.
        """
        return first_of(self._reasons(unread, given, now_ms, wall_ms))

    def _reasons(self, unread: int, given: int, now_ms: int, wall_ms: int) -> Iterator[Reason]:
        yield self._strategy.why_delayed(now_ms, wall_ms)
        groups = list(self._strategy.waiting(unread))
        serves_one = self.active is not None
        unacknowledged = given if serves_one else sum(one.pending.messages for one in self.consumers)
        if groups and self.is_full:
            yield Cause.SUBSCRIPTION_UNACKED_MAX(
                unacknowledged=unacknowledged, limit=self._limits.unacked_messages_max
            )
        yield from reasons_of(groups, self.consumers, self._limits, given if serves_one else None)
        if unacknowledged:
            yield Cause.NOT_ACKNOWLEDGED(count=counted(unacknowledged))

    # Consumers come and go.

    def joined(self, consumer: ConsumerState, type_: SubscriptionType, now_ms: int) -> None:
        """Admit a consumer. ProtocolError(ConsumerBusy) when its type does not fit those connected or an exclusive one
        is."""
        if not self.consumers:
            self._strategy, self.type = self._strategy_for(type_, self.cursor, self._limits), type_
        elif type_ is not self.type:
            raise ProtocolError(
                ServerError.ConsumerBusy, f"Subscription is of different type: {self.type.name}"
            )
        elif type_ is SubscriptionType.EXCLUSIVE:
            raise ProtocolError(ServerError.ConsumerBusy, "Exclusive consumer is already connected")
        self._strategy.joined(consumer, now_ms)

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        self._strategy.left(consumer, now_ms)

    # What consumers say.

    def flow(self, consumer: ConsumerState, permits: int) -> None:
        self._strategy.flow(consumer, permits)

    def blocked(self, consumer: ConsumerState, *, blocked: bool) -> None:
        self._strategy.blocked(consumer, blocked=blocked)

    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        self._strategy.returned(consumer, entry_ids)

    def acknowledge(
        self,
        consumer: ConsumerState,
        entries: Iterable[tuple[int, Sequence[int] | None]],
        end_entry_id: int,
    ) -> None:
        """The consumer acknowledged these (entry id, ack set) individually. Entries at or beyond `end_entry_id`, which
        no consumer received, are ignored."""
        cursor, strategy = self.cursor, self._strategy
        for entry_id, ack_set in entries:
            if not 0 <= entry_id < end_entry_id:
                continue
            if ack_set:
                self._acknowledge_batch(consumer, entry_id, ack_set)
            else:
                cursor.ack(entry_id)
                strategy.acked(consumer, entry_id)

    def _acknowledge_batch(self, consumer: ConsumerState, entry_id: int, ack_set: Sequence[int]) -> None:
        size = self._strategy.batch_size(consumer, entry_id) or WORD_BITS * len(ack_set)
        if self.cursor.ack_batch(entry_id, ack_set, size):
            self._strategy.acked(consumer, entry_id)
        elif (still_open := self.cursor.ack_set_of(entry_id)) is not None:
            self._strategy.acked(consumer, entry_id, bits_set(still_open))

    def held(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        """An open transaction of the consumer acknowledged these, or messages of them: they leave the books, and are in
        the cursor's `held`."""
        for entry_id in entry_ids:
            left = () if self.cursor.is_taken(entry_id) else self.cursor.ack_set_of(entry_id) or ()
            self._strategy.acked(consumer, entry_id, bits_set(left))

    def released(self, entry_ids: Sequence[int]) -> None:
        self._strategy.released(entry_ids)

    def acknowledge_cumulative(
        self, entries: Iterable[tuple[int, Sequence[int] | None]], end_entry_id: int
    ) -> None:
        """Everything up to each of these is done with. Ignored beyond `end_entry_id`, and where several consumers
        are served, who cannot know what others hold."""
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
        self._strategy.moved()

    # What happens to the cursor otherwise.

    def moved(self) -> None:
        self._strategy.moved()

    def rewound(self) -> None:
        self._strategy.rewound()

    # Reading and handing out.

    def next(self, end_entry_id: int, now_ms: int, wall_ms: int) -> Read | Wake | None:
        return self._strategy.next(end_entry_id, now_ms, wall_ms)

    def offer(self, read: Read, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        return self._strategy.offer(read, candidates, wall_ms)
