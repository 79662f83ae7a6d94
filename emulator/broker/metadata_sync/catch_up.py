"""Exchange of version vectors: reports of this cluster's vector, and requests and answers for missing events."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from emulator.broker.metadata_sync.cluster_state import ClusterState
from emulator.broker.metadata_sync.damage import incomplete
from emulator.broker.metadata_sync.event_topic import EventTopic
from emulator.broker.metadata_sync.inbox import EventInbox, SyncMetrics
from emulator.core.metadata import messages
from emulator.core.metadata.version_vector import covers, missing
from emulator.model.stored_keys import SYNC_INCOMPLETE_PATH

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
"""Delay in seconds after which a changed version vector is reported to other clusters."""
BEHIND_SECONDS = 1.0
"""Seconds for which events of other clusters may be missing before they are requested."""
ANSWER_SECONDS = 3.0
"""Seconds to wait for the answer to a request before the next request."""


class PendingReport(NamedTuple):
    """A version vector of this cluster that is not reported yet. It confirms tombstones, so it may be sent only after
    all own changes before it were published. Otherwise other clusters could remove a tombstone, and then apply an
    older change that arrives late (INV-78)."""

    vector: dict[str, int]
    own_sequence: int
    """Sequence number of the newest own change when `vector` was read."""


class VersionReports:
    """Reports this cluster's version vector, and the clusters that it declared lost."""

    def __init__(self, state: ClusterState, channel: EventTopic) -> None:
        self._state = state
        self._channel = channel
        self._reported: dict[str, int] | None = None
        """The version vector in the last report; None before the first one, or to repeat it."""
        self._reported_losses: dict[str, int] = {}
        """The declarations of lost clusters in the last report."""
        self._due_at: float | None = 0.0
        self._requests_reports = True
        """Whether the next report requests the reports of the other clusters: only the first one does."""
        self._pending: PendingReport | None = None
        """The report that is sent as soon as the own changes before it are published."""

    def repeat(self) -> None:
        """Let the next `send` send the report again, because another cluster requests it."""
        self._reported = None

    async def send(self, published: int) -> None:
        """Send a report if the vector or the losses changed REPORT_SECONDS ago, and the own changes before it are
        published. `published`: the number up to which they are. StorageError, ProtocolError."""
        state, now = self._state, asyncio.get_running_loop().time()
        own, vector, declared = state.own_origin, state.vector(), state.losses.declared
        if self._reported is not None and (_without_origin(vector, own), declared) == (
            _without_origin(self._reported, own),
            self._reported_losses,
        ):
            self._due_at = self._pending = None
            return
        if self._due_at is None:
            self._due_at = now + REPORT_SECONDS
        if now < self._due_at:
            return
        self._pending = self._pending or PendingReport(vector, state.clock.sequence)
        if published < self._pending.own_sequence:
            return
        vector = {**self._pending.vector, own: published}
        here, excluded = state.settings.here.cluster, state.settings.excluded
        report = messages.VersionReport(here, vector, self._requests_reports, declared, excluded)
        await self._channel.publish([messages.encode(report)])
        self._reported, self._reported_losses = vector, declared
        self._requests_reports, self._due_at, self._pending = False, None, None


