"""One subscription of a topic: the shell around a Cursor and a Dispatcher.

Reads what the dispatcher wants, writes what it decides, keeps the cursor durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.keeper import StateKeeper
from emulator.core.cursor import Cursor
from emulator.core.dispatch import ConsumerState, Delivery, Dispatcher, ReadEntry, SubscriptionType
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.wire.codec import message_header

if TYPE_CHECKING:
    from emulator.broker.tail import StoredEntry
    from emulator.broker.topic import Topic

CURSOR_WRITE_DELAY_SECONDS = 0.02
"""How long acknowledgements nobody waits for may gather before they are written."""
READ_BYTES = 4_194_304
READS_PER_PUMP = 8
"""How many batches one subscription may hand out before others get the loop."""


def cursor_key(topic: str, subscription: str) -> str:
    """Key of a durable subscription's cursor in the store."""
    return f"cursor/{topic}/{subscription}"


class ConsumerConnection(Protocol):
    """A client's connection, as its consumers see it."""

    address: str
    client_version: str

    def write(self, data: bytes) -> None: ...

    def send_active_consumer_change(self, consumer_id: int, is_active: bool) -> None: ...

    def close_consumer(self, consumer: Consumer) -> None: ...

    def forget_consumer(self, consumer: Consumer) -> None: ...

    async def is_alive(self, within_seconds: float) -> bool: ...

    def abort(self) -> None: ...


class Consumer:
    """One consumer on one connection."""

    def __init__(
        self,
        connection: ConsumerConnection,
        consumer_id: int,
        subscription: Subscription,
        state: ConsumerState,
        epoch: int | None,
    ) -> None:
        self.connection = connection
        self.consumer_id = consumer_id
        self.subscription = subscription
        self.state = state
        self.epoch = epoch
        """Told by the client; MESSAGEs carry it so that it can drop older ones after a redelivery."""


