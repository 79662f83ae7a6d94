"""Durations of interruptions, latencies and redeliveries: figures, never violations, unless a limit is set.

    gap        of a subscription: from the moment its region went down to its next message (checks/measured.py)
    stall      of a subscription: the longest time from the acknowledgement of a message that it had to receive, and
               received only later, to the next delivery of any message
    outage     of a producer: the longest time in which it had pending publishes and received no receipt; it ends when
               a step of the scenario ends, pauses or moves the producer's program
    latency    of a subscription: from the publish request of a message to its first delivery (figures/curves.py)
    lag        of a link: from an acknowledgement in one region to the first delivery in the other (figures/curves.py)
    repeated   of a subscription: deliveries of messages that it had received before

All are computed from the history, on the clock of the machine that drove the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.engines.frames import Column, DataFrame, F, Window, fields_of, schema, small_frame
from spark_jobs.figures.curves import Curve, lateness_seconds
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations

_MOMENTS_SCHEMA = schema("what string, actor string, at_ms double, is_arrival boolean")
STRETCHES_MAX = 5
"""Maximum number of periods per actor."""
STRETCH_SECONDS_MIN = 0.25
"""Minimum length of a listed period, except of the longest one of an actor."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period in which an actor waited for a message or a receipt and got none."""

    seconds: float
    from_ms: float
    """Start of the period, on the history's clock."""
    ended: bool
    """Whether the wait was over before the history ended."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures by the name of the actor: a subscription or a producer."""

    outages: Mapping[str, tuple[Stretch, ...]] = field(default_factory=dict)
    """The longest outage of each producer, then its other long ones."""
    stalls: Mapping[str, tuple[Stretch, ...]] = field(default_factory=dict)
    latency_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Subscription -> percentile, or `max` -> seconds."""
    lag_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Link, as `us-east > us-west` -> percentile, or `max` -> seconds."""
    repeated: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "outage": {name: dataclasses.asdict(one) for name, (one, *_) in self.outages.items()},
            "stall": {name: dataclasses.asdict(one) for name, (one, *_) in self.stalls.items()},
            "latency_seconds": {name: dict(one) for name, one in self.latency_seconds.items()},
            "lag_seconds": {name: dict(one) for name, one in self.lag_seconds.items()},
            "repeated": dict(self.repeated),
        }


def take_measures(
    evidence: Evidence,
    end_ms: float,
    curves: Collection[Curve],
    down_on_purpose: Mapping[str, Iterable[float]] | None = None,
) -> Measures:
    """Compute all figures. `end_ms`: end of the history. `down_on_purpose`: program -> times at which steps ended,
    paused or moved it."""
    moments = _publishing(evidence, down_on_purpose or {}).union(_consuming(evidence))
    longest = _longest(moments, end_ms)
    return Measures(
        outages=longest.get("outage", {}),
        stalls=longest.get("stall", {}),
        latency_seconds=lateness_seconds(curves, "latency"),
        lag_seconds=lateness_seconds(curves, "lag"),
        repeated=_repeated(evidence),
    )


def _publishing(evidence: Evidence, down_on_purpose: Mapping[str, Iterable[float]]) -> DataFrame:
    """Return the times of each producer's publish requests and receipts, and of the steps that ended its program."""
    asked = evidence.messages.where(F.col("asked_ms").isNotNull() & ~F.col("refused"))
    acked = asked.where(F.col("acked_ms").isNotNull())
    publishing = _moments(asked, "outage", "producer", "asked_ms", is_arrival=False).union(
        _moments(acked, "outage", "producer", "acked_ms", is_arrival=True)
    )
    ends = _step_ends(evidence, down_on_purpose) if down_on_purpose else []
    return publishing.union(small_frame(ends, _MOMENTS_SCHEMA)) if ends else publishing


