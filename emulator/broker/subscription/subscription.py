"""One subscription of a topic: connects a Cursor and a Dispatcher to the broker.

`Subscription` admits consumers and applies their commands. Its parts send messages (`dispatch_loop.py`), keep the
cursor durable (`cursor_store.py`), hold acknowledgements of transactions (`pending_acks.py`) and end the subscription
(`lifetime.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Final

from emulator.broker.subscription.consumer import ActiveConsumerNotifier, ConnectedConsumer
from emulator.broker.subscription.cursor_store import DurableCursor, StoredCursor
from emulator.broker.subscription.dispatch_loop import DispatchLoop
from emulator.broker.subscription.lifetime import SubscriptionLifetime
from emulator.broker.subscription.pending_acks import PendingAcksOfSubscription
from emulator.broker.topic.metrics import Traffic
from emulator.core.cursor.cursor import WORD_BITS, Cursor
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.core.transactions.pending_acks import ClaimedAck, furthest
from emulator.errors import GoneMeanwhile, ProtocolError, ServerError
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.transaction_names import TxnId
from emulator.wire.commands import ReachedEndOfTopic

if TYPE_CHECKING:
    from emulator.broker.topic.reading import Readable
    from emulator.broker.topic.view import TopicView

USUAL_WORDS: Final = 16
"""Words of an ack set up to which the entry's batch size is not looked up: enough for clients' default batches (1,000
messages)."""
WORDS_MAX: Final = 256
"""Maximum number of words of an ack set for an entry that is not in memory. A frame with a message of the largest size
has room for as many."""


class Subscription:
    """A subscription of one topic, which owns it."""

    def __init__(self, topic: TopicView, name: str, stored: StoredCursor, *, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.cursor = stored.cursor
        self.durable = durable
        self.stored_cursor = DurableCursor(topic, stored, durable=durable)
        self.skipped = 0
        """Number of ids by which TTL, backlog eviction and truncation moved the cursor since the topic was loaded."""
        self.consumers: dict[ConsumerState, ConnectedConsumer] = {}
        components = topic.region.environment.components
        self.dispatcher = components.subscriptions.dispatcher(
            self.cursor, topic.subscriptions.limits, components.subscriptions.strategy_for
        )
        self.pending_acks: PendingAcksOfSubscription | None = None
        """Pending acknowledgements of transactions; None: none was stored, and no transaction has acknowledged here
        since the topic was loaded."""
        self.sent = Traffic(asyncio.get_running_loop().time())
        """Traffic to all consumers of the subscription."""
        self.sent_ms = self.flow_ms = self.acked_ms = 0
        """Times of the last dispatch, FLOW and ACK of all consumers, by the region's clock; 0: none since the topic was
        loaded."""
        self.source: Readable = topic.reading
        """Source of the messages: the topic, or its compacted form."""
        self.seeks = 0
        """Number of seeks in progress. Acknowledgements received meanwhile are ignored, and those of transactions are
        rejected: they belong to the former position."""
        self.closed = False
        self.dispatch_loop = DispatchLoop(self)
        self.lifetime = SubscriptionLifetime(self)
        self._active_consumer = ActiveConsumerNotifier(self)

    # Consumers.

    def attach(self, consumer: ConnectedConsumer, type_: SubscriptionType) -> None:
        """Admit a consumer. ProtocolError when the subscription cannot accept it."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        before = self.dispatcher.strategy.active
        self.dispatcher.joined(consumer.state, type_, _now_ms())
        self.consumers[consumer.state] = consumer
        self.lifetime.stop_waiting()
        if self.topic.is_over:
            self.dispatch_loop.schedule()
        self._choose_source()
        if type_ is SubscriptionType.FAILOVER:
            self._active_consumer.notify_if_changed(before, consumer)

    def detach(self, consumer: ConnectedConsumer) -> None:
        """Remove a consumer whose client closed it or whose connection was lost."""
        if self.consumers.pop(consumer.state, None) is None:
            return
        before = self.dispatcher.strategy.active
        self.dispatcher.strategy.left(consumer.state, _now_ms())
        self._choose_source()
        if self.dispatcher.type is SubscriptionType.FAILOVER:
            self._active_consumer.notify_if_changed(before, None)
        self.lifetime.end_if_abandoned()
        if not self.consumers and not self.closed:
            self.topic.subscriptions.consumers_left(self.name)
        self.dispatch_loop.schedule()

    def _choose_source(self) -> None:
        """Read from the compacted topic if the active consumer requests it. Such a consumer is the only active one."""
        active = self.dispatcher.strategy.active
        compacted = active is not None and self.consumers[active].reads_compacted
        self.source = self.topic.compacted if compacted else self.topic.reading

    def close_consumers(self) -> None:
        """Disconnect all consumers; clients reconnect by themselves."""
        for consumer in list(self.consumers.values()):
            consumer.connection.close_consumer(consumer)

    # Dispatch.

    @property
    def is_settling(self) -> bool:
        """Whether a commit is being applied: see `PendingAcksOfSubscription.is_settling`."""
        return self.pending_acks is not None and self.pending_acks.is_settling()

    def pauses_dispatch(self) -> bool:
        """Return whether a commit pauses dispatch: see `PendingAcksOfSubscription.pauses_dispatch`."""
        return self.pending_acks is not None and self.pending_acks.pauses_dispatch()

    def dispatched(self) -> None:
        """Schedule a write of the cursor, which may have passed markers, and notify consumers if the topic has ended.
        Called after each round of the dispatch loop, even if nothing was sent."""
        self.stored_cursor.changed()
        if self.topic.is_over:
            self.notify_end_of_topic()

    def notify_end_of_topic(self) -> None:
        """Send REACHED_END_OF_TOPIC, once per consumer, if the topic is terminated and the subscription has no backlog
        left."""
        if self.closed or not self.topic.is_over or self.backlog():
            return
        for consumer in self.consumers.values():
            if not consumer.end_notified:
                consumer.end_notified = True
                consumer.connection.answer(ReachedEndOfTopic(consumer.consumer_id).encode())

    # Commands of consumers.

    def flow(self, consumer: ConnectedConsumer, permits: int) -> None:
        consumer.granted_messages += permits
        consumer.flow_ms = self.flow_ms = consumer.connection.read_ms
        self.dispatcher.strategy.flow(consumer.state, permits)
        self.dispatch_loop.pump()

    def set_blocked(self, consumer: ConnectedConsumer, *, blocked: bool) -> None:
        self.dispatcher.strategy.blocked(consumer.state, blocked=blocked)
        if not blocked:
            self.dispatch_loop.schedule()

    def acknowledge(
        self,
        consumer: ConnectedConsumer,
        ids: Sequence[tuple[int, int, tuple[int, ...] | None]],
        *,
        cumulative: bool,
    ) -> None:
        """Apply acknowledgements of (ledger, entry, ack_set). Ignored: ids of another ledger, which are outdated, and
        everything during a seek. ProtocolError: none of them is applied."""
        if self.seeks:
            return
        held = consumer.state.pending.by_entry
        acked = [
            (entry_id, ack_set and within_batch(self.topic, entry_id, ack_set, held))
            for ledger, entry_id, ack_set in ids
            if ledger == self.topic.ledger_id
        ]
        consumer.acked_ms = self.acked_ms = now_ms = consumer.connection.read_ms
        end_entry_id = self.topic.state.readable_end
        if cumulative:
            self.dispatcher.acknowledge_cumulative(acked, end_entry_id)
        else:
            self.dispatcher.acknowledge(consumer.state, acked, end_entry_id)
        self._acknowledged(now_ms)

    def acknowledge_runs(
        self, consumer: ConnectedConsumer, ledger_id: int, runs: Sequence[tuple[int, int]]
    ) -> None:
        """Apply individual acknowledgements of whole entries of one ledger as `acknowledge` does one by one. `runs`:
        (first, last) entry id, both included; none is negative."""
        if self.seeks:
            return
        if self.cursor.replicated:
            # Each snapshot that mark-delete passes is sent to other regions: it must not be moved past several at once.
            for first, last in runs:
                for entry_id in range(first, last + 1):
                    self.acknowledge(consumer, ((ledger_id, entry_id, None),), cumulative=False)
            return
        consumer.acked_ms = self.acked_ms = now_ms = consumer.connection.read_ms
        if ledger_id == self.topic.ledger_id:
            self.dispatcher.acknowledge_runs(consumer.state, runs, self.topic.state.readable_end)
        self._acknowledged(now_ms)

    def _acknowledged(self, now_ms: int) -> None:
        """Handle what acknowledgements changed."""
        self.stored_cursor.changed(now_ms)
        self.dispatch_loop.schedule_if_unblocked()
        if self.topic.is_over:
            self.notify_end_of_topic()

    def acknowledge_in_transaction(
        self,
        consumer: ConnectedConsumer,
        txn: TxnId,
        ids: Sequence[tuple[int, ClaimedAck]],
        *,
        cumulative: bool,
    ) -> None:
        """Hold acknowledgements (ledger, claim) for an open transaction; of cumulative ones the furthest, which covers
        the others. ProtocolError: none of them is held."""
        topic = self.topic
        topic.region.coordinators.check_acknowledge(txn, topic.full_name, self.name)
        if self.seeks:
            raise ProtocolError(
                ServerError.ServiceNotReady, f"a seek of subscription {self.name} is in progress"
            )
        end_entry_id = topic.state.readable_end
        claims = [
            claim for ledger, claim in ids if ledger == topic.ledger_id and 0 <= claim.entry_id < end_entry_id
        ]
        if len(claims) < len(ids):
            raise ProtocolError(
                ServerError.NotAllowedError, "an entry was acknowledged that was not dispatched"
            )
        consumer.acked_ms = self.acked_ms = topic.region.environment.wall_clock_ms()
        if self.pending_acks is None:
            self.pending_acks = PendingAcksOfSubscription(self)
        if not cumulative:
            self.pending_acks.acknowledge(consumer.state, txn, claims)
        elif self.dispatcher.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise ProtocolError(
                ServerError.NotAllowedError, "a shared subscription cannot be acknowledged cumulatively"
            )
        elif claims:
            self.pending_acks.acknowledge_cumulative(txn, furthest(claims))
        self.dispatch_loop.schedule_if_unblocked()

    async def end_subscription(self, txn: TxnId, committed: bool, low_watermark: int) -> None:
        """Apply the acknowledgements of a committed transaction, durably when it returns, or redeliver the messages of
        an aborted one. ProtocolError, StorageError."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        if self.pending_acks is not None:
            await self.pending_acks.end(txn, committed=committed)
            self.pending_acks.end_orphans_up_to(txn.most, low_watermark)

    def redeliver(
        self, consumer: ConnectedConsumer, ids: Sequence[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        """Redeliver messages by their ids; None: all that the consumer has not acknowledged."""
        if epoch is not None:
            consumer.epoch = epoch
        entry_ids = None
        if ids:
            entry_ids = [entry for ledger, entry in ids if ledger == self.topic.ledger_id]
        self.dispatcher.strategy.returned(consumer.state, entry_ids)
        self.dispatch_loop.schedule()

    async def seek(self, next_entry_id: int, ack_set: Sequence[int] = ()) -> None:
        """Reset the cursor to `next_entry_id`; `ack_set`, if given, names the messages of that entry that remain
        unacknowledged. When this returns, the cursor is durable and all consumers have just been disconnected: a
        response sent at once arrives before they reconnect. Until then nothing is dispatched, and no acknowledgement is
        applied. ProtocolError, before any change, when the subscription is closed or `ack_set` is too large.
        StorageError when the cursor may not be durable."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        open_messages = within_batch(self.topic, next_entry_id, tuple(ack_set))
        self.seeks += 1
        try:
            self.cursor.seek(next_entry_id, self.topic.state.stored_end)
            if open_messages:
                self.cursor.ack_batch(next_entry_id, open_messages, WORD_BITS * len(open_messages))
            if self.pending_acks is not None:
                self.pending_acks.cursor_reset()
            self.stored_cursor.ignore_move()
            self.dispatcher.strategy.rewound()
            self.topic.subscriptions.cursor_reset(self.name)
            await self.persisted()
        finally:
            # The cursor has moved even if the requesting client disconnected meanwhile.
            self.seeks -= 1
            self.lifetime.expect_return()
            self.close_consumers()

    # The cursor.

    def move(self, change: Callable[[Cursor], object]) -> None:
        """Change the cursor for another reason than an acknowledgement, such as an update of another region. If that
        changed it, schedule a write and resume dispatch."""
        change(self.cursor)
        if self.stored_cursor.is_changed:
            self.dispatcher.strategy.moved()
            self.stored_cursor.ignore_move()
            self.stored_cursor.changed()
            self.dispatch_loop.schedule()

    def pass_markers(self) -> None:
        """Move mark-delete past the markers that directly follow it. The consumers may have left before the dispatcher
        read these, so that only this move reaches a snapshot: its position is sent (INV-128)."""
        before = self.cursor.mark_delete
        self.move(lambda cursor: cursor.ack_hidden(self.topic.state.visibility.hidden))
        if self.cursor.mark_delete != before:
            self.topic.subscriptions.mark_delete_moved(self.name)

    async def persisted(self) -> None:
        """Wait until the cursor and pending acknowledgements are durable. Return at once if the subscription is not
        durable. StorageError."""
        await self.stored_cursor.persisted()
        if self.durable and self.pending_acks is not None:
            await self.pending_acks.persisted()

    async def flush(self) -> None:
        """Write pending changes, unless the subscription is being deleted. StorageError."""
        try:
            await self.stored_cursor.flush()
        except GoneMeanwhile:
            if self.topic.closed or not self.closed:
                raise
            return
        if self.pending_acks is not None:
            await self.pending_acks.persisted()

    async def settled(self) -> None:
        """After `close`: wait until the pending write is durable or has failed."""
        await self.stored_cursor.settled()
        if self.pending_acks is not None:
            await self.pending_acks.settled()

    def backlog(self) -> int:
        """Return the number of readable entries that are not acknowledged, dispatched ones included. Markers and
        messages of aborted transactions are not counted."""
        return self.cursor.unacked_count(self.topic.state.readable_end, self.topic.state.visibility.hidden)

    def why_not(self) -> Reason:
        """Return why the backlog is not consumed; NO_REASON when there is none, or it is being dispatched."""
        if self.seeks:
            return Cause.SEEKING()
        if not self.backlog():
            return NO_REASON
        if not self.consumers:
            return Cause.NO_CONSUMER()
        reason = self.dispatch_loop.why_not()
        return reason if reason or self.pending_acks is None else self.pending_acks.why_held()

    async def delete(self) -> None:
        """Delete the subscription for good. Its name stays in use until the deletion is durable, so that no stored rows
        become part of a new subscription. The deletion continues when the requesting client disconnects: an unfinished
        deletion would block the name for ever. Concurrent requests wait for the same deletion: a second one could
        delete a new subscription of this name. StorageError."""
        await self.lifetime.delete()

    async def delete_stored(self) -> None:
        """Delete the stored cursor and pending acknowledgements. StorageError."""
        await self.stored_cursor.delete()
        if self.pending_acks is not None:
            await self.pending_acks.delete(self.topic.region.store)

    def close(self) -> None:
        """Stop serving consumers. The stored cursor stays as last written: pending changes are dropped."""
        self.closed = True
        self.dispatch_loop.close()
        self._active_consumer.close()
        self.stored_cursor.close()
        if self.pending_acks is not None:
            self.pending_acks.close()
        self.lifetime.close()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def check_subscription_name(name: str) -> None:
    """Raise ProtocolError for a name that the protocol reserves."""
    if not name or name.startswith("pulsar.repl") or name == "pulsar.dedup":
        raise ProtocolError(ServerError.NotAllowedError, f"subscription name {name!r} is reserved")


def within_batch(
    topic: TopicView, entry_id: int, ack_set: tuple[int, ...] | None, held: Container[int] = ()
) -> tuple[int, ...] | None:
    """Return the ack set of a client without words beyond the batch, if the set is unusually long. A set bit stands for
    a message that is not acknowledged. Bits beyond the batch would be stored, be counted against the limits of all
    consumers, and be sent to the next consumer in a frame that no client accepts.

    Sets of up to USUAL_WORDS are returned as they are, and so are those of `held` entries, which are limited later, by
    the batch that the consumer was sent. ProtocolError for more than WORDS_MAX words if the entry is not in memory."""
    if ack_set is None or len(ack_set) <= USUAL_WORDS or entry_id in held:
        return ack_set
    entries = topic.reading.recent(entry_id, 1)
    if entries and entries[0].entry_id == entry_id:
        return ack_set[: -(-entries[0].messages // WORD_BITS)]
    if len(ack_set) > WORDS_MAX:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"entry {entry_id} is acknowledged in part, by {len(ack_set)} words; {WORDS_MAX} are allowed",
        )
    return ack_set
