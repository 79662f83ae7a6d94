"""The transactions of one topic, as its shell: who may publish in one, and how one ends.

What the room owes: docs/components/transaction-buffer.md.
What is open is folded from the log (`core.transactions.buffer`). Here are only markers that are under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.environment import RegionServices
from emulator.core.admission import Own, Publisher
from emulator.core.topic.retention import LogHold
from emulator.core.topic.state import TopicState
from emulator.core.transactions.names import TransactionStatus, TxnId
from emulator.errors import GeoemuError, ProtocolError, ServerError, StorageError
from emulator.wire.markers import encode_transaction_end
from emulator.wire.message_metadata import EntryInfo

if TYPE_CHECKING:
    from emulator.broker.topic.pending_publish import Attachment, PendingPublish

logger = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 1.0
"""How long a coordinator that is being loaded is left alone before it is asked what became of a transaction."""


class TransactionalTopic(Protocol):
    """The topic."""

    @property
    def region(self) -> RegionServices: ...
    @property
    def full_name(self) -> str: ...
    @property
    def state(self) -> TopicState: ...
    @property
    def closed(self) -> bool: ...

    def append_own_soon(self, attachment: Attachment, data: bytes, info: EntryInfo) -> None:
        """Append an entry of the region's own, behind everything admitted before, with what else comes in this turn
        of the loop."""
        ...


class TopicTransactions:
    """Kept by its topic, and the writer of its commit and abort markers."""

    def __init__(self, topic: TransactionalTopic) -> None:
        self.publisher: Publisher = Own(topic.region.config.region)
        self._topic = topic
        self._admitted: set[TxnId] = set()
        """Something of them was admitted since the topic was loaded; it may not be durable yet."""
        self._ends: dict[TxnId, asyncio.Future[None]] = {}
        """Markers under way."""
        self._timer: asyncio.TimerHandle | None = None

    # Publishing.

    def check(self, txn: TxnId) -> None:
        """ProtocolError unless a message of the transaction may be stored here now: it is open, and its coordinator
        knows that this topic takes part. Asked for each message, so what is late is refused, too (INV-64)."""
        if self._topic.state.buffer.is_full:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"{self._topic.full_name} holds too many messages of open transactions; end some of them first",
            )
        try:
            self._topic.region.transactions.check_publish(txn, self._topic.full_name)
        except ProtocolError as problem:
            if problem.code is ServerError.ServiceNotReady:
                raise
            # Any other code makes a Java client drop its connection, and send the same message again for ever.
            raise ProtocolError(ServerError.NotAllowedError, str(problem)) from None

    def admitted(self, txn: TxnId) -> None:
        """A message of it is on its way into the log."""
        self._admitted.add(txn)

    # Ending.

    def end(self, txn: TxnId, *, committed: bool) -> asyncio.Future[None]:
        """Write the marker, unless there is one or nothing of the transaction is here. Done when it is durable; fails
        with a StorageError or ProtocolError when that is not known: then ask again. Not to be cancelled."""
        under_way = self._ends.get(txn)
        if under_way is not None:
            return under_way
        if not self._topic.closed and (txn in self._topic.state.buffer.open or txn in self._admitted):
            return self._write_marker(txn, committed)
        nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._topic.closed:
            nothing.set_exception(self._being_loaded())
            nothing.exception()
        else:
            nothing.set_result(None)
        return nothing

    def _write_marker(self, txn: TxnId, committed: bool) -> asyncio.Future[None]:
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends[txn] = under_way
        now_ms = self._topic.region.environment.wall_clock_ms()
        self._topic.append_own_soon(self, *encode_transaction_end(txn, now_ms, committed=committed))
        return under_way

    def stored(self, publishes: Sequence[PendingPublish]) -> None:
        """Our markers are durable, and were folded."""
        for publish in publishes:
            assert publish.info.txn is not None
            txn = TxnId(*publish.info.txn)
            self._admitted.discard(txn)
            self._ends.pop(txn).set_result(None)

    def _being_loaded(self) -> ProtocolError:
        return ProtocolError(ServerError.ServiceNotReady, f"{self._topic.full_name} is being loaded again")

    def needs(self) -> list[LogHold]:
        """A restart folds the log from the first message of what is open."""
        blocking = self._topic.state.buffer.blocking
        return (
            []
            if blocking is None
            else [LogHold(blocking[1].first_entry_id, f"transaction {blocking[0].text}")]
        )

    def owner_lost(self, name: str, why: str) -> None:
        """Whoever published under this name has lost the topic: have its open transactions aborted."""
        for txn, transaction in list(self._topic.state.buffer.open.items()):
            if name in transaction.producers:
                logger.info("%s: transaction %s is aborted: %s", self._topic.full_name, txn.text, why)
                self._topic.region.transactions.abort(txn, why)

    # What nobody will end.

    def look_after(self) -> None:
        """End what its coordinator does not know any more (T4): nobody was ever told that it committed."""
        self._stop_timer()
        for txn in list(self._topic.state.buffer.open):
            try:
                status = self._topic.region.transactions.status(txn)
            except ProtocolError:
                self._look_again()
                return
            if status is None or status.is_over:
                logger.warning(
                    "%s: transaction %s is not open at its coordinator; it is ended here",
                    self._topic.full_name,
                    txn.text,
                )
                self._topic.region.spawn(self._end_alone(txn, status is TransactionStatus.COMMITTED))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        if self._timer is None and not self._topic.closed:
            self._timer = asyncio.get_running_loop().call_later(ASK_AGAIN_SECONDS, self.look_after)

    async def _end_alone(self, txn: TxnId, committed: bool) -> None:
        try:
            await asyncio.shield(self.end(txn, committed=committed))
        except GeoemuError as failure:
            logger.warning(
                "%s: transaction %s is not ended yet: %s", self._topic.full_name, txn.text, failure
            )

    def over_upto(self, most: int, low_watermark: int) -> None:
        """All transactions of this coordinator up to this number are over."""
        blocking = self._topic.state.buffer.blocking
        if blocking is not None and blocking[0].most == most and blocking[0].least <= low_watermark:
            self.look_after()

    def close(self) -> None:
        """The topic leaves memory. What is under way may become durable all the same: whoever waits asks again."""
        self._stop_timer()
        ends, self._ends = self._ends, {}
        for under_way in ends.values():
            under_way.set_exception(StorageError(str(self._being_loaded()), definite=False))
            under_way.exception()  # whoever asked may be gone
