"""One consumer of a subscription, and the interface that its connection must offer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.topic.metrics import Traffic
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.core.transactions.pending_acks import ClaimedAck
from emulator.model.transaction_names import TxnId
from emulator.wire.commands import ActiveConsumerChange

if TYPE_CHECKING:
    from emulator.broker.subscription.cursor_store import DurableCursor
    from emulator.broker.topic.reading import Readable
    from emulator.broker.topic.view import TopicView
    from emulator.core.flow.rate_limit import QueuedTask


class SubscriptionView(Protocol):
    """A subscription, as its parts and the connections of its consumers see it. `Subscription` documents the
    methods."""

    topic: TopicView
    name: str
    durable: bool
    closed: bool
    cursor: Cursor
    stored_cursor: DurableCursor
    dispatcher: Dispatcher
    consumers: dict[ConsumerState, ConnectedConsumer]
    source: Readable
    seeks: int
    sent: Traffic
    sent_ms: int

    @property
    def dispatch_loop(self) -> QueuedTask: ...
    @property
    def is_settling(self) -> bool: ...

    def pauses_dispatch(self) -> bool: ...

    def attach(self, consumer: ConnectedConsumer, type_: SubscriptionType) -> None: ...

    def detach(self, consumer: ConnectedConsumer) -> None: ...

    def close_consumers(self) -> None: ...

    def flow(self, consumer: ConnectedConsumer, permits: int) -> None: ...

    def set_blocked(self, consumer: ConnectedConsumer, *, blocked: bool) -> None: ...

    def acknowledge(
        self,
        consumer: ConnectedConsumer,
        ids: Sequence[tuple[int, int, tuple[int, ...] | None]],
        *,
        cumulative: bool,
    ) -> None: ...

    def acknowledge_runs(
        self, consumer: ConnectedConsumer, ledger_id: int, runs: Sequence[tuple[int, int]]
    ) -> None: ...

    def acknowledge_in_transaction(
        self,
        consumer: ConnectedConsumer,
        txn: TxnId,
        ids: Sequence[tuple[int, ClaimedAck]],
        *,
        cumulative: bool,
    ) -> None: ...

    def redeliver(
        self, consumer: ConnectedConsumer, ids: Sequence[tuple[int, int]] | None, epoch: int | None
    ) -> None: ...

    def dispatched(self) -> None: ...

    def backlog(self) -> int: ...

    async def seek(self, next_entry_id: int, ack_set: Sequence[int] = ()) -> None: ...

    async def persisted(self) -> None: ...

    async def flush(self) -> None: ...

    async def settled(self) -> None: ...

    async def delete(self) -> None: ...

    async def delete_stored(self) -> None: ...

    def close(self) -> None: ...


class ConsumerConnection(Protocol):
    """A client's connection, as its consumers see it."""

    address: str
    client_version: str

    @property
    def read_ms(self) -> int:
        """Time at which the broker read the current command, by the region's clock; commands of one read share it."""
        ...

    def write(self, data: bytes) -> None: ...

    def answer(self, data: bytes) -> None:
        """Send a notification to the client."""
        ...

    def close_consumer(self, consumer: ConnectedConsumer) -> None: ...

    def forget_consumer(self, consumer: ConnectedConsumer) -> None: ...

    async def is_alive(self) -> bool: ...

    def abort(self) -> None: ...


class ConnectedConsumer:
    """One consumer on one connection."""

    def __init__(
        self,
        connection: ConsumerConnection,
        consumer_id: int,
        subscription: SubscriptionView,
        state: ConsumerState,
        epoch: int | None,
        *,
        reads_compacted: bool = False,
    ) -> None:
        self.connection = connection
        self.consumer_id = consumer_id
        self.subscription = subscription
        self.state = state
        self.reads_compacted = reads_compacted
        """Whether it reads the compacted topic: only the newest message of each key."""
        self.end_notified = False
        """Whether REACHED_END_OF_TOPIC was sent: the topic was terminated and has no more messages."""
        self.metadata: dict[str, str] = {}
        """The consumer's metadata from SUBSCRIBE; shown in stats."""
        self.takes_any_schema = False
        """Whether it accepts messages of any schema (AUTO_CONSUME)."""
        self.epoch = epoch
        """Consumer epoch of the client. MESSAGE commands carry it, so that the client can drop older ones after a
        redelivery."""
        self.since_ms = subscription.topic.region.environment.wall_clock_ms()
        self.granted_messages = 0
        """Total number of permits that the consumer has granted."""
        self.sent = Traffic(asyncio.get_running_loop().time())
        self.sent_ms = self.flow_ms = self.acked_ms = 0
        """Times of the last dispatch, FLOW and ACK, by the region's clock; 0: none."""


class ActiveConsumerNotifier:
    """Notifies the consumers of a FAILOVER subscription whether they are the active one."""

    def __init__(self, subscription: SubscriptionView) -> None:
        self._subscription = subscription
        self._timer: asyncio.TimerHandle | None = None
        """Timer of a notification that has not been sent yet."""

    def notify_if_changed(self, before: ConsumerState | None, newcomer: ConnectedConsumer | None) -> None:
        """Notify all consumers `failover_delay_ms` later if the active one is not `before`, as Pulsar does: the Go
        client drops a notification that arrives before its SUBSCRIBE has returned. A new consumer that does not change
        the active one is notified at once, unless a notification of all consumers is pending."""
        if self._subscription.dispatcher.strategy.active is not before:
            if self._timer is None:
                delay_ms = self._subscription.topic.subscriptions.limits.failover_delay_ms
                self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._notify_all)
        elif newcomer is not None and self._timer is None:
            self._notify(newcomer)

    def _notify_all(self) -> None:
        self._timer = None
        for consumer in self._subscription.consumers.values():
            self._notify(consumer)

    def _notify(self, consumer: ConnectedConsumer) -> None:
        """Send ACTIVE_CONSUMER_CHANGE with the state as it is now."""
        is_active = consumer.state is self._subscription.dispatcher.strategy.active
        consumer.connection.answer(ActiveConsumerChange(consumer.consumer_id, is_active).encode())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
