"""Pending acknowledgements of one subscription: durable before the client receives a response, and ended by the
coordinator (docs/components/pending-acks.md).

`PendingAcksOfSubscription` is created when the first transaction acknowledges a message of the subscription, or when
the topic is loaded and such acknowledgements are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.broker.debounced_writer import KeyChanges
from emulator.core.admission import MESSAGE_BYTES_MIN
from emulator.core.cursor.cursor import WORD_BITS
from emulator.core.dispatch.types import ConsumerState
from emulator.core.transactions.pending_ack_rows import PendingRows, RowName
from emulator.core.transactions.pending_acks import ClaimedAck, commit
from emulator.errors import GeoemuError, ProtocolError, ServerError, StorageDamaged
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.stored_keys import PendingAckKey, parse_key
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.storage.contract import Store

if TYPE_CHECKING:
    from emulator.broker.subscription.consumer import SubscriptionView

logger = logging.getLogger(__name__)

WRITE_DELAY_SECONDS = 0.02
STATUS_RETRY_SECONDS = 1.0
"""Delay before the status of a transaction is requested again from a coordinator that is being loaded."""


class PendingAcksOfSubscription:
    """Pending acknowledgements of one subscription, which owns this object."""

    def __init__(self, subscription: SubscriptionView) -> None:
        self._subscription = subscription
        topic = subscription.topic
        self.acks = topic.region.environment.components.transactions.pending_acks()
        self._rows = PendingRows(self.acks)
        self._key = PendingAckKey(topic.full_name, subscription.name, "")
        self._writer = topic.region.environment.components.storage.debounced_writer(
            topic.region.store,
            f"pending acknowledgements of {subscription.name}",
            self._changes,
            topic.failed,
        )
        self._committing: set[TxnId] = set()
        """Transactions whose acknowledgements are in the cursor, but not known to be durable there."""
        self._timer: asyncio.TimerHandle | None = None
        subscription.cursor.held = self.acks

    # Acknowledging.

    def acknowledge(self, consumer: ConsumerState, txn: TxnId, claims: Sequence[ClaimedAck]) -> None:
        """Hold all of these acknowledgements for the transaction. ProtocolError: none of them is held."""
        subscription = self._subscription
        claims = [self._with_batch_size(claim) for claim in claims]
        self.acks.acknowledge(txn, claims, subscription.cursor)
        entry_ids = [claim.entry_id for claim in claims]
        if txn in self.acks.by_txn:
            self._rows.holds(subscription.cursor.generation, txn, entry_ids)
            self._write_soon()
        subscription.dispatcher.held(consumer, entry_ids)

    def acknowledge_cumulative(self, txn: TxnId, claim: ClaimedAck) -> None:
        """Hold a cumulative acknowledgement up to a message for the transaction. ProtocolError: it is not held."""
        cursor = self._subscription.cursor
        self.acks.acknowledge_cumulative(txn, self._with_batch_size(claim), cursor)
        self._rows.moved(cursor.generation, txn)
        self._write_soon()

    def _with_batch_size(self, claim: ClaimedAck) -> ClaimedAck:
        """Return the claim, with the real size of the batch if the entry is in memory. Otherwise the claimed size is
        limited, because a bit set of that size is allocated. ProtocolError when it is too large."""
        if not claim.ack_set:
            return claim
        topic = self._subscription.topic
        recent = topic.reading.recent(claim.entry_id, 1)
        if recent and recent[0].entry_id == claim.entry_id:
            return claim._replace(batch_size=recent[0].messages)
        size_max = min(
            WORD_BITS * (len(claim.ack_set) + 1),
            topic.region.config.settings.max_message_bytes // MESSAGE_BYTES_MIN,
        )
        if claim.batch_size > size_max:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"entry {claim.entry_id} is acknowledged as a batch of {claim.batch_size} messages by "
                f"{len(claim.ack_set)} words; that is a batch of {size_max} at most",
            )
        return claim

    # Ending.

    async def end(self, txn: TxnId, *, committed: bool) -> None:
        """Apply the acknowledgements of the transaction to the cursor, durably when this returns; or release them,
        which is written soon after, and redeliver their messages. StorageError."""
        if committed and self._subscription.durable and self._rows.awaits(txn):
            # Until the cursor is durable only the rows survive a restart. Rows can be written only while `acks` holds
            # the transaction.
            await self.persisted()
        held = self.acks.end(txn)
        if held is None:
            if txn in self._committing:
                await self._subscription.stored_cursor.persisted()
            return
        if committed:
            commit(held, self._subscription.cursor)
            await self._commit(txn)
        else:
            self._rows.ended(txn)
            self._write_soon()
            self._subscription.dispatcher.strategy.released([*held.entries, *held.batches])
            self._subscription.dispatch_loop.schedule()

    async def _commit(self, txn: TxnId) -> None:
        """Make the cursor durable, then schedule the deletion of the rows, which a restart needs until then."""
        # The dispatcher released its messages when they were acknowledged.
        self._subscription.stored_cursor.changed()
        self._subscription.dispatch_loop.schedule()
        self._committing.add(txn)
        try:
            await self._subscription.stored_cursor.persisted()
        finally:
            self._committing.discard(txn)
        self._rows.ended(txn)
        self._write_soon()

    def is_settling(self) -> bool:
        """Return whether a cumulative acknowledgement is, or may be, committed and is not in the cursor yet. Messages
        that it covers must not be dispatched (PA9). The commit resumes dispatch when it ends. Changes nothing: the
        explanations use it (E3)."""
        if self.acks.cumulative is None:
            return False
        status = self._status(self.acks.cumulative)
        return status is None or status.is_committed

    def pauses_dispatch(self) -> bool:
        """Return `is_settling`, for the dispatch loop. If the transaction is over, or its status is unknown, also set
        the timer that runs `end_orphans`."""
        if self.acks.cumulative is not None:
            status = self._status(self.acks.cumulative)
            if status is None or status.is_over:
                self._retry_later()
        return self.is_settling()

    def _status(self, txn: TxnId) -> TransactionStatus | None:
        """Return the status of a transaction; None: its coordinator has forgotten it or is being loaded."""
        try:
            return self._subscription.topic.region.coordinators.status(txn)
        except ProtocolError:
            return None

    def why_held(self) -> Reason:
        """Return a reason that names the open transaction with the oldest pending acknowledgements."""
        for txn in self.acks.by_txn:
            return Cause.HELD_BY_TRANSACTION(transaction=txn.text)
        return NO_REASON

    # Orphaned transactions.

    def end_orphans(self) -> None:
        """Resume dispatch, and end transactions that are over at their coordinator or that it has forgotten (TP4). If a
        coordinator is being loaded, repeat this later."""
        self._stop_timer()
        self._subscription.dispatch_loop.schedule()
        region = self._subscription.topic.region
        for txn in list(self.acks.by_txn):
            try:
                status = region.coordinators.status(txn)
            except ProtocolError:
                self._retry_later()
                return
            if status is None or status.is_over:
                region.spawn(self._end_orphan(txn, status is TransactionStatus.COMMITTED))
            elif status.is_decided:
                # The coordinator may have sent the outcome before this subscription was loaded again, and an abort is
                # not durable at once.
                self._retry_later()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry_later(self) -> None:
        if self._timer is None and not self._subscription.closed:
            self._timer = asyncio.get_running_loop().call_later(STATUS_RETRY_SECONDS, self.end_orphans)

    async def _end_orphan(self, txn: TxnId, committed: bool) -> None:
        logger.warning(
            "%s, subscription %s: transaction %s is not open at its coordinator; its pending acknowledgements are "
            "ended",
            self._subscription.topic.full_name,
            self._subscription.name,
            txn.text,
        )
        try:
            await self.end(txn, committed=committed)
        except GeoemuError as failure:
            logger.warning("transaction %s is not ended yet: %s", txn.text, failure)

    def end_orphans_up_to(self, most: int, low_watermark: int) -> None:
        """End orphaned transactions if the oldest pending one belongs to coordinator `most` and is not above
        `low_watermark`, up to which that coordinator has ended all its transactions."""
        oldest = next(iter(self.acks.by_txn), None)
        if oldest is not None and oldest.most == most and oldest.least <= low_watermark:
            self.end_orphans()

    def cursor_reset(self) -> None:
        """Drop all pending acknowledgements after a seek: they belong to the position before it (PA7)."""
        self.acks.clear()
        self._rows.clear()
        self._write_soon()

    # Storing.

    def load(self, rows: dict[RowName, bytes]) -> None:
        """Load the stored rows. StorageDamaged when one cannot be read."""
        self._rows.load(self._subscription.cursor.generation, rows)
        self._write_soon()

    def _changes(self) -> KeyChanges:
        puts, deletes = self._rows.take_changes()
        step = {self._key_text(name): value for name, value in puts.items()}
        return KeyChanges([step] if step else [], [self._key_text(name) for name in deletes])

    def _key_text(self, name: RowName) -> str:
        return PendingAckKey(self._key.topic, self._key.subscription, str(name)).text

    def _write_soon(self) -> None:
        if self._subscription.durable and self._rows.has_changes:
            self._writer.soon(WRITE_DELAY_SECONDS)

    async def persisted(self) -> None:
        """Wait until all pending acknowledgements are durable. StorageError when they may not be."""
        pending = self._writer.flush()
        if pending is not None:
            await pending
        elif self._writer.is_writing:
            await self._writer.now()

    async def delete(self, store: Store) -> None:
        """Delete the rows of a deleted subscription, whose cursor is deleted already."""
        for name in self._rows.stored:
            key = self._key_text(name)
            store.get(key)  # after a failed write the store rejects the key until it is read (S5)
            await store.delete(key)

    async def settled(self) -> None:
        await self._writer.settled()

    def close(self) -> None:
        self._stop_timer()
        self._writer.close()


def pending_rows_of_topic(store: Store, topic: str) -> dict[str, dict[RowName, bytes]]:
    """Return the stored pending acknowledgements of a topic, by subscription. StorageDamaged when a key cannot be
    read."""
    found: dict[str, dict[RowName, bytes]] = {}
    for text, versioned in store.scan(PendingAckKey.prefix(topic)):
        key = parse_key(text)
        if isinstance(key, PendingAckKey):
            try:
                found.setdefault(key.subscription, {})[RowName.parse(key.row)] = versioned.value
            except StorageDamaged as damage:
                raise StorageDamaged(f"{text} is damaged ({damage})") from None
    return found
