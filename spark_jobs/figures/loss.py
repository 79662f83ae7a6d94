"""Messages lost with a region that never started again: a figure, never a violation.

An acknowledged message is *unrecovered* when its origin region is lost and no remaining region stores it. The recovery
point (RPO) is the age of the oldest of them: from its acknowledgement to the loss. A restart of the region would
recover the messages that its log still stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.engines.frames import F, fields_of
from spark_jobs.frames.evidence import Evidence
from spark_jobs.verdict import INFORMATION, CheckResult
from spark_jobs.wording import count, duration_text, hint

TOPICS_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages of one producer in one topic that were lost with a region."""

    region: str
    topic: str
    producer: str
    acknowledged: int
    """Number of publishes that the region acknowledged and no remaining region stores."""
    unanswered: int
    """Number of publishes without a receipt that only logs of lost regions store."""
    kept: int
    """Number of all these messages that a lost region's log still stores."""
    first_sequence_id: int
    last_sequence_id: int
    oldest_ms: float | None
    """Time of the first acknowledgement of one of them, on the history's clock; None: none was acknowledged."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one or more regions."""

    lost: Mapping[str, float] = field(default_factory=dict)
    """Region -> time of its loss, in milliseconds on the history's clock."""
    gone: tuple[LostMessages, ...] = ()
    lacking: Mapping[str, int] = field(default_factory=dict)
    """Remaining region -> messages of lost regions that it lacks and another remaining region stores."""

    @property
    def unrecovered(self) -> int:
        return sum(one.acknowledged for one in self.gone)

    @property
    def kept(self) -> int:
        return sum(one.kept for one in self.gone)

    @property
    def recovery_point_seconds(self) -> float:
        """The largest recovery point of all lost regions; 0 when no acknowledged message was lost."""
        ages = [self.lost[one.region] - one.oldest_ms for one in self.gone if one.oldest_ms is not None]
        return round(max([*ages, 0.0]) / 1000, 3)

    def as_json(self) -> dict[str, Any]:
        return {
            "regions": sorted(self.lost),
            "unrecovered": self.unrecovered,
            "recovery_point_seconds": self.recovery_point_seconds,
            "kept_in_lost_logs": self.kept,
            "lacking": dict(sorted(self.lacking.items())),
            "by_producer": [self._row(one) for one in self.gone],
        }

    def _row(self, gone: LostMessages) -> dict[str, Any]:
        row = dataclasses.asdict(gone)
        oldest_ms = row.pop("oldest_ms")
        row["oldest_seconds"] = (
            None if oldest_ms is None else round((self.lost[gone.region] - oldest_ms) / 1000, 3)
        )
        return row


def measure_loss(evidence: Evidence, lost: Mapping[str, float]) -> Loss:
    """Compute the loss. Runs no query when no region was lost."""
    if not lost:
        return Loss()
    names = [F.lit(name) for name in sorted(lost)]
    held = F.array_distinct(fields_of("copies", "region"))
    acknowledged = F.col("acked_ms").isNotNull()
    rows = (
        evidence.messages.where(F.col("origin_region").isin(*lost) & ~F.col("unpublished"))
        .withColumn("held", held)
        .where((F.size(F.array_except("held", F.array(*names))) == 0) & (acknowledged | (F.size("held") > 0)))
        .groupBy("origin_region", "topic", "producer")
        .agg(
            F.sum(acknowledged.cast("bigint")).alias("acknowledged"),
            F.sum((~acknowledged).cast("bigint")).alias("unanswered"),
            F.sum((F.size("held") > 0).cast("bigint")).alias("kept"),
            F.min("sequence_id").alias("first_sequence_id"),
            F.max("sequence_id").alias("last_sequence_id"),
            F.min("acked_ms").alias("oldest_ms"),
        )
        .collect()
    )
    gone = sorted(rows, key=lambda row: (row["origin_region"], row["topic"], row["producer"]))
    return Loss(
        lost=dict(lost), gone=tuple(LostMessages(*row) for row in gone), lacking=_lacking(evidence, lost)
    )


def _lacking(evidence: Evidence, lost: Mapping[str, float]) -> dict[str, int]:
    gone = F.array(*[F.lit(name) for name in sorted(lost)])
    held = F.array_except(fields_of("copies", "region"), gone)
    absent = evidence.messages.where(F.col("origin_region").isin(*lost) & (F.size(held) > 0)).select(
        F.explode(F.array_except(F.array_except("expected", gone), held)).alias("region")
    )
    return {row["region"]: row["count"] for row in absent.groupBy("region").count().collect()}


def loss_result(loss: Loss) -> CheckResult | None:
    """Return the loss as a measured check of the report; None when no region was lost."""
    if not loss.lost:
        return None
    regions = " and ".join(sorted(loss.lost))
    sentences = [_cost(loss, regions)]
    if loss.kept:
        sentences.append(hint("kept-in-lost-log", regions=regions, messages=count(loss.kept)))
    if loss.lacking:
        lacks = ", ".join(f"{region} {n:,}" for region, n in sorted(loss.lacking.items()))
        sentences.append(f"Copies of its other messages are missing in: {lacks}.")
    return CheckResult(
        "loss",
        "loss of a region",
        INFORMATION,
        "measured",
        " ".join(sentences),
        tuple(_witness(one) for one in loss.gone),
    )


def _cost(loss: Loss, regions: str) -> str:
    if not loss.unrecovered:
        return (
            f"{regions} was lost, and no acknowledged message with it."
            if len(loss.lost) == 1
            else (f"{regions} were lost, and no acknowledged message with them.")
        )
    return (
        f"{count(loss.unrecovered, 'acknowledged message')} {_of_topics(loss)} lost with {regions}: no remaining region"
        f" stores {'it' if loss.unrecovered == 1 else 'them'}. The oldest was acknowledged"
        f" {duration_text(loss.recovery_point_seconds)} before the loss"
        f" (RPO {duration_text(loss.recovery_point_seconds)})."
    )


def _of_topics(loss: Loss) -> str:
    """Return `of persistent://public/default/orders`, or several topics with their numbers of messages."""
    numbers: dict[str, int] = {}
    for one in loss.gone:
        numbers[one.topic] = numbers.get(one.topic, 0) + one.acknowledged
    named = [topic for topic, number in numbers.items() if number]
    if len(named) == 1:
        return f"of {named[0]}"
    shown = sorted(named, key=lambda topic: (-numbers[topic], topic))[:TOPICS_SHOWN_MAX]
    each = ", ".join(f"{topic} {numbers[topic]:,}" for topic in shown)
    return f"of {len(named)} topics ({each}{', ...' if len(named) > len(shown) else ''})"


def _witness(one: LostMessages) -> Mapping[str, Any]:
    return {
        "kind": "gone",
        "origin_region": one.region,
        "topic": one.topic,
        "producer": one.producer,
        "sequence_id": one.first_sequence_id,
        "last_sequence_id": one.last_sequence_id,
        "times": one.acknowledged,
    }
