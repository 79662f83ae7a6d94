"""Dispatches the messages of one subscription to its consumers: reads what the dispatcher requests and sends what it
decides, as fast as rate limits allow."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from emulator.broker.subscription.message_writes import message_writes
from emulator.core.dispatch.types import Delivery, Read, SubscriptionType
from emulator.core.flow.rate_limit import RateLimit, Throttle
from emulator.errors import StorageError
from emulator.model.reasons import NO_REASON, Cause, Reason, first_of

if TYPE_CHECKING:
    from emulator.broker.subscription.consumer import SubscriptionView
    from emulator.broker.topic.stored_entry import StoredEntry
    from emulator.broker.topic.view import TopicView
    from emulator.core.flow.rate_limit import QueuedTask

_MULTIPLE_CONSUMER_TYPES: Final = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
READ_BYTES = 4_194_304
READS_PER_PUMP = 8
"""Maximum number of batches that a subscription dispatches before other tasks of the event loop run."""


ROUNDING_MS: Final = 1.0
Reservations: TypeAlias = "Sequence[tuple[Throttle, int]]"
"""Rate limits, each with the number of messages reserved there for a read in progress."""


class DispatchLoop:
    """Dispatches the messages of one subscription, which owns this object."""

    def __init__(self, subscription: SubscriptionView) -> None:
        self._subscription = subscription
        self._topic = topic = subscription.topic
        self._wall_clock_ms = topic.region.environment.wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._budget = DispatchBudget(topic, self, subscription.name)
        self._read_in_progress = False
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        """Timer that resumes dispatch; None: no such time is known."""

    def schedule(self) -> None:
        """Run `pump` once in the next iteration of the event loop, however often this is called before."""
        if not self._is_scheduled and not self._subscription.closed:
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def schedule_if_unblocked(self) -> None:
        """Resume dispatch after an acknowledgement. It can unblock a consumer at its limit, all consumers at the
        subscription's limit, and keys of a KEY_SHARED subscription that other consumers wait for."""
        if self._subscription.dispatcher.type in _MULTIPLE_CONSUMER_TYPES:
            self.schedule()

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Dispatch entries that are in memory; start a read if the next ones are only in the store. Do nothing while a
        read, a seek or the commit of a cumulative acknowledgement is in progress."""
        subscription = self._subscription
        if (
            self._read_in_progress
            or subscription.closed
            or subscription.seeks
            or subscription.pauses_dispatch()
        ):
            self._budget.leave_queue()
            return
        for _ in range(READS_PER_PUMP):
            match subscription.dispatcher.strategy.next(
                self._topic.state.readable_end, self._now_ms(), self._wall_clock_ms()
            ):
                case Read() as read:
                    if self._wait_for_rate_limit() or not self._dispatch(read):
                        break
                case wake:
                    self._budget.leave_queue()
                    if wake is not None:
                        self._wake_at(wake.at_ms)
                    break
        else:
            self.schedule()
        subscription.dispatched()

    def _dispatch(self, read: Read) -> bool:
        """Dispatch a read from memory, or start reading from the store. Return whether it was dispatched at once."""
        read = self._budget.portion(read)
        entries = self._subscription.source.recent(read.from_entry_id, read.entries_max)
        if entries is None:
            self._read_in_progress = True
            self._topic.region.spawn(self._read_and_deliver(read, self._budget.reserve(read)))
            return False
        self._deliver(read, entries)
        return True

    def _wake_at(self, at_ms: int) -> None:
        # Times are rounded down: without this minimum, a timer that fires too early would be set again for ever.
        at = max(at_ms / 1000, self._loop.time() + ROUNDING_MS / 1000)
        if self._timer is not None:
            if self._timer.when() <= at:
                return  # `pump` runs when that timer fires, and sets it again
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._timer_due)

    def _timer_due(self) -> None:
        self._timer = None
        self.pump()

    async def _read_and_deliver(self, read: Read, reserved: Reservations) -> None:
        try:
            entries = await self._subscription.source.read(read.from_entry_id, read.entries_max, READ_BYTES)
        except StorageError as failure:
            self._topic.failed(failure)
            return
        finally:
            self._read_in_progress = False
            self._budget.release(reserved)
        if not self._subscription.closed:
            self._deliver(read, entries)
            self._subscription.dispatched()
            self.schedule()

    def _deliver(self, read: Read, entries: list[StoredEntry]) -> None:
        if self._subscription.cursor.claims:
            self._topic.subscriptions.entries_claimed(self._subscription.name, entries)
        deliveries = self._subscription.dispatcher.strategy.offer(read, entries, self._wall_clock_ms())
        if deliveries:
            if self._budget.is_limited:
                self._budget.take(entries, deliveries)
            self._write(entries, deliveries)
        self._topic.subscriptions.entries_read(self._subscription.name, entries)

    def _write(self, entries: list[StoredEntry], deliveries: list[Delivery]) -> None:
        subscription, consumers = self._subscription, self._subscription.consumers
        writes = message_writes(self._topic, consumers, entries, deliveries)
        now_ms = self._wall_clock_ms()
        for state, write in writes.items():
            consumer, frames = consumers[state], write.frames()
            messages = consumer.granted_messages - state.permits - consumer.sent.messages
            consumer.sent.add(messages, len(frames))
            subscription.sent.add(messages, len(frames))
            consumer.sent_ms = subscription.sent_ms = now_ms
            consumer.connection.write(frames)

    # Explanations.

    def why_not(self) -> Reason:
        """Return why connected consumers receive no messages; NO_REASON when messages are dispatched."""
        subscription, dispatcher = self._subscription, self._subscription.dispatcher
        end, wall_ms = self._topic.state.readable_end, self._wall_clock_ms()
        if subscription.is_settling:
            return Cause.SETTLING()
        before = min(dispatcher.strategy.read_entry_id, end)
        dispatched = subscription.cursor.unacked_count(before, self._topic.state.visibility.hidden)
        reasons = [
            dispatcher.why_not(subscription.backlog() - dispatched, dispatched, self._now_ms(), wall_ms)
        ]
        if self._read_in_progress:
            reasons.append(Cause.READING_MESSAGES())
        if self._read_in_progress or isinstance(dispatcher.strategy.next(end, self._now_ms(), wall_ms), Read):
            reasons.append(self._budget.why_not())
        return first_of(reasons)

    # Rate limits.

    def set_rate(self, rate: RateLimit) -> None:
        """Limit the subscription to this rate from now on."""
        self._budget.set_rate(rate)
        self.limits_changed()

    def _wait_for_rate_limit(self) -> bool:
        """Return whether a rate limit delays dispatch now; if so, set a timer that resumes it."""
        wait_ms = self._budget.wait_ms()
        if wait_ms > 0:
            self._wake_at(math.ceil(self._loop.time() * 1000 + wait_ms))
        return wait_ms > 0

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def limits_changed(self) -> None:
        """Resume dispatch under changed limits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.schedule()

    def close(self) -> None:
        """Stop dispatching; a read that is under way is dropped."""
        self._budget.leave_queue()
        if self._timer is not None:
            self._timer.cancel()


