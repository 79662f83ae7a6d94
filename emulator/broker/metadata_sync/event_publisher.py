"""Messages that a region publishes to the event topic before it changes metadata, if configured.

The proposal's order (`metadata_order: upstream`): the change is prepared, published, then made. An error response does
not prove that the change failed: the event may be published, and sync leaders apply it.

`metadata_sync_requires_event_topic`: the change is made first, as usual, but only after the event topic has accepted a
message. With neither setting nothing is published here: the sync leader publishes the changes that it finds in the
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.event_topic import EventTopic, EventTopicHost
from emulator.broker.metadata_sync.losses import LostClusters
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.core.metadata import messages
from emulator.core.metadata.event import SyncEvent
from emulator.core.metadata.merge import MetadataTransaction
from emulator.errors import ProtocolError, StorageError
from emulator.storage.configuration.contract import ConfigurationRows, check_expected

Work = Callable[[ConfigurationRows], None]


class EventPublisher:
    """One per region. Implements `metadata.ChangePublisher`."""

    def __init__(self, host: EventTopicHost, metadata: Metadata, settings: SyncSettings) -> None:
        self._host = host
        self._metadata = metadata
        self._settings = settings
        self._losses = LostClusters(metadata, settings)
        self._channel: EventTopic | None = None
        self._opening = asyncio.Lock()

    async def announced(
        self, path: str, value: bytes | None, touched: Iterable[str], of: int | None = None
    ) -> Work:
        """Publish a change, and return the work of the transaction that makes it. StorageError when the event topic
        accepts nothing now: then nothing was changed here (`definite`: nor will it be); Overruled; Conflict when the
        path is not `of` this version any more. A published change is not prepared again because of a concurrent one:
        each published change is made, and two that retried because of each other would publish for ever."""
        if self._settings.publishes_first:
            return await self._published(path, value, tuple(touched), of)
        await self._probe()
        return _checked(path, of, self._settings.changing(path, value, is_seed=False, touched=touched))

    async def _published(
        self, path: str, value: bytes | None, touched: tuple[str, ...], of: int | None
    ) -> Work:
        channel = await self._open()  # before numbers are used up
        drawn: list[list[SyncEvent]] = []

        def draw_up(transaction: MetadataTransaction) -> None:
            drawn.append(transaction.draw_up(path, value, touched=touched))

        await self._metadata.transact(_checked(path, of, self._settings.transaction(draw_up)))
        events = drawn[-1]
        if events:
            await self._told(channel, events)
        return self._settings.transaction(lambda transaction: transaction.make_drawn(path, events))

    async def _told(self, channel: EventTopic, events: list[SyncEvent]) -> None:
        try:
            await channel.publish([messages.encode(self._pack(events))])
        except (StorageError, ProtocolError) as problem:
            # the sync leader finishes a change that may be published
            if isinstance(problem, ProtocolError) or problem.definite:
                with suppress(StorageError):
                    work = self._settings.transaction(lambda transaction: transaction.withdraw(events))
                    await self._metadata.transact(work)
            raise

    def _pack(self, events: list[SyncEvent]) -> messages.Events:
        first, last = events[0].stamp, events[-1].stamp
        cluster = self._settings.here.cluster
        after, seen_to = first.sequence - 1, self._losses.all_seen_to
        return messages.Events(cluster, first.incarnation, after, last.sequence, tuple(events), seen_to)

    async def _probe(self) -> None:
        """Publish a message without events, which has no effect elsewhere."""
        channel = await self._open()
        try:
            await channel.publish(
                [messages.encode(messages.Events(self._settings.here.cluster, "-", 0, 0, ()))]
            )
        except (ProtocolError, StorageError) as problem:
            raise self._refusal(problem) from problem

    async def _open(self) -> EventTopic:
        async with self._opening:
            if self._channel is None or not self._channel.is_open:
                try:
                    self._channel = await EventTopic.open_to_publish(self._host, self._settings.topic)
                except (ProtocolError, StorageError) as problem:
                    raise self._refusal(problem) from problem
            return self._channel

    def _refusal(self, problem: ProtocolError | StorageError) -> StorageError:
        sentence = (
            f"cannot publish to the event topic {self._settings.topic}, so the change is not made: {problem}"
        )
        return StorageError(sentence, definite=True)


def _checked(path: str, of: int | None, work: Work) -> Work:
    """Return the work with a check that the path is of this version."""

    def whole(rows: ConfigurationRows) -> None:
        check_expected(path, of, rows.get(path))
        work(rows)

    return whole