class CatchUp:
    """Requests the events that this cluster lacks, and sends other clusters the events that they lack."""

    def __init__(
        self, state: ClusterState, channel: EventTopic, inbox: EventInbox, metrics: SyncMetrics
    ) -> None:
        self._state = state
        self._channel = channel
        self._inbox = inbox
        self._metrics = metrics
        self._behind_since = 0.0
        self._vector: dict[str, int] = {}
        """The version vector at the last call."""
        self._requested_until = 0.0
        """Loop time before which no further request is sent."""

    async def request(self) -> None:
        """Send one request if it is due: for all events, to a cluster that declared this one lost; for lost events,
        after a record was damaged; or for events of other clusters that did not arrive within BEHIND_SECONDS.
        StorageError, ProtocolError."""
        now, own_vector = asyncio.get_running_loop().time(), self._state.vector()
        declarers = self._unprocessed_losses
        if declarers and now >= self._requested_until:
            # In turn, because one of them may be unavailable.
            cluster = declarers[int(now / ANSWER_SECONDS) % len(declarers)]
            logger.info("cluster %s had declared this cluster lost; all its metadata is requested", cluster)
            await self._request(cluster, {}, now)
            return
        if own_vector != self._vector:
            self._vector, self._behind_since = own_vector, now
            self._requested_until = min(self._requested_until, now + BEHIND_SECONDS)
        if await self._request_after_damage(own_vector, now):
            return
        lost = self._state.losses.lost
        lacks = {
            source: missing(own_vector, vector)
            for source, vector in self._inbox.reported.items()
            if source not in lost
        }
        if not any(lacks.values()):
            self._behind_since = now
        elif now - self._behind_since >= BEHIND_SECONDS and now >= self._requested_until:
            cluster = max(sorted(lacks), key=lambda source: len(lacks[source]))
            logger.info("cluster %s: the metadata that this cluster lacks is requested", cluster)
            await self._request(cluster, own_vector, now)

    async def _request_after_damage(self, own_vector: dict[str, int], now: float) -> bool:
        """After a record was damaged, request all missing events and all of this cluster from another cluster. Return
        whether a request was sent. Requests for other events have every second turn, since a cluster may be down."""
        state = self._state
        incomplete_clusters = incomplete(state.metadata.get(SYNC_INCOMPLETE_PATH.text))
        turn = int(now / ANSWER_SECONDS)
        clusters = sorted(state.losses.expected.intersection(incomplete_clusters))
        if not clusters or turn % 2 or now < self._requested_until:
            return False
        cluster, number = clusters[turn // 2 % len(clusters)], state.settings.draw() or 1
        logger.info("cluster %s: all its metadata is requested, because a record here was damaged", cluster)
        self._inbox.recoveries[cluster] = number
        await self._request(cluster, {**own_vector, state.own_origin: 0}, now, number)
        return True

    async def _request(self, cluster: str, vector: dict[str, int], now: float, number: int = 0) -> None:
        request = messages.CatchUpRequest(self._state.settings.here.cluster, cluster, vector, number)
        await self._channel.publish([messages.encode(request)])
        self._requested_until = now + ANSWER_SECONDS

    @property
    def _unprocessed_losses(self) -> list[str]:
        """Clusters whose newest declaration that this cluster is lost has not been processed here."""
        declared, losses = self._inbox.declared, self._state.losses
        return sorted(source for source, times in declared.items() if times > losses.seen_to(source))

    async def answer(self, request: messages.CatchUpRequest) -> None:
        """Send all events that the requester lacks, of any origin. After this cluster was declared lost, it may have
        paths that all others deleted: until it has caught up, it answers only requests for everything. StorageError,
        ProtocolError."""
        state = self._state
        if self._unprocessed_losses and request.vector:
            return
        events = [
            event
            for path in state.shared_paths()
            for event in state.record(path).events()
            if not covers(request.vector, event.stamp)
        ]
        parts = list(messages.portions(events, self._channel.event_characters_max)) or [()]
        number, vector, count = request.number or state.settings.draw(), state.vector(), len(parts)
        here, to, is_whole = state.settings.here.cluster, request.source, not request.vector
        declared, seen_to = state.losses.of(to).times, state.losses.all_seen_to
        answers = [
            messages.CatchUpResponse(
                here, to, number, part, count, vector, part_events, is_whole, declared, seen_to
            )
            for part, part_events in enumerate(parts)
        ]
        await self._channel.publish([messages.encode(answer) for answer in answers])
        self._metrics.answers += 1


def _without_origin(vector: dict[str, int], own: str) -> dict[str, int]:
    return {origin: sequence for origin, sequence in vector.items() if origin != own}
