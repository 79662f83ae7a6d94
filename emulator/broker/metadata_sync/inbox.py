"""Applies received events in one transaction: merges them, and stores the applied version vector."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.damage import incomplete
from emulator.broker.metadata_sync.event_topic import ReceivedEvent
from emulator.broker.metadata_sync.settings import LostClusters, SyncSettings, note_seen
from emulator.broker.protocol_events import ProtocolEvents
from emulator.core.metadata.event import SyncEvent, SyncStamp
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
from emulator.core.metadata.stored import encode_excluded, stored_excluded
from emulator.core.metadata.version_vector import bounded, covers
from emulator.model.stored_keys import SYNC_INCOMPLETE_PATH, SyncExcludedPath, SyncPeerPath
from emulator.storage.configuration.contract import ConfigurationRows

logger = logging.getLogger(__name__)

EPHEMERAL = "Ephemeral"


@dataclass(slots=True)
class SyncMetrics:
    """Counters and the delay of this region's metadata sync since its start."""

    sent: int = 0
    """Events that this region published as the sync leader."""
    won: int = 0
    """Events of other clusters that became the value."""
    lost: int = 0
    """Events of other clusters that lost to a later one."""
    undone: int = 0
    """Changes of this cluster that lost to one of a cluster that had not received them."""
    refused: int = 0
    """Messages of the event topic that are invalid, or that their region must not send."""
    from_the_future: int = 0
    """Events of other clusters whose time is further ahead than the limit for clocks (INV-81)."""
    lag_ms: int = 0
    """Time from the newest event of the last batch, by the clock of its cluster, to its application, by this region's;
    0 if the event is a seed."""
    failures: int = 0
    """Steps that ended with an unexpected error."""
    answers: int = 0
    """Answers sent to clusters that requested missing events."""
    events: ProtocolEvents = field(default_factory=ProtocolEvents)
    """The region's counters of protocol events."""


@dataclass(slots=True)
class EventBatch:
    """Received valid messages, by kind; applied in one transaction, except requests."""

    events: list[SyncEvent] = field(default_factory=list)
    event_messages: list[Events] = field(default_factory=list)
    own: list[Events] = field(default_factory=list)
    """Events of this cluster; only where changes are published before they are made."""
    answered: list[CatchUpResponse] = field(default_factory=list)
    reports: dict[str, VersionReport] = field(default_factory=dict)
    requests: list[CatchUpRequest] = field(default_factory=list)


