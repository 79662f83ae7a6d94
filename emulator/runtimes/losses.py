"""Clusters of a run all of whose regions are lost, which the other clusters are told of, and their stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from emulator.runtimes.contract import Refused
from emulator.runtimes.processes import ProcessState
from emulator.runtimes.run_directory import RunRecord


def lost_clusters(record: RunRecord) -> frozenset[str]:
    there = {region.cluster for region in record.regions.values() if not region.lost}
    return frozenset(region.cluster for region in record.regions.values()) - there


def refuse_living(record: RunRecord, cluster: str, states: Mapping[str, ProcessState]) -> None:
    """Refused for a cluster that still has its store open, or that there is not."""
    of = [name for name, region in record.regions.items() if region.cluster == cluster]
    living = [name for name in of if states[name] != "gone"]
    if not of:
        raise Refused(f"no cluster {cluster!r} in this run")
    if living:
        raise Refused(
            f"{', '.join(living)} of cluster {cluster} runs: `geoemu lose --cluster {cluster}` first"
        )


def put_aside(store: Path) -> None:
    """Into `lost-<n>/`, where regions see that nobody will put it back (`storage/lost_configuration.py`)."""
    files = sorted(store.parent.glob(f"{store.name}*"))
    if not files:
        return
    aside = store.parent / f"lost-{len(list(store.parent.glob('lost-*'))) + 1}"
    aside.mkdir()
    for file in files:
        file.rename(aside / file.name)
