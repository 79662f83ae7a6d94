"""Clusters of a run all of whose regions are lost, which the other clusters are told of, and their stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from emulator.config.topology import CONFIGURATION_FILE
from emulator.errors import Refused
from emulator.run.directory import RunRecord
from emulator.run.processes import ProcessState


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


def forget_store(folder: Path) -> None:
    """Of a cluster of containers: what was copied out of its volume is old from here on."""
    for file in folder.glob(f"{CONFIGURATION_FILE}*"):
        file.unlink(missing_ok=True)
