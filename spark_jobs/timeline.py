"""What happened when, per region: counts in equal slices of time, and the facts of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_jobs.engines.frames import Column, F, Window
from spark_jobs.evidence import ORIGIN, Evidence

BINS = 240
"""Slices of the whole run; about as many as the picture has room for."""

Series = Literal["published", "unanswered", "received", "again"]
SERIES: tuple[Series, ...] = ("published", "unanswered", "received", "again")
"""Acknowledged publishes; publishes that were never answered with certainty; first deliveries; later ones."""

_ENDS = {
    "kill": ("start",),
    "lose": ("start",),
    "stop": ("start",),
    "pause": ("resume", "start", "kill", "stop"),
}
"""What ends a time of being down."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of the run, in seconds since its start."""

    from_s: float
    to_s: float
    what: str
    """kill, stop, pause: why a region was down. cut, hold: why a link passed nothing. gap: the fail-over."""
    region: str
    other_region: str | None = None
    subscription: str | None = None
    ended: bool = True
    """False: it went on beyond the end of the history."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment."""

    at_s: float
    op: str
    region: str
    other_region: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """One region's part."""

    region: str
    cluster: str | None
    counts: Mapping[Series, Sequence[int]]
    """Per series one number per slice."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of it. Times are seconds since `start_ms` on the history's clock."""

    start_ms: float
    seconds: float
    lanes: tuple[Lane, ...]
    down: tuple[Interval, ...] = ()
    cuts: tuple[Interval, ...] = ()
    gaps: tuple[Interval, ...] = ()
    marks: tuple[Mark, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def collect_bins(
    evidence: Evidence, start_ms: float, end_ms: float
) -> dict[str, dict[Series, dict[int, int]]]:
    """Region -> series -> slice -> how many."""
    width_ms = max((end_ms - start_ms) / BINS, 0.001)
    received = evidence.events.where((F.col("op") == "receive") & (F.col("outcome") == "ok"))
    named = F.col("producer").isNotNull()
    # What names no origin is told apart by its place.
    what: list[str | Column] = [*ORIGIN]
    what += (F.when(~named, F.col(name)) for name in ("region", "ledger_id", "entry_id", "batch_index"))
    turn = F.row_number().over(Window.partitionBy("subscription", *what).orderBy("at_ms"))
    deliveries = received.withColumn("turn", turn).select(
        "region", F.when(F.col("turn") == 1, "received").otherwise("again").alias("series"), "at_ms"
    )
    acked = F.col("acked_ms").isNotNull()
    publishes = evidence.messages.where(F.col("asked_ms").isNotNull()).select(
        F.col("origin_region").alias("region"),
        F.when(acked, "published").otherwise("unanswered").alias("series"),
        F.coalesce("acked_ms", "asked_ms").alias("at_ms"),
    )
    slices = F.least(F.floor((F.col("at_ms") - start_ms) / width_ms), F.lit(BINS - 1)).alias("slice")
    counted = deliveries.union(publishes).groupBy("region", "series", slices).count()
    bins: dict[str, dict[Series, dict[int, int]]] = {}
    for region, series, number, n in counted.collect():
        bins.setdefault(region, {}).setdefault(series, {})[number] = n
    return bins


def make_timeline(
    regions: Sequence[str],
    clusters: Mapping[str, str],
    start_ms: float,
    end_ms: float,
    bins: Mapping[str, Mapping[Series, Mapping[int, int]]],
    facts: Sequence[Mapping[str, Any]],
    gaps: Iterable[Mapping[str, Any]],
) -> Timeline:
    """`facts` by time; `gaps` as the check of that name found them."""

    def seconds(at_ms: float) -> float:
        return round((at_ms - start_ms) / 1000, 3)

    lanes = []
    for region in regions:
        counts = bins.get(region, {})
        lanes.append(
            Lane(
                region,
                clusters.get(region),
                {series: [counts.get(series, {}).get(i, 0) for i in range(BINS)] for series in SERIES},
            )
        )
    marks = [
        Mark(seconds(fact["at_ms"]), fact["op"], fact["region"] or "", fact["other_region"], fact["detail"])
        for fact in facts
        if fact["op"] != "step"
    ]
    end_s = seconds(end_ms)
    return Timeline(
        start_ms=start_ms,
        seconds=end_s,
        lanes=tuple(lanes),
        down=tuple(_down_times(marks, end_s)),
        cuts=tuple(_cut_times(marks, end_s)),
        gaps=tuple(
            Interval(
                seconds(gap["at_ms"]),
                seconds(gap["until_ms"]),
                "gap",
                gap["region"],
                gap["other_region"],
                gap["subscription"],
            )
            for gap in gaps
        ),
        marks=tuple(marks),
    )


def _down_times(marks: Sequence[Mark], end_s: float) -> list[Interval]:
    intervals = []
    for index, mark in enumerate(marks):
        if mark.op not in _ENDS:
            continue
        ends = (
            later
            for later in marks[index + 1 :]
            if later.region == mark.region and later.op in _ENDS[mark.op]
        )
        end = next(ends, None)
        to_s = end.at_s if end else end_s
        intervals.append(Interval(mark.at_s, to_s, mark.op, mark.region, ended=end is not None))
    return intervals


def _cut_times(marks: Sequence[Mark], end_s: float) -> list[Interval]:
    """A link between two regions, whichever direction."""
    intervals = []
    for index, mark in enumerate(marks):
        if mark.op not in ("cut", "hold"):
            continue
        ends = {mark.region, mark.other_region}
        healed = next(
            (
                later
                for later in marks[index + 1 :]
                if later.op == "heal" and (not later.region or {later.region, later.other_region} == ends)
            ),
            None,
        )
        to_s = healed.at_s if healed else end_s
        intervals.append(
            Interval(mark.at_s, to_s, mark.op, mark.region, mark.other_region, ended=healed is not None)
        )
    return intervals