def _step_ends(
    evidence: Evidence, down_on_purpose: Mapping[str, Iterable[float]]
) -> list[tuple[str, str, float, bool]]:
    """Return the times at which steps ended the program of each producer: then no client waits for earlier requests."""
    requests = operations(evidence.events, "publish", "asked")
    rows = requests.select("producer", "history_file").distinct().collect()
    return [
        ("outage", row["producer"], at_ms, True)
        for row in sorted(rows, key=lambda row: (row["producer"], row["history_file"] or ""))
        for program, times in sorted(down_on_purpose.items())
        if _is_written_by(program, row["history_file"] or "")
        for at_ms in times
    ]


def _is_written_by(program: str, history_file: str) -> bool:
    """Return whether the history is the program's, or that of a further process of it (`billing-4711`)."""
    name, _, process = history_file.rpartition("-")
    return history_file == program or (name == program and process.isdecimal())


def _consuming(evidence: Evidence) -> DataFrame:
    """Return the times at which each subscription's messages were acknowledged, or earlier delivered, and at which it
    received messages."""
    due = evidence.subscription_messages.where(F.col("due") & (F.col("times") > 0))
    first_ms = F.array_min(fields_of("first_deliveries", "first_ms"))
    # After a delivery that precedes the acknowledgement nothing is pending: this wait has no length.
    since = due.withColumn("since_ms", F.least("acked_ms", first_ms))
    received = operations(evidence.events, "receive", "ok")
    return _moments(since, "stall", "subscription", "since_ms", is_arrival=False).union(
        _moments(received, "stall", "subscription", "at_ms", is_arrival=True)
    )


def _moments(frame: DataFrame, what: str, actor: str, at: str, *, is_arrival: bool) -> DataFrame:
    """Return the times at which the actor began to wait, or with `is_arrival` at which it got what it waited for."""
    return frame.select(
        F.lit(what).alias("what"),
        F.col(actor).alias("actor"),
        F.col(at).alias("at_ms"),
        F.lit(is_arrival).alias("is_arrival"),
    )


def _longest(moments: DataFrame, end_ms: float) -> dict[str, dict[str, tuple[Stretch, ...]]]:
    """Return what actors waited for -> actor -> the up to STRETCHES_MAX longest periods from the start of a wait to the
    next arrival, or to the end of the history. All in one query, because each costs its planning."""
    # In descending order: a window that extends to the end of its partition is evaluated again for each row.
    later = (
        Window.partitionBy("what", "actor")
        .orderBy(F.desc("at_ms"), F.desc("is_arrival"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    next_ms: Column = F.min(F.when(F.col("is_arrival"), F.col("at_ms"))).over(later)
    stretches = (
        moments.withColumn("next_ms", next_ms)
        .where(~F.col("is_arrival"))
        .groupBy("what", "actor", "next_ms")
        .agg(F.min("at_ms").alias("from_ms"))
        .withColumn("waited_ms", F.coalesce("next_ms", F.lit(end_ms)) - F.col("from_ms"))
    )
    by_length = Window.partitionBy("what", "actor").orderBy(F.desc("waited_ms"), "from_ms")
    long = (F.col("turn") == 1) | (F.col("waited_ms") >= 1000 * STRETCH_SECONDS_MIN)
    rows = (
        stretches.withColumn("turn", F.row_number().over(by_length))
        .where((F.col("turn") <= STRETCHES_MAX) & long)
        .collect()
    )
    found: dict[str, dict[str, tuple[Stretch, ...]]] = {}
    for row in sorted(rows, key=lambda row: (row["actor"], row["turn"])):
        stretch = Stretch(round(row["waited_ms"] / 1000, 3), row["from_ms"], row["next_ms"] is not None)
        of_kind = found.setdefault(row["what"], {})
        of_kind[row["actor"]] = (*of_kind.get(row["actor"], ()), stretch)
    return found


def _repeated(evidence: Evidence) -> dict[str, int]:
    rows = (
        evidence.subscription_messages.where(F.col("times") > 0)
        .groupBy("subscription")
        .agg(F.sum(F.col("times") - 1).alias("again"))
        .collect()
    )
    return {
        row["subscription"]: int(row["again"]) for row in sorted(rows, key=lambda row: row["subscription"])
    }
