"""One subscription of a topic: the shell around a Cursor and a Dispatcher.

Reads what the dispatcher wants, writes what it decides, keeps the cursor durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from emulator.broker.subscription.consumer import Consumer
from emulator.broker.subscription.stored_cursor import StoredCursor
from emulator.core.cursor import Cursor
from emulator.core.dispatch import (
    ConsumerState,
    Delivery,
    Limits,
    Read,
    SubscriptionType,
    Wake,
)
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.wire.codec import message_header

if TYPE_CHECKING:
    from emulator.broker.topic.tail import StoredEntry
    from emulator.broker.topic.view import SubscriptionHost

CURSOR_WRITE_DELAY_SECONDS = 0.02
"""How long acknowledgements nobody waits for may gather before they are written."""
READ_BYTES = 4_194_304
RETURN_SECONDS = 60.0
"""How long a sought reader's place is kept for it."""
READS_PER_PUMP = 8
"""How many batches one subscription may hand out before others get the loop."""


class Subscription:
    """Owned by its Topic."""

    def __init__(self, topic: SubscriptionHost, name: str, stored: StoredCursor, *, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor = stored.cursor
        self._stored = stored
        self.durable = durable
        self.consumers: dict[ConsumerState, Consumer] = {}
        settings, parts = topic.region.config.settings, topic.region.environment.parts
        self.dispatcher = parts.dispatcher(
            cursor,
            Limits(settings.max_unacked_messages_per_consumer, settings.failover_delay_ms),
            parts.strategy_for,
        )
        self._keeper = parts.keeper(
            topic.region.store, f"cursor {name}", stored.take_changes, self._not_written
        )
        self._reading = False
        self._pump_scheduled = False
        self._mark_delete_seen = cursor.mark_delete
        self._version_written = cursor.version
        self._timer: asyncio.TimerHandle | None = None
        """Set when dispatch can go on at a known time."""
        self._waiting: asyncio.TimerHandle | None = None
        """Set while the subscription outlives its last consumer, which was sent away by a seek."""
        self._seeks = 0
        """Under way."""
        self._ended = asyncio.Event()
        self._deleting = False
        self.closed = False

    # Consumers.

    def attach(self, consumer: Consumer, type_: SubscriptionType) -> None:
        """Admit a consumer. ProtocolError when the subscription cannot take it."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        before = self.dispatcher.active
        self.dispatcher.joined(consumer.state, type_, _now_ms())
        self.consumers[consumer.state] = consumer
        self._stop_waiting()
        if type_ is SubscriptionType.FAILOVER:
            self._tell_active(None if self.dispatcher.active is not before else consumer)

    def detach(self, consumer: Consumer) -> None:
        """A consumer left, gently or not."""
        if self.consumers.pop(consumer.state, None) is None:
            return
        before = self.dispatcher.active
        self.dispatcher.left(consumer.state)
        if self.dispatcher.type is SubscriptionType.FAILOVER and self.dispatcher.active is not before:
            self._tell_active(None)
        self._end_if_abandoned()
        self.schedule_pump()

    def _tell_active(self, only: Consumer | None) -> None:
        """ACTIVE_CONSUMER_CHANGE: to everybody when the active one changed, else to the newcomer."""
        for state, consumer in self.consumers.items():
            if only is None or consumer is only:
                consumer.connection.send_active_consumer_change(
                    consumer.consumer_id, state is self.dispatcher.active
                )

    def close_consumers(self) -> None:
        """Send every consumer away; clients come back by themselves."""
        for consumer in list(self.consumers.values()):
            consumer.connection.close_consumer(consumer)

    # Handing out.

    def schedule_pump(self) -> None:
        if not self._pump_scheduled and not self.closed:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled_pump)

    def _run_scheduled_pump(self) -> None:
        self._pump_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Hand out everything that can be handed out without waiting; start a read if the store must be asked."""
        if self._reading or self.closed or self._seeks:
            return
        for _ in range(READS_PER_PUMP):
            match self.dispatcher.next(self.topic.readable_end, _now_ms()):
                case Read() as read:
                    entries = self.topic.recent(read.from_entry_id, read.entries_max)
                    if entries is None:
                        self._reading = True
                        self.topic.region.spawn(self._read_and_deliver(read))
                        break
                    self._deliver(read, entries)
                case Wake(at_ms):
                    self._wake_at(at_ms)
                    break
                case None:
                    break
        else:
            self.schedule_pump()
        self._changed()

    def _wake_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at_ms / 1000, self.pump)

    async def _read_and_deliver(self, read: Read) -> None:
        try:
            entries = await self.topic.read(read.from_entry_id, read.entries_max, READ_BYTES)
        except StorageError as failure:
            self.topic.failed(failure)
            return
        finally:
            self._reading = False
        if not self.closed:
            self._deliver(read, entries)
            self._changed()
            self.schedule_pump()

    def _deliver(self, read: Read, entries: list[StoredEntry]) -> None:
        deliveries = self.dispatcher.offer(read, entries)
        if deliveries:
            self._write(entries, deliveries)
        self.topic.entries_read(self.name, entries)

    def _write(self, entries: list[StoredEntry], deliveries: list[Delivery]) -> None:
        ledger_id, partition = self.topic.ledger_id, self.topic.name.partition_index
        frames: dict[ConsumerState, list[bytes]] = {}
        for state, index, redelivery_count, ack_set in deliveries:
            entry, consumer = entries[index], self.consumers[state]
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
        for state, parts in frames.items():
            self.consumers[state].connection.write(b"".join(parts))

    # What consumers say.

    def flow(self, consumer: Consumer, permits: int) -> None:
        self.dispatcher.flow(consumer.state, permits)
        self.pump()

    def set_blocked(self, consumer: Consumer, *, blocked: bool) -> None:
        self.dispatcher.blocked(consumer.state, blocked=blocked)
        if not blocked:
            self.schedule_pump()

    def acknowledge(
        self, consumer: Consumer, ids: Sequence[tuple[int, int, tuple[int, ...] | None]], *, cumulative: bool
    ) -> None:
        """Apply acknowledgements of (ledger, entry, ack_set). Ids of another ledger are not ours any more: ignored."""
        if self._seeks:
            return
        ours = [(entry_id, ack_set) for ledger, entry_id, ack_set in ids if ledger == self.topic.ledger_id]
        end_entry_id = self.topic.readable_end
        if cumulative:
            self.dispatcher.acknowledge_cumulative(ours, end_entry_id)
        else:
            self.dispatcher.acknowledge(consumer.state, ours, end_entry_id)
        self._changed()
        self.schedule_pump_if_unblocked(consumer)

    def schedule_pump_if_unblocked(self, consumer: Consumer) -> None:
        """An acknowledgement can free a SHARED consumer that was held back by its limit, and the keys that others wait
        for in a KEY_SHARED subscription."""
        type_ = self.dispatcher.type
        if type_ is SubscriptionType.KEY_SHARED or (
            type_ is SubscriptionType.SHARED and consumer.state.permits > 0
        ):
            self.schedule_pump()

    def redeliver(self, consumer: Consumer, ids: Sequence[tuple[int, int]] | None, epoch: int | None) -> None:
        """None: everything the consumer has not acknowledged."""
        if epoch is not None:
            consumer.epoch = epoch
        entry_ids = None
        if ids:
            entry_ids = [entry for ledger, entry in ids if ledger == self.topic.ledger_id]
        self.dispatcher.returned(consumer.state, entry_ids)
        self.schedule_pump()

    async def seek(self, next_entry_id: int) -> None:
        """Go on at `next_entry_id`. Durable when it returns, and every consumer was just sent away: an answer that
        follows at once arrives before they are back. Meanwhile nothing is handed out, and what consumers
        acknowledge belongs to the place before."""
        self._seeks += 1
        try:
            self.cursor.seek(next_entry_id)
            self._mark_delete_seen = self.cursor.mark_delete
            self.dispatcher.rewound()
            self.topic.sought(self.name)
            await self.persisted()
        finally:
            self._seeks -= 1
        self._expect_return()
        self.close_consumers()

    def _expect_return(self) -> None:
        """A reader that seeks is sent away and comes back: what it sought must still be there."""
        if not self.durable:
            self._stop_waiting()
            self._waiting = asyncio.get_running_loop().call_later(RETURN_SECONDS, self._stop_waiting)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
            self._end_if_abandoned()

    def _end_if_abandoned(self) -> None:
        """One that is not durable ends with its last consumer."""
        if not self.durable and not self.consumers and self._waiting is None and not self.closed:
            self.close()
            self.topic.subscription_ended(self.name)

    # The cursor.

    def _changed(self) -> None:
        """Have the cursor written, and act on a mark-delete that moved."""
        if self.cursor.version == self._version_written:
            return
        self._version_written = self.cursor.version
        if self.durable:
            self._keeper.soon(CURSOR_WRITE_DELAY_SECONDS)
        if self.cursor.mark_delete != self._mark_delete_seen:
            self._mark_delete_seen = self.cursor.mark_delete
            self.topic.mark_delete_moved(self.name)

    def move(self, change: Callable[[Cursor], object]) -> None:
        """Change the cursor on behalf of others than consumers here (an update of another region, markers)."""
        change(self.cursor)
        if self.cursor.version != self._version_written:
            self.dispatcher.moved()
            self._mark_delete_seen = self.cursor.mark_delete
            self._changed()
            self.schedule_pump()

    async def persisted(self) -> None:
        """Wait until the cursor as it is now is durable. At once for a subscription that is not."""
        if self.durable:
            await self._keeper.now()

    async def flush(self) -> None:
        """Write what is pending."""
        pending = self._keeper.flush()
        if pending is not None:
            await pending

    async def settled(self) -> None:
        """After `close`: wait until what is being written has its outcome."""
        await self._keeper.settled()

    def _not_written(self, failure: BaseException) -> None:
        self.topic.failed(failure)

    def backlog(self) -> int:
        """Entries a consumer would still get; markers are none."""
        return self.cursor.unacked_count(self.topic.readable_end, self.topic.hidden_ids)

    async def delete(self) -> None:
        """UNSUBSCRIBE: forget the subscription for good. Until that is durable its name stays taken, so that nothing of
        it becomes part of a new subscription. It goes on when the one that asked for it goes away: half a deletion
        would keep the name for ever."""
        self._deleting = True
        self.close()
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.topic.region.spawn(self._delete(outcome))
        await outcome

    async def _delete(self, outcome: asyncio.Future[None]) -> None:
        try:
            await self.settled()
            if self.durable:
                await self._stored.delete(self.topic.region.store)
            self.topic.subscription_ended(self.name)
            if not outcome.done():
                outcome.set_result(None)
        except StorageError as failure:
            self.topic.failed(failure)
            if not outcome.done():
                outcome.set_exception(failure)
        finally:
            self._ended.set()

    async def ended(self) -> None:
        """After `close`: wait until the name is free, or the topic is."""
        await self._ended.wait()

    def close(self) -> None:
        """Serve nobody any more; the cursor stays as it was written last."""
        self.closed = True
        for timer in (self._timer, self._waiting):
            if timer is not None:
                timer.cancel()
        self._keeper.close()
        if not self._deleting:
            self._ended.set()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def check_subscription_name(name: str) -> None:
    """ProtocolError for a name that the protocol keeps for itself."""
    if not name or name.startswith("pulsar.repl") or name == "pulsar.dedup":
        raise ProtocolError(ServerError.NotAllowedError, f"subscription name {name!r} is reserved")
