"""The stored state of a cluster's metadata sync: own changes, applied events and records; removal of tombstones."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.settings import LostClusters, SyncSettings
from emulator.core.metadata.event import SyncStamp, is_synced
from emulator.core.metadata.merge import MetadataTransaction
from emulator.core.metadata.record import DocumentRecord, stored_record
from emulator.core.metadata.stored import UNREADABLE, decoded
from emulator.core.metadata.version_vector import (
    OwnClock,
    PendingChanges,
    Vector,
    merged,
    read_pending,
    removable_tombstones,
    settled,
    stored_vector,
    vector_of,
)
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    SYNC_PENDING_PATH,
    SyncPeerPath,
    SyncRecordPath,
    parse_path,
)

logger = logging.getLogger(__name__)

TOMBSTONES_SECONDS = 1.0
"""Seconds between two checks of tombstones."""
TOMBSTONES_AT_ONCE = 500
"""Maximum number of documents whose tombstones are removed in one transaction."""


class ClusterState:
    """The state of this cluster's metadata sync, read from the mirror of the store at each access."""

    def __init__(self, metadata: Metadata, settings: SyncSettings) -> None:
        self.metadata = metadata
        self.settings = settings
        self.losses = LostClusters(metadata, settings)

    async def adopt(self) -> None:
        """Create, if missing, the cluster's clock and the records of shared documents, as seeds. StorageError."""
        metadata = self.metadata
        paths = [change.path for change in metadata.list("") if is_synced(change.path)]
        unknown = [
            path
            for path in paths
            if self.settings.covers(path) and metadata.get(SyncRecordPath(path).text) is None
        ]
        if not unknown and metadata.get(SYNC_CLOCK_PATH.text) is not None:
            return

        def work(transaction: MetadataTransaction) -> None:
            for path in unknown:
                try:
                    transaction.adopt(path)
                except UNREADABLE as problem:  # a document that cannot be read must not block the others
                    logger.error(
                        "metadata sync: %s is damaged and not sent to other clusters: %s", path, problem
                    )

        await metadata.transact(self.settings.transaction(work))

    @property
    def clock(self) -> OwnClock:
        clock = decoded(self.metadata.get(SYNC_CLOCK_PATH.text), OwnClock.decode, None)
        assert clock is not None, "it was adopted before"
        return clock

    @property
    def own_origin(self) -> str:
        return f"{self.settings.here.cluster}:{self.clock.incarnation}"

    @property
    def prepared(self) -> PendingChanges:
        """Own changes that are prepared and not made yet, by number."""
        return read_pending(self.metadata.get(SYNC_PENDING_PATH.text))

    @property
    def decided_sequence(self) -> int:
        """The number up to which each own change is applied, or never will be."""
        return settled(self.clock, self.prepared)

    def vector(self) -> dict[str, int]:
        """Return the version vector of this cluster; its own events count up to `decided_sequence`."""
        clock = replace(self.clock, sequence=self.decided_sequence)
        return vector_of(self.metadata.get(SYNC_APPLIED_PATH.text), clock, self.settings.here.cluster)

    def shared_paths(self) -> list[str]:
        """Return the paths that have a record, deleted documents included."""
        keys = [parse_path(change.path) for change in self.metadata.list(SyncRecordPath.prefix())]
        return [key.of for key in keys if isinstance(key, SyncRecordPath)]

    def record(self, path: str) -> DocumentRecord:
        return stored_record(path, self.metadata.get(SyncRecordPath(path).text))

    def vector_of_peer(self, cluster: str) -> dict[str, int]:
        """Return the newest stored version vector of another cluster; empty before its first report."""
        return stored_vector(self.metadata.get(SyncPeerPath(cluster).text))

    def received_by_all(self) -> int:
        """Return the number up to which every other cluster that is not lost has reported this cluster's own events; 0
        if there is no such cluster."""
        own = self.own_origin
        return min((self.vector_of_peer(one).get(own, 0) for one in self.losses.expected), default=0)


class Tombstones:
    """Removes the tombstones that every cluster has received, not counting clusters that are declared lost."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._paths: dict[str, None] = {}
        """Paths of documents with tombstones."""
        self._next_check = 0.0
        """Loop time of the next check."""
        self._checked_with: object = None
        """The arguments of the last check that found no removable tombstone; the same ones are checked again when
        `_ahead_ms` is reached."""
        self._ahead_ms = math.inf
        """Time of the earliest tombstone that the last check found too far in the future; infinite without one."""

    def note(self, record: DocumentRecord) -> None:
        """Update the paths with tombstones after a record changed."""
        if record.has_tombstones:
            self._paths[record.path] = None
        else:
            self._paths.pop(record.path, None)

    async def delete(self, reported: Mapping[str, Vector], undecided: Collection[str]) -> None:
        """Remove tombstones of up to TOMBSTONES_AT_ONCE documents, at most once per TOMBSTONES_SECONDS. `reported`: the
        newest version vectors that other clusters sent; `undecided`: paths of documents with a prepared change, which
        may be older than the tombstone. StorageError."""
        state, now = self._state, asyncio.get_running_loop().time()
        if not self._paths or now < self._next_check or not state.settings.here.rule.has_tombstones:
            return
        self._next_check = now + TOMBSTONES_SECONDS
        own_vector = state.vector()
        other_vectors = {
            cluster: merged(state.vector_of_peer(cluster), reported.get(cluster, {}))
            for cluster in state.losses.expected
        }
        checked_with = (own_vector, other_vectors, len(self._paths), tuple(undecided))
        latest_ms = state.settings.wall_clock_ms() + state.settings.here.clock_ahead_ms_max
        if checked_with == self._checked_with and latest_ms < self._ahead_ms:
            return
        is_everywhere = removable_tombstones(own_vector, other_vectors)
        paths, ahead_ms = self._find_removable(undecided, is_everywhere, latest_ms)
        if not paths:
            self._checked_with, self._ahead_ms = checked_with, ahead_ms
            return

        def is_removable(stamp: SyncStamp) -> bool:
            return stamp.time_ms <= latest_ms and is_everywhere(stamp)

        def work(transaction: MetadataTransaction) -> None:
            for path in paths:
                transaction.remove_tombstones(path, is_removable)

        await state.metadata.transact(state.settings.transaction(work))
        for path in paths:
            self.note(state.record(path))

    def _find_removable(
        self, undecided: Collection[str], is_everywhere: Callable[[SyncStamp], bool], latest_ms: int
    ) -> tuple[list[str], float]:
        """Return up to TOMBSTONES_AT_ONCE paths with removable tombstones, and the time of the earliest tombstone that
        is only too far in the future. Removing a tombstone advances the clock to its time, which is forbidden for times
        after `latest_ms` (INV-81)."""
        paths: list[str] = []
        ahead_ms = math.inf
        for path in self._paths:
            if path in undecided:
                continue
            events = self._state.record(path).events()
            times = [
                event.stamp.time_ms for event in events if event.is_deleted and is_everywhere(event.stamp)
            ]
            if any(time_ms <= latest_ms for time_ms in times):
                paths.append(path)
                if len(paths) == TOMBSTONES_AT_ONCE:
                    break
            else:
                ahead_ms = min([ahead_ms, *times])
        return paths, ahead_ms
