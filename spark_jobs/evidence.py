"""What every check starts from: logs and history brought together.

    stored          one row per message that is in some region's log, markers left out
    events          what clients asked and were told, one row per line of the history
    messages        one row per origin: what was asked, what was told, and the copies there are of it
    missing         one row per copy that ought to be there and is not, what that absence proves, and how many
                    copies are `held` elsewhere
    owed            one row per subscription and message that it was to be given, or was given: whether it is `due`
                    to it, how many `times` it came
    outages         one row per time that a region was down

A message is its *origin*: (topic, origin region, producer, sequence id). Its `position` is (ledger, entry) in the
log of its origin region; replication keeps that order, so a region that holds something later of the same origin
has passed over everything earlier that it does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spark_jobs.run_folder import Namespace

ORIGIN = ("topic", "origin_region", "producer", "sequence_id")
"""The columns that tell one message from another."""

TRIMMED_SCHEMA = T.StructType(
    [
        T.StructField("region", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("below", T.MapType(T.LongType(), T.LongType())),
    ]
)
"""Where retention let entries go: per ledger of a region's topic, those with a smaller id than this."""

OUTAGE_SCHEMA = T.StructType(
    [
        T.StructField("region", T.StringType()),
        T.StructField("down_ms", T.DoubleType()),
        T.StructField("up_ms", T.DoubleType()),
    ]
)
"""`up_ms` is null for a region that stayed down."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The frames of the module's description."""

    stored: DataFrame
    events: DataFrame
    messages: DataFrame
    missing: DataFrame
    owed: DataFrame
    outages: DataFrame


def gather(
    stored: DataFrame,
    events: DataFrame,
    trimmed: DataFrame,
    outages: DataFrame,
    namespaces: Mapping[str, Namespace],
) -> Evidence:
    """Bring together what the logs and the history say."""
    messages = kept(join_messages(publishes(events), stored, namespaces))
    return Evidence(
        stored=stored,
        events=events,
        messages=messages,
        missing=kept(missing_copies(messages, trimmed)),
        owed=kept(owed_messages(messages, subscriptions(events), deliveries(events))),
        outages=outages,
    )


def kept(frame: DataFrame) -> DataFrame:
    """The same rows, worked out once and at the first use. Unlike `persist` this also ends the plan, which would
    otherwise be analysed anew for each of the dozens of frames that are made from it."""
    return frame.localCheckpoint(eager=False)


def history_topic(log_topic: str, history_topics: Collection[str]) -> str | None:
    """What the history calls a topic that is stored as `log_topic`. It speaks of a partitioned topic as a whole,
    unless it names partitions itself. None for topics of the system, which are nobody's business."""
    if _SYSTEM_TOPIC.match(log_topic):
        return None
    whole = _PARTITION.sub("", log_topic)
    return whole if whole in history_topics else log_topic


_SYSTEM_TOPIC = re.compile(r"[a-z-]+://(pulsar/system/|[^/]+/[^/]+/__)")
_PARTITION = re.compile(r"-partition-\d+$")


def small_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: T.StructType) -> DataFrame:
    """A few literal rows. From columns, because Spark sends rows through a Python worker that it must start first."""
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(dicts, schema=to_arrow_schema(schema)), schema)


def stored_messages(
    rows: DataFrame, log_topics: Collection[str], history_topics: Collection[str]
) -> DataFrame:
    """Rows of `region_log` without markers and system topics. `log_topic` is the topic as stored, `topic` as the
    history calls it."""
    names = {topic: history_topic(topic, history_topics) for topic in sorted(log_topics)}
    system = [topic for topic, name in names.items() if name is None]
    renamed = {topic: name for topic, name in names.items() if name not in (None, topic)}
    topic = F.col("topic")
    if renamed:
        pairs = [F.lit(text) for pair in renamed.items() for text in pair]
        topic = F.coalesce(F.create_map(*pairs)[topic], topic)
    messages = rows.where(F.col("damage").isNull() & F.col("marker_type").isNull())
    return (messages.where(~F.col("topic").isin(system)) if system else messages).select(
        "region",
        F.col("topic").alias("log_topic"),
        topic.alias("topic"),
        "origin_region",
        F.col("producer_name").alias("producer"),
        "sequence_id",
        "ledger_id",
        "entry_id",
        "batch_index",
        "replicate_to",
        "source_position",
        "payload_crc32c",
    )


