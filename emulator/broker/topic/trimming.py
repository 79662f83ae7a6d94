"""Trims the oldest entries of one topic's log: never an entry that is still needed, nor one that a restart needs.

    needed from, now ─▶ cursors and progress durable ─▶ checkpoint durable ─▶ trim ─▶ cursors pass, parts deleted

A topic's state (each producer's last sequence id, each region's last position) is folded from the log. So an entry is
trimmed only when a durable checkpoint includes it (L2). The first needed entry is computed before anything is made
durable: it only grows, so what is durable afterwards needs no earlier entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from emulator.core.cursor.cursor import Cursor
from emulator.core.topic.retention import LogHold, LogHolds
from emulator.errors import StorageError
from emulator.storage.contract import Log

if TYPE_CHECKING:
    from emulator.broker.replication.replicator import Replicator
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.checkpoints import Checkpoints

logger = logging.getLogger(__name__)


class TrimmedTopic(Protocol):
    """The topic, as this module needs it."""

    log: Log
    full_name: str
    closed: bool

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def replicators(self) -> Mapping[str, Replicator]: ...
    @property
    def stored_end(self) -> int: ...
    @property
    def readable_end(self) -> int: ...
    @property
    def checkpoints(self) -> Checkpoints: ...

    def failed(self, failure: BaseException) -> None: ...


class Trimmer:
    """Owned by its topic."""

    def __init__(self, topic: TrimmedTopic) -> None:
        self._topic = topic
        self._under_way: asyncio.Future[None] | None = None
        self.floor = 0
        """Everything below is trimmed or being trimmed: no cursor may move there."""
        self.needs = LogHolds()
        """The users of the log, each with the first entry it needs. Every feature that reads the log later registers
        here."""
        self.needs.add("cursors", self._cursors)
        self.needs.add("replicators", self._replicators)

    def _cursors(self) -> Iterable[LogHold]:
        """Holds of durable cursors. A reader holds nothing: it reads what is left, as upstream."""
        for name, subscription in self._topic.subscriptions.items():
            if subscription.durable:
                yield LogHold(subscription.cursor.mark_delete + 1, f"subscription {name}")

    def _replicators(self) -> Iterable[LogHold]:
        for remote, replicator in self._topic.replicators.items():
            yield LogHold(replicator.progress.confirmed + 1, f"the replicator to {remote}")

    @property
    def need(self) -> LogHold:
        """The hold with the lowest entry id."""
        return self.needs.first(self._topic.stored_end)

    async def trim(self, before_entry_id: int) -> None:
        """Trim entries below an id that are not needed. StorageError when that fails; it may have happened all the
        same."""
        if self._under_way is not None:
            return
        self._under_way = asyncio.get_running_loop().create_future()
        try:
            await self._trim(min(before_entry_id, self.need.entry_id))
        finally:
            self._under_way.set_result(None)
            self._under_way = None

    async def _trim(self, before: int) -> None:
        topic = self._topic
        if before <= topic.log.first_entry_id:
            return
        await asyncio.gather(
            *[subscription.flush() for subscription in topic.subscriptions.values()],
            *[replicator.flush() for replicator in topic.replicators.values()],
        )
        counted = await topic.checkpoints.write_durably()
        # Meanwhile a consumer may have sought back, or a subscription was added at the beginning.
        before = min(before, counted, self.need.entry_id)
        if topic.closed or before <= topic.log.first_entry_id:
            return
        self.floor = before
        await topic.log.trim(before)
        logger.info("%s: entries below %d are removed", topic.full_name, topic.log.first_entry_id)
        if not topic.closed:
            self._pass_trimmed()
            topic.checkpoints.forget_parts_below(topic.log.first_entry_id)

    def _pass_trimmed(self) -> None:
        """Move cursors that held nothing past the trimmed entries."""
        last = self._topic.log.first_entry_id - 1

        def passing(cursor: Cursor) -> bool:
            return cursor.ack_range(cursor.mark_delete + 1, last)

        for subscription in list(self._topic.subscriptions.values()):
            if subscription.cursor.mark_delete < last:
                subscription.move(passing)

    async def settled(self) -> None:
        """After `close`: wait until no trim is under way."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])


async def trimmed_or_failed(topic: TrimmedTopic, trimmer: Trimmer, before_entry_id: int) -> None:
    """Trim; if that fails, load the topic again, because the trim may have happened."""
    try:
        await trimmer.trim(before_entry_id)
    except StorageError as failure:
        if not topic.closed:
            topic.failed(failure)
