"""All coordinators of a region: loading, replacement after a failure, and the interface for participants (TP1 to
TP5)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from emulator.broker.transactions.completion import RETRY_SECONDS, RETRY_SECONDS_MAX
from emulator.broker.transactions.coordinator import (
    LOG,
    CoordinatingRegion,
    CoordinatorMetrics,
    RunningCoordinator,
    loading,
)
from emulator.core.transactions.keys import NO_EPOCH, KeyBook
from emulator.errors import ProtocolError, ServerError, StorageDamaged, StorageError, StorageFenced
from emulator.model.transaction_names import coordinator_of

if TYPE_CHECKING:
    from emulator.model.transaction_names import TransactionStatus, TxnId

logger = logging.getLogger(__name__)

NOT_ENABLED: Final = "Transactions are not enabled."


class TransactionCoordinators:
    """Coordinators of one region. `count` of them accept new transactions; more may exist to finish old ones."""

    def __init__(self, region: CoordinatingRegion) -> None:
        self._region = region
        self.count = region.config.settings.transaction_coordinators
        self._loaded: dict[int, RunningCoordinator] = {}
        self._figures: dict[int, CoordinatorMetrics] = {}
        """Number of each coordinator that was loaded, or could not be -> its counters."""
        self._damaged: dict[int, str] = {}
        """Number of a coordinator -> why its log cannot be read."""

    # Starting.

    async def start(self) -> None:
        """Load all coordinators from their logs, before a topic is loaded (TP5). A coordinator whose log is damaged
        stays unavailable. StorageError when the store fails, or the number of coordinators was changed while keys exist
        or a log is damaged."""
        numbers = {*range(self.count), *self._stored_numbers()}
        await asyncio.gather(*map(self._load, sorted(numbers)))
        await self._bind_keys()

    def resume(self) -> None:
        """Finish decided transactions and start the timers of time-outs. Topics may be loaded from now on."""
        for coordinator in self._loaded.values():
            coordinator.resume()

    def close(self) -> None:
        """End all coordinators: the region stops."""
        stopping = StorageError("the region is stopping", definite=False)
        for coordinator in self._loaded.values():
            coordinator.write_ended()
            coordinator.issue_all()
            coordinator.end(stopping)

    def _stored_numbers(self) -> list[int]:
        tails = (name.removeprefix(LOG) for name in self._region.store.log_names() if name.startswith(LOG))
        return [int(tail) for tail in tails if tail.isdecimal()]

    async def _load(self, number: int, former: RunningCoordinator | None = None) -> RunningCoordinator | None:
        figures = self._figures.setdefault(number, CoordinatorMetrics())
        coordinator = RunningCoordinator(number, self._region, figures, self._replace_failed)
        if former is not None:
            coordinator.keys.holders = former.keys.holders
        try:
            await coordinator.load()
        except StorageDamaged as damage:
            logger.error("transaction coordinator %d cannot be used: %s", number, damage)
            self._damaged[number] = str(damage)
            return None
        self._loaded[number] = coordinator
        return coordinator

    async def _bind_keys(self) -> None:
        """Bind keys to the present number of coordinators if they were bound to another one. StorageError when keys
        exist, or a log is damaged."""
        books = [coordinator.keys.book for coordinator in self._loaded.values()]
        if not self.count or all(book.coordinators in (None, self.count) for book in books):
            return
        self._check_unbound(books)
        self._check_readable()
        floor = max((book.highest_epoch() for book in books), default=NO_EPOCH)
        # Former coordinators too: otherwise the next start would take the number in their logs for a change.
        for coordinator in self.loaded:
            await coordinator.keys.raise_floor(floor, self.count)

    def _check_unbound(self, books: list[KeyBook]) -> None:
        bound = sum(len(book.keys) for book in books)
        if bound:
            before = next(book.coordinators for book in books if book.keys)
            raise StorageError(
                f"transaction_coordinators is {self.count} and was {before}, but {bound} transaction keys are bound "
                f"to {before} coordinators: restore the old value, or delete the keys first",
                definite=True,
            )

    def _check_readable(self) -> None:
        """Raise StorageError for a damaged log of keys: its epochs are unknown and could be granted a second time
        (INV-55)."""
        for number, damage in self._damaged.items():
            raise StorageError(
                f"transaction_coordinators cannot become {self.count}: coordinator {number} may have transaction keys "
                f"that cannot be read ({damage})",
                definite=True,
            )

    # Failure.

    def _replace_failed(self, coordinator: RunningCoordinator, failure: StorageError) -> None:
        """Replace a coordinator whose log failed: its log may contain fewer or more entries than its memory."""
        logger.error("storage of transaction coordinator %d failed: %s", coordinator.number, failure)
        del self._loaded[coordinator.number]
        coordinator.end(failure)
        if isinstance(failure, StorageFenced):
            self._region.topic_failed("", failure)
        else:
            self._region.spawn(self._load_again(coordinator))

    async def _load_again(self, former: RunningCoordinator) -> None:
        await former.settled()
        number = former.number
        delay_seconds = RETRY_SECONDS
        while True:
            try:
                coordinator = await self._load(number, former)
            except Exception as failure:  # any: without a retry the coordinator would never be loaded
                known = isinstance(failure, StorageError)
                logger.warning(
                    "cannot load transaction coordinator %d yet: %s",
                    number,
                    failure,
                    exc_info=None if known else failure,
                )
            else:
                if coordinator is not None:
                    coordinator.resume()
                return
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(delay_seconds * 2, RETRY_SECONDS_MAX)

    def coordinator_of(self, key: str) -> int:
        """Return the number of the coordinator that a transaction key is bound to."""
        return coordinator_of(key, self.count)

    # Interface for commands and the admin port.

    @property
    def loaded(self) -> list[RunningCoordinator]:
        """Loaded coordinators, by number."""
        return [self._loaded[number] for number in sorted(self._loaded)]

    def get(self, number: int) -> RunningCoordinator:
        """Return a loaded coordinator. ProtocolError: TransactionCoordinatorNotFound when it is not loaded or does not
        exist, NotAllowedError when transactions are not enabled."""
        coordinator = self._loaded.get(number)
        if coordinator is not None:
            return coordinator
        if number in self._damaged:
            raise ProtocolError(ServerError.TransactionCoordinatorNotFound, self._damaged[number])
        if self._exists(number):
            raise loading(number)
        if not self.count:
            raise ProtocolError(ServerError.NotAllowedError, NOT_ENABLED)
        sentence = f"there is no transaction coordinator {number}: they are 0 to {self.count - 1}"
        raise ProtocolError(ServerError.TransactionCoordinatorNotFound, sentence)

    def get_accepting(self, number: int) -> RunningCoordinator:
        """Return a loaded coordinator that accepts new transactions. ProtocolError as `get`, also
        TransactionCoordinatorNotFound for one that only finishes old transactions."""
        coordinator = self.get(number)
        if number >= self.count:
            sentence = f"transaction coordinator {number} accepts no new transactions"
            raise ProtocolError(ServerError.TransactionCoordinatorNotFound, sentence)
        return coordinator

    # Interface for participants (contract.TransactionAuthority).

    def status(self, txn: TxnId) -> TransactionStatus | None:
        coordinator = self._loaded.get(txn.most)
        if coordinator is not None:
            return coordinator.core.status(txn.least)
        self._check_unloaded(txn.most)
        return None

    def check_publish(self, txn: TxnId, topic: str) -> None:
        coordinator = self._loaded_coordinator(txn)
        try:
            coordinator.core.check_publish(txn.least, topic)
        except ProtocolError as problem:
            # The only error of a SEND on which every client fails only that message.
            raise ProtocolError(ServerError.NotAllowedError, str(problem)) from None

    def check_acknowledge(self, txn: TxnId, topic: str, subscription: str) -> None:
        self._loaded_coordinator(txn).core.check_acknowledge(txn.least, topic, subscription)

    def abort(self, txn: TxnId, why: str) -> None:
        coordinator = self._loaded.get(txn.most)
        if coordinator is not None:
            with contextlib.suppress(ProtocolError):  # the transaction has ended or is decided
                coordinator.decide(txn.least, commit=False, why=why)

    def _exists(self, number: int) -> bool:
        """Return whether the region has this coordinator, loaded or not; also one that only finishes old
        transactions."""
        return number < self.count or number in self._figures

    def _loaded_coordinator(self, txn: TxnId) -> RunningCoordinator:
        coordinator = self._loaded.get(txn.most)
        if coordinator is None:
            self._check_unloaded(txn.most)
            sentence = f"transaction {txn.text} was never begun" if self.count else NOT_ENABLED
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        return coordinator

    def _check_unloaded(self, number: int) -> None:
        """Raise ProtocolError if an unloaded coordinator exists: the outcome of its transactions is unknown."""
        if self._exists(number):
            why = self._damaged.get(number, "it is being loaded")
            sentence = f"transaction coordinator {number} is unavailable: {why}"
            raise ProtocolError(ServerError.ServiceNotReady, sentence)