def publishes(events: DataFrame) -> DataFrame:
    """One row per message that somebody asked to publish. `acked_ms` is null unless it certainly was
    published; `refused` means that every attempt certainly was not."""

    is_ok = F.col("outcome") == "ok"

    def count(outcome: str) -> Column:
        return F.count(F.when(F.col("outcome") == outcome, 1))

    # Numbers only: a minimum of strings or structs would make Spark sort instead of hash.
    return (
        events.where((F.col("op") == "publish") & F.col("sequence_id").isNotNull())
        .withColumns(
            {
                "origin_region": F.coalesce("origin_region", "region"),
                "at": F.when(is_ok, position_of("message_id")),
            }
        )
        .groupBy(*ORIGIN)
        .agg(
            F.min("at_ms").alias("asked_ms"),
            F.min(F.when(is_ok, F.col("at_ms"))).alias("acked_ms"),
            F.min("at.ledger_id").alias("acked_ledger"),
            F.min("at.entry_id").alias("acked_entry"),
            (
                (count("failed") > 0)
                & (count("failed") >= count("asked"))
                & (count("ok") + count("unknown") == 0)
            ).alias("refused"),
        )
    )


def join_messages(published: DataFrame, stored: DataFrame, namespaces: Mapping[str, Namespace]) -> DataFrame:
    """One row per message, asked for or stored or both. `copies` is empty for what is stored nowhere."""
    own = F.col("region") == F.col("origin_region")
    place = F.struct("region", "ledger_id", "entry_id", "batch_index", "payload_crc32c")
    acked_position = F.when(
        F.col("acked_ledger").isNotNull(),
        F.struct(F.col("acked_ledger").alias("ledger_id"), F.col("acked_entry").alias("entry_id")),
    )
    copies = stored.groupBy(*ORIGIN).agg(
        F.collect_list(place).alias("copies"),
        F.min(F.when(own, F.struct("ledger_id", "entry_id"))).alias("own_position"),
        F.min("source_position").alias("source_position"),
        F.max("replicate_to").alias("replicate_to"),
    )
    return (
        published.join(copies.hint("shuffle_hash"), list(ORIGIN), "full_outer")
        .withColumn("namespace", F.regexp_extract("topic", r"://([^/]+/[^/]+)/", 1))
        .select(
            *ORIGIN,
            "namespace",
            "asked_ms",
            "acked_ms",
            F.coalesce("refused", F.lit(False)).alias("refused"),
            F.coalesce("copies", F.array().cast(copies.schema["copies"].dataType)).alias("copies"),
            F.coalesce("own_position", acked_position, position_of("source_position")).alias("position"),
            _expected_regions(namespaces).alias("expected"),
        )
    )


