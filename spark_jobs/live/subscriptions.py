"""The messages in the window that a replicated subscription has not acknowledged yet.

An acknowledgement is kept while the window contains its message. If it names no stored message, it is kept for one more
step, because the logs are read before the histories.
"""

from __future__ import annotations

from spark_jobs.engines.frames import DataFrame, F, cached, release, small_frame
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN
from spark_jobs.sources.history_files import ROW_SCHEMA as LINE_SCHEMA

_PLACE = ("region", "ledger_id", "entry_id", "batch_index")
_ACK = ("topic", "subscription", *_PLACE)
_LEDGER = ("topic", "subscription", "region", "ledger_id")
_SUBSCRIBE = ("op", "outcome", "at_ms", "region", "topic", "subscription", "replicated", "initial")


class OpenAcknowledgements:
    """The subscribe requests and acknowledgements that are kept between steps."""

    def __init__(self) -> None:
        lines = small_frame([], LINE_SCHEMA)
        self._subscribes = cached(lines.select(*_SUBSCRIBE))
        self._acks = cached(lines.select(*_ACK, F.lit(0).alias("age")))
        self._cumulative = cached(lines.select(*_LEDGER, F.col("entry_id").alias("upto")))

    def add(self, lines: DataFrame) -> None:
        """Add new lines of the history."""
        of_subscriptions = lines.where(F.col("op").isin("subscribe", "seek", "unsubscribe"))
        acks = operations(lines, "acknowledge").where(F.col("outcome") != "failed")
        is_cumulative = F.col("how") == "cumulative"
        reached = acks.where(is_cumulative).select(*_LEDGER, F.col("entry_id").alias("upto"))
        before = self._subscribes, self._acks, self._cumulative
        self._subscribes = cached(self._subscribes.union(of_subscriptions.select(*_SUBSCRIBE)).distinct())
        new = acks.where(~is_cumulative).select(*_ACK, F.lit(0).alias("age"))
        self._acks = cached(self._acks.union(new))
        reached = self._cumulative.union(reached).groupBy(*_LEDGER).agg(F.max("upto").alias("upto"))
        self._cumulative = cached(reached)
        release(*before)

    def open_messages(self, messages: DataFrame, stored: DataFrame) -> DataFrame:
        """Return the rows of `evidence.subscription_messages` that are due to a replicated subscription and were not
        acknowledged."""
        due = messages.where(F.col("acked_ms").isNotNull()).join(
            self._replicated().hint("broadcast"), "topic"
        )
        in_time = (F.col("initial") == "earliest") | (F.col("asked_ms") >= F.col("since_ms"))
        due = due.where(in_time & F.arrays_overlap("expected", "regions"))
        acknowledged = self._acknowledged(stored).withColumn("is_acked", F.lit(True))
        return (
            due.join(acknowledged, ["subscription", *ORIGIN], "left")
            .where(F.col("is_acked").isNull())
            .select(
                *("subscription", *ORIGIN, "namespace", "acked_ms", "copies"),
                F.lit("").alias("home"),
                F.lit(True).alias("due"),
                *(F.lit(False).alias(name) for name in ("acknowledged", "aged")),
            )
        )

    def drop(self, stored: DataFrame) -> None:
        """Remove the acknowledgements of messages that left the window. `stored`: copies in the window."""
        places = stored.select("topic", *_PLACE, F.lit(True).alias("is_stored")).distinct()
        kept = self._acks.join(places, ["topic", *_PLACE], "left").where(
            F.col("is_stored").isNotNull() | (F.col("age") == 0)
        )
        before = self._acks
        self._acks = cached(kept.select(*_ACK, F.lit(1).alias("age")).distinct())
        release(before)

    def _replicated(self) -> DataFrame:
        is_ok = (F.col("op") == "subscribe") & (F.col("outcome") == "ok")
        return (
            self._subscribes.groupBy("topic", "subscription")
            .agg(
                F.min(F.when(is_ok, F.col("at_ms"))).alias("since_ms"),
                F.collect_set(F.when(is_ok, F.col("region"))).alias("regions"),
                F.min("initial").alias("initial"),
                F.max(F.col("op") != "subscribe").alias("moved"),
                F.max(F.coalesce("replicated", F.lit(False))).alias("is_replicated"),
            )
            .where(F.col("since_ms").isNotNull() & F.col("is_replicated") & ~F.col("moved"))
        )

    def _acknowledged(self, stored: DataFrame) -> DataFrame:
        """Return subscription and origin of the copies that any client asked to acknowledge."""
        alone = stored.join(self._acks, ["topic", *_PLACE]).select("subscription", *ORIGIN)
        together = (
            stored.join(self._cumulative.hint("broadcast"), ["topic", "region", "ledger_id"])
            .where(F.col("entry_id") <= F.col("upto"))
            .select("subscription", *ORIGIN)
        )
        return alone.union(together).distinct()
