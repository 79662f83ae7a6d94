"""Deletes the tombstones that every cluster has received, except clusters that are declared lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import islice

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.losses import LostClusters
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.core.metadata.event import SyncStamp
from emulator.core.metadata.merge import MetadataTransaction
from emulator.core.metadata.record import DocumentRecord, stored_record
from emulator.core.metadata.version_vector import Vector, may_go, merged, stored_vector
from emulator.model.stored_keys import SyncPeerPath, SyncRecordPath

LET_GO_SECONDS = 1.0
LET_GO_AT_ONCE = 500
"""Number of documents whose tombstones are checked in one transaction."""


class Tombstones:
    """Used by the sync leader."""

    def __init__(self, metadata: Metadata, settings: SyncSettings, losses: LostClusters) -> None:
        self._metadata = metadata
        self._settings = settings
        self._losses = losses
        self._paths: dict[str, None] = {}
        """Documents with tombstones."""
        self._look_at = 0.0
        self._looked_with: object = None
        """The version vectors of the last check, when nothing could be deleted."""

    def noted(self, record: DocumentRecord) -> None:
        """A record has changed."""
        if record.has_tombstones:
            self._paths[record.path] = None
        else:
            self._paths.pop(record.path, None)

    async def let_go(
        self, mine: Vector, heard: Mapping[str, Vector], undecided: Collection[str] = ()
    ) -> None:
        """Delete tombstones. `mine`: this cluster's version vector; `heard`: those that others sent lately;
        `undecided`: documents with a prepared change that may be older. StorageError."""
        now = asyncio.get_running_loop().time()
        if not self._paths or now < self._look_at or not self._settings.here.rule.has_tombstones:
            return
        self._look_at = now + LET_GO_SECONDS
        known = {cluster: self._said_to_have(cluster, heard) for cluster in self._losses.expected}
        looked_with = (mine, known, len(self._paths), tuple(undecided))
        if looked_with == self._looked_with:
            return
        is_had = self._rule(mine, known)
        ready = (path for path in self._paths if path not in undecided and self._has_one(path, is_had))
        paths = list(islice(ready, LET_GO_AT_ONCE))
        if not paths:
            self._looked_with = looked_with
            return

        def work(transaction: MetadataTransaction) -> None:
            for path in paths:
                transaction.let_go(path, is_had)

        await self._metadata.transact(self._settings.transaction(work))
        for path in paths:
            self.noted(self._record(path))

    def _rule(self, mine: Vector, known: Mapping[str, Vector]) -> Callable[[SyncStamp], bool]:
        """Return which tombstones may go. Deleting one advances the clock to it, which is forbidden for times that are
        far in the future (INV-81)."""
        is_had = may_go(mine, known)
        latest_ms = self._settings.wall_clock_ms() + self._settings.here.clock_ahead_ms_max
        return lambda stamp: stamp.time_ms <= latest_ms and is_had(stamp)

    def _said_to_have(self, cluster: str, heard: Mapping[str, Vector]) -> dict[str, int]:
        """Version vector of a cluster; empty before its first report."""
        stored = stored_vector(self._metadata.get(SyncPeerPath(cluster).text))
        return merged(stored, heard.get(cluster, {}))

    def _has_one(self, path: str, is_had: Callable[[SyncStamp], bool]) -> bool:
        return any(event.is_deleted and is_had(event.stamp) for event in self._record(path).events())

    def _record(self, path: str) -> DocumentRecord:
        return stored_record(path, self._metadata.get(SyncRecordPath(path).text))
