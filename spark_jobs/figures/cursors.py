"""The cursors of replicated subscriptions over time: how far each region's position is behind its log.

    end        of a region: its newest message among those that were published until then, by the history's clock
    position   of a subscription in a region: the highest entry that its consumers there acknowledged, or up to which an
               update of another region moved it; of an update, the time at which it was written counts, by the clock
               of the region that wrote it

The distance between both, summed over the topics of a subscription, is what a consumer would receive that connects to
that region then: an estimate in entries, because a log records neither when an entry arrived nor when a cursor moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from spark_jobs.engines.frames import Column, DataFrame, F, Window
from spark_jobs.evidence.positions import LEDGER
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import each_copy

SLICES = 60
"""Number of slices of a run."""
SUBSCRIPTIONS_MAX = 6
"""Maximum number of subscriptions with curves: those with the most acknowledgements."""
_ENTRIES = ("what", "topic", "subscription", "region")


@dataclass(frozen=True, slots=True)
class CursorCurve:
    """Distance between the position of a replicated subscription in one region and the end of that region's log."""

    subscription: str
    region: str
    behind: tuple[int, ...]
    """Entries of all topics at the end of each slice, at least 0."""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def collect_cursors(evidence: Evidence, start_ms: float, end_ms: float) -> tuple[CursorCurve, ...]:
    """Return the curves of the replicated subscriptions that acknowledged most, sorted by subscription and region."""
    shown = _shown(evidence)
    slices = _Slices(start_ms, max((end_ms - start_ms) / SLICES, 0.001))
    reached = _ends(evidence, shown, slices).union(_positions(evidence, shown, slices))
    growth: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row in _growth(reached).collect():
        curve = growth.setdefault((row["subscription"], row["region"]), {})
        curve.setdefault(row["what"], [0] * SLICES)[row["slice"]] += int(row["grown"])
    return tuple(
        CursorCurve(*place, _behind(of_place))
        for place, of_place in sorted(growth.items())
        if "end" in of_place
    )


def _behind(growth: Mapping[str, Iterable[int]]) -> tuple[int, ...]:
    ends = accumulate(growth["end"])
    positions = accumulate(growth.get("position", [0] * SLICES))
    return tuple(max(end - position, 0) for end, position in zip(ends, positions, strict=True))


@dataclass(frozen=True, slots=True)
class _Slices:
    start_ms: float
    width_ms: float

    def number(self, at_ms: Column) -> Column:
        number = F.least(F.floor((at_ms - self.start_ms) / self.width_ms), F.lit(SLICES - 1))
        return F.when(number < 0, F.lit(0)).otherwise(number).alias("slice")


def _shown(evidence: Evidence) -> DataFrame:
    """Return topic and subscription of the subscriptions with curves."""
    replicated = (
        operations(evidence.events, "subscribe")
        .where(F.col("replicated"))
        .select("topic", "subscription")
        .distinct()
    )
    busiest = (
        operations(evidence.events, "acknowledge", "asked")
        .join(replicated.hint("broadcast"), ["topic", "subscription"])
        .groupBy("subscription")
        .agg(F.count("*").alias("acknowledgements"))
        .orderBy(F.desc("acknowledgements"), "subscription")
        .limit(SUBSCRIPTIONS_MAX)
    )
    return replicated.join(busiest.select("subscription").hint("broadcast"), "subscription").hint("broadcast")


def _ends(evidence: Evidence, shown: DataFrame, slices: _Slices) -> DataFrame:
    copies = each_copy(evidence.messages.where(F.col("asked_ms").isNotNull()))
    by_slice = copies.groupBy("topic", "region", slices.number(F.col("asked_ms"))).agg(
        F.max("copy.entry_id").alias("entry")
    )
    return _reached("end", by_slice.join(shown, "topic"))


def _positions(evidence: Evidence, shown: DataFrame, slices: _Slices) -> DataFrame:
    acknowledged = (
        operations(evidence.events, "acknowledge")
        .where((F.col("outcome") != "failed") & F.col("entry_id").isNotNull())
        .select(
            "topic",
            "subscription",
            "region",
            slices.number(F.col("at_ms")),
            F.col("entry_id").alias("entry"),
        )
    )
    upto = F.col("upto")
    updated = evidence.claims.updates.where(F.col("source_region") != F.col("region")).select(
        "topic",
        "subscription",
        "region",
        slices.number(F.col("written_ms")),
        (upto - F.floor(upto / F.lit(LEDGER)) * F.lit(LEDGER)).alias("entry"),
    )
    return _reached("position", acknowledged.union(updated).join(shown, ["topic", "subscription"]))


def _reached(what: str, places: DataFrame) -> DataFrame:
    return places.select(F.lit(what).alias("what"), *_ENTRIES[1:], "slice", "entry")


def _growth(reached: DataFrame) -> DataFrame:
    """Return by how many entries each end and position grew in each slice, summed over topics."""
    by_slice = reached.groupBy(*_ENTRIES, "slice").agg((F.max("entry") + 1).alias("entries"))
    earlier = Window.partitionBy(*_ENTRIES).orderBy("slice").rowsBetween(Window.unboundedPreceding, -1)
    grown = F.col("entries") - F.coalesce(F.max("entries").over(earlier), F.lit(0))
    return (
        by_slice.withColumn("grown", grown)
        .where(F.col("grown") > 0)
        .groupBy("what", "subscription", "region", "slice")
        .agg(F.sum("grown").alias("grown"))
    )
