"""The timeline of a run: counts in equal slices of time, by region and by actor, and the faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from spark_jobs.engines.frames import Column, F, Window
from spark_jobs.figures.measures import Measures, Stretch
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.faults import (
    Interval,
    TimelineMark,
    down_times,
    link_faults,
    machine_faults,
    marks_of,
    program_times,
)
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN

BINS = 240
"""Number of slices of a run; about as many as fit into the picture."""
ACTORS_MAX = 12
"""Maximum number of actors with a lane: those that waited longest."""

Series = Literal["published", "unanswered", "received", "again"]
SERIES: tuple[Series, ...] = ("published", "unanswered", "received", "again")
"""Acknowledged publishes; publishes without a receipt; first deliveries; redeliveries."""
Kind = Literal["subscription", "producer"]
SERIES_OF: Mapping[Kind, tuple[Series, Series]] = {
    "producer": ("published", "unanswered"),
    "subscription": ("received", "again"),
}


class TimelineCount(NamedTuple):
    """The number of messages of a series in one slice."""

    actor: str | None
    """Producer or subscription; None: an actor without a lane."""
    region: str
    series: Series
    number: int
    """Number of the slice, from 0."""
    n: int
    """Number of messages."""


@dataclass(frozen=True, slots=True)
class RegionLane:
    """The lane of one region."""

    region: str
    cluster: str | None
    counts: Mapping[Series, Sequence[int]]
    """Series -> number of messages in each slice."""


@dataclass(frozen=True, slots=True)
class ActorLane:
    """The lane of one producer or subscription, in all regions."""

    name: str
    kind: Kind
    counts: Mapping[Series, Sequence[int]]
    places: tuple[tuple[int, str], ...]
    """Slices at which the region with most of the actor's messages changes, and that region."""
    waits: tuple[Interval, ...]
    """Its longest stalls or outages."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lanes and faults of a run. Times are seconds since `start_ms` on the history's clock."""

    start_ms: float
    seconds: float
    lanes: tuple[RegionLane, ...]
    down: tuple[Interval, ...] = ()
    links: tuple[Interval, ...] = ()
    machines: tuple[Interval, ...] = ()
    """Faults of disks and clocks of regions."""
    gaps: tuple[Interval, ...] = ()
    marks: tuple[TimelineMark, ...] = ()
    stores: tuple[Interval, ...] = ()
    """Outages of configuration stores; `region` is the cluster."""
    programs: tuple[Interval, ...] = ()
    """Periods in which programs were ended or paused by steps; `actor` is the program."""
    actors: tuple[ActorLane, ...] = ()
    actors_left_out: int = 0
    """Number of actors that waited and have no lane."""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def collect_counts(
    evidence: Evidence, start_ms: float, end_ms: float, actors: Iterable[str]
) -> list[TimelineCount]:
    """Count messages by actor, region, series and slice. `actors`: names of the actors with a lane."""
    width_ms = max((end_ms - start_ms) / BINS, 0.001)
    received = operations(evidence.events, "receive", "ok")
    named = F.col("producer").isNotNull()
    # A delivery without an origin is identified by its position.
    # The sequence id first: Spark sorts by the first column without comparing rows.
    what: list[str | Column] = ["sequence_id", *ORIGIN[:-1], "subscription"]
    what += (F.when(~named, F.col(name)) for name in ("region", "ledger_id", "entry_id", "batch_index"))
    turn = F.row_number().over(Window.partitionBy(*what).orderBy("at_ms"))
    deliveries = received.withColumn("turn", turn).select(
        F.col("subscription").alias("actor"),
        "region",
        F.when(F.col("turn") == 1, "received").otherwise("again").alias("series"),
        "at_ms",
    )
    acked = F.col("acked_ms").isNotNull()
    publishes = evidence.messages.where(F.col("asked_ms").isNotNull()).select(
        F.col("producer").alias("actor"),
        F.col("origin_region").alias("region"),
        F.when(acked, "published").otherwise("unanswered").alias("series"),
        F.coalesce("acked_ms", "asked_ms").alias("at_ms"),
    )
    with_lane = F.when(F.col("actor").isin(*actors), F.col("actor")).alias("actor")
    slices = F.least(F.floor((F.col("at_ms") - start_ms) / width_ms), F.lit(BINS - 1)).alias("slice")
    counted = deliveries.union(publishes).groupBy(with_lane, "region", "series", slices).count()
    return [TimelineCount(*row) for row in counted.collect()]


