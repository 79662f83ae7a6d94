"""Copies of messages that no consumer acknowledged, and of acknowledged ones that a region's cursor does not count.

A replicated subscription has one cursor in each region. A message that its consumers acknowledged in any region, and
that the cursor of a region which stores it does not count, would be delivered again there.
"""

from __future__ import annotations

from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.messages import ORIGIN, each_copy, places_of


def open_copies(subscription_messages: DataFrame) -> DataFrame:
    """Return the copies of messages that a subscription had to receive and did not acknowledge, and that policies did
    not allow to expire."""
    return each_copy(subscription_messages.where(F.col("due") & ~F.col("acknowledged") & ~F.col("aged")))


def uncounted_copies(subscription_messages: DataFrame, cursors: DataFrame) -> DataFrame:
    """Return one row per replicated subscription and copy that is acknowledged and that the cursor of its `region` does
    not count. `at`: its position there; `places`: region and position of every copy. A region without a cursor counts
    nothing."""
    acknowledged = subscription_messages.where(F.col("acknowledged") & (F.col("home") == ""))
    place = ["topic", "subscription", "region"]
    widest = cursors.groupBy(*place).agg(
        F.min("first").alias("since"), F.min_by("last", "first").alias("upto")
    )
    carried = ["subscription", *ORIGIN, "namespace", "asked_ms", "acked_ms", "aged", "sought"]
    copies = each_copy(acknowledged.select(*carried, "copies"))
    # Most messages are before the mark-delete position: only the others are compared with each range.
    behind = (
        copies.join(widest.hint("broadcast"), place, "left")
        .where(F.col("upto").isNull() | (F.col("at") < F.col("since")) | (F.col("at") > F.col("upto")))
        .select(*carried, "region", "at", places_of("copies").alias("places"))
    )
    counted = (
        behind.join(cursors.hint("broadcast"), place)
        .where((F.col("at") >= F.col("first")) & (F.col("at") <= F.col("last")))
        .select("subscription", *ORIGIN, "region", "at")
        .distinct()
        .withColumn("is_counted", F.lit(True))
    )
    each = ["subscription", *ORIGIN, "region", "at"]
    return behind.join(counted, each, "left").where(F.col("is_counted").isNull()).drop("is_counted")
