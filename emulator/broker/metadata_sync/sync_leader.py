"""The work of a cluster's sync leader: publishes local changes, applies changes of other clusters, reports the
cluster's version vector, and requests missing events.

One task executes one step after the other. The next leader continues from the cluster's store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.damage import incomplete
from emulator.broker.metadata_sync.event_topic import EventTopic, EventTopicHost, ReceivedEvent
from emulator.broker.metadata_sync.exclusions import differences
from emulator.broker.metadata_sync.inbox import EventInbox, SyncMetrics
from emulator.broker.metadata_sync.losses import LostClusters
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.broker.metadata_sync.tombstones import Tombstones
from emulator.core.metadata import messages
from emulator.core.metadata.event import is_synced
from emulator.core.metadata.merge import MetadataTransaction
from emulator.core.metadata.pending_changes import Drawn, read_drawn, settled
from emulator.core.metadata.record import DocumentRecord, stored_record
from emulator.core.metadata.stored import UNREADABLE, decoded
from emulator.core.metadata.version_vector import OwnClock, covers, missing, stored_vector, vector_of
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    SYNC_DRAWN_PATH,
    SYNC_INCOMPLETE_PATH,
    SyncPeerPath,
    SyncRecordPath,
    parse_path,
)
from emulator.model.values import Change

logger = logging.getLogger(__name__)

STANDING_SECONDS = 0.25
"""How soon other clusters receive this cluster's version vector after it changed."""
BEHIND_SECONDS = 1.0
"""How long events of others may be missing before they are requested."""
ANSWER_SECONDS = 3.0
"""How long to wait for an answer."""
DRAWN_SECONDS = 2.0
"""How long a region has to publish and make a change that it prepared."""
MESSAGES_AT_ONCE = 4
"""Maximum number of messages in one transaction; other tasks run between two transactions."""


class PendingReport(NamedTuple):
    """The cluster's version vector at one moment, tombstones included. It may be sent once all clusters can know of all
    own changes before it. Otherwise they would drop the tombstones, and take a late older change for a new one
    (INV-78)."""

    vector: dict[str, int]
    own_sequence: int
    """Number of the newest own change at that moment."""


