"""The cluster's sync leader: publishes local changes, applies changes of other clusters, reports the cluster's version
vector, requests missing events, and removes tombstones.

`Synchronizer` calls `step` repeatedly. The next leader continues from the state in the cluster's store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.catch_up import CatchUp, VersionReports
from emulator.broker.metadata_sync.cluster_state import ClusterState, Tombstones
from emulator.broker.metadata_sync.event_publisher import LocalChanges
from emulator.broker.metadata_sync.event_topic import EventTopic, EventTopicHost, ReceivedEvent
from emulator.broker.metadata_sync.inbox import EventInbox, SyncMetrics
from emulator.broker.metadata_sync.settings import SyncSettings, differences
from emulator.core.metadata.record import DocumentRecord, stored_record
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import SyncRecordPath, parse_path
from emulator.model.values import Change

logger = logging.getLogger(__name__)

MESSAGES_AT_ONCE = 4
"""Maximum number of messages in one transaction; other tasks run between two transactions."""


class SyncLeader:
    """The running sync leader of a cluster, in the region that holds the lease. `Synchronizer` closes it when the lease
    is lost, the event topic is unloaded, an unexpected error occurs, or a damaged row is replaced."""

    def __init__(self, state: ClusterState, metrics: SyncMetrics, channel: EventTopic) -> None:
        self._state = state
        self.channel = channel
        self.inbox = EventInbox(state.metadata, state.settings, metrics, state.losses)
        self._batch: list[ReceivedEvent] = []
        """Received messages of the transaction that is being applied; applied again after an error."""
        self._changes = LocalChanges(state, channel, metrics)
        self._reports = VersionReports(state, channel)
        self._catch_up = CatchUp(state, channel, self.inbox, metrics)
        self._tombstones = Tombstones(state)
        self._differences: dict[str, str] = {}
        """Cluster -> the difference in excluded paths that was logged last."""
        for record in map(state.record, state.shared_paths()):
            self._changes.load(record)
            self._tombstones.note(record)
        self._watch = state.metadata.watch(SyncRecordPath.prefix(), self._record_changed)

    @classmethod
    async def begin(
        cls,
        host: EventTopicHost,
        metadata: Metadata,
        settings: SyncSettings,
        metrics: SyncMetrics,
        on_received: Callable[[], None],
    ) -> SyncLeader:
        """Open the event topic, and prepare the cluster's state in the store: clock, records, and the declarations of
        lost clusters in the topology. ProtocolError or StorageError when the topic or the store is not available.
        `on_received` is called when messages arrive."""
        state = ClusterState(metadata, settings)
        channel = await EventTopic.open(host, settings.topic, on_received)
        try:
            await state.adopt()
            await state.losses.declare_losses_of_topology()
            return cls(state, metrics, channel)
        except BaseException:  # a consumer that stays attached would take further messages
            channel.close()
            raise

    def close(self) -> None:
        self._watch.cancel()
        self.channel.close()

    async def step(self) -> None:
        """Execute the work that is due now. StorageError, ProtocolError: the caller retries."""
        await self._changes.publish()
        await self._apply()
        await self._changes.finish()
        await self._reports.send(self._changes.published)
        await self._catch_up.request()
        undecided = {event.path for event in self._state.prepared.values()}
        await self._tombstones.delete(self.inbox.reported, undecided)
        self._log_differences()

    def _log_differences(self) -> None:
        """Log a warning for each cluster with different excluded paths, once until the difference changes."""
        found = {one.cluster: str(one) for one in differences(self._state.metadata, self._state.settings)}
        for cluster, difference in found.items():
            if self._differences.get(cluster) != difference:
                sentence = (
                    "metadata_sync_excluded_paths differ: %s; changes of these paths are not synchronised"
                )
                logger.warning(sentence, difference)
        self._differences = found

    def _record_changed(self, change: Change) -> None:
        key = parse_path(change.path)
        if isinstance(key, SyncRecordPath) and change.value is not None:
            with suppress(StorageDamaged):  # `DamagedRows` replaces the damaged row
                self._note_record(stored_record(key.of, change))

    def _note_record(self, record: DocumentRecord) -> None:
        self._changes.note(record)
        self._tombstones.note(record)

    async def _apply(self) -> None:
        """Apply all received messages, up to MESSAGES_AT_ONCE in one transaction, and answer requests in them."""
        while True:
            while self.channel.received and len(self._batch) < MESSAGES_AT_ONCE:
                self._batch.append(self.channel.received.popleft())
            if not self._batch:
                return
            batch = await self.inbox.apply(self._batch, self._state.shared_paths)
            await asyncio.sleep(0)
            self.channel.acknowledge(self._batch)
            self._batch = []
            for message in batch.own:
                self._changes.note_received(message)
            for request in batch.requests:
                await self._catch_up.answer(request)
            if any(report.asks for report in batch.reports.values()):
                self._reports.repeat()
