"""Lets go of the oldest entries of one topic's log: never what somebody needs, and never what a restart would lack.

    what is needed, now ─▶ cursors and progress durable ─▶ checkpoint durable ─▶ trim ─▶ cursors pass, parts go

A topic's state (who sent what last, what came from which region) is folded from the log. So an entry goes only when a
durable checkpoint counts it (L2). What is needed is asked before anything is made durable: it only grows, so what is
durable afterwards needs no more than that.
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
    """The topic, as far as it is needed for trimming it."""

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
    """Of one topic."""

    def __init__(self, topic: TrimmedTopic) -> None:
        self._topic = topic
        self._under_way: asyncio.Future[None] | None = None
        self.floor = 0
        """Everything below is being let go, or was: nobody is put there any more."""
        self.needs = LogHolds()
        """Who needs the log, and from where on. Whatever else is made of a log asks here not to lose it."""
        self.needs.add("cursors", self._cursors)
        self.needs.add("replicators", self._replicators)

    def _cursors(self) -> Iterable[LogHold]:
        """Durable ones. A reader holds nothing back: it is given what there is, as upstream."""
        for name, subscription in self._topic.subscriptions.items():
            if subscription.durable:
                yield LogHold(subscription.cursor.mark_delete + 1, f"subscription {name}")

    def _replicators(self) -> Iterable[LogHold]:
        for remote, replicator in self._topic.replicators.items():
            yield LogHold(replicator.progress.confirmed + 1, f"the replicator to {remote}")

    @property
    def need(self) -> LogHold:
        """The least that somebody needs."""
        return self.needs.first(self._topic.stored_end)

    async def trim(self, before_entry_id: int) -> None:
        """Let go of what lies below an id, and is not needed. StorageError when it cannot be; it may have happened."""
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
        # Somebody may have sought back meanwhile, or a subscription was added at the beginning.
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
        """Of those that held nothing back."""
        last = self._topic.log.first_entry_id - 1

        def passing(cursor: Cursor) -> bool:
            return cursor.ack_range(cursor.mark_delete + 1, last)

        for subscription in list(self._topic.subscriptions.values()):
            if subscription.cursor.mark_delete < last:
                subscription.move(passing)

    async def settled(self) -> None:
        """Of a closed topic: wait until nothing is let go any more."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])


async def trimmed_or_failed(topic: TrimmedTopic, trimmer: Trimmer, before_entry_id: int) -> None:
    """A trim that failed may have happened: then the topic is loaded again."""
    try:
        await trimmer.trim(before_entry_id)
    except StorageError as failure:
        if not topic.closed:
            topic.failed(failure)