class SyncLeader:
    """From when a region acquires the lease until it loses it, or its event topic is loaded again."""

    def __init__(
        self, metadata: Metadata, settings: SyncSettings, figures: SyncMetrics, channel: EventTopic
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._figures = figures
        self._channel = channel
        self._losses = LostClusters(metadata, settings)
        self._inbox = EventInbox(metadata, settings, figures, self._losses)
        self._taken: list[ReceivedEvent] = []
        """Messages taken from the event topic, not yet applied."""
        self._said: dict[str, int] | None = None
        """The version vector that was sent last."""
        self._told: dict[str, int] = {}
        """The declarations of lost clusters that were sent last."""
        self._say_at: float | None = 0.0
        self._asks = True
        self._behind_since = 0.0
        self._behind: dict[str, int] = {}
        self._had: dict[str, int] = {}
        self._asked_until = 0.0
        self._outbox = settings.outbox(settings.here.cluster, self._clock.incarnation, self._published())
        self._drawn_since: dict[int, float] = {}
        """By number: since when this region knows that an own change is prepared and not made."""
        self._told_apart: dict[str, str] = {}
        """By cluster: the difference in excluded paths that was logged last."""
        self._claim: PendingReport | None = None
        """To be sent as soon as that is allowed."""
        self._due_at_sequence = -1
        self._due_since: float | None = None
        self._tombstones = Tombstones(metadata, settings, self._losses)
        for record in map(self.record, self._shared_paths()):
            self._outbox.begins_with(record)
            self._tombstones.noted(record)
        self._watch = metadata.watch(SyncRecordPath.prefix(), self._record_changed)

    @classmethod
    async def begin(
        cls,
        host: EventTopicHost,
        metadata: Metadata,
        settings: SyncSettings,
        figures: SyncMetrics,
        on_news: Callable[[], None],
    ) -> SyncLeader:
        """ProtocolError or StorageError when the event topic or the store is not available now."""
        channel = await EventTopic.open(host, settings.topic, on_news)
        try:
            await _adopt(metadata, settings)
            await LostClusters(metadata, settings).obey_topology()
            return cls(metadata, settings, figures, channel)
        except BaseException:  # a consumer that stays attached would take further messages
            channel.close()
            raise

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    @property
    def channel_backlog(self) -> int:
        return self._channel.backlog

    @property
    def behind(self) -> dict[str, int]:
        """By origin: events that others have and this cluster lacks, as far as it knows."""
        return dict(self._behind)

    def close(self) -> None:
        self._watch.cancel()
        self._channel.close()

    async def step(self) -> None:
        """Do everything that is pending. StorageError, ProtocolError: retry."""
        await self._publish()
        await self._apply()
        await self._finish()
        await self._say()
        await self._ask()
        undecided = {event.path for event in self._drawn.values()}
        await self._tombstones.let_go(self._vector(), self._inbox.heard, undecided)
        self._tell_differences()

    def _tell_differences(self) -> None:
        """Log one line for each cluster with different excluded paths, and again when the difference changes."""
        found = {one.cluster: str(one) for one in differences(self._metadata, self._settings)}
        for cluster in found.keys() - {
            name for name, said in self._told_apart.items() if found.get(name) == said
        }:
            sentence = "metadata_sync_excluded_paths differ: %s; changes of these paths are not synchronised"
            logger.warning(sentence, found[cluster])
        self._told_apart = found

    # State, from the mirror.

    @property
    def _clock(self) -> OwnClock:
        clock = decoded(self._metadata.get(SYNC_CLOCK_PATH.text), OwnClock.decode, None)
        assert clock is not None, "it was adopted before"
        return clock

    @property
    def _drawn(self) -> Drawn:
        return read_drawn(self._metadata.get(SYNC_DRAWN_PATH.text))

    @property
    def _settled(self) -> int:
        return settled(self._clock, self._drawn)

    def _vector(self) -> dict[str, int]:
        clock = replace(self._clock, sequence=self._settled)
        return vector_of(self._metadata.get(SYNC_APPLIED_PATH.text), clock, self._settings.here.cluster)

    def _shared_paths(self) -> list[str]:
        keys = [parse_path(change.path) for change in self._metadata.list(SyncRecordPath.prefix())]
        return [key.of for key in keys if isinstance(key, SyncRecordPath)]

    def record(self, path: str) -> DocumentRecord:
        return stored_record(path, self._metadata.get(SyncRecordPath(path).text))

    def _published(self) -> int:
        """Every other cluster has this cluster's own events at least up to this number."""
        own = f"{self._settings.here.cluster}:{self._clock.incarnation}"
        said = [self._metadata.get(SyncPeerPath(cluster).text) for cluster in self._losses.expected]
        return min((stored_vector(one).get(own, 0) for one in said), default=0)

    # Publishing.

    def _record_changed(self, change: Change) -> None:
        key = parse_path(change.path)
        if isinstance(key, SyncRecordPath) and change.value is not None:
            with suppress(StorageDamaged):  # found and replaced by `DamagedRows`
                self._note(stored_record(key.of, change))

    def _note(self, record: DocumentRecord) -> None:
        self._outbox.noted(record)
        self._tombstones.noted(record)

    async def _publish(self) -> None:
        due, upto = self._outbox.due, self._settled
        if not due and self._outbox.published >= upto:
            self._due_since = None
            return
        if not self._may_publish():
            return
        characters_max = min(messages.PACK_CHARACTERS, self._channel.payload_bytes_max // 2)
        seen_to = self._losses.all_seen_to
        made = self._outbox.packs(map(self.record, due), upto, characters_max, seen_to)
        await self._channel.publish([messages.encode(pack) for pack in made])
        self._outbox.sent(made, map(self.record, due))
        self._figures.sent += sum(len(pack.events) for pack in made)

    def _may_publish(self) -> bool:
        """Whether to publish an unpublished change now. Where changes are published before they are made, they are
        received back without this. Others were not published, or had a number that another change overtook."""
        if not self._settings.publishes_first:
            return True
        now = asyncio.get_running_loop().time()
        if self._due_at_sequence != self._outbox.published or self._due_since is None:
            self._due_at_sequence, self._due_since = self._outbox.published, now
        return now - self._due_since >= BEHIND_SECONDS

    async def _finish(self) -> None:
        """Finish prepared changes that are neither made nor received back after a while: the region that prepared them
        died, or it is unknown whether they are published. They are published, possibly again, and made when they are
        received."""
        now, drawn = asyncio.get_running_loop().time(), self._drawn
        self._drawn_since = {number: self._drawn_since.get(number, now) for number in drawn}
        late = [drawn[number] for number, since in self._drawn_since.items() if now - since >= DRAWN_SECONDS]
        for event in sorted(late, key=lambda one: one.stamp.sequence):
            number, seen_to = event.stamp.sequence, self._losses.all_seen_to
            cluster, incarnation = self._settings.here.cluster, event.stamp.incarnation
            pack = messages.Events(cluster, incarnation, number - 1, number, (event,), seen_to)
            await self._channel.publish([messages.encode(pack)])
            self._drawn_since[number] = now

    # Applying.

    async def _apply(self) -> None:
        while True:
            while self._channel.received and len(self._taken) < MESSAGES_AT_ONCE:
                self._taken.append(self._channel.received.popleft())
            if not self._taken:
                return
            batch = await self._inbox.apply(self._taken, self._shared_paths)
            await asyncio.sleep(0)
            self._channel.acknowledge(self._taken)
            self._taken = []
            for pack in batch.own:
                self._outbox.heard(pack)
            for request in batch.requests:
                await self._answer(request)
            if any(standing.asks for standing in batch.standings.values()):
                self._said = None

    # Version vectors of clusters.

    async def _say(self) -> None:
        now = asyncio.get_running_loop().time()
        own = f"{self._settings.here.cluster}:{self._clock.incarnation}"
        has, declared = self._vector(), self._losses.declared
        if self._said is not None and (_others(has, own), declared) == (_others(self._said, own), self._told):
            self._say_at = self._claim = None
            return
        if self._say_at is None:
            self._say_at = now + STANDING_SECONDS
        if now < self._say_at:
            return
        self._claim = self._claim or PendingReport(has, self._clock.sequence)
        if self._outbox.published < self._claim.own_sequence:
            return
        has = {**self._claim.vector, own: self._outbox.published}
        excluded = self._settings.excluded
        standing = messages.VersionReport(self._settings.here.cluster, has, self._asks, declared, excluded)
        await self._channel.publish([messages.encode(standing)])
        self._said, self._told, self._asks, self._say_at, self._claim = has, declared, False, None, None

    async def _ask(self) -> None:
        """Request the events that others have, if they do not arrive otherwise."""
        now, mine = asyncio.get_running_loop().time(), self._vector()
        unseen = self._unseen
        if unseen and now >= self._asked_until:
            whom = unseen[int(now / ANSWER_SECONDS) % len(unseen)]  # each in turn: one of them may be down
            logger.info("cluster %s had declared this cluster lost; all its metadata is requested", whom)
            await self._request(whom, {}, now)
            return
        if mine != self._had:
            self._had, self._behind_since = mine, now
            self._asked_until = min(self._asked_until, now + BEHIND_SECONDS)
        if await self._recover(mine, now):
            return
        heard = {source: has for source, has in self._inbox.heard.items() if source not in self._losses.lost}
        lacks = {source: missing(mine, has) for source, has in heard.items()}
        self._behind = {origin: upto for one in lacks.values() for origin, upto in one.items()}
        if not self._behind:
            self._behind_since = now
        elif now - self._behind_since >= BEHIND_SECONDS and now >= self._asked_until:
            whom = max(sorted(lacks), key=lambda source: len(lacks[source]))
            logger.info("cluster %s: the metadata that this cluster lacks is requested", whom)
            await self._request(whom, mine, now)

    async def _recover(self, mine: dict[str, int], now: float) -> bool:
        """Request all events of another cluster, those of this cluster too, after a record was damaged. Returns whether
        it did. Every other turn is left for other missing events, since one of the clusters may be down."""
        row = incomplete(self._metadata.get(SYNC_INCOMPLETE_PATH.text))
        turn = int(now / ANSWER_SECONDS)
        whom = sorted(self._losses.expected.intersection(row))
        if not whom or turn % 2 or now < self._asked_until:
            return False
        cluster, number = whom[turn // 2 % len(whom)], self._settings.draw() or 1
        logger.info("cluster %s: all its metadata is requested, because a record here was damaged", cluster)
        self._inbox.recoveries[cluster] = number
        own = f"{self._settings.here.cluster}:{self._clock.incarnation}"
        await self._request(cluster, {**mine, own: 0}, now, number)
        return True

    async def _request(self, whom: str, has: dict[str, int], now: float, number: int = 0) -> None:
        request = messages.CatchUpRequest(self._settings.here.cluster, whom, has, number)
        await self._channel.publish([messages.encode(request)])
        self._asked_until = now + ANSWER_SECONDS

    @property
    def _unseen(self) -> list[str]:
        """Clusters that declared this one lost, in declarations that are not processed yet."""
        told = self._inbox.declared
        return sorted(source for source, times in told.items() if times > self._losses.seen_to(source))

    async def _answer(self, request: messages.CatchUpRequest) -> None:
        """Send everything that the requester lacks, of any origin. While this cluster may still have what all others
        deleted, they have to request it elsewhere."""
        if self._unseen and request.vector:
            return
        events = [
            event
            for path in self._shared_paths()
            for event in self.record(path).events()
            if not covers(request.vector, event.stamp)
        ]
        characters_max = min(messages.PACK_CHARACTERS, self._channel.payload_bytes_max // 2)
        parts = list(messages.portions(events, characters_max)) or [()]
        number, vector, count = request.number or self._settings.draw(), self._vector(), len(parts)
        here, to, is_whole = self._settings.here.cluster, request.source, not request.vector
        declared, seen_to = self._losses.of(to).times, self._losses.all_seen_to
        answers = [
            messages.CatchUpResponse(here, to, number, part, count, vector, its, is_whole, declared, seen_to)
            for part, its in enumerate(parts)
        ]
        await self._channel.publish([messages.encode(answer) for answer in answers])
        self._figures.answers += 1


def _others(vector: dict[str, int], own: str) -> dict[str, int]:
    return {origin: sequence for origin, sequence in vector.items() if origin != own}


async def _adopt(metadata: Metadata, settings: SyncSettings) -> None:
    """Create records for documents that existed before sync, as seeds; and the cluster's clock."""
    paths = [change.path for change in metadata.list("") if is_synced(change.path)]
    unknown = [
        path for path in paths if settings.covers(path) and metadata.get(SyncRecordPath(path).text) is None
    ]
    if unknown or metadata.get(SYNC_CLOCK_PATH.text) is None:

        def work(transaction: MetadataTransaction) -> None:
            for path in unknown:
                try:
                    transaction.adopt(path)
                except UNREADABLE as problem:  # a document that cannot be read must not block the others
                    logger.error(
                        "metadata sync: %s is damaged and not sent to other clusters: %s", path, problem
                    )

        await metadata.transact(settings.transaction(work))
