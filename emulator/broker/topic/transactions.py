"""Admits messages of transactions to one topic, and writes their commit and abort markers there.

Guarantees: docs/components/transaction-buffer.md. Open transactions are computed from the log
(`core.transactions.buffer`). This module holds only what is not durable yet: admitted transactions, and the markers
that are being written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.broker.shared_outcome import SharedOutcome
from emulator.broker.topic.pending_publish import Pending, PendingPublish
from emulator.core.admission import Publisher, own_region
from emulator.core.topic.retention import LogHold
from emulator.errors import GeoemuError, ProtocolError, ServerError, StorageError
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.wire.markers import encode_transaction_end

if TYPE_CHECKING:
    from emulator.broker.topic.view import PublishingTopic

logger = logging.getLogger(__name__)

STATUS_RETRY_SECONDS = 1.0
"""Delay before the status of a transaction is requested again from a coordinator that is being loaded."""


class TopicTransactions:
    """Transactions of one topic, which owns this object. Also the `Attachment` that writes commit and abort markers."""

    def __init__(self, topic: PublishingTopic) -> None:
        self.publisher: Publisher = own_region(topic.region.config.region)
        self._topic = topic
        self._admitted: dict[TxnId, None] = {}
        """Transactions with a message that was admitted since the topic was loaded, until their marker is durable. The
        message itself may not be durable yet."""
        self._pending_markers: dict[TxnId, SharedOutcome] = {}
        """Transactions whose marker is being written. The outcome succeeds when the marker is durable; markers of one
        batch of the topic share it."""
        self._batch: Sequence[Pending] | None = None
        """The topic's batch that has the newest marker, until it is durable; its markers share `_batch_stored`."""
        self._batch_stored: SharedOutcome | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Publishing.

    def check(self, txn: TxnId) -> None:
        """Raise ProtocolError unless a message of the transaction may be stored here now: the transaction is open, its
        coordinator knows that this topic takes part, and the transaction buffer has room. Checked for each message, so
        one that arrives after the end is rejected, too (INV-64)."""
        if self._topic.state.buffer.is_full:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"{self._topic.full_name} holds too many messages of open transactions; end some of them first",
            )
        try:
            self._topic.region.coordinators.check_publish(txn, self._topic.full_name)
        except ProtocolError as problem:
            if problem.code is ServerError.ServiceNotReady:
                raise
            # Any other code makes a Java client drop its connection, and send the same message again for ever.
            raise ProtocolError(ServerError.NotAllowedError, str(problem)) from None

    def admitted(self, txn: TxnId) -> None:
        """Record that a message of the transaction is being appended to the log."""
        self._admitted[txn] = None

    # Ending.

    def end_partition(self, txn: TxnId, committed: bool, low_watermark: int) -> SharedOutcome:
        """Commit or abort the messages that a transaction published to this topic. The outcome succeeds when the marker
        is durable."""
        self.end_orphans_up_to(txn.most, low_watermark)
        return self.end(txn, committed=committed)

    def end(self, txn: TxnId, *, committed: bool) -> SharedOutcome:
        """Write the marker, unless it is being written or the topic has no open message of the transaction. The result
        succeeds when the marker is durable. It fails with StorageError or ProtocolError when the topic is unloaded, so
        that nothing is known: then the caller retries."""
        marker_stored = self._pending_markers.get(txn)
        if marker_stored is not None:
            return marker_stored
        if not self._topic.closed and (txn in self._topic.state.buffer.open or txn in self._admitted):
            return self._write_marker(txn, committed)
        if not self._topic.closed:
            return SharedOutcome(is_done=True)
        unloaded = SharedOutcome()
        unloaded.fail(self._unloaded_error())
        return unloaded

    def _write_marker(self, txn: TxnId, committed: bool) -> SharedOutcome:
        now_ms = self._topic.region.environment.wall_clock_ms()
        batch = self._topic.append_own_soon(self, *encode_transaction_end(txn, now_ms, committed=committed))
        if batch is not self._batch or self._batch_stored is None:
            self._batch, self._batch_stored = batch, SharedOutcome()
        self._pending_markers[txn] = self._batch_stored
        return self._batch_stored

    def stored(self, publishes: Sequence[Pending]) -> None:
        """Complete the outcome of the markers of one batch, which are durable and applied to the state."""
        for publish in publishes:
            assert isinstance(publish, PendingPublish)
            txn = publish.info.txn
            assert txn is not None
            self._admitted.pop(txn, None)
            marker_stored = self._pending_markers.pop(txn)
        if marker_stored is self._batch_stored:
            self._batch = self._batch_stored = None  # the batch holds the data of its entries
        marker_stored.succeed()

    def _unloaded_error(self) -> ProtocolError:
        return ProtocolError(ServerError.ServiceNotReady, f"{self._topic.full_name} is being loaded again")

    def holds(self) -> list[LogHold]:
        """Return a hold on the log from the first message of the oldest open transaction: a restart replays it from
        there."""
        blocking = self._topic.state.buffer.blocking
        return (
            []
            if blocking is None
            else [LogHold(blocking[1].first_entry_id, f"transaction {blocking[0].text}")]
        )

    def owner_lost(self, name: str, why: str) -> None:
        """Abort the open transactions with messages of a producer that has lost exclusive access to the topic."""
        for txn, transaction in list(self._topic.state.buffer.open.items()):
            if name in transaction.producers:
                logger.info("%s: transaction %s is aborted: %s", self._topic.full_name, txn.text, why)
                self._topic.region.coordinators.abort(txn, why)

    # Orphaned transactions.

    def end_orphans(self) -> None:
        """End transactions that are over at their coordinator. Abort those that it has forgotten (TP4): no client
        received a commit of them. If a coordinator is being loaded, repeat this later."""
        self._stop_timer()
        for txn in list(self._topic.state.buffer.open):
            try:
                status = self._topic.region.coordinators.status(txn)
            except ProtocolError:
                self._retry_later()
                return
            if status is None or status.is_over:
                logger.warning(
                    "%s: transaction %s is not open at its coordinator; it is ended here",
                    self._topic.full_name,
                    txn.text,
                )
                self._topic.region.spawn(self._end_orphan(txn, status is TransactionStatus.COMMITTED))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry_later(self) -> None:
        if self._timer is None and not self._topic.closed:
            self._timer = asyncio.get_running_loop().call_later(STATUS_RETRY_SECONDS, self.end_orphans)

    async def _end_orphan(self, txn: TxnId, committed: bool) -> None:
        try:
            await self.end(txn, committed=committed)
        except GeoemuError as failure:
            logger.warning(
                "%s: transaction %s is not ended yet: %s", self._topic.full_name, txn.text, failure
            )

    def end_orphans_up_to(self, most: int, low_watermark: int) -> None:
        """End orphaned transactions if the oldest open one belongs to coordinator `most` and is not above
        `low_watermark`, up to which that coordinator has ended all its transactions."""
        blocking = self._topic.state.buffer.blocking
        if blocking is not None and blocking[0].most == most and blocking[0].least <= low_watermark:
            self.end_orphans()

    def close(self) -> None:
        """Fail the outcomes of pending markers: the topic is unloaded. The markers may still become durable, so callers
        retry."""
        self._stop_timer()
        pending, self._pending_markers = self._pending_markers, {}
        for marker_stored in dict.fromkeys(pending.values()):
            marker_stored.fail(StorageError(str(self._unloaded_error()), definite=False))
