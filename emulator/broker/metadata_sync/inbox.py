"""What came by the event topic, made one transaction: events are merged, and how far they reach is written, too."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.damage import incomplete
from emulator.broker.metadata_sync.event_topic import ReceivedEvent
from emulator.broker.metadata_sync.losses import LostClusters, see_to
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.core.metadata.event import SyncEvent, SyncStamp
from emulator.core.metadata.exclusions import encode_excluded, stored_excluded
from emulator.core.metadata.merge import MergeCounts, MetadataTransaction
from emulator.core.metadata.messages import (
    ANSWER_EVENTS_MAX,
    CatchUpRequest,
    CatchUpResponse,
    Events,
    Message,
    VersionReport,
    decode,
)
from emulator.core.metadata.version_vector import Vector, bounded, covers
from emulator.model.stored_keys import SYNC_INCOMPLETE_PATH, SyncExcludedPath, SyncPeerPath
from emulator.storage.configuration.contract import ConfigurationRows

logger = logging.getLogger(__name__)

EPHEMERAL = "Ephemeral"


@dataclass(slots=True)
class SyncMetrics:
    """Since this region started."""

    sent: int = 0
    """Events published."""
    won: int = 0
    """Events of others that are the value now, or were."""
    lost: int = 0
    """Events of others that came when a later one was there."""
    undone: int = 0
    """Changes made in this cluster that were acknowledged, and lost to one of another cluster."""
    refused: int = 0
    """Messages of the event topic that are none, or that nobody may send."""
    from_the_future: int = 0
    """Events of others from further ahead than clocks may be (INV-81)."""
    lag_ms: int = 0
    """Of the newest event that was applied: from when it was made, by the clock there, to now, by the clock here."""
    failures: int = 0
    """Steps that ended with an error which nobody expected."""
    answers: int = 0
    """Clusters that asked for what they missed."""


@dataclass(slots=True)
class EventBatch:
    """Messages that are applied together."""

    events: list[SyncEvent] = field(default_factory=list)
    packs: list[Events] = field(default_factory=list)
    own: list[Events] = field(default_factory=list)
    """Of this cluster, where changes are published before they are made."""
    answered: list[CatchUpResponse] = field(default_factory=list)
    standings: dict[str, VersionReport] = field(default_factory=dict)
    requests: list[CatchUpRequest] = field(default_factory=list)


@dataclass(slots=True)
class PartialAnswer:
    """An answer of which parts are missing."""

    number: int
    came: set[int] = field(default_factory=set)
    """Which parts came; PARTS_MAX at most."""
    stamps: set[SyncStamp] = field(default_factory=set)
    """What counts in the cluster that answers, if it sends all of it; about ANSWER_EVENTS_MAX at most."""
    is_complete: bool = False

    @property
    def is_over(self) -> bool:
        """Complete, or larger than any answer is; then its other parts begin a new one, which never ends."""
        return self.is_complete or len(self.stamps) > ANSWER_EVENTS_MAX


class EventInbox:
    """Of the region that carries the events."""

    def __init__(
        self, metadata: Metadata, settings: SyncSettings, figures: SyncMetrics, losses: LostClusters
    ) -> None:
        self._losses = losses
        self._metadata = metadata
        self._settings = settings
        self._figures = figures
        self._unfinished: dict[str, PartialAnswer] = {}
        """By cluster: its newest answer, until all parts are applied. Bounded by the number of clusters: the gate lets
        no other source in, and a cluster sends the parts of an answer one after the other."""
        self.heard: dict[str, dict[str, int]] = {}
        """By cluster: up to where it said that it has something; ORIGINS_MAX origins at most."""
        self.recoveries: dict[str, int] = {}
        """By cluster: the number of its answer that has all events of this cluster, too."""
        self.declared: dict[str, int] = {}
        """By cluster: how often it said that it declared this one lost."""

    async def apply(
        self, received: Sequence[ReceivedEvent], shared_paths: Callable[[], list[str]]
    ) -> EventBatch:
        """Durable when it returns. StorageError when the store does not take it; then nothing was applied, or may have
        been, and applying it again is the same."""
        batch = self._sorted(received)
        knew = dict(self.heard)
        for pack in batch.packs:
            self._hear(pack.source, {f"{pack.source}:{pack.incarnation}": pack.upto})
        for standing in batch.standings.values():
            self._hear(standing.source, dict(standing.vector))
            self.declared[standing.source] = standing.declared.get(self._settings.here.cluster, 0)
        if batch.packs or batch.own or batch.answered or batch.standings:
            self._count(await self._metadata.transact(self._work(batch, shared_paths)), knew)
            self._forget_finished(batch.answered)
        if batch.packs and batch.events:
            made_ms = max(event.stamp.time_ms for event in batch.events)
            self._figures.lag_ms = max(0, self._settings.wall_clock_ms() - made_ms) if made_ms else 0
        return batch

    def _hear(self, source: str, vector: dict[str, int]) -> None:
        self.heard[source] = bounded(vector, self.heard.get(source, {}))

    def _work(
        self, batch: EventBatch, shared_paths: Callable[[], list[str]]
    ) -> Callable[[ConfigurationRows], MergeCounts]:
        tallies: list[MergeCounts] = []
        completed = [answer for answer in batch.answered if self._is_complete(answer)]
        whole = [(answer, frozenset(self._stamps_of(answer))) for answer in completed if answer.is_whole]
        paths = shared_paths() if whole else []

        def work(transaction: MetadataTransaction) -> None:
            tallies.append(transaction.apply(batch.events))
            for pack in batch.packs:
                origin = f"{pack.source}:{pack.incarnation}"
                if pack.after <= transaction.applied().get(origin, 0):
                    transaction.advance({origin: pack.upto})
            for answer in filter(self._speaks, completed):
                transaction.advance(answer.vector)
            for answer, kept in whole:
                for path in paths:
                    transaction.reconcile(path, kept, answer.vector)

        in_transaction = self._settings.transaction(work)

        def rows_too(rows: ConfigurationRows) -> MergeCounts:
            in_transaction(rows)
            for answer, _ in whole:
                see_to(rows, answer.source, answer.declared)
            for answer in completed:
                if self.recoveries.get(answer.source) == answer.number:
                    _no_longer_incomplete(rows, answer.source)
            for standing in batch.standings.values():
                said = json.dumps(dict(standing.vector), sort_keys=True).encode()
                rows.put(SyncPeerPath(standing.source).text, said)
                excluded = rows.get(SyncExcludedPath(standing.source).text)
                if stored_excluded(excluded) != standing.excluded:
                    rows.put(SyncExcludedPath(standing.source).text, encode_excluded(standing.excluded))
            return tallies[-1]

        return rows_too

    def _is_complete(self, answer: CatchUpResponse) -> bool:
        """Whether all parts are here with this one. A part that is taken again counts once."""
        unfinished = self._unfinished.get(answer.source)
        if unfinished is None or unfinished.number != answer.number:
            unfinished = self._unfinished[answer.source] = PartialAnswer(answer.number)
        unfinished.came.add(answer.part)
        if answer.is_whole:
            unfinished.stamps.update(event.stamp for event in answer.events)
        unfinished.is_complete = len(unfinished.came) == answer.parts
        return unfinished.is_complete and len(unfinished.stamps) <= ANSWER_EVENTS_MAX

    def _stamps_of(self, answer: CatchUpResponse) -> set[SyncStamp]:
        return self._unfinished[answer.source].stamps

    def _forget_finished(self, answered: Iterable[CatchUpResponse]) -> None:
        for answer in answered:
            unfinished = self._unfinished.get(answer.source)
            if unfinished is not None and unfinished.is_over:
                del self._unfinished[answer.source]

    def _count(self, tally: MergeCounts, knew: Mapping[str, Vector]) -> None:
        """Whoever did not know of our change when it made its own did not mean to replace it."""
        self._figures.won += tally.won
        self._figures.lost += tally.lost
        self._figures.from_the_future += len(tally.from_the_future)
        for event in tally.from_the_future[:10]:
            sentence = "metadata event %s is dated in the future (%s): the clock of its cluster or of this one is wrong"
            logger.warning(sentence, event.full_path, event.stamp)
        undone = [
            (event, ours)
            for event, ours in tally.replaced
            if not covers(knew.get(event.stamp.source, {}), ours)
        ]
        self._figures.undone += len(undone)
        for event, ours in undone[:10]:
            logger.info(
                "metadata path %s: the local change %s is replaced by the newer %s",
                event.full_path,
                ours,
                event.stamp,
            )

    # The gate.

    def _sorted(self, received: Iterable[ReceivedEvent]) -> EventBatch:
        batch = EventBatch()
        for one in received:
            try:
                message = decode(one.payload)
                self._check(one, message)
            except (ValueError, RecursionError) as problem:
                self._figures.refused += 1
                logger.warning("entry %d of the event topic is ignored: %s", one.entry_id, problem)
                continue
            if message.source != self._settings.here.cluster:
                if self._may_be_obeyed(message):
                    self._sort(message, batch)
            elif isinstance(message, Events) and self._settings.publishes_first:
                batch.own.append(message)
                batch.events += self._wanted(message.events)
        return batch

    def _check(self, one: ReceivedEvent, message: Message) -> None:
        """A region speaks for its own cluster. ValueError."""
        region = one.region or self._settings.region
        if self._settings.regions.get(region) != message.source:
            raise ValueError(
                f"region {region} sent an event of cluster {message.source}, to which it does not belong"
            )

    def _may_be_obeyed(self, message: Message) -> bool:
        """INV-82. What is passed over comes again once its source has seen to it that it was lost."""
        if not isinstance(message, Events | CatchUpResponse) or self._speaks(message):
            return True
        if isinstance(message, CatchUpResponse) and message.is_whole:
            return True
        logger.info(
            "cluster %s was declared lost; its events are ignored until it has learned of that",
            message.source,
        )
        return False

    def _speaks(self, message: Events | CatchUpResponse) -> bool:
        """Of two that declared each other lost each hears at first only what the other one has no more."""
        return self._losses.speaks(message.source, message.seen_to)

    def _sort(self, message: Message, batch: EventBatch) -> None:
        here = self._settings.here.cluster
        match message:
            case Events() if message.upto > message.after:
                batch.packs.append(message)
                batch.events += self._wanted(message.events)
            case CatchUpResponse() if message.to == here:
                batch.answered.append(message)
                batch.events += self._wanted(message.events) if self._speaks(message) else []
            case VersionReport():
                batch.standings[message.source] = message
            case CatchUpRequest() if message.to == here:
                batch.requests.append(message)

    def _wanted(self, events: Iterable[SyncEvent]) -> list[SyncEvent]:
        return [
            event for event in events if self._settings.covers(event.path) and EPHEMERAL not in event.options
        ]


def _no_longer_incomplete(rows: ConfigurationRows, cluster: str) -> None:
    """It has sent all that it has of this cluster's own events."""
    before = incomplete(rows.get(SYNC_INCOMPLETE_PATH.text))
    after = [one for one in before if one != cluster]
    if after != before:
        rows.put(SYNC_INCOMPLETE_PATH.text, json.dumps(after).encode() if after else None)
