"""One subscription of a topic: connects a Cursor and a Dispatcher to the broker.

Admits consumers, applies their commands and keeps the cursor durable. `broker/subscription/dispatch_loop.py` dispatches
messages to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from emulator.broker.subscription.ack_sets import within_batch
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.subscription.cursor_store import StoredCursor
from emulator.broker.subscription.dispatch_loop import HandingOut
from emulator.broker.subscription.pending_acks import PendingAcksOfSubscription
from emulator.broker.topic.metrics import Traffic
from emulator.core.cursor.cursor import WORD_BITS, Cursor
from emulator.core.dispatch import (
    ConsumerState,
    SubscriptionType,
)
from emulator.core.transactions.names import TxnId
from emulator.core.transactions.pending_acks import ClaimedAck
from emulator.errors import GoneMeanwhile, ProtocolError, ServerError, StorageError
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.wire.commands import ActiveConsumerChange, ReachedEndOfTopic

if TYPE_CHECKING:
    from emulator.broker.topic.view import Readable, SubscriptionHost

CURSOR_WRITE_DELAY_SECONDS = 0.02
"""How long acknowledgements that no caller waits for are collected before they are written."""
RETURN_SECONDS = 60.0
"""How long a non-durable subscription is kept for its reader to return after a seek."""
_SEVERAL_ARE_SERVED: Final = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


class Subscription:
    """Owned by its Topic."""

    def __init__(self, topic: SubscriptionHost, name: str, stored: StoredCursor, *, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor = stored.cursor
        self._stored = stored
        self.durable = durable
        self.skipped = 0
        """Entries that it skipped by TTL or backlog eviction."""
        self.consumers: dict[ConsumerState, ConnectedConsumer] = {}
        components = topic.region.environment.components
        self._wall_clock_ms = topic.region.environment.wall_clock_ms
        self.dispatcher = components.subscriptions.dispatcher(
            cursor, topic.subscriptions.limits, components.subscriptions.strategy_for
        )
        self._keeper = components.storage.debounced_writer(
            topic.region.store, f"cursor {name}", stored.take_changes, self._not_written
        )
        self.pending_acks: PendingAcksOfSubscription | None = None
        """Pending acknowledgements of transactions; None: no transaction has acknowledged here."""
        self.sent = Traffic(asyncio.get_running_loop().time())
        """Traffic to all its consumers."""
        self.sent_ms = self.flow_ms = self.acked_ms = self.mark_delete_ms = 0
        """When consumers last were sent messages, granted permits and acknowledged, and when mark-delete moved; by the
        region's clock, 0: not since the topic was loaded."""
        self.source: Readable = topic
        """Where messages for its active consumer are read from."""
        self.handing_out = HandingOut(self)
        self._mark_delete_seen = cursor.mark_delete
        self._version_written = cursor.version
        self._waiting: asyncio.TimerHandle | None = None
        """Set while the subscription outlives its last consumer, which a seek disconnected."""
        self._notifying: asyncio.TimerHandle | None = None
        """Set while a change of the active consumer has not been sent to consumers."""
        self._seeks = 0
        """Number of seeks under way."""
        self._ended = asyncio.Event()
        self._deletion: asyncio.Future[None] | None = None
        """Set once it is being deleted for good."""
        self.closed = False

    # Consumers.

    def attach(self, consumer: ConnectedConsumer, type_: SubscriptionType) -> None:
        """Admit a consumer. ProtocolError when the subscription cannot take it."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        before = self.dispatcher.active
        self.dispatcher.joined(consumer.state, type_, _now_ms())
        self.consumers[consumer.state] = consumer
        self._stop_waiting()
        if self.topic.is_over:
            self.handing_out.schedule()
        self._choose_source()
        if type_ is SubscriptionType.FAILOVER:
            self._active_may_have_changed(before, consumer)

    def detach(self, consumer: ConnectedConsumer) -> None:
        """Remove a consumer whose client closed it or whose connection was lost."""
        if self.consumers.pop(consumer.state, None) is None:
            return
        before = self.dispatcher.active
        self.dispatcher.left(consumer.state, _now_ms())
        self._choose_source()
        if self.dispatcher.type is SubscriptionType.FAILOVER:
            self._active_may_have_changed(before, None)
        self._end_if_abandoned()
        self.handing_out.schedule()

    def _choose_source(self) -> None:
        """A consumer that reads compacted is the only active one, so there is one source at a time."""
        active = self.dispatcher.active
        compacted = active is not None and self.consumers[active].reads_compacted
        self.source = self.topic.compacted if compacted else self.topic

    def _active_may_have_changed(
        self, before: ConsumerState | None, newcomer: ConnectedConsumer | None
    ) -> None:
        """Notify all consumers of a new active one `failover_delay_ms` later, as Pulsar does: the Go client drops a
        notification that arrives before its SUBSCRIBE has returned. A newcomer without effect is notified at once."""
        if self.dispatcher.active is not before:
            self._notify_active_later()
        elif newcomer is not None and self._notifying is None:
            self._notify_active(newcomer)

    def _notify_active_later(self) -> None:
        if self._notifying is None:
            delay_ms = self.topic.subscriptions.limits.failover_delay_ms
            self._notifying = asyncio.get_running_loop().call_later(delay_ms / 1000, self._notify_all)

    def _notify_all(self) -> None:
        self._notifying = None
        for consumer in self.consumers.values():
            self._notify_active(consumer)

    def _notify_active(self, consumer: ConnectedConsumer) -> None:
        """Send ACTIVE_CONSUMER_CHANGE with the state as it is now."""
        is_active = consumer.state is self.dispatcher.active
        consumer.connection.answer(ActiveConsumerChange(consumer.consumer_id, is_active).encode())

    def close_consumers(self) -> None:
        """Disconnect all consumers; clients reconnect by themselves."""
        for consumer in list(self.consumers.values()):
            consumer.connection.close_consumer(consumer)

    # Dispatch.

    @property
    def is_seeking(self) -> bool:
        """Whether a seek is under way. Acknowledgements meanwhile belong to the position before."""
        return self._seeks > 0

    @property
    def is_settling(self) -> bool:
        """Whether a transaction's cumulative acknowledgement is being written to the cursor."""
        return self.pending_acks is not None and self.pending_acks.is_settling()

    def handed_out(self) -> None:
        """Called after a dispatch: the cursor may have passed markers, and the consumers may have received
        everything."""
        self._changed()
        if self.topic.is_over:
            self.tell_end()

    def tell_end(self) -> None:
        """Send REACHED_END_OF_TOPIC to consumers of a terminated topic that acknowledged everything."""
        if self.closed or not self.topic.is_over or self.backlog():
            return
        for consumer in self.consumers.values():
            if not consumer.knows_end:
                consumer.knows_end = True
                consumer.connection.answer(ReachedEndOfTopic(consumer.consumer_id).encode())

    # Commands of consumers.

    def flow(self, consumer: ConnectedConsumer, permits: int) -> None:
        consumer.granted_messages += permits
        consumer.flow_ms = self.flow_ms = consumer.connection.read_ms
        self.dispatcher.flow(consumer.state, permits)
        self.handing_out.pump()

    def set_blocked(self, consumer: ConnectedConsumer, *, blocked: bool) -> None:
        self.dispatcher.blocked(consumer.state, blocked=blocked)
        if not blocked:
            self.handing_out.schedule()

    def acknowledge(
        self,
        consumer: ConnectedConsumer,
        ids: Sequence[tuple[int, int, tuple[int, ...] | None]],
        *,
        cumulative: bool,
    ) -> None:
        """Apply acknowledgements of (ledger, entry, ack_set). Ids of another ledger are outdated and ignored.
        ProtocolError: none of them is applied."""
        if self._seeks:
            return
        held = consumer.state.pending.by_entry
        ours = [
            (entry_id, ack_set and within_batch(self.topic, entry_id, ack_set, held))
            for ledger, entry_id, ack_set in ids
            if ledger == self.topic.ledger_id
        ]
        consumer.acked_ms = self.acked_ms = now_ms = consumer.connection.read_ms
        end_entry_id = self.topic.readable_end
        if cumulative:
            self.dispatcher.acknowledge_cumulative(ours, end_entry_id)
        else:
            self.dispatcher.acknowledge(consumer.state, ours, end_entry_id)
        self._changed(now_ms)
        self._pump_if_unblocked()
        if self.topic.is_over:
            self.tell_end()

    def acknowledge_in_transaction(
        self,
        consumer: ConnectedConsumer,
        txn: TxnId,
        ids: Sequence[tuple[int, ClaimedAck]],
        *,
        cumulative: bool,
    ) -> None:
        """Hold (ledger, claim) for an open transaction. ProtocolError: none of them is held."""
        topic = self.topic
        topic.region.coordinators.check_acknowledge(txn, topic.full_name, self.name)
        if self._seeks:
            raise ProtocolError(
                ServerError.ServiceNotReady, f"a seek of subscription {self.name} is in progress"
            )
        end_entry_id = topic.readable_end
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
        else:
            for claim in claims:
                self.pending_acks.acknowledge_cumulative(txn, claim)
        self._pump_if_unblocked()

    async def end_subscription(self, txn: TxnId, committed: bool, low_watermark: int) -> None:
        """Apply the acknowledgements of a committed transaction, or redeliver its messages. Durable when it returns."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        if self.pending_acks is not None:
            await self.pending_acks.end(txn, committed=committed)
            self.pending_acks.over_upto(txn.most, low_watermark)

    def acknowledged(self) -> None:
        """A transaction was committed. The dispatcher released its messages when they were acknowledged."""
        self._changed()
        self.handing_out.schedule()

    def _pump_if_unblocked(self) -> None:
        """Resume dispatch after an acknowledgement. It can unblock a SHARED consumer at its limit, all of them at the
        limit that they share, and keys of a KEY_SHARED subscription that other consumers wait for."""
        if self.dispatcher.type in _SEVERAL_ARE_SERVED:
            self.handing_out.schedule()

    def redeliver(
        self, consumer: ConnectedConsumer, ids: Sequence[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        """Redeliver these messages; None: everything the consumer has not acknowledged."""
        if epoch is not None:
            consumer.epoch = epoch
        entry_ids = None
        if ids:
            entry_ids = [entry for ledger, entry in ids if ledger == self.topic.ledger_id]
        self.dispatcher.returned(consumer.state, entry_ids)
        self.handing_out.schedule()

    async def seek(self, next_entry_id: int, ack_set: Sequence[int] = ()) -> None:
        """Reset the cursor to `next_entry_id`; `ack_set`, if given, is what is left of that entry. It is durable when
        this returns, and every consumer was just disconnected: a response sent at once arrives before they reconnect.
        Meanwhile nothing is dispatched, and acknowledgements belong to the position before. ProtocolError when the
        subscription was closed since the request."""
        if self.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"subscription {self.name} is being closed")
        left = within_batch(self.topic, next_entry_id, tuple(ack_set))
        self._seeks += 1
        try:
            self.cursor.seek(next_entry_id)
            if left:
                self.cursor.ack_batch(next_entry_id, left, WORD_BITS * len(left))
            if self.pending_acks is not None:
                self.pending_acks.sought()
            self._mark_delete_seen = self.cursor.mark_delete
            self.dispatcher.rewound()
            self.topic.subscriptions.sought(self.name)
            await self.persisted()
        finally:
            # The cursor has moved even if the requesting client disconnected meanwhile.
            self._seeks -= 1
            self._expect_return()
            self.close_consumers()

    def _expect_return(self) -> None:
        """Keep a non-durable subscription for the reader that a seek disconnects: its position must survive."""
        if not self.durable and not self.closed:
            if self._waiting is not None:
                self._waiting.cancel()
            self._waiting = asyncio.get_running_loop().call_later(RETURN_SECONDS, self._stop_waiting)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
            self._end_if_abandoned()

    def _end_if_abandoned(self) -> None:
        """End a non-durable subscription that has no consumer."""
        if not self.durable and not self.consumers and self._waiting is None and not self.closed:
            self.close()
            self.topic.subscriptions.ended(self.name)

    # The cursor.

    def _changed(self, now_ms: int | None = None) -> None:
        """Write the cursor soon, and act on a mark-delete that moved."""
        if self.cursor.version == self._version_written:
            return
        self._version_written = self.cursor.version
        if self.durable:
            self._keeper.soon(CURSOR_WRITE_DELAY_SECONDS)
        if self.cursor.mark_delete != self._mark_delete_seen:
            self._mark_delete_seen = self.cursor.mark_delete
            self.mark_delete_ms = self._wall_clock_ms() if now_ms is None else now_ms
            self.topic.subscriptions.mark_delete_moved(self.name)

    def move(self, change: Callable[[Cursor], object]) -> None:
        """Change the cursor for an update of another region or for markers."""
        change(self.cursor)
        if self.cursor.version != self._version_written:
            self.dispatcher.moved()
            self._mark_delete_seen = self.cursor.mark_delete
            self._changed()
            self.handing_out.schedule()

    async def persisted(self) -> None:
        """Wait until the cursor and pending acknowledgements are durable. Returns at once if the subscription is not
        durable."""
        await self.cursor_persisted()
        if self.durable and self.pending_acks is not None:
            await self.pending_acks.persisted()

    async def cursor_persisted(self) -> None:
        """Wait until the cursor alone is durable."""
        if self.durable:
            await self._keeper.now()

    async def flush(self) -> None:
        """Write what is pending, unless the subscription is being deleted."""
        pending = self._keeper.flush()
        try:
            if pending is not None:
                await pending
        except GoneMeanwhile:
            if self.topic.closed or not self.closed:
                raise
            return
        if self.pending_acks is not None:
            await self.pending_acks.persisted()

    async def settled(self) -> None:
        """After `close`: wait until what is being written has its outcome."""
        await self._keeper.settled()
        if self.pending_acks is not None:
            await self.pending_acks.settled()

    def _not_written(self, failure: BaseException) -> None:
        self.topic.failed(failure)

    def backlog(self) -> int:
        """Return the number of entries that consumers would still receive, without markers."""
        return self.cursor.unacked_count(self.topic.readable_end, self.topic.hidden_ids)

    def unacknowledged_from(self, entry_id: int) -> int:
        """Return the number of backlog entries at or behind this id."""
        before = min(entry_id, self.topic.readable_end)
        return self.backlog() - self.cursor.unacked_count(before, self.topic.hidden_ids)

    def why_not(self) -> Reason:
        """Return why its messages are not consumed; empty when there are none, or they are being dispatched."""
        if self.is_seeking:
            return Cause.SEEKING()
        if not self.backlog():
            return NO_REASON
        if not self.consumers:
            return Cause.NO_CONSUMER()
        return self.handing_out.why_not() or self._why_held()

    def _why_held(self) -> Reason:
        """Return the open transaction that acknowledged messages of the subscription first."""
        for txn in () if self.pending_acks is None else self.pending_acks.acks.by_txn:
            return Cause.HELD_BY_TRANSACTION(transaction=txn.text)
        return NO_REASON

    async def delete(self) -> None:
        """UNSUBSCRIBE: delete the subscription for good. Its name stays taken until that is durable, so that no remains
        become part of a new subscription. The deletion continues when the requesting client disconnects: half a
        deletion would block the name for ever. Further requests meanwhile wait for the same deletion: a second one
        could delete a new subscription of this name."""
        if self._deletion is None:
            self._deletion = asyncio.get_running_loop().create_future()
            self._deletion.add_done_callback(lambda done: done.exception())
            self.close()
            self.topic.region.spawn(self._delete(self._deletion))
        await asyncio.shield(self._deletion)

    async def _delete(self, outcome: asyncio.Future[None]) -> None:
        try:
            await self.settled()
            if self.durable:
                await self._stored.delete(self.topic.region.store)
                if self.pending_acks is not None:
                    await self.pending_acks.delete(self.topic.region.store)
            self.topic.subscriptions.ended(self.name)
            outcome.set_result(None)
        except StorageError as failure:
            self.topic.failed(failure)
            outcome.set_exception(failure)
        finally:
            self._ended.set()

    async def ended(self) -> None:
        """After `close`: wait until the name is free, or the topic is."""
        await self._ended.wait()

    def close(self) -> None:
        """Stop serving consumers; the cursor stays as last written."""
        self.closed = True
        self.handing_out.close()
        for timer in (self._waiting, self._notifying):
            if timer is not None:
                timer.cancel()
        self._keeper.close()
        if self.pending_acks is not None:
            self.pending_acks.close()
        if self._deletion is None:
            self._ended.set()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def check_subscription_name(name: str) -> None:
    """ProtocolError for a name that the protocol reserves."""
    if not name or name.startswith("pulsar.repl") or name == "pulsar.dedup":
        raise ProtocolError(ServerError.NotAllowedError, f"subscription name {name!r} is reserved")
