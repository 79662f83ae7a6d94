"""The clusters that this one has declared lost, and the declarations of others that it has processed, as stored."""

from __future__ import annotations

import json
from collections.abc import Mapping

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.core.metadata.exclusions import BY_OPERATOR, BY_TOPOLOGY, Declared
from emulator.core.metadata.version_vector import stored_vector
from emulator.model.stored_keys import SYNC_SEEN_TO_PATH, SyncLossPath
from emulator.storage.configuration.contract import ConfigurationRows


class LostClusters:
    """One per region."""

    def __init__(self, metadata: Metadata, settings: SyncSettings) -> None:
        self._metadata = metadata
        self._settings = settings

    def of(self, cluster: str) -> Declared:
        return Declared.decode(self._metadata.get(SyncLossPath(cluster).text))

    @property
    def lost(self) -> set[str]:
        return {cluster for cluster in self._settings.clusters if self.of(cluster).is_lost}

    @property
    def expected(self) -> set[str]:
        """The other clusters that are not declared lost."""
        return self._settings.clusters - self.lost

    @property
    def declared(self) -> dict[str, int]:
        """By other cluster: how often it was declared lost."""
        times = {cluster: self.of(cluster).times for cluster in sorted(self._settings.clusters)}
        return {cluster: often for cluster, often in times.items() if often}

    async def declare(self, cluster: str, *, lost: bool) -> None:
        """Declare a cluster lost, or back, for an operator. StorageError."""
        path = SyncLossPath(cluster).text

        def work(rows: ConfigurationRows) -> None:
            present = Declared.decode(rows.get(path))
            declared = present.lost(BY_OPERATOR) if lost else present.back()
            if declared != present:
                rows.put(path, declared.encode())

        await self._metadata.transact(work)

    async def obey_topology(self) -> None:
        """Apply the settings: declare the clusters lost that they name, and back those that they no longer name.
        StorageError."""
        for cluster in sorted(self._settings.clusters):
            present = self.of(cluster)
            declared = present
            if cluster in self._settings.lost_clusters:
                declared = present.lost(BY_TOPOLOGY)
            elif present.by == BY_TOPOLOGY:
                declared = present.back()
            if declared != present:
                await self._metadata.put(SyncLossPath(cluster).text, declared.encode())

    @property
    def all_seen_to(self) -> dict[str, int]:
        """By declaring cluster: its last declaration that this cluster is lost which this cluster has processed."""
        return stored_vector(self._metadata.get(SYNC_SEEN_TO_PATH.text))

    def seen_to(self, cluster: str) -> int:
        return self.all_seen_to.get(cluster, 0)

    def speaks(self, cluster: str, seen_to: Mapping[str, int]) -> bool:
        """Whether events of another cluster may be applied: it has processed every declaration that it is lost."""
        return seen_to.get(self._settings.here.cluster, 0) >= self.of(cluster).times


def see_to(rows: ConfigurationRows, cluster: str, times: int) -> None:
    """Record, in the transaction that processes it, that a declaration was processed."""
    seen = stored_vector(rows.get(SYNC_SEEN_TO_PATH.text))
    rows.put(
        SYNC_SEEN_TO_PATH.text,
        json.dumps(seen | {cluster: max(times, seen.get(cluster, 0))}, sort_keys=True).encode(),
    )
