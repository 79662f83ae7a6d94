"""What a region counts of metadata events between clusters (PIP-136)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from emulator.broker.metadata.store import Metadata
from emulator.broker.metadata_sync.settings import SyncSettings, differences
from emulator.broker.region import Region
from emulator.errors import StorageDamaged


def figures_of(region: Region) -> Iterator[tuple[str, str, str, float]]:
    """(name, kind, help, value); nothing where events are not wanted."""
    synchronizer = region.synchronizer
    if synchronizer is None:
        return
    figures, leader = synchronizer.figures, synchronizer.leader
    for name, help_, value in (
        ("sent", "Metadata events that this region published to other clusters.", figures.sent),
        ("applied", "Metadata events of other clusters that were applied here.", figures.won),
        ("lost", "Metadata events of other clusters that lost to a later one.", figures.lost),
        ("undone", "Changes of this cluster that lost to a later one of another cluster.", figures.undone),
        (
            "refused",
            "Messages of the event topic that are not valid events of their sender.",
            figures.refused,
        ),
        (
            "ahead",
            "Metadata events further in the future than metadata_sync_clock_ahead_ms_max.",
            figures.from_the_future,
        ),
    ):
        yield f"geoemu_metadata_events_{name}_total", "counter", help_, value
    damaged = "Rows of metadata sync in the configuration store that could not be decoded."
    yield "geoemu_metadata_rows_damaged_total", "counter", damaged, synchronizer.damage.count
    failed = "Unexpected errors after which metadata sync began again."
    yield "geoemu_metadata_sync_failures_total", "counter", failed, figures.failures
    carries = "1 if this region is the sync leader of its cluster."
    yield "geoemu_metadata_sync_leader", "gauge", carries, 0 if leader is None else 1
    waits = "Messages of the event topic that this region has not applied yet."
    backlog = 0 if leader is None else leader.channel.backlog
    yield "geoemu_metadata_events_backlog", "gauge", waits, backlog
    differ = "Clusters whose metadata_sync_excluded_paths differ from this one's."
    unlike = _excluding_others(region.metadata, synchronizer.settings)
    yield "geoemu_metadata_clusters_with_other_exclusions", "gauge", differ, unlike
    lags = "Delay between the newest applied change of another cluster and its application, by the clocks."
    yield "geoemu_metadata_lag_seconds", "gauge", lags, round(figures.lag_ms / 1000, 3)


def _excluding_others(metadata: Metadata, settings: SyncSettings) -> int:
    """Those whose row can be read."""
    with suppress(StorageDamaged):
        return sum(1 for _ in differences(metadata, settings))
    return 0
