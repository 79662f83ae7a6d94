"""One running coordinator: applies the rules of `core.transactions`, logs their decisions and sets timers. Its keys
have their own log (`broker/transactions/key_registry.py`).

A running coordinator ends when its log fails: its memory may be ahead of the store, so a new one is loaded from the
store (`coordinators.py`). Work that must complete even if a client disconnects runs in tasks of the region.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from emulator.broker.environment import RegionServices
from emulator.broker.shared_outcome import SharedOutcome
from emulator.broker.transactions.completion import NotifyingRegion, ParticipantNotifier
from emulator.broker.transactions.journal import CHECKPOINT_ENTRIES_MIN, damaged
from emulator.broker.transactions.key_registry import KeyRegistry
from emulator.core.transactions import journal_format
from emulator.core.transactions.coordinator import FENCED, TIMED_OUT, Coordinator, CoordinatorLimits
from emulator.core.transactions.journal_format import (
    Began,
    Decided,
    Holder,
    JournalEntry,
    TransactionEnded,
)
from emulator.core.transactions.live import LiveTransaction
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.transaction_names import TransactionStatus, TxnId

LOG: Final = "internal://pulsar/system/__transaction_log_"
KEY_LOG: Final = "internal://pulsar/system/__transaction_key_"
ENDED_SECONDS_MAX: Final = 0.02
"""Time after which it is written that a transaction is over, if no other entry is written before."""
ROUNDING_SECONDS: Final = 0.001
"""Minimum delay of the timer of time-outs."""


class CoordinatingRegion(RegionServices, NotifyingRegion, Protocol):
    """The region, as its coordinators see it."""


@dataclass(slots=True)
class CoordinatorMetrics:
    """Counters of one coordinator since the region started, for metrics."""

    created: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0


class DueTimer:
    """Calls `due` at the earliest deadline of a coordinator's transactions."""

    def __init__(self, core: Coordinator, due: Callable[[], None]) -> None:
        self._core = core
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def arm(self) -> None:
        """Set the timer to the earliest deadline, or leave it if it fires before."""
        due_ms = self._core.next_due_ms
        if self._timer is not None:
            if due_ms is not None and self._timer.when() <= due_ms / 1_000:
                return  # it fires in time and is set again then
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and not self._closed:
            loop = asyncio.get_running_loop()
            # The division may round down: without this minimum, a timer that fires too early would be set again for
            # ever.
            self._timer = loop.call_at(max(due_ms / 1_000, loop.time() + ROUNDING_SECONDS), self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            self._due()
        finally:
            self.arm()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


class RunningCoordinator:
    """One coordinator, from reading its logs until one of them fails or the region stops."""

    def __init__(
        self,
        number: int,
        region: CoordinatingRegion,
        figures: CoordinatorMetrics,
        on_failure: Callable[[RunningCoordinator, StorageError], None],
    ) -> None:
        settings, components = region.config.settings, region.environment.components
        bounds = CoordinatorLimits(
            settings.transactions_open_max,
            settings.transaction_participants_max,
            settings.transaction_timeout_ms_max,
            settings.transaction_outcomes_max,
            settings.transaction_outcome_ms,
        )
        self.number = number
        self._loop = asyncio.get_running_loop()
        """Kept, because each look-up takes a system call."""
        self.figures = figures
        self.core = components.transactions.coordinator(number, bounds)
        self.over = False
        self.notifier = ParticipantNotifier(
            region, lambda: self.core.low_watermark, lambda: self.over, self._end_transactions
        )
        self._region = region
        self._on_failure = on_failure
        self.journal = components.storage.transaction_journal(region.store, f"{LOG}{number}", region.spawn)
        self.keys = KeyRegistry(
            components.transactions.key_book(number, settings.transaction_keys_max),
            components.storage.transaction_journal(region.store, f"{KEY_LOG}{number}", region.spawn),
            settings.transaction_coordinators,
            self,
            region.environment.wall_clock_ms,
            region.spawn,
        )
        self._written: SharedOutcome | None = None
        """The journal's newest write that is not a checkpoint."""
        self._entries: list[JournalEntry] = []
        """Entries of `_written`."""
        self._confirmations: dict[int, SharedOutcome] = {}
        """Number of a decided transaction -> completes when every participant has confirmed."""
        self._ended: list[JournalEntry] = []
        """Entries of transactions that are over, which the next write takes along (TX5)."""
        self._ended_timer: asyncio.TimerHandle | None = None
        """Writes `_ended` if no other write does."""
        self._due = DueTimer(self.core, self._time_out)

    # Loading and failure.

    async def load(self) -> None:
        """Read the logs. StorageError when they cannot be read."""
        now_ms = self._now_ms()
        try:
            for data in await self.journal.read():
                entry = journal_format.decode(data)
                self.core.apply(entry, now_ms)
                self.core.mark_durable(entry)
        except (ValueError, KeyError) as problem:
            raise damaged(self.journal.name, ValueError(str(problem))) from None
        await self.keys.load()

    def resume(self) -> None:
        """After `load`: finish decided transactions, abort fenced ones, and start the timer of time-outs (TX6)."""
        for least, transaction in list(self.core.live.items()):
            holder = transaction.holder
            if transaction.status.is_decided:
                self._deliver_outcome(least, None)
            elif holder is not None and not self.keys.book.is_current(holder):
                self.decide(least, commit=False, why=f"{FENCED}: its key has a newer connection")
        self._due.arm()

    def end(self, failure: StorageError) -> None:
        """End this coordinator: it makes no more decisions. Fail all waiting callers."""
        self.over = True
        self._due.close()
        if self._ended_timer is not None:
            self._ended_timer.cancel()
        confirmations, self._confirmations = self._confirmations, {}
        for confirmed in confirmations.values():
            confirmed.fail(failure)

    async def settled(self) -> None:
        """Wait until no write is pending: each has failed, or is durable and will be read by the next load."""
        newest = [self.journal.newest, self.keys.newest_write]
        if writes := [write.future() for write in newest if write is not None]:
            await asyncio.wait(writes)

    # Transactions.

    async def begin(self, timeout_ms: int, holder: Holder | None, owner: str = "") -> TxnId:
        """Begin a transaction and wait until it is durable. One that the same key has open is aborted (INV-57).
        ProtocolError, StorageError."""
        await self.ready()
        if holder is None:
            txn, written = self.begin_at_once(timeout_ms, owner=owner)
            await written
            return txn
        holder = await self.keys.holder(holder)
        self.core.check_begin(timeout_ms)
        self.abort_of(holder.owner, holder.key, f"{FENCED}: its key began another transaction")
        txn, written = self.begin_at_once(timeout_ms, holder)
        writes = [written, self.keys.record_begun(holder, txn.least)]
        await asyncio.gather(*(write.future() for write in writes))
        return txn

    @property
    def may_begin_at_once(self) -> bool:
        """Whether `begin_at_once` is possible."""
        return self.journal.is_ready and not self.over

    def begin_at_once(
        self, timeout_ms: int, holder: Holder | None = None, owner: str = ""
    ) -> tuple[TxnId, SharedOutcome]:
        """Begin a transaction without waiting, if `may_begin_at_once`; return its id and an outcome that succeeds when
        it is durable. ProtocolError."""
        wall_ms = self._region.environment.wall_clock_ms()
        entry = self.core.begin(timeout_ms, wall_ms, holder, self._now_ms(), owner)
        self.figures.created += 1
        written = self._issue(entry)
        self._due.arm()
        return self.core.live[entry.least].txn, written

    def add_partitions(self, least: int, topics: Sequence[str]) -> SharedOutcome:
        """Add topics to a transaction. The outcome succeeds when they are durable in the log, or fails with
        StorageError. ProtocolError, raised or as the outcome, when they cannot be added."""
        try:
            return self._write_addition(self.core.add_partitions(least, topics))
        except ProtocolError as problem:
            return self._reject_when_durable(problem)

    def add_subscriptions(self, least: int, subscriptions: Sequence[tuple[str, str]]) -> SharedOutcome:
        """Add subscriptions (topic, name) to a transaction, as `add_partitions` does."""
        try:
            return self._write_addition(self.core.add_subscriptions(least, subscriptions))
        except ProtocolError as problem:
            return self._reject_when_durable(problem)

    def _write_addition(self, entry: JournalEntry | None) -> SharedOutcome:
        """Return the write that a request to add participants waits for. A repeated request waits for the first one,
        which may not be durable yet."""
        written = self.journal.newest if entry is None else self._issue(entry)
        return SharedOutcome(is_done=True) if written is None else written

    def finish(self, least: int, *, commit: bool, why: str) -> SharedOutcome:
        """Commit or abort a transaction. The result completes when every participant has confirmed, or fails with
        StorageError. ProtocolError, raised or as the outcome, when the transaction cannot be ended this way."""
        try:
            return self.decide(least, commit=commit, why=why) or SharedOutcome(is_done=True)
        except ProtocolError as problem:
            return self._reject_when_durable(problem)

    def _reject_when_durable(self, problem: ProtocolError) -> SharedOutcome:
        """Reject a request. The error reveals an earlier decision: while a write is pending, return an outcome that
        fails with it once the write is durable (TX1); otherwise raise it."""
        newest = self.journal.newest
        if newest is None or newest.done():
            raise problem
        refused = SharedOutcome()
        newest.add_done_callback(lambda _: refused.fail(newest.exception() or problem))
        return refused

    def decide(self, least: int, *, commit: bool, why: str) -> SharedOutcome | None:
        """Decide to commit or abort. The confirmation completes when every participant has confirmed; None: all had
        confirmed before. ProtocolError when the decision is not possible."""
        entry = self.core.decide(least, commit=commit, why=why)
        if entry is not None:
            self._deliver_outcome(least, entry)
        return self._confirmations.get(least)

    def _deliver_outcome(self, least: int, entry: Decided | None) -> None:
        """Write a decision, then notify the participants. `entry`: None when the log contains it already. The entry is
        appended at once: a later transaction of the same key must follow it in the log (INV-57)."""
        self._confirmations[least] = SharedOutcome()
        if entry is None:
            self.notifier.notify((self.core.live[least],))
        else:
            self._issue(entry)  # participants are notified when it is durable (TX3)

    def _end_transactions(self, numbers: Iterable[int]) -> None:
        """End transactions whose outcome every participant has confirmed. That they are over is written with the next
        entry, or after a while: nothing waits for it (TX5)."""
        now_ms = self._now_ms()
        for least in numbers:
            is_committed = self.core.live[least].status.is_committed
            self._ended.append(self.core.end(least, now_ms))
            self.figures.committed += is_committed
            self.figures.aborted += not is_committed
            self._confirmations.pop(least).succeed()
        if self._ended_timer is None:
            self._ended_timer = self._loop.call_later(ENDED_SECONDS_MAX, self.write_ended)

    def write_ended(self) -> None:
        """Write which transactions are over, if that is not written."""
        if self._ended_timer is not None:
            self._ended_timer.cancel()
            self._ended_timer = None
        if self._ended:
            self._issue()

    # Interface for its keys (key_registry.KeyedTransactions).

    async def ready(self) -> None:
        await self.journal.ready()
        if self.over:
            raise loading(self.number)

    def issue_all(self) -> None:
        self.journal.flush()

    def key_stored(self, written: SharedOutcome) -> None:
        self._on_written((), written)

    def abort_of(
        self, owner: str, key: str, why: str, before_epoch: int | None = None
    ) -> list[asyncio.Future[None]]:
        """Abort the open transactions of a key, or only those of epochs below `before_epoch`. Returns the futures of
        their confirmations, also of transactions that were decided already."""
        confirmations = []
        for transaction in self.core.of_key(owner, key):
            assert transaction.holder is not None
            if before_epoch is not None and transaction.holder.epoch >= before_epoch:
                continue
            least = transaction.txn.least
            if transaction.status is TransactionStatus.OPEN:
                self.decide(least, commit=False, why=why)
            if least in self._confirmations:
                confirmations.append(self._confirmations[least].future())
        return confirmations

    # Time-outs.

    def _time_out(self) -> None:
        for least in self.core.due(self._now_ms()):
            self.decide(least, commit=False, why=TIMED_OUT)
            self.figures.timed_out += 1

    # The logs.

    def _now_ms(self) -> float:
        return self._loop.time() * 1_000

    def _issue(self, *new: JournalEntry) -> SharedOutcome:
        """Append entries, and behind the first ones of a write a checkpoint if it is due. When they are durable,
        `_on_written` marks them so in memory (TP1), and participants of a decision are notified."""
        entries = [*self._ended, *new]
        self._ended.clear()
        written = self.journal.append([journal_format.encode(entry) for entry in entries])
        if written is self._written:
            self._entries += entries
            return written
        self._written, self._entries = written, entries
        written.add_done_callback(partial(self._on_written, entries))
        core = self.core
        if self.journal.since_checkpoint > max(
            CHECKPOINT_ENTRIES_MIN, 4 * (len(core.live) + len(core.outcomes))
        ):
            state = [journal_format.encode(entry) for entry in core.checkpoint_entries()]
            self.journal.checkpoint(state).add_done_callback(partial(self._on_written, ()))
        return written

    def _on_written(self, entries: Iterable[JournalEntry], written: SharedOutcome) -> None:
        failure = written.exception()
        if failure is None:
            self._mark_durable(entries)
        elif not self.over:
            assert isinstance(failure, StorageError), failure
            self._on_failure(self, failure)

    def _mark_durable(self, entries: Iterable[JournalEntry]) -> None:
        """Count durable entries as protocol events, open the topics and subscriptions that they add, and notify the
        participants of decided transactions."""
        decided, began, committing, ended = list[LiveTransaction](), 0, 0, 0
        for entry in entries:
            if isinstance(entry, Began):
                began += 1
            elif isinstance(entry, TransactionEnded):
                ended += 1
            elif isinstance(entry, Decided):
                decided.append(self.core.live[entry.least])
                committing += entry.status is TransactionStatus.COMMITTING
            else:
                self.core.mark_durable(entry)
        for event, times in (
            ("transaction_opened", began),
            ("transaction_committing", committing),
            ("transaction_aborting", len(decided) - committing),
            ("transaction_ended", ended),
        ):
            if times:
                self._region.resources.protocol_events.note(event, times=times)
        if decided and not self.over:
            self.notifier.notify(decided)


def loading(number: int) -> ProtocolError:
    """Return the error on which clients look up the coordinator again and retry."""
    sentence = f"transaction coordinator {number} is being loaded: repeat the request"
    return ProtocolError(ServerError.TransactionCoordinatorNotFound, sentence)