class Subscription:
    """Owned by its Topic."""

    def __init__(self, topic: Topic, name: str, cursor: Cursor, *, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor
        self.durable = durable
        self.consumers: dict[ConsumerState, Consumer] = {}
        self.dispatcher = Dispatcher(
            cursor,
            max_unacked_messages_per_consumer=topic.region.config.settings.max_unacked_messages_per_consumer,
        )
        self._keeper = StateKeeper(
            topic.region.store, cursor_key(topic.full_name, name), cursor.to_bytes, self._not_written
        )
        self._reading = False
        self._pump_scheduled = False
        self._mark_delete_seen = cursor.mark_delete
        self._version_written = cursor.version
        self._paused_until = 0.0
        """Loop time before which a newly active Failover consumer gets nothing."""
        self.closed = False

    # Consumers.

    def attach(self, consumer: Consumer, type_: SubscriptionType) -> None:
        """Admit a consumer. ProtocolError when the subscription cannot take it."""
        had_active = self.dispatcher.active is not None
        changed = self.dispatcher.add_consumer(consumer.state, type_)
        self.consumers[consumer.state] = consumer
        if type_ is SubscriptionType.FAILOVER:
            if changed and had_active:
                self._pause_for_failover()
            self._tell_active(None if changed else consumer)

    def detach(self, consumer: Consumer) -> None:
        """A consumer left, gently or not."""
        if self.consumers.pop(consumer.state, None) is None:
            return
        changed = self.dispatcher.remove_consumer(consumer.state)
        if changed and self.dispatcher.type is SubscriptionType.FAILOVER:
            self._tell_active(None)
        if not self.consumers and not self.durable:
            self.topic.subscriptions.pop(self.name, None)
            self.close()
        self.schedule_pump()

    def _pause_for_failover(self) -> None:
        """The one before is still connected and may be acknowledging: give it a moment (facts 4.9)."""
        loop = asyncio.get_running_loop()
        delay = self.topic.region.config.settings.failover_delay_ms / 1000
        self._paused_until = loop.time() + delay
        loop.call_later(delay, self.schedule_pump)

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
        if self._reading or self.closed or not self.consumers or self._is_paused():
            return
        for _ in range(READS_PER_PUMP):
            want = self.dispatcher.wants(self.topic.end_entry_id)
            if want is None:
                break
            entries = self.topic.tail.read(want.from_entry_id, want.entries_max)
            if entries is None:
                self._reading = True
                self.topic.region.spawn(self._read_and_deliver(want.from_entry_id, want.entries_max))
                break
            self._deliver(want.from_entry_id, entries)
        else:
            self.schedule_pump()
        self._changed()

    def _is_paused(self) -> bool:
        return self._paused_until > 0 and asyncio.get_running_loop().time() < self._paused_until

    async def _read_and_deliver(self, from_entry_id: int, entries_max: int) -> None:
        try:
            entries = await self.topic.read(from_entry_id, entries_max, READ_BYTES)
        except StorageError as failure:
            self.topic.failed(failure)
            return
        finally:
            self._reading = False
        if not self.closed:
            self._deliver(from_entry_id, entries)
            self._changed()
            self.schedule_pump()

    def _deliver(self, from_entry_id: int, entries: list[StoredEntry]) -> None:
        first = entries[0].entry_id if entries else self.topic.end_entry_id
        if first > from_entry_id:
            self.dispatcher.nothing_between(from_entry_id, first)
        read = [
            ReadEntry(entry.entry_id, entry.info.num_messages, entry.info.marker_type is not None)
            for entry in entries
        ]
        deliveries = self.dispatcher.assign(from_entry_id, read)
        if deliveries:
            self._write(entries, deliveries)
        if self.topic.sync is not None and self.cursor.replicated:
            self.topic.sync.entries_read(self, entries)

    def _write(self, entries: list[StoredEntry], deliveries: list[Delivery]) -> None:
        ledger_id, partition = self.topic.log.ledger_id, self.topic.name.partition_index
        frames: dict[ConsumerState, list[bytes]] = {}
        for state, index, redelivery_count, ack_set in deliveries:
            entry, consumer = entries[index], self.consumers[state]
            frames.setdefault(state, []).extend(
                (
                    message_header(
                        consumer.consumer_id,
                        ledger_id,
                        entry.entry_id,
                        partition,
                        redelivery_count,
                        ack_set,
                        consumer.epoch,
                        len(entry.data),
                    ),
                    entry.data,
                )
            )
        for state, parts in frames.items():
            self.consumers[state].connection.write(b"".join(parts))

    # What consumers say.

    def flow(self, consumer: Consumer, permits: int) -> None:
        self.dispatcher.flow(consumer.state, permits)
        self.pump()

    def set_blocked(self, consumer: Consumer, *, blocked: bool) -> None:
        consumer.state.blocked = blocked
        if not blocked:
            self.schedule_pump()

    def acknowledge(
        self, consumer: Consumer, ids: Sequence[tuple[int, int, tuple[int, ...] | None]], *, cumulative: bool
    ) -> None:
        """Apply acknowledgements of (ledger, entry, ack_set). Ids of another ledger are not ours any more: ignored."""
        ours = [
            (entry_id, ack_set) for ledger, entry_id, ack_set in ids if ledger == self.topic.log.ledger_id
        ]
        if cumulative:
            if self.dispatcher.type is not SubscriptionType.SHARED:
                self._acknowledge_cumulative(ours)
        else:
            for entry_id, ack_set in ours:
                self._acknowledge_one(consumer.state, entry_id, ack_set)
        self._changed()
        self.schedule_pump_if_unblocked(consumer)

    def schedule_pump_if_unblocked(self, consumer: Consumer) -> None:
        """An acknowledgement can only free a SHARED consumer that was held back by its limit."""
        if self.dispatcher.type is SubscriptionType.SHARED and consumer.state.permits > 0:
            self.schedule_pump()

    def _acknowledge_cumulative(self, ids: Sequence[tuple[int, tuple[int, ...] | None]]) -> None:
        for entry_id, ack_set in ids:
            if entry_id >= self.topic.end_entry_id:
                continue
            if ack_set:
                self.cursor.ack_cumulative_batch(entry_id, ack_set, 64 * len(ack_set))
            else:
                self.cursor.ack_cumulative(entry_id)

    def _acknowledge_one(self, state: ConsumerState, entry_id: int, ack_set: tuple[int, ...] | None) -> None:
        if entry_id >= self.topic.end_entry_id or entry_id < 0:
            return
        if ack_set:
            if not self.cursor.ack_batch(entry_id, ack_set, 64 * len(ack_set)):
                return
        else:
            self.cursor.ack(entry_id)
        self.dispatcher.acked(state, entry_id)

    def redeliver(self, consumer: Consumer, ids: Sequence[tuple[int, int]] | None, epoch: int | None) -> None:
        """None: everything the consumer has not acknowledged."""
        if epoch is not None:
            consumer.epoch = epoch
        entry_ids = None
        if ids:
            entry_ids = [entry for ledger, entry in ids if ledger == self.topic.log.ledger_id]
        self.dispatcher.redeliver(consumer.state, entry_ids)
        self.schedule_pump()

    async def seek(self, next_entry_id: int) -> None:
        """Go on at `next_entry_id`. Durable when it returns; consumers are for the caller to send away."""
        self.cursor.seek(next_entry_id)
        self._mark_delete_seen = self.cursor.mark_delete
        self.dispatcher.rewind()
        if self.topic.sync is not None:
            self.topic.sync.sought(self)
        await self.persisted()

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
            if self.topic.sync is not None and self.cursor.replicated:
                self.topic.sync.mark_delete_moved(self)

    def move(self, change: Callable[[Cursor], object]) -> None:
        """Change the cursor on behalf of others than consumers here (an update of another region, markers)."""
        change(self.cursor)
        if self.cursor.version != self._version_written:
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
        return self.cursor.unacked_count(self.topic.end_entry_id, self.topic.hidden_ids)

    async def delete(self) -> None:
        """UNSUBSCRIBE: forget the subscription for good."""
        self.topic.subscriptions.pop(self.name, None)
        if self.topic.sync is not None:
            self.topic.sync.subscription_deleted(self.name)
        self.close()
        await self.topic.region.store.delete(cursor_key(self.topic.full_name, self.name))

    def close(self) -> None:
        """Serve nobody any more; the cursor stays as it was written last."""
        self.closed = True
        self._keeper.close()


def check_subscription_name(name: str) -> None:
    """ProtocolError for a name that the protocol keeps for itself."""
    if not name or name.startswith("pulsar.repl") or name == "pulsar.dedup":
        raise ProtocolError(ServerError.NotAllowedError, f"subscription name {name!r} is reserved")
