"""Acknowledgements that individual acknowledgements had to replicate (INV-128, INV-127).

With `replicate_individual_acks` a region claims what its consumers acknowledged beyond the replicated position. After
quiet the cursors of both regions therefore count the same messages, exactly. Compared are messages that a claim must
contain, according to docs/components/individual-acks.md:

* published after all regions had the policy, in one of the two regions: a message of a third region may reach the
  receiver after the claim;
* acknowledged only in the two regions, and by now at rest;
* among the newest entries of the log, whose origins the sender remembers;
* in a cursor with so few ranges that none is left out of a claim.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from spark_jobs.checks.finding import finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, place_text
from spark_jobs.sources.policies import SETTLING_MS

REMEMBERED_ENTRIES = 4_096
"""Number of newest entries whose origins a region remembers after it loaded the topic."""
RANGES_MAX = 500
"""Number of ranges of a cursor up to which every claim is whole, half of the default of `individual_acks_max`."""


def find_unclaimed(evidence: Evidence, acknowledgements: DataFrame) -> DataFrame | None:
    """Find messages that the cursor of one region counts, and the cursor of another one had to count. None: no
    namespace replicates individual acknowledgements. `acknowledgements`: `last_ack_ms` and `acked_in` of each
    subscription."""
    if not evidence.individual_acks:
        return None
    in_force = reduce(
        or_,
        (
            (F.col("namespace") == name) & (F.col("asked_ms") >= F.lit(since_ms + SETTLING_MS))
            for name, since_ms in sorted(evidence.individual_acks.items())
        ),
    )
    lacking = evidence.uncounted.where(in_force & ~F.col("aged") & ~F.col("sought"))
    message = ["subscription", *ORIGIN]
    where = lacking.groupBy(*message).agg(F.collect_set("region").alias("lacking_in"))
    counted = F.filter("places", lambda place: ~F.array_contains(F.col("lacking_in"), place["region"]))
    differing = (
        lacking.join(where, message)
        .withColumn("counted", F.array_min(counted))
        .where(F.col("counted").isNotNull())
        .withColumn("source_region", F.col("counted.region"))
        .withColumn("source_at", F.col("counted.at"))
        .join(acknowledgements, ["topic", "subscription"])
        .where(F.size(F.array_except("acked_in", F.array("region", "source_region"))) == 0)
        .where(
            (F.col("origin_region") == F.col("region")) | (F.col("origin_region") == F.col("source_region"))
        )
    )
    return finding(
        _at_rest(evidence, differing),
        "not claimed",
        other_region="source_region",
        position=place_text(F.col("at")),
        other_position=place_text(F.col("source_at")),
        at_ms="last_ack_ms",
    )


def _at_rest(evidence: Evidence, differing: DataFrame) -> DataFrame:
    """Keep the messages between regions that had no fault, and whose cursors no client moved."""
    claims, quiescence = evidence.claims, evidence.quiescence
    whole = claims.positions.where(
        F.col("is_replicated") & ~F.col("was_moved") & ~F.col("has_claims")
    ).select("topic", "subscription", "region")
    sizes = claims.cursors.groupBy("topic", "subscription", F.col("region").alias("source_region")).agg(
        F.count("*").alias("ranges"), F.max("end").alias("end")
    )
    settled = quiescence.links.where(F.col("is_settled")).select("source_region", "region")
    until = quiescence.regions.select(F.col("region").alias("source_region"), "until_ms")
    moved = evidence.events.where(F.col("op").isin("seek", "unsubscribe"))
    moved = moved.select("topic", "subscription", F.lit(True).alias("is_moved")).distinct()
    return (
        differing.join(whole, ["topic", "subscription", "region"])
        .join(whole.withColumnRenamed("region", "source_region"), ["topic", "subscription", "source_region"])
        .join(sizes, ["topic", "subscription", "source_region"])
        .join(settled, ["source_region", "region"])
        .join(until, "source_region")
        .join(moved, ["topic", "subscription"], "left")
        .where(
            F.col("is_moved").isNull()
            & (F.col("ranges") <= RANGES_MAX)
            & (F.col("source_at") > F.col("end") - REMEMBERED_ENTRIES)
            & (F.col("last_ack_ms") <= F.col("until_ms"))
        )
    )
