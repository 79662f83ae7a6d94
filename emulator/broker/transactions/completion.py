"""Sends the outcome of a decided transaction to its participants until each has confirmed it (TX4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from emulator.broker.shared_outcome import SharedOutcome
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.transactions.live import LiveTransaction
from emulator.errors import ProtocolError, ServerError, StorageError

if TYPE_CHECKING:
    from emulator.broker.topic_directory.directory import TopicDirectory

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 2.0
CONCURRENT_MAX: Final = 32
"""Maximum number of participants of one coordinator that tasks notify concurrently. `notify_now` has no limit."""
ABSENT_CODES: Final = frozenset({ServerError.TopicNotFound, ServerError.InvalidTopicName})
"""Errors that mean that a participant does not exist: it counts as confirmed."""

Participant = tuple[str, str | None]
"""Full name of a topic, and name of a subscription there; None: the topic itself."""
Notified = asyncio.Future[Any] | SharedOutcome
"""Succeeds when all participants of a transaction have confirmed its outcome."""


class NotifyingRegion(Protocol):
    """The region, as a `ParticipantNotifier` uses it."""

    @property
    def directory(self) -> TopicDirectory: ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None: ...


class ParticipantNotifier:
    """Notifies the participants of one coordinator's transactions."""

    def __init__(
        self,
        region: NotifyingRegion,
        low_watermark: Callable[[], int],
        is_over: Callable[[], bool],
        on_confirmed: Callable[[Iterable[int]], None],
    ) -> None:
        """`is_over`: whether the coordinator has ended. `on_confirmed`: called with the numbers of transactions when
        all their participants have confirmed, unless the coordinator has ended."""
        self._region = region
        self._low_watermark = low_watermark
        self._is_over = is_over
        self._on_confirmed = on_confirmed
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)
        self.refused: dict[int, dict[Participant, str]] = {}
        """Number of a transaction -> participants that could not be notified, and why. For explanations."""

    def notify(self, transactions: Iterable[LiveTransaction]) -> None:
        """Notify all participants (TX4). A task is started only for a transaction of which some are subscriptions, have
        to be loaded, or could not be notified. Transactions whose markers one append stores are confirmed together."""
        groups: dict[Notified, list[LiveTransaction]] = {}
        for transaction in transactions:
            notified = self.notify_now(transaction)
            if notified is None:
                self._region.spawn(self._notify_until_confirmed(transaction))
            else:
                groups.setdefault(notified, []).append(transaction)
        for notified, group in groups.items():
            notified.add_done_callback(partial(self._on_notified, group))

    def _on_notified(self, group: list[LiveTransaction], notified: Notified) -> None:
        if self._is_over():
            return
        if notified.exception() is None:
            self._on_confirmed([transaction.txn.least for transaction in group])
            return
        for transaction in group:
            self._region.spawn(self._notify_until_confirmed(transaction))

    async def _notify_until_confirmed(self, transaction: LiveTransaction) -> None:
        await self.notify_all(transaction)
        if not self._is_over():
            self._on_confirmed((transaction.txn.least,))

    def notify_now(self, transaction: LiveTransaction) -> Notified | None:
        """Notify all participants at once. The outcome, which transactions may share, succeeds when every one has
        confirmed; it fails when one could not be notified. None: a participant is a subscription, or a topic that is
        not loaded; some of the others may have been notified."""
        if transaction.subscriptions:
            return None
        serving = self._region.directory.serving
        topics = [serving.get(name) for name in transaction.topics]
        confirmed = []
        for topic in topics:
            if topic is None or topic.closed:
                return None
            committed = transaction.status.is_committed
            confirmed.append(
                topic.transactions.end_partition(transaction.txn, committed, self._low_watermark())
            )
        if len(confirmed) == 1:
            return confirmed[0]
        return asyncio.gather(*(each.future() for each in confirmed))

    async def notify_all(self, transaction: LiveTransaction) -> None:
        """Notify the participants until every one has confirmed, or the coordinator has ended."""
        waiting: list[Participant] = [(topic, None) for topic in transaction.topics]
        waiting += transaction.subscriptions
        delay_seconds = RETRY_SECONDS
        try:
            while waiting and not self._is_over():
                await asyncio.gather(*(self._notify_one(transaction, each) for each in waiting))
                waiting = list(self.refused.get(transaction.txn.least, ()))
                if waiting:
                    await asyncio.sleep(delay_seconds)
                    delay_seconds = min(delay_seconds * 2, RETRY_SECONDS_MAX)
        finally:
            self.refused.pop(transaction.txn.least, None)

    async def _notify_one(self, transaction: LiveTransaction, participant: Participant) -> None:
        refused = self.refused.setdefault(transaction.txn.least, {})
        try:
            async with self._slots:
                await self._end_at(transaction, *participant)
        except (ProtocolError, StorageError) as problem:
            if not (isinstance(problem, ProtocolError) and problem.code in ABSENT_CODES):
                refused[participant] = str(problem)
                return
        except Exception as problem:  # any: the others must receive the outcome, and this one is retried
            logger.error("transaction %s: %s failed", transaction.txn.text, participant, exc_info=problem)
            refused[participant] = f"{type(problem).__name__}: {problem}"
            return
        refused.pop(participant, None)

    async def _end_at(
        self, transaction: LiveTransaction, topic_name: str, subscription_name: str | None
    ) -> None:
        topic = await self._region.directory.acquire(topic_name, OpenMode.EXISTING)
        committed, txn = transaction.status.is_committed, transaction.txn
        if subscription_name is None:
            await topic.transactions.end_partition(txn, committed, self._low_watermark())
        else:
            subscription = topic.subscriptions.get(subscription_name)
            if subscription is not None:
                await subscription.end_subscription(txn, committed, self._low_watermark())