class DispatchBudget:
    """Rate limits of one subscription and of its topic, owned by the subscription's DispatchLoop. Subscriptions use the
    topic's limit in turn."""

    def __init__(self, topic: TopicView, owner: QueuedTask, subscription: str) -> None:
        self._topic = topic
        self._owner = owner
        self._throttle_of = topic.region.environment.components.topics.throttle_of
        self._throttle = self._new_throttle(topic.subscriptions.rate_of(subscription))

    def set_rate(self, rate: RateLimit) -> None:
        """Set the subscription's rate limit."""
        self._throttle = self._new_throttle(rate)

    def _new_throttle(self, rate: RateLimit) -> Throttle | None:
        return self._throttle_of(rate, _exact_now_ms(), self._topic.metrics.publish_rate)

    @property
    def is_limited(self) -> bool:
        return self._throttle is not None or self._topic.subscriptions.throttle is not None

    @property
    def _throttles(self) -> list[Throttle]:
        both = (self._throttle, self._topic.subscriptions.throttle)
        return [one for one in both if one is not None]

    def wait_ms(self) -> float:
        """Return how long the owner, which has messages, must wait before it dispatches; 0: not at all. Also puts the
        owner into the topic's queue or removes it from there."""
        own, of_topic = self._throttle, self._topic.subscriptions.throttle
        if own is None and of_topic is None:
            return 0.0
        now_ms = _exact_now_ms()
        wait_ms = 0.0 if own is None else own.wait_ms(now_ms)
        if wait_ms > 0 or of_topic is None:
            self.leave_queue()
            return wait_ms
        return self._wait_for_turn_ms(of_topic.wait_ms(now_ms))

    def why_not(self) -> Reason:
        """Return the rate limit that delays dispatch now. Leaves the queue unchanged, unlike `wait_ms`."""
        of_topic = self._topic.subscriptions.throttle
        for setting, throttle in ("subscription_dispatch_rate", self._throttle), ("dispatch_rate", of_topic):
            wait_ms = 0.0 if throttle is None else throttle.wait_ms(_exact_now_ms())
            if wait_ms > 0:
                return Cause.DISPATCH_RATE(setting=setting, wait_ms=math.ceil(wait_ms))
        return NO_REASON

    def _wait_for_turn_ms(self, wait_ms: float) -> float:
        """Return how long the owner must wait for the topic's rate, and put it into the queue if it must. The
        longest-waiting subscription uses the rate next. Non-persistent topics have no queue."""
        fair_queue = self._topic.subscriptions.fair_queue
        if not self._topic.keeps_messages:
            return wait_ms
        if wait_ms <= 0 and fair_queue.is_next(self._owner):
            fair_queue.leave(self._owner)
            return 0.0
        fair_queue.wait(self._owner)
        if wait_ms <= 0:
            self._wake_next()
        return max(wait_ms, ROUNDING_MS)

    def leave_queue(self) -> None:
        """Leave the topic's queue, because the owner cannot use the topic's rate now, and wake the next subscription if
        the owner was the first."""
        fair_queue = self._topic.subscriptions.fair_queue
        if fair_queue.is_empty:  # nearly always: no rate limit delays the topic
            return
        was_first = fair_queue.first is self._owner
        fair_queue.leave(self._owner)
        if was_first:
            self._wake_next()

    def _wake_next(self) -> None:
        first = self._topic.subscriptions.fair_queue.first
        if first is not None:
            first.schedule()

    def portion(self, read: Read) -> Read:
        """Return the read, limited to the number of entries that may be dispatched now."""
        for throttle in self._throttles:
            read = read._replace(entries_max=throttle.portion(read.entries_max))
        return read

    def reserve(self, read: Read) -> Reservations:
        """Reserve the messages of a read, so that other subscriptions cannot use their share of the rate meanwhile."""
        return [(one, one.reserve(read.entries_max, _exact_now_ms())) for one in self._throttles]

    def release(self, held: Reservations) -> None:
        """Release the reservation of a finished read; `take` then counts the messages that are dispatched."""
        for throttle, reserved in held:
            throttle.release(reserved, _exact_now_ms())
        self._wake_next()

    def take(self, entries: Sequence[StoredEntry], deliveries: Sequence[Delivery]) -> None:
        """Count deliveries against the rate limits."""
        messages = sum(max(1, entries[index].messages) for _, index, _, _ in deliveries)
        size_bytes = sum(len(entries[index].data) for _, index, _, _ in deliveries)
        for throttle in self._throttles:
            throttle.take(messages, size_bytes, _exact_now_ms())


def _exact_now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