@dataclass(slots=True)
class PartialAnswer:
    """The received parts of another cluster's answer to a request for missing events."""

    number: int
    received: set[int] = field(default_factory=set)
    """Numbers of the received parts; up to PARTS_MAX."""
    stamps: set[SyncStamp] = field(default_factory=set)
    """Stamps of the events in the received parts, if the answer contains all events; up to about ANSWER_EVENTS_MAX."""
    is_complete: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete, or larger than allowed. Later parts of an answer that is too large begin a
        new object, which never becomes complete."""
        return self.is_complete or len(self.stamps) > ANSWER_EVENTS_MAX


class EventInbox:
    """Checks, merges and applies the messages that the sync leader receives from the event topic."""

    def __init__(
        self, metadata: Metadata, settings: SyncSettings, metrics: SyncMetrics, losses: LostClusters
    ) -> None:
        self._losses = losses
        self._metadata = metadata
        self._settings = settings
        self._metrics = metrics
        self._partial_answers: dict[str, PartialAnswer] = {}
        """Cluster -> its newest answer, until all parts are applied. One entry per cluster: `_check` rejects unknown
        sources, and a cluster sends the parts of an answer one after the other."""
        self.reported: dict[str, dict[str, int]] = {}
        """Cluster -> the version vector in its newest report, with up to ORIGINS_MAX origins."""
        self.recoveries: dict[str, int] = {}
        """Cluster -> number of the requested answer that also contains all events of this cluster."""
        self.declared: dict[str, int] = {}
        """Cluster -> how often it has declared this cluster lost, by its newest report."""

    async def apply(
        self, received: Sequence[ReceivedEvent], shared_paths: Callable[[], list[str]]
    ) -> EventBatch:
        """Apply messages durably in one transaction, and return them by kind. The caller must answer the requests.
        StorageError when the store fails: all or nothing was applied, and applying them again has no further effect."""
        batch = self._decode_batch(received)
        if batch.event_messages or batch.own or batch.answered or batch.reports:
            self._count(await self._metadata.transact(self._work(batch, shared_paths)))
            self._drop_finished(batch.answered)
        self._note_reports(batch)
        if batch.event_messages and batch.events:
            made_ms = max(event.stamp.time_ms for event in batch.events)
            self._metrics.lag_ms = max(0, self._settings.wall_clock_ms() - made_ms) if made_ms else 0
        return batch

    def _note_reports(self, batch: EventBatch) -> None:
        for message in batch.event_messages:
            self._note_reported(message.source, {f"{message.source}:{message.incarnation}": message.upto})
        for report in batch.reports.values():
            self._note_reported(report.source, dict(report.vector))
            self.declared[report.source] = report.declared.get(self._settings.here.cluster, 0)

    def _note_reported(self, source: str, vector: dict[str, int]) -> None:
        self.reported[source] = bounded(vector, self.reported.get(source, {}))

    def _work(
        self, batch: EventBatch, shared_paths: Callable[[], list[str]]
    ) -> Callable[[ConfigurationRows], MergeCounts]:
        counts: list[MergeCounts] = []
        completed = [answer for answer in batch.answered if self._record_part(answer)]
        whole_answers = [
            (answer, frozenset(self._stamps_of(answer))) for answer in completed if answer.is_whole
        ]
        paths = shared_paths() if whole_answers else []

        def work(transaction: MetadataTransaction) -> None:
            counts.append(transaction.apply(batch.events))
            for message in batch.event_messages:
                origin = f"{message.source}:{message.incarnation}"
                if message.after <= transaction.applied().get(origin, 0):
                    transaction.advance({origin: message.upto})
            for answer in filter(self._may_apply, completed):
                transaction.advance(answer.vector)
            for answer, stamps in whole_answers:
                for path in paths:
                    transaction.reconcile(path, stamps, answer.vector)

        in_transaction = self._settings.transaction(work)

        def work_on_rows(rows: ConfigurationRows) -> MergeCounts:
            in_transaction(rows)
            for answer, _ in whole_answers:
                note_seen(rows, answer.source, answer.declared)
            for answer in completed:
                if self.recoveries.get(answer.source) == answer.number:
                    _mark_recovered(rows, answer.source)
            for report in batch.reports.values():
                vector = json.dumps(dict(report.vector), sort_keys=True).encode()
                rows.put(SyncPeerPath(report.source).text, vector)
                excluded = rows.get(SyncExcludedPath(report.source).text)
                if stored_excluded(excluded) != report.excluded:
                    rows.put(SyncExcludedPath(report.source).text, encode_excluded(report.excluded))
            return counts[-1]

        return work_on_rows

    def _record_part(self, answer: CatchUpResponse) -> bool:
        """Record a received part of an answer, and return whether all parts have been received. A repeated part counts
        once."""
        partial = self._partial_answers.get(answer.source)
        if partial is None or partial.number != answer.number:
            partial = self._partial_answers[answer.source] = PartialAnswer(answer.number)
        partial.received.add(answer.part)
        if answer.is_whole:
            partial.stamps.update(event.stamp for event in answer.events)
        partial.is_complete = len(partial.received) == answer.parts
        return partial.is_complete and len(partial.stamps) <= ANSWER_EVENTS_MAX

    def _stamps_of(self, answer: CatchUpResponse) -> set[SyncStamp]:
        return self._partial_answers[answer.source].stamps

    def _drop_finished(self, answered: Iterable[CatchUpResponse]) -> None:
        for answer in answered:
            partial = self._partial_answers.get(answer.source)
            if partial is not None and partial.is_over:
                del self._partial_answers[answer.source]

    def _count(self, counts: MergeCounts) -> None:
        """Add the results of a transaction to the metrics. A replaced change counts as undone if the replacing cluster
        had not received it, by the reports before this transaction."""
        self._metrics.won += counts.won
        self._metrics.events.note("metadata_event_applied", times=counts.won)
        self._metrics.lost += counts.lost
        self._metrics.from_the_future += len(counts.from_the_future)
        for event in counts.from_the_future[:10]:
            sentence = "metadata event %s is dated in the future (%s): the clock of its cluster or of this one is wrong"
            logger.warning(sentence, event.full_path, event.stamp)
        undone = [
            (event, ours)
            for event, ours in counts.replaced
            if not covers(self.reported.get(event.stamp.source, {}), ours)
        ]
        self._metrics.undone += len(undone)
        for event, ours in undone[:10]:
            logger.info(
                "metadata path %s: the local change %s is replaced by the newer %s",
                event.full_path,
                ours,
                event.stamp,
            )

    # Checks of received messages.

    def _decode_batch(self, received: Iterable[ReceivedEvent]) -> EventBatch:
        batch = EventBatch()
        for one in received:
            try:
                message = decode(one.payload)
                self._check(one, message)
            except (ValueError, RecursionError) as problem:
                self._metrics.refused += 1
                logger.warning("entry %d of the event topic is ignored: %s", one.entry_id, problem)
                continue
            if message.source != self._settings.here.cluster:
                if self._may_process(message):
                    self._add(message, batch)
            elif isinstance(message, Events) and self._settings.publishes_first:
                batch.own.append(message)
                batch.events += self._shared(message.events)
        return batch

    def _check(self, one: ReceivedEvent, message: Message) -> None:
        """Raise ValueError for a message whose region does not belong to the cluster that it names as its source."""
        region = one.region or self._settings.region
        if self._settings.regions.get(region) != message.source:
            raise ValueError(
                f"region {region} sent an event of cluster {message.source}, to which it does not belong"
            )

    def _may_process(self, message: Message) -> bool:
        """Whether a message is processed. Events of a cluster that was declared lost are skipped until it has processed
        the declaration; it then sends them again (INV-82). An answer with all events is always processed."""
        if not isinstance(message, Events | CatchUpResponse) or self._may_apply(message):
            return True
        if isinstance(message, CatchUpResponse) and message.is_whole:
            return True
        logger.info(
            "cluster %s was declared lost; its events are ignored until it has learned of that",
            message.source,
        )
        return False

    def _may_apply(self, message: Events | CatchUpResponse) -> bool:
        """Whether the message's events are applied. If two clusters declared each other lost, each first only removes
        the events that the other one no longer has."""
        return self._losses.may_apply(message.source, message.seen_to)

    def _add(self, message: Message, batch: EventBatch) -> None:
        here = self._settings.here.cluster
        match message:
            case Events() if message.upto > message.after:
                batch.event_messages.append(message)
                batch.events += self._shared(message.events)
            case CatchUpResponse() if message.to == here:
                batch.answered.append(message)
                batch.events += self._shared(message.events) if self._may_apply(message) else []
            case VersionReport():
                batch.reports[message.source] = message
            case CatchUpRequest() if message.to == here:
                batch.requests.append(message)

    def _shared(self, events: Iterable[SyncEvent]) -> list[SyncEvent]:
        return [
            event for event in events if self._settings.covers(event.path) and EPHEMERAL not in event.options
        ]


def _mark_recovered(rows: ConfigurationRows, cluster: str) -> None:
    """Record that a cluster has sent all its events, including those of this cluster."""
    before = incomplete(rows.get(SYNC_INCOMPLETE_PATH.text))
    after = [one for one in before if one != cluster]
    if after != before:
        rows.put(SYNC_INCOMPLETE_PATH.text, json.dumps(after).encode() if after else None)
