"""Hands the messages of one subscription to its consumers: reads what the dispatcher wants, writes what it decides, as
fast as rates allow."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from emulator.core.dispatch import ConsumerState, Delivery, Dispatcher, Read, Wake
from emulator.core.pace import Pace
from emulator.errors import StorageError
from emulator.wire.codec import message_header

if TYPE_CHECKING:
    from emulator.broker.subscription.consumer import Consumer
    from emulator.broker.topic.tail import StoredEntry
    from emulator.broker.topic.traffic import Traffic
    from emulator.broker.topic.view import Readable, SubscriptionHost

READ_BYTES = 4_194_304
ROUNDING_SECONDS = 0.001
READS_PER_PUMP = 8
"""How many batches one subscription may hand out before others get the loop."""


class Served(Protocol):
    """The subscription, as this part needs it."""

    name: str
    dispatcher: Dispatcher
    consumers: dict[ConsumerState, Consumer]
    sent: Traffic
    sent_ms: int
    closed: bool

    @property
    def topic(self) -> SubscriptionHost: ...

    @property
    def source(self) -> Readable:
        """Where messages are read."""
        ...

    @property
    def is_seeking(self) -> bool:
        """Nothing is handed out meanwhile."""
        ...

    @property
    def is_settling(self) -> bool:
        """Nor is it now; it goes on by itself."""
        ...

    def handed_out(self) -> None:
        """The cursor may have moved."""
        ...


class HandingOut:
    """Owned by its Subscription."""

    def __init__(self, subscription: Served) -> None:
        self._subscription = subscription
        self._topic = topic = subscription.topic
        self._wall_clock_ms = topic.region.environment.wall_clock_ms
        self._throttle_of = topic.region.environment.parts.throttle_of
        self._throttle = self._throttle_of(topic.subscription_rate, asyncio.get_running_loop().time() * 1000)
        self._reading = False
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        """Set when dispatch can go on at a known time."""

    def schedule(self) -> None:
        """Go on in a moment."""
        if not self._is_scheduled and not self._subscription.closed:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Hand out everything that can be handed out without waiting; start a read if the store must be asked."""
        subscription = self._subscription
        if self._reading or subscription.closed or subscription.is_seeking or subscription.is_settling:
            self._topic.dispatch_turns.leave(self)
            return
        for _ in range(READS_PER_PUMP):
            if self._has_to_wait():
                break
            match subscription.dispatcher.next(self._topic.readable_end, _now_ms(), self._wall_clock_ms()):
                case Read() as read:
                    read = self._portion(read)
                    entries = subscription.source.recent(read.from_entry_id, read.entries_max)
                    if entries is None:
                        self._reading = True
                        self._topic.region.spawn(self._read_and_deliver(read))
                        break
                    self._deliver(read, entries)
                case Wake(at_ms):
                    self._wake_at(at_ms)
                    break
                case None:
                    break
        else:
            self.schedule()
        subscription.handed_out()

    def _wake_at(self, at_ms: int) -> None:
        loop = asyncio.get_running_loop()
        # The numbers are rounded down: asked too early once, dispatch would be asked again at once and for ever.
        at = max(at_ms / 1000, loop.time() + ROUNDING_SECONDS)
        if self._timer is not None:
            if self._timer.when() <= at:
                return  # it asks again then
            self._timer.cancel()
        self._timer = loop.call_at(at, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self.pump()

    async def _read_and_deliver(self, read: Read) -> None:
        try:
            entries = await self._subscription.source.read(read.from_entry_id, read.entries_max, READ_BYTES)
        except StorageError as failure:
            self._topic.failed(failure)
            return
        finally:
            self._reading = False
        if self._subscription.closed:
            return
        if not entries or not self._has_to_wait():  # another subscription may have used up the rate of both
            self._deliver(read, entries[: self._portion(read).entries_max])
            self._subscription.handed_out()
        self.schedule()

    def _deliver(self, read: Read, entries: list[StoredEntry]) -> None:
        deliveries = self._subscription.dispatcher.offer(read, entries, self._wall_clock_ms())
        if deliveries:
            if self._throttle is not None or self._topic.dispatch_throttle is not None:
                self._count(entries, deliveries)
            self._write(entries, deliveries)
        self._topic.entries_read(self._subscription.name, entries)

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

    # How fast.

    def set_rate(self, rate: Pace) -> None:
        """From now on hand out no more than that."""
        self._throttle = self._throttle_of(rate, asyncio.get_running_loop().time() * 1000)
        self.limits_changed()

    def _has_to_wait(self) -> bool:
        """Whether nothing may be handed out now; then it goes on by itself."""
        mine, topics = self._throttle, self._topic.dispatch_throttle
        if mine is None and topics is None:
            return False
        now_ms = asyncio.get_running_loop().time() * 1000
        wait_ms = 0.0 if mine is None else mine.wait_ms(now_ms)
        if wait_ms > 0 or topics is None:
            self._topic.dispatch_turns.leave(self)
        else:
            wait_ms = self._wait_for_turn_ms(topics.wait_ms(now_ms))
        if wait_ms > 0:
            self._wake_at(math.ceil(now_ms + wait_ms))
        return wait_ms > 0

    def _wait_for_turn_ms(self, wait_ms: float) -> float:
        """What the topic allows goes to who has waited longest for it; where nothing is kept nobody waits."""
        turns = self._topic.dispatch_turns
        if wait_ms <= 0 and (turns.is_next(self) or not self._topic.keeps_messages):
            turns.leave(self)
            return 0.0
        turns.wait(self)
        if wait_ms <= 0 and turns.first is not None:
            turns.first.schedule()
        return max(wait_ms, ROUNDING_SECONDS * 1000)

    def _portion(self, read: Read) -> Read:
        """No more than may go now."""
        for throttle in (self._throttle, self._topic.dispatch_throttle):
            if throttle is not None:
                read = read._replace(entries_max=throttle.portion(read.entries_max))
        return read

    def _count(self, entries: list[StoredEntry], deliveries: list[Delivery]) -> None:
        now_ms = asyncio.get_running_loop().time() * 1000
        messages = sum(max(1, entries[index].messages) for _, index, _, _ in deliveries)
        size_bytes = sum(len(entries[index].data) for _, index, _, _ in deliveries)
        for throttle in (self._throttle, self._topic.dispatch_throttle):
            if throttle is not None:
                throttle.take(messages, size_bytes, now_ms)

    def limits_changed(self) -> None:
        """Of the topic."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.schedule()

    def close(self) -> None:
        """Nothing more; what is being read is thrown away."""
        self._topic.dispatch_turns.leave(self)
        if self._timer is not None:
            self._timer.cancel()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
