"""Dispatches the messages of one subscription to its consumers: reads what the dispatcher requests and sends what it
decides, as fast as rate limits allow."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from emulator.broker.subscription.dispatch_budget import ROUNDING_MS, Budget, Held
from emulator.core.dispatch import ConsumerState, Delivery, Dispatcher, Read
from emulator.core.flow.rate_limit import RateLimit
from emulator.errors import StorageError
from emulator.model.reasons import Cause, Reason, first_of
from emulator.wire.codec_hot.consuming import message_header

if TYPE_CHECKING:
    from emulator.broker.subscription.consumer import ConnectedConsumer
    from emulator.broker.topic.entry_cache import StoredEntry
    from emulator.broker.topic.metrics import Traffic
    from emulator.broker.topic.view import Readable, SubscriptionHost

READ_BYTES = 4_194_304
READS_PER_PUMP = 8
"""How many batches one subscription may dispatch before other tasks of the event loop run."""


class Served(Protocol):
    """The subscription, as this part needs it."""

    name: str
    dispatcher: Dispatcher
    consumers: dict[ConsumerState, ConnectedConsumer]
    sent: Traffic
    sent_ms: int
    closed: bool

    @property
    def topic(self) -> SubscriptionHost: ...

    @property
    def source(self) -> Readable:
        """Where messages are read from."""
        ...

    @property
    def is_seeking(self) -> bool:
        """A seek is under way: nothing is dispatched meanwhile."""
        ...

    @property
    def is_settling(self) -> bool:
        """A cumulative acknowledgement is being committed: nothing is dispatched until it resumes dispatch itself."""
        ...

    def handed_out(self) -> None:
        """Called after a dispatch: the cursor may have moved."""
        ...

    def backlog(self) -> int: ...

    def unacknowledged_from(self, entry_id: int) -> int:
        """Return the number of backlog entries at or behind this id."""
        ...


class HandingOut:
    """Owned by its Subscription."""

    def __init__(self, subscription: Served) -> None:
        self._subscription = subscription
        self._topic = topic = subscription.topic
        self._wall_clock_ms = topic.region.environment.wall_clock_ms
        self._budget = Budget(topic, self, subscription.name)
        self._reading = False
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        """Set when dispatch resumes at a known time."""

    def schedule(self) -> None:
        """Run `pump` in the next iteration of the event loop."""
        if not self._is_scheduled and not self._subscription.closed:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Dispatch everything that needs no waiting; start a read if the store must be asked."""
        subscription = self._subscription
        if self._reading or subscription.closed or subscription.is_seeking or subscription.is_settling:
            self._budget.give_way()
            return
        for _ in range(READS_PER_PUMP):
            match subscription.dispatcher.next(self._topic.readable_end, _now_ms(), self._wall_clock_ms()):
                case Read() as read:
                    if self._has_to_wait() or not self._go_on(read):
                        break
                case wake:
                    self._budget.give_way()
                    if wake is not None:
                        self._wake_at(wake.at_ms)
                    break
        else:
            self.schedule()
        subscription.handed_out()

    def _go_on(self, read: Read) -> bool:
        """Dispatch this read from memory, or start it. Returns whether it was dispatched at once."""
        read = self._budget.portion(read)
        entries = self._subscription.source.recent(read.from_entry_id, read.entries_max)
        if entries is None:
            self._reading = True
            self._topic.region.spawn(self._read_and_deliver(read, self._budget.reserve(read)))
            return False
        self._deliver(read, entries)
        return True

    def _wake_at(self, at_ms: int) -> None:
        loop = asyncio.get_running_loop()
        # Times are rounded down: a timer that fires too early would fire again at once, for ever.
        at = max(at_ms / 1000, loop.time() + ROUNDING_MS / 1000)
        if self._timer is not None:
            if self._timer.when() <= at:
                return  # dispatch is scheduled again when that ends
            self._timer.cancel()
        self._timer = loop.call_at(at, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self.pump()

    async def _read_and_deliver(self, read: Read, reserved: Held) -> None:
        try:
            entries = await self._subscription.source.read(read.from_entry_id, read.entries_max, READ_BYTES)
        except StorageError as failure:
            self._topic.failed(failure)
            return
        finally:
            self._reading = False
            self._budget.release(reserved)
        if not self._subscription.closed:
            self._deliver(read, entries)
            self._subscription.handed_out()
            self.schedule()

    def _deliver(self, read: Read, entries: list[StoredEntry]) -> None:
        deliveries = self._subscription.dispatcher.offer(read, entries, self._wall_clock_ms())
        if deliveries:
            if self._budget.is_limited:
                self._budget.take(entries, deliveries)
            self._write(entries, deliveries)
        self._topic.subscriptions.entries_read(self._subscription.name, entries)

    def _write(self, entries: list[StoredEntry], deliveries: list[Delivery]) -> None:
        subscription, consumers = self._subscription, self._subscription.consumers
        ledger_id, partition = self._topic.ledger_id, self._topic.name.partition_index
        frames: dict[ConsumerState, list[bytes]] = {}
        for state, index, redelivery_count, ack_set in deliveries:
            entry, consumer = entries[index], consumers[state]
            data, parts = entry.data, frames.get(state)
            if parts is None:
                parts = frames[state] = []
            parts += (
                message_header(
                    consumer.consumer_id,
                    ledger_id,
                    entry.entry_id,
                    partition,
                    redelivery_count,
                    ack_set,
                    consumer.epoch,
                    len(data),
                ),
                data,
            )
        now_ms = self._wall_clock_ms()
        for state, parts in frames.items():
            consumer, frame = consumers[state], b"".join(parts)
            messages = consumer.granted_messages - state.permits - consumer.sent.messages
            consumer.sent.add(messages, len(frame))
            subscription.sent.add(messages, len(frame))
            consumer.sent_ms = subscription.sent_ms = now_ms
            consumer.connection.write(frame)

    # Explanations.

    def why_not(self) -> Reason:
        """Return why connected consumers get no messages; empty when messages are dispatched."""
        subscription, dispatcher = self._subscription, self._subscription.dispatcher
        end, wall_ms = self._topic.readable_end, self._wall_clock_ms()
        if subscription.is_settling:
            return Cause.SETTLING()
        unread = subscription.unacknowledged_from(dispatcher.read_entry_id)
        reasons = [dispatcher.why_not(unread, subscription.backlog() - unread, _now_ms(), wall_ms)]
        if self._reading:
            reasons.append(Cause.READING_MESSAGES())
        if self._reading or isinstance(dispatcher.next(end, _now_ms(), wall_ms), Read):
            reasons.append(self._budget.why_not())
        return first_of(reasons)

    # Rate limits.

    def set_rate(self, rate: RateLimit) -> None:
        """Limit the subscription to this rate from now on."""
        self._budget.set_rate(rate)
        self.limits_changed()

    def _has_to_wait(self) -> bool:
        """Whether a rate limit delays dispatch now; if so, a timer resumes it."""
        wait_ms = self._budget.wait_ms()
        if wait_ms > 0:
            self._wake_at(math.ceil(asyncio.get_running_loop().time() * 1000 + wait_ms))
        return wait_ms > 0

    def limits_changed(self) -> None:
        """The topic's rate limits changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.schedule()

    def close(self) -> None:
        """Stop dispatching; a read that is under way is dropped."""
        self._budget.give_way()
        if self._timer is not None:
            self._timer.cancel()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
