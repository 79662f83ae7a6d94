"""The stored state of a cluster's metadata sync: own changes, applied events and records; removal of tombstones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice

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
        """The arguments of the last check that found no removable tombstone; the same ones are not checked again."""

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
        if checked_with == self._checked_with:
            return
        is_removable = self._removable(own_vector, other_vectors)
        ready = (
            path for path in self._paths if path not in undecided and self._has_removable(path, is_removable)
        )
        paths = list(islice(ready, TOMBSTONES_AT_ONCE))
        if not paths:
            self._checked_with = checked_with
            return

        def work(transaction: MetadataTransaction) -> None:
            for path in paths:
                transaction.remove_tombstones(path, is_removable)

        await state.metadata.transact(state.settings.transaction(work))
        for path in paths:
            self.note(state.record(path))

    def _removable(
        self, own_vector: Vector, other_vectors: Mapping[str, Vector]
    ) -> Callable[[SyncStamp], bool]:
        """Return the predicate for removable tombstones. Removing one advances the clock to its time, which is
        forbidden for times too far in the future (INV-81)."""
        settings = self._state.settings
        is_removable = removable_tombstones(own_vector, other_vectors)
        latest_ms = settings.wall_clock_ms() + settings.here.clock_ahead_ms_max
        return lambda stamp: stamp.time_ms <= latest_ms and is_removable(stamp)

    def _has_removable(self, path: str, is_removable: Callable[[SyncStamp], bool]) -> bool:
        return any(
            event.is_deleted and is_removable(event.stamp) for event in self._state.record(path).events()
        )
