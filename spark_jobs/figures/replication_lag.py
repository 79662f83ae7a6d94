"""Replication lag of each link and topic: bounds from the order of the logs and the clock of the history.

The lag of an entry is the time from its acknowledgement in its origin region until another region stored it. A log does
not record when an entry arrived. But entries of one log are stored one after the other, so the others bound the time:

    log of b   ──┬── published in b at 1.00 s ──┬── entry of a ──┬── acknowledged in b, or delivered there, at 1.08 s ──
                 └ the entry is stored later               and earlier ┘

The bounds of an entry are the latest such time before it and the earliest after it. Times of clients are those of the
history; the clock of a region is not used for messages, so a wrong one changes nothing. The only entries that a region
itself dates are its own markers. They count while its clock agrees with that of the history.

The bounds are as close as the traffic of the region: a producer, a consumer or snapshots there bring them together. The
end of the run bounds what nothing follows. An entry that never arrived has a lag of at least the rest of the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.engines.frames import Column, DataFrame, F, Window, cached
from spark_jobs.figures.percentiles import PER_MS, exact_percentiles, seconds_of
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import each_copy, place_number

BLOCK_ENTRIES = 1024
UNBOUNDED_MS = 1e12
"""Upper bound of an entry that never arrived: longer than any run, and a value that a histogram can have."""
UNBOUNDED_STEP = round(UNBOUNDED_MS * PER_MS)
MARKER_COLUMNS = ("topic", "region", "ledger_id", "entry_id", "publish_time_ms")
_BOUNDS = ("at_least", "at_most")
_LINK = ["topic", "origin_region", "region"]
_LOG = ["topic", "region"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds: the true value is at least and at most this."""

    at_least: float
    at_most: float | None
    """None: unbounded, because an entry never arrived."""


@dataclass(frozen=True, slots=True)
class LinkLag:
    """The replication lag of one link and topic."""

    topic: str
    origin_region: str
    region: str
    entries: int
    missing: int
    """Number of acknowledged messages that never arrived."""
    p50: Bounds
    p99: Bounds
    max: Bounds

    @property
    def link(self) -> str:
        return f"{self.origin_region} > {self.region}"

    def as_json(self) -> dict[str, Any]:
        return {"link": self.link, **dataclasses.asdict(self)}


def measure_replication_lag(
    evidence: Evidence, markers: DataFrame, end_ms: float, lost: Collection[str]
) -> tuple[LinkLag, ...]:
    """Return the lag of each link and topic with an acknowledged message, sorted. `markers`: the regions' own ones, in
    MARKER_COLUMNS. Links from and to lost regions are left out: the loss is a figure of its own."""
    bounded = _bounded(_dated(evidence, markers), end_ms)
    late = bounded.select(*_LINK, "at_least", "at_most").union(_missing(evidence, end_ms))
    of_links: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for row in _figures(late).collect():
        link = row["topic"], row["origin_region"], row["region"]
        of_links.setdefault(link, {})[row["bound"]] = row.asDict()
    found = [_lag_of(*link, of_link) for link, of_link in of_links.items()]
    kept = [one for one in found if not {one.origin_region, one.region} & set(lost)]
    return tuple(sorted(kept, key=lambda one: (one.link, one.topic)))


def own_markers(rows: DataFrame, evidence: Evidence) -> DataFrame:
    """Return the markers that regions with a correct clock wrote to their own logs. `rows`: as in `region_log`."""
    clocks = evidence.quiescence.regions.where(F.col("has_clock")).select("region")
    own = rows.where(F.col("marker_type").isNotNull() & (F.col("origin_region") == F.col("region")))
    return own.join(clocks.hint("broadcast"), "region").select(*MARKER_COLUMNS)