def owed_messages(messages: DataFrame, subscriptions: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Due is what was acknowledged, asked for after the subscription existed, and meant for one of its regions."""
    asked_for = messages.where(F.col("asked_ms").isNotNull()).join(F.broadcast(subscriptions), "topic")
    due = (
        F.col("acked_ms").isNotNull()
        & (F.col("asked_ms") >= F.col("since_ms"))
        & F.arrays_overlap("expected", "regions")
    )
    return asked_for.join(deliveries.hint("shuffle_hash"), ["subscription", *ORIGIN], "full_outer").select(
        "subscription",
        *ORIGIN,
        "namespace",
        "asked_ms",
        "acked_ms",
        "copies",
        F.coalesce(due, F.lit(False)).alias("due"),
        F.coalesce("times", F.lit(0)).alias("times"),
        "last_ms",
        "last_region",
        "reached",
    )


def deliveries(events: DataFrame) -> DataFrame:
    """Which subscription was given which message, how many `times`, and when last."""
    return (
        _received(events)
        .where(F.col("sequence_id").isNotNull())
        .groupBy("subscription", *ORIGIN)
        .agg(
            F.count("*").alias("times"),
            F.max("at_ms").alias("last_ms"),
        )
    )


def subscriptions(events: DataFrame) -> DataFrame:
    """`since_ms`, in which `regions`, and how far its consumer came in `last_region`, where it was last
    (`reached`: the highest entry received there, by ledger)."""
    by = ["topic", "subscription"]
    subscribed = (
        events.where((F.col("op") == "subscribe") & (F.col("outcome") == "ok"))
        .groupBy(*by)
        .agg(F.min("at_ms").alias("since_ms"), F.collect_set("region").alias("regions"))
    )
    by_ledger = (
        _received(events)
        .withColumn("at", position_of("message_id"))
        .groupBy(*by, "region", F.col("at.ledger_id").alias("ledger_id"))
        .agg(F.max("at.entry_id").alias("entry_id"), F.max("at_ms").alias("until_ms"))
    )
    places = by_ledger.groupBy(*by).agg(
        F.max_by("region", "until_ms").alias("last_region"),
        F.collect_list(F.struct("region", "ledger_id", "entry_id")).alias("places"),
    )
    in_last_region = F.filter(
        "places", lambda place: (place["region"] == F.col("last_region")) & place["ledger_id"].isNotNull()
    )
    reached = F.map_from_entries(
        F.transform(in_last_region, lambda place: F.struct(place["ledger_id"], place["entry_id"]))
    )
    # One that was never seen to subscribe is owed nothing, but what it received is known all the same.
    return subscribed.join(places.select(*by, "last_region", reached.alias("reached")), by, "full_outer")


def _received(events: DataFrame) -> DataFrame:
    return events.where((F.col("op") == "receive") & (F.col("outcome") == "ok"))


def missing_copies(messages: DataFrame, trimmed: DataFrame) -> DataFrame:
    """`absence` tells what a missing copy proves:

    trimmed    retention may have let it go: neither lost nor proof
    missing    the region holds later messages of that origin, or is the origin itself: it is lost there
    behind     the region holds nothing later of that origin: lost, or not there yet
    """
    reach = (
        messages.select(
            "topic", "origin_region", "position", F.explode(F.array_distinct("copies.region")).alias("region")
        )
        .groupBy("topic", "origin_region", "region", F.col("position.ledger_id").alias("origin_ledger"))
        .agg(F.min("position.entry_id").alias("first_held"), F.max("position.entry_id").alias("last_held"))
    )
    absent = (
        messages.withColumn("region", F.explode(F.array_except("expected", F.col("copies.region"))))
        .withColumn("origin_ledger", F.col("position.ledger_id"))
        .join(reach, ["topic", "origin_region", "region", "origin_ledger"], "left")
        .join(F.broadcast(trimmed), ["topic", "region"], "left")
    )
    entry, own = F.col("position.entry_id"), F.col("region") == F.col("origin_region")
    let_go = F.when(own, entry < F.col("below")[F.col("origin_ledger")]).otherwise(
        F.col("first_held").isNull() | (entry < F.col("first_held"))
    )
    return absent.withColumn(
        "absence",
        F.when(F.col("below").isNotNull() & F.coalesce(let_go, F.lit(True)), "trimmed")
        .when(own | (entry < F.col("last_held")), "missing")
        .otherwise("behind"),
    ).select(
        *ORIGIN,
        "region",
        "namespace",
        "asked_ms",
        "acked_ms",
        entry_text(F.col("position")).alias("origin_position"),
        F.size("copies").alias("held"),
        "absence",
    )


def position_text(place: Column) -> Column:
    """`ledger:entry:batch_index`, as message ids are written in the history."""
    return F.concat_ws(":", place["ledger_id"], place["entry_id"], place["batch_index"])


def entry_text(position: Column) -> Column:
    """`ledger:entry`, null where there is none."""
    return F.when(position.isNotNull(), F.concat_ws(":", position["ledger_id"], position["entry_id"]))


def position_of(column: str) -> Column:
    """What is written as `ledger:entry` or `ledger:entry:batch_index`; null for anything else, also for the -1:-1
    of a duplicate's receipt."""
    parts = F.split(F.col(column), ":")
    ledger, entry = F.get(parts, F.lit(0)).try_cast("bigint"), F.get(parts, F.lit(1)).try_cast("bigint")
    return F.when((ledger >= 0) & (entry >= 0), F.struct(ledger.alias("ledger_id"), entry.alias("entry_id")))


def _expected_regions(namespaces: Mapping[str, Namespace]) -> Column:
    """The origin region, and those of its namespace that the message itself does not leave out."""
    own = F.array("origin_region")
    if not namespaces:
        return own
    pairs = [
        part
        for name, namespace in sorted(namespaces.items())
        for part in (F.lit(name), F.array(*map(F.lit, namespace.regions)).cast("array<string>"))
    ]
    declared = F.coalesce(F.create_map(*pairs)[F.col("namespace")], own)
    chosen = F.when(F.size("replicate_to") > 0, F.array_intersect(declared, F.col("replicate_to")))
    return F.array_union(own, F.coalesce(chosen, declared))
