"""Latency and lag over the time of a run: percentiles in equal slices of time, a bounded number of points.

    latency    of a subscription: from the publish request of a message to its first delivery
    lag        of a link: from the acknowledgement of a message to the first time that another region delivered it to
               a consumer that was connected when it was acknowledged

A log does not record when an entry arrived, so the lag is measured at consumers: never less than the true one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from spark_jobs.engines.frames import Column, DataFrame, F, fields_of
from spark_jobs.figures.percentiles import exact_percentiles, seconds_of
from spark_jobs.frames.deliveries import SUBSCRIPTION
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations

POINTS = 60
"""Number of slices of a run."""
WHOLE = -1
SHOWN_MAX = 12
"""Maximum number of curves of each kind: those with the highest p99."""

What = Literal["latency", "lag"]


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds of the messages that were published (latency) or acknowledged (lag) in one slice."""

    slice: int
    """Number of the slice, from 0; WHOLE: the whole run."""
    n: int
    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The latency of one subscription, or the lag of one link."""

    what: What
    name: str
    """The subscription, or `us-east > us-west`."""
    whole: Point
    """Percentiles of the whole run."""
    points: tuple[Point, ...]
    """Percentiles by slice; slices without a message are left out."""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def collect_curves(evidence: Evidence, start_ms: float, end_ms: float) -> tuple[Curve, ...]:
    """Return all curves, sorted by kind and name."""
    late = _latencies(evidence).union(_lags(evidence))
    width_ms = max((end_ms - start_ms) / POINTS, 0.001)
    number = F.least(F.floor((F.col("at_ms") - start_ms) / width_ms), F.lit(POINTS - 1)).cast("bigint")
    slices = F.array(number, F.lit(WHOLE).cast("bigint"))
    sliced = late.withColumn("slice", F.explode(slices))
    found: dict[tuple[What, str], list[Point]] = {}
    for row in exact_percentiles(sliced, ["what", "name", "slice"], "took_ms").collect():
        point = Point(row["slice"], row["n"], *(seconds_of(row[name]) for name in ("p50", "p99", "max")))
        found.setdefault((row["what"], row["name"]), []).append(point)
    return tuple(
        _curve(*key, found[key]) for key in sorted(found, key=lambda key: (key[0] != "latency", key[1]))
    )


def _latencies(evidence: Evidence) -> DataFrame:
    took = F.array_min(fields_of("first_deliveries", "first_ms")) - F.col("asked_ms")
    return _late(
        evidence.subscription_messages.where(F.col("asked_ms").isNotNull()),
        "latency",
        F.col("subscription"),
        "asked_ms",
        took,
    )


def _lags(evidence: Evidence) -> DataFrame:
    """Return lags to consumers that were connected at the acknowledgement: a later consumer caused its own wait."""
    deliveries = (
        evidence.subscription_messages.where(F.col("acked_ms").isNotNull())
        .select(*SUBSCRIPTION, "origin_region", "acked_ms", F.explode("first_deliveries").alias("one"))
        .select("*", F.col("one.region").alias("region"), F.col("one.first_ms").alias("first_ms"))
        .where((F.col("region") != F.col("origin_region")) & F.col("first_ms").isNotNull())
    )
    arrivals = (
        operations(evidence.events, "subscribe", "ok")
        .groupBy("topic", "subscription", "region")
        .agg(F.collect_list("at_ms").alias("arrived_ms"))
    )
    last_arrival = F.array_max(F.filter("arrived_ms", lambda at_ms: at_ms <= F.col("first_ms")))
    there = deliveries.join(arrivals.hint("broadcast"), ["topic", "subscription", "region"]).where(
        last_arrival <= F.col("acked_ms")
    )
    link = F.concat_ws(" > ", "origin_region", "region")
    return _late(there, "lag", link, "acked_ms", F.col("first_ms") - F.col("acked_ms"))


def _late(frame: DataFrame, what: What, name: Column, at: str, took: Column) -> DataFrame:
    return frame.select(
        F.lit(what).alias("what"), name.alias("name"), F.col(at).alias("at_ms"), took.alias("took_ms")
    ).where(F.col("took_ms").isNotNull())


def _curve(what: What, name: str, points: Iterable[Point]) -> Curve:
    ordered = sorted(points, key=lambda point: point.slice)
    return Curve(what, name, ordered[0], tuple(ordered[1:]))


def shown(curves: Iterable[Curve]) -> tuple[Curve, ...]:
    """Return the up to SHOWN_MAX curves with the highest p99 of each kind, in the same order."""
    curves = tuple(curves)
    kept: list[Curve] = []
    for curve in sorted(curves, key=lambda curve: (-curve.whole.p99, curve.name)):
        if sum(other.what == curve.what for other in kept) < SHOWN_MAX:
            kept.append(curve)
    return tuple(curve for curve in curves if curve in kept)


def lateness_seconds(curves: Iterable[Curve], what: What) -> dict[str, dict[str, float]]:
    """Return the percentiles of the whole run: name -> p50, p99, max."""
    return {
        curve.name: {"p50": curve.whole.p50, "p99": curve.whole.p99, "max": curve.whole.max}
        for curve in curves
        if curve.what == what
    }