def _dated(evidence: Evidence, markers: DataFrame) -> DataFrame:
    """Return one row per entry: `low_ms`, `high_ms`, times before and after which it was certainly stored; `acked_ms`
    and `origin_region` of a replicated one."""
    own = F.col("region") == F.col("origin_region")
    copies = each_copy(evidence.messages.where(F.col("asked_ms").isNotNull()))
    stored = copies.select(
        *_LOG,
        "at",
        F.when(own, F.col("asked_ms")).alias("low_ms"),
        F.when(own, F.col("acked_ms")).alias("high_ms"),
        F.when(~own, F.col("acked_ms")).alias("acked_ms"),
        F.when(~own, F.col("origin_region")).alias("origin_region"),
    )
    at = place_number(F.col("ledger_id"), F.col("entry_id")).alias("at")
    no_origin = [
        F.lit(None).cast("double").alias("acked_ms"),
        F.lit(None).cast("string").alias("origin_region"),
    ]
    no_low_ms = F.lit(None).cast("double").alias("low_ms")
    received = evidence.events.where(
        F.col("op").isin("receive", "read") & (F.col("outcome") == "ok") & F.col("ledger_id").isNotNull()
    ).select(*_LOG, at, no_low_ms, F.col("at_ms").alias("high_ms"), *no_origin)
    written_ms = F.col("publish_time_ms").cast("double")
    written = markers.select(*_LOG, at, written_ms.alias("low_ms"), written_ms.alias("high_ms"), *no_origin)
    return (
        stored.union(received)
        .union(written)
        .groupBy(*_LOG, "at")
        .agg(
            F.max("low_ms").alias("low_ms"),
            F.min("high_ms").alias("high_ms"),
            F.max("acked_ms").alias("acked_ms"),
            F.max("origin_region").alias("origin_region"),
        )
        .withColumn("block", F.floor(F.col("at") / BLOCK_ENTRIES))
    )


def _bounded(dated: DataFrame, end_ms: float) -> DataFrame:
    """Return the replicated entries with the bounds of their lag, in milliseconds. Logs are ordered by blocks, and
    within each: no task orders a whole log."""
    entries = cached(dated)
    blocks = Window.partitionBy(*_LOG).orderBy("block")
    before = blocks.rowsBetween(Window.unboundedPreceding, -1)
    after = blocks.rowsBetween(1, Window.unboundedFollowing)
    of_blocks = (
        entries.groupBy(*_LOG, "block")
        .agg(F.max("low_ms").alias("low_ms"), F.min("high_ms").alias("high_ms"))
        .select(
            *_LOG,
            "block",
            F.max("low_ms").over(before).alias("low_before_ms"),
            F.min("high_ms").over(after).alias("high_after_ms"),
        )
    )
    within = Window.partitionBy(*_LOG, "block").orderBy("at")
    upto = within.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    since = within.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    return (
        entries.withColumn("low_here_ms", F.max("low_ms").over(upto))
        .withColumn("high_here_ms", F.min("high_ms").over(since))
        .where(F.col("acked_ms").isNotNull())
        .join(of_blocks.hint("broadcast"), [*_LOG, "block"])
        .select(
            *_LINK,
            _lag(F.greatest("low_before_ms", "low_here_ms")).alias("at_least"),
            _lag(F.least("high_after_ms", "high_here_ms", F.lit(float(end_ms)))).alias("at_most"),
        )
    )


def _lag(stored_ms: Column) -> Column:
    return F.greatest(F.coalesce(stored_ms - F.col("acked_ms"), F.lit(0.0)), F.lit(0.0))


def _missing(evidence: Evidence, end_ms: float) -> DataFrame:
    absent = (F.col("absence") != "trimmed") & (F.col("region") != F.col("origin_region"))
    return evidence.missing.where(absent & F.col("acked_ms").isNotNull()).select(
        *_LINK,
        F.greatest(F.lit(float(end_ms)) - F.col("acked_ms"), F.lit(0.0)).alias("at_least"),
        F.lit(UNBOUNDED_MS).alias("at_most"),
    )


def _figures(late: DataFrame) -> DataFrame:
    """Return one row per link, topic and bound."""
    bounds = F.array(*(F.struct(F.lit(name).alias("bound"), F.col(name).alias("ms")) for name in _BOUNDS))
    each = late.withColumn("one", F.explode(bounds)).select(
        *_LINK, F.col("one.bound").alias("bound"), F.col("one.ms").alias("ms")
    )
    missing = F.sum(F.when(F.col("step") >= UNBOUNDED_STEP, F.col("times")).otherwise(0)).alias("missing")
    return exact_percentiles(each, [*_LINK, "bound"], "ms", missing)


def _lag_of(topic: str, origin_region: str, region: str, of: Mapping[str, Mapping[str, Any]]) -> LinkLag:
    """Return the lag of one link and topic. `of`: bound -> its row."""
    least, most = of["at_least"], of["at_most"]

    def bounds(name: str) -> Bounds:
        is_bounded = most[name] < UNBOUNDED_STEP
        return Bounds(seconds_of(least[name]), seconds_of(most[name]) if is_bounded else None)

    return LinkLag(
        topic,
        origin_region,
        region,
        most["n"] - most["missing"],
        most["missing"],
        bounds("p50"),
        bounds("p99"),
        bounds("max"),
    )
