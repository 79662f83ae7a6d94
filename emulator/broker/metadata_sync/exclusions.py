"""Differences between clusters in the paths that they exclude from sync (`metadata_sync_excluded_paths`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.core.metadata.exclusions import Excluded, not_covered, stored_excluded
from emulator.model.stored_keys import SyncExcludedPath


class ExclusionDifference(NamedTuple):
    """The difference between this cluster and another one."""

    cluster: str
    only_here: list[str]
    only_there: list[str]

    def __str__(self) -> str:
        said = (
            [f"{', '.join(self.only_there)} is excluded in {self.cluster} but not here"]
            if self.only_there
            else []
        )
        if self.only_here:
            said.append(f"{', '.join(self.only_here)} is excluded here but not in {self.cluster}")
        return "; ".join(said)


def excluded_in(metadata: Metadata, cluster: str) -> Excluded | None:
    """The paths in that cluster's newest report. None: it has sent none."""
    return stored_excluded(metadata.get(SyncExcludedPath(cluster).text))


def differences(metadata: Metadata, settings: SyncSettings) -> Iterator[ExclusionDifference]:
    for cluster in sorted(settings.clusters):
        there = excluded_in(metadata, cluster)
        if there is not None:
            only_here, only_there = (
                not_covered(settings.excluded, there),
                not_covered(there, settings.excluded),
            )
            if only_here or only_there:
                yield ExclusionDifference(cluster, only_here, only_there)
