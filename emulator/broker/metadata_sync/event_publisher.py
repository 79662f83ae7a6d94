"""Publishes this cluster's changes to the event topic: after they are made, or before if configured.

With the proposal's order (`metadata_order: upstream`) a change is prepared in the store, published, then made. An error
response does not prove that the change failed: the event may be published, and then sync leaders apply it.

With `metadata_sync_requires_event_topic` the change is made before it is published, but only after the event topic has
accepted a message. With neither setting a region publishes nothing before its changes: the sync leader publishes the
changes that it finds in the store (`LocalChanges`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.cluster_state import ClusterState
from emulator.broker.metadata_sync.event_topic import EventTopic, EventTopicHost
from emulator.broker.metadata_sync.inbox import SyncMetrics
from emulator.broker.metadata_sync.settings import LostClusters, SyncSettings
from emulator.core.metadata import messages
from emulator.core.metadata.event import SyncEvent
from emulator.core.metadata.merge import MetadataTransaction
from emulator.core.metadata.record import DocumentRecord
from emulator.errors import ProtocolError, StorageError
from emulator.storage.configuration.contract import ConfigurationRows, check_expected

UNPUBLISHED_SECONDS = 1.0
"""Seconds that the sync leader waits to receive an own change from the event topic, before it publishes the change."""
PREPARED_SECONDS = 2.0
"""Seconds in which a region must publish and make a prepared change; after them the sync leader publishes it."""

Work = Callable[[ConfigurationRows], None]


class EventPublisher:
    """Publishes the changes of one region before they are made, or checks that the event topic accepts messages.
    Implements `ChangePublisher` of `broker.metadata.store`."""

    def __init__(self, host: EventTopicHost, metadata: Metadata, settings: SyncSettings) -> None:
        self._host = host
        self._metadata = metadata
        self._settings = settings
        self._losses = LostClusters(metadata, settings)
        self._channel: EventTopic | None = None
        self._opening = asyncio.Lock()

    async def publish(
        self, path: str, value: bytes | None, touched: Iterable[str], of: int | None = None
    ) -> Work:
        """Publish a change, and return the work of the transaction that makes it. StorageError or ProtocolError when
        the event topic does not accept the event: then the change was not made (`definite`: nor will be). Overruled.
        Conflict when the path no longer has version `of`. A published change is made even if a concurrent one was made
        meanwhile: if both were prepared again because of each other, they would be published for ever."""
        if self._settings.publishes_first:
            return await self._prepare_and_publish(path, value, tuple(touched), of)
        await self._probe()
        return _with_version_check(
            path, of, self._settings.changing(path, value, is_seed=False, touched=touched)
        )

    async def _prepare_and_publish(
        self, path: str, value: bytes | None, touched: tuple[str, ...], of: int | None
    ) -> Work:
        channel = await self._open()  # before sequence numbers are taken
        prepared: list[list[SyncEvent]] = []

        def prepare(transaction: MetadataTransaction) -> None:
            prepared.append(transaction.store_prepared(path, value, touched=touched))

        await self._metadata.transact(_with_version_check(path, of, self._settings.transaction(prepare)))
        events = prepared[-1]
        if events:
            await self._publish_prepared(channel, events)
        return self._settings.transaction(lambda transaction: transaction.apply_prepared(path, events))

    async def _publish_prepared(self, channel: EventTopic, events: list[SyncEvent]) -> None:
        try:
            await channel.publish([_encode(events, self._losses)])
            self._host.resources.protocol_events.note("metadata_event_published", times=len(events))
        except (StorageError, ProtocolError) as problem:
            # Withdraw only a change that is certainly not published; the sync leader finishes the others.
            if isinstance(problem, ProtocolError) or problem.definite:
                with suppress(StorageError):
                    work = self._settings.transaction(lambda transaction: transaction.withdraw(events))
                    await self._metadata.transact(work)
            raise

    async def _probe(self) -> None:
        """Publish a message without events, which has no effect elsewhere. StorageError (`definite`) if the event topic
        does not accept it."""
        channel = await self._open()
        try:
            await channel.publish(
                [messages.encode(messages.Events(self._settings.here.cluster, "-", 0, 0, ()))]
            )
        except (ProtocolError, StorageError) as problem:
            raise self._rejection(problem) from problem

    async def _open(self) -> EventTopic:
        """Return the open event topic. StorageError (`definite`) when it cannot be loaded."""
        async with self._opening:
            if self._channel is None or not self._channel.is_open:
                try:
                    self._channel = await EventTopic.open_to_publish(self._host, self._settings.topic)
                except (ProtocolError, StorageError) as problem:
                    raise self._rejection(problem) from problem
            return self._channel

    def _rejection(self, problem: ProtocolError | StorageError) -> StorageError:
        sentence = (
            f"cannot publish to the event topic {self._settings.topic}, so the change is not made: {problem}"
        )
        return StorageError(sentence, definite=True)


class LocalChanges:
    """Publishes, for the sync leader, the changes of its cluster that are made or prepared and not published yet."""

    def __init__(self, state: ClusterState, channel: EventTopic, metrics: SyncMetrics) -> None:
        self._state = state
        self._channel = channel
        self._metrics = metrics
        settings, incarnation = state.settings, state.clock.incarnation
        self._outbox = settings.outbox(settings.here.cluster, incarnation, state.received_by_all())
        self._prepared_since: dict[int, float] = {}
        """Number of a prepared change -> loop time at which this region first saw it, or last published it."""
        self._due_at_sequence = -1
        self._due_since: float | None = None

    @property
    def published(self) -> int:
        """The number up to which own changes are published."""
        return self._outbox.published

    def load(self, record: DocumentRecord) -> None:
        """Note the unpublished changes of a record when the sync leader starts."""
        self._outbox.begins_with(record)

    def note(self, record: DocumentRecord) -> None:
        """Note the unpublished changes of a record that has changed."""
        self._outbox.noted(record)

    def note_received(self, message: messages.Events) -> None:
        """Note own events that were received from the event topic, and therefore are published."""
        self._outbox.heard(message)

    async def publish(self) -> None:
        """Publish the unpublished changes that are made; if changes are published before they are made, only after
        UNPUBLISHED_SECONDS. StorageError, ProtocolError."""
        outbox, state = self._outbox, self._state
        due, upto = outbox.due, state.decided_sequence
        if not due and outbox.published >= upto:
            self._due_since = None
            return
        if not self._may_publish():
            return
        unpublished = outbox.event_messages(
            map(state.record, due), upto, self._channel.event_characters_max, state.losses.all_seen_to
        )
        await self._channel.publish([messages.encode(message) for message in unpublished])
        outbox.sent(unpublished, map(state.record, due))
        sent = sum(len(message.events) for message in unpublished)
        self._metrics.sent += sent
        self._metrics.events.note("metadata_event_published", times=sent)

    def _may_publish(self) -> bool:
        """Whether to publish unpublished changes now; starts the time for them. If changes are published before they
        are made, most are received back in time. The others were not published, or a later change overtook them."""
        if not self._state.settings.publishes_first:
            return True
        now = asyncio.get_running_loop().time()
        if self._due_at_sequence != self._outbox.published or self._due_since is None:
            self._due_at_sequence, self._due_since = self._outbox.published, now
        return now - self._due_since >= UNPUBLISHED_SECONDS

    async def finish(self) -> None:
        """Finish prepared changes that are neither made nor received back after PREPARED_SECONDS: their region died, or
        does not know whether they are published. Publish them, possibly again; they are made when they are received.
        StorageError, ProtocolError."""
        now, prepared = asyncio.get_running_loop().time(), self._state.prepared
        self._prepared_since = {number: self._prepared_since.get(number, now) for number in prepared}
        late = [
            prepared[number]
            for number, since in self._prepared_since.items()
            if now - since >= PREPARED_SECONDS
        ]
        for event in sorted(late, key=lambda one: one.stamp.sequence):
            await self._channel.publish([_encode([event], self._state.losses)])
            self._prepared_since[event.stamp.sequence] = now


def _encode(events: list[SyncEvent], losses: LostClusters) -> bytes:
    """Encode own events with successive numbers as one message."""
    first, last = events[0].stamp, events[-1].stamp
    after, seen_to = first.sequence - 1, losses.all_seen_to
    return messages.encode(
        messages.Events(first.source, first.incarnation, after, last.sequence, tuple(events), seen_to)
    )


def _with_version_check(path: str, of: int | None, work: Work) -> Work:
    """Return the work, preceded by a check that the path has version `of`."""

    def whole(rows: ConfigurationRows) -> None:
        check_expected(path, of, rows.get(path))
        work(rows)

    return whole
