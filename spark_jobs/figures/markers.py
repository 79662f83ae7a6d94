"""Markers of replicated subscriptions over time: which region wrote them, and which regions store them.

A marker is written by its origin region and replicated like a message. A copy in another region proves that it arrived
there; a log does not record when. Times are those at which markers were written, by the clock of the region that wrote
them. Counts are per slice of time, so their number does not grow with that of the markers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator.model import markers
from spark_jobs.engines.frames import DataFrame, F

SLICES = 60
"""Number of slices of a run."""
REGIONS_MAX = 6
"""Maximum number of regions whose markers are counted: those that store the most."""
KINDS = {
    markers.SNAPSHOT_REQUEST: "request",
    markers.SNAPSHOT_RESPONSE: "response",
    markers.SNAPSHOT: "snapshot",
    markers.SUBSCRIPTION_UPDATE: "update",
}


@dataclass(frozen=True, slots=True)
class MarkerCount:
    """Markers of one kind that `source` wrote in one slice, and that `region` stores."""

    kind: str
    source: str
    region: str
    """`source` itself, or a region to which the markers were replicated."""
    slice: int
    n: int
    first_s: float
    """Time at which the first of them was written, in seconds since the start of the run."""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def count_markers(
    rows: DataFrame, stored: Sequence[tuple[str, int]], start_ms: float, end_ms: float
) -> tuple[MarkerCount, ...]:
    """Count markers of all topics. `rows`: entries of the logs (`region_log.ROW_SCHEMA`). `stored`: number of markers
    in the log of each region. Markers that were written before or after the history are not counted."""
    busiest = sorted((-n, region) for region, n in stored if n)[:REGIONS_MAX]
    if not busiest:
        return ()
    regions = [region for _, region in busiest]
    width_ms = max((end_ms - start_ms) / SLICES, 0.001)
    at_ms = F.col("publish_time_ms")
    counted = (
        rows.where(
            F.col("marker_type").isin(*KINDS)
            & F.col("region").isin(*regions)
            & F.col("origin_region").isin(*regions)
            & (at_ms >= start_ms)
            & (at_ms <= end_ms)
        )
        .withColumn("slice", F.least(F.floor((at_ms - start_ms) / width_ms), F.lit(SLICES - 1)))
        .groupBy("marker_type", "origin_region", "region", "slice")
        .agg(F.count("*").alias("n"), F.min("publish_time_ms").alias("first_ms"))
        .collect()
    )
    found = [
        MarkerCount(
            KINDS[row["marker_type"]],
            row["origin_region"],
            row["region"],
            row["slice"],
            row["n"],
            round((row["first_ms"] - start_ms) / 1000, 3),
        )
        for row in counted
    ]
    return tuple(sorted(found, key=lambda one: (one.slice, one.kind, one.source, one.region)))
