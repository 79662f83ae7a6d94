"""What a region says to the event topic before a change of metadata is made, where it was told to.

The proposal's order (`metadata_order: upstream`): the change is drawn up, published, then made. Whoever was told
that it failed may have been told wrong: the event is out, and the carriers obey it.

`metadata_sync_requires_event_topic`: the change is made first, as ever, but only once the event topic has taken a
message. Without either nothing is said here, and the carrier publishes what it finds in the store.
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
    """One a region. Implements `metadata.Announcing`."""

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
        """What to do in the transaction that makes the change. StorageError when the event topic takes nothing now:
        then nothing was changed here (`definite`: nor will it be); Overruled; Conflict when the path is not `of` this
        version any more. What is published is not drawn up again because another change came between: each that is
        published comes true, and two that gave way to each other would publish for ever."""
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
            if isinstance(problem, ProtocolError) or problem.definite:  # the carrier finishes what may be out
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
        """A pack without events, which says nothing of anybody."""
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
    """The same, if the path is of this version."""

    def whole(rows: ConfigurationRows) -> None:
        check_expected(path, of, rows.get(path))
        work(rows)

    return whole