def actors_shown(measures: Measures) -> tuple[list[tuple[Kind, str]], int]:
    """Return the up to ACTORS_MAX actors that waited longest, and the number of others that waited."""
    waited = [
        (-stretches[0].seconds, kind, name)
        for kind, by_name in _waits(measures).items()
        for name, stretches in by_name.items()
        if stretches
    ]
    shown = [(kind, name) for _, kind, name in sorted(waited)[:ACTORS_MAX]]
    # Subscriptions first, because the report is mostly about them.
    return sorted(shown, key=lambda actor: (actor[0] != "subscription", actor[1])), len(waited) - len(shown)


def _waits(measures: Measures) -> Mapping[Kind, Mapping[str, Sequence[Stretch]]]:
    return {"subscription": measures.stalls, "producer": measures.outages}


def make_timeline(
    regions: Sequence[str],
    clusters: Mapping[str, str],
    start_ms: float,
    end_ms: float,
    slices: Sequence[TimelineCount],
    facts: Sequence[Mapping[str, Any]],
    gaps: Iterable[Mapping[str, Any]],
    measures: Measures | None = None,
    stores: tuple[Interval, ...] = (),
) -> Timeline:
    """Build the timeline. `facts`: sorted by time; `gaps`: the witnesses of check `failover-gap`."""
    marks = marks_of(facts, start_ms)
    end_s = round((end_ms - start_ms) / 1000, 3)
    actors, left_out = actors_shown(measures or Measures())
    return Timeline(
        start_ms=start_ms,
        seconds=end_s,
        lanes=tuple(
            RegionLane(
                region, clusters.get(region), _counts([one for one in slices if one.region == region], SERIES)
            )
            for region in regions
        ),
        down=down_times(marks, end_s),
        links=link_faults(marks, end_s),
        machines=machine_faults(marks, end_s),
        gaps=tuple(_gap(gap, start_ms) for gap in gaps),
        marks=marks,
        stores=stores,
        programs=program_times(marks, end_s),
        actors=tuple(_actor_lane(kind, name, slices, measures, start_ms) for kind, name in actors),
        actors_left_out=left_out,
    )


def _actor_lane(
    kind: Kind, name: str, slices: Iterable[TimelineCount], measures: Measures | None, start_ms: float
) -> ActorLane:
    series = SERIES_OF[kind]
    own = [one for one in slices if one.actor == name and one.series in series]
    what = "stall" if kind == "subscription" else "outage"
    waits = _waits(measures or Measures())[kind].get(name, ())
    return ActorLane(
        name,
        kind,
        _counts(own, series),
        tuple(_places(own)),
        tuple(_interval(what, name, wait, start_ms) for wait in waits),
    )


def _interval(what: str, name: str, wait: Stretch, start_ms: float) -> Interval:
    from_s = round((wait.from_ms - start_ms) / 1000, 3)
    to_s = round(from_s + wait.seconds, 3)
    return Interval(from_s, to_s, what, "", actor=name, ended=wait.ended)


def _gap(gap: Mapping[str, Any], start_ms: float) -> Interval:
    from_s = round((gap["at_ms"] - start_ms) / 1000, 3)
    # The end is start plus length: the difference of two rounded times may differ from the rounded length.
    to_s = round(from_s + round((gap["until_ms"] - gap["at_ms"]) / 1000, 3), 3)
    return Interval(from_s, to_s, "gap", gap["region"], gap["other_region"], actor=gap["subscription"])


def _counts(slices: Iterable[TimelineCount], series: Sequence[Series]) -> dict[Series, list[int]]:
    counts = {name: [0] * BINS for name in series}
    for one in slices:
        counts[one.series][one.number] += one.n
    return counts


def _places(slices: Iterable[TimelineCount]) -> Iterable[tuple[int, str]]:
    """Yield the slices at which the region with most of the actor's messages changes, and that region."""
    by_slice: dict[int, dict[str, int]] = {}
    for one in slices:
        of_slice = by_slice.setdefault(one.number, {})
        of_slice[one.region] = of_slice.get(one.region, 0) + one.n
    last = None
    for number in sorted(by_slice):
        region = max(sorted(by_slice[number]), key=by_slice[number].__getitem__)
        if region != last:
            yield number, region
            last = region
