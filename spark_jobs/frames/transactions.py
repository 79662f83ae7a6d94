"""Transactions: which stored messages are published, and which acknowledgements take effect.

A transaction belongs to one region, and is identified by the region and its transaction id `most,least`. A stored
message of a transaction has a *fate*, which the marker in the same log decides:

    committed  published, like any other message
    aborted    never published: no consumer and no other region receives it
    open       not published: there is no marker yet

The fate of a message without a transaction is null. A region must store a message that it acknowledged, whatever its
fate.
"""

from __future__ import annotations

from emulator.model.markers import TXN_ABORT, TXN_COMMIT
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.history import operations

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
PLAIN = "plain"
"""Value in `fates` for a copy that belongs to no transaction."""


def with_fates(rows: DataFrame, *, transactional: bool) -> DataFrame:
    """Add `fate` to rows of region logs. The first marker of a transaction in a log decides; later ones are ignored. A
    replicated message belongs to no transaction of this region."""
    if not transactional:
        return rows.withColumn("fate", F.lit(None).cast("string"))
    by = ["region", "topic", "transaction"]
    is_end = F.col("marker_type").isin(TXN_COMMIT, TXN_ABORT) & F.col("transaction").isNotNull()
    place = F.struct("ledger_id", "entry_id")
    ends = rows.where(is_end).groupBy(*by).agg(F.min_by("marker_type", place).alias("ended_by"))
    fate = (
        F.when(F.col("transaction").isNull() | (F.col("region") != F.col("origin_region")), F.lit(None))
        .when(F.col("ended_by") == TXN_COMMIT, F.lit(COMMITTED))
        .when(F.col("ended_by") == TXN_ABORT, F.lit(ABORTED))
        .otherwise(F.lit(OPEN))
    )
    return rows.join(ends.hint("broadcast"), by, "left").withColumn("fate", fate.cast("string"))


def returned_ends(events: DataFrame) -> DataFrame:
    """Return the outcome in the responses to clients (`returned_end`: committed or aborted) by region and transaction.
    A region that was lost and restarted empty may reuse an id; an id with both outcomes is left out."""
    ends = (
        operations(events, "end_transaction", "ok")
        .groupBy("region", "transaction")
        .agg(F.min("action").alias("action"), F.max("action").alias("other_action"))
        .where(F.col("action") == F.col("other_action"))
    )
    end = F.when(F.col("action") == "commit", F.lit(COMMITTED)).otherwise(F.lit(ABORTED))
    return ends.select("region", "transaction", end.alias("returned_end"))


def with_ends(messages: DataFrame, events: DataFrame, *, transactional: bool) -> DataFrame:
    """Add `returned_end` and `unpublished` to messages; of an unpublished message only the origin region's copy is
    `expected`. The log decides, or the clients' responses if the origin region no longer stores the message."""
    if not transactional:
        return messages.withColumn("returned_end", F.lit(None).cast("string")).withColumn(
            "unpublished", F.lit(False)
        )
    ends = returned_ends(events).withColumnRenamed("region", "origin_region")
    in_log = ~F.array_contains("fates", PLAIN) & ~F.array_contains("fates", COMMITTED)
    not_committed = F.col("transaction").isNotNull() & (F.coalesce("returned_end", F.lit(OPEN)) != COMMITTED)
    unpublished = F.when(F.size("fates") > 0, in_log).otherwise(not_committed)
    own_only = F.when(F.col("unpublished"), F.array("origin_region")).otherwise(F.col("expected"))
    return (
        messages.join(ends.hint("broadcast"), ["origin_region", "transaction"], "left")
        .withColumn("unpublished", unpublished)
        .withColumn("expected", own_only)
    )


def without_void_acks(events: DataFrame, *, transactional: bool) -> DataFrame:
    """Return events without acknowledgements that have no effect: those of aborted transactions, and of transactions
    whose commit no client requested."""
    if not transactional:
        return events
    by = ["region", "transaction"]
    commits = operations(events, "end_transaction", "asked").where(F.col("action") == "commit")
    requested = commits.select(*by).distinct().withColumn("is_requested", F.lit(True))
    ends = returned_ends(events)
    is_effective = F.coalesce(F.col("returned_end") == COMMITTED, "is_requested", F.lit(False))
    is_void = (F.col("op") == "acknowledge") & F.col("transaction").isNotNull() & ~is_effective
    return (
        events.join(ends.hint("broadcast"), by, "left")
        .join(requested.hint("broadcast"), by, "left")
        .where(~is_void)
        .drop("returned_end", "is_requested")
    )
