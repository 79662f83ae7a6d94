"""What every check starts from: logs and history brought together.

    stored          one row per message that is in some region's log, markers left out
    events          what clients asked and were told, one row per line of the history
    messages        one row per origin: what was asked, what was told, and the copies there are of it
    missing         one row per copy that ought to be there and is not, what that absence proves, and how many
                    copies are `held` elsewhere
    owed            one row per subscription and message that it was to be given, or was given: whether it is `due`
                    to it, how many `times` it came
    strays          one row per place that a consumer was given something from, in which nothing is stored
    promises        what snapshots, updates and stored cursors say of places (`promises.py`)
    outages         one row per time that a region was down

A message is its *origin*: (topic, origin region, producer, sequence id). Its `position` is (ledger, entry) in the
log of its origin region; replication keeps that order, so a region that holds something later of the same origin
has passed over everything earlier that it does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.engines.current import fields_of, kept
from spark_jobs.engines.frames import Column, DataFrame, F
from spark_jobs.run_folder import Namespace

ORIGIN = ("topic", "origin_region", "producer", "sequence_id")
"""The columns that tell one message from another."""

LEDGER = 1 << 40
"""Room for entry ids where a place is one number, `ledger * LEDGER + entry`."""

TRIMMED_SCHEMA = pa.schema(
    {"region": pa.string(), "topic": pa.string(), "below": pa.map_(pa.int64(), pa.int64())}
)
"""Where retention let entries go: per ledger of a region's topic, those with a smaller id than this."""

OUTAGE_SCHEMA = pa.schema({"region": pa.string(), "down_ms": pa.float64(), "up_ms": pa.float64()})
"""`up_ms` is null for a region that stayed down."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What regions have stored about places: (schemas in `promises`)."""

    snapshots: DataFrame
    updates: DataFrame
    cursors: DataFrame


@dataclass(frozen=True, slots=True)
class Evidence:
    """The frames of the module's description."""

    stored: DataFrame
    events: DataFrame
    messages: DataFrame
    missing: DataFrame
    owed: DataFrame
    strays: DataFrame
    promises: Promises
    outages: DataFrame


def gather(
    stored: DataFrame,
    events: DataFrame,
    trimmed: DataFrame,
    outages: DataFrame,
    promises: Promises,
    namespaces: Mapping[str, Namespace],
) -> Evidence:
    """Bring together what the logs and the history say."""
    messages = kept(join_messages(publishes(events), stored, namespaces))
    of_subscriptions = with_homes(events)
    by_place = kept(named_deliveries(of_subscriptions, stored))
    given = deliveries(by_place, of_subscriptions)
    return Evidence(
        stored=stored,
        events=events,
        messages=messages,
        missing=kept(missing_copies(messages, trimmed)),
        owed=kept(owed_messages(messages, subscriptions(of_subscriptions), given)),
        strays=by_place.where(F.col("producer").isNull() & (F.col("times") > 0)),
        promises=promises,
        outages=outages,
    )


def history_topic(log_topic: str, history_topics: Collection[str]) -> str | None:
    """What the history calls a topic that is stored as `log_topic`. It speaks of a partitioned topic as a whole,
    unless it names partitions itself. None for topics of the system, which are nobody's business."""
    if _SYSTEM_TOPIC.match(log_topic):
        return None
    whole = _PARTITION.sub("", log_topic)
    return whole if whole in history_topics else log_topic


_SYSTEM_TOPIC = re.compile(r"[a-z-]+://(pulsar/system/|[^/]+/[^/]+/__)")
_PARTITION = re.compile(r"-partition-\d+$")


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
        "source_ledger",
        "source_entry",
        "payload_digest",
        "attributes_digest",
        "bytes_digest",
        "is_sound",
    )


def publishes(events: DataFrame) -> DataFrame:
    """One row per message that somebody asked to publish. `acked_ms` is null unless it certainly was published;
    `refused` means that every attempt certainly was not. A number may have been asked for in several `sessions`, with
    several contents: `asked_payloads` has the digest of each. `told` are the places that receipts named."""
    is_ok, is_asked = F.col("outcome") == "ok", F.col("outcome") == "asked"

    def count(outcome: str) -> Column:
        return F.count(F.when(F.col("outcome") == outcome, 1))

    return (
        events.where(F.col("op") == "publish")
        .withColumn("origin_region", F.col("region"))
        .groupBy(*ORIGIN)
        .agg(
            F.min("at_ms").alias("asked_ms"),
            F.min(F.when(is_ok, F.col("at_ms"))).alias("acked_ms"),
            F.array_sort(
                F.collect_set(
                    F.when(
                        is_ok & F.col("ledger_id").isNotNull(),
                        F.struct("ledger_id", "entry_id", "batch_index"),
                    )
                )
            ).alias("told"),
            F.collect_set(F.when(is_asked, F.col("payload_digest"))).alias("asked_payloads"),
            F.collect_set(F.when(is_asked, F.col("attributes_digest"))).alias("asked_attributes"),
            F.max(F.when(is_asked, F.col("replicate_to"))).alias("asked_to"),
            F.size(F.collect_set("session")).alias("sessions"),
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
    place = F.struct(*COPY)
    copies = stored.groupBy(*ORIGIN).agg(
        # In an order of their own: whoever names the first of several names the same one every time.
        F.array_sort(F.collect_list(place)).alias("copies"),
        F.min(F.when(own, F.struct("ledger_id", "entry_id"))).alias("own_position"),
        F.min(
            F.when(
                F.col("source_ledger").isNotNull(),
                F.struct(F.col("source_ledger").alias("ledger_id"), F.col("source_entry").alias("entry_id")),
            )
        ).alias("source"),
        F.max("replicate_to").alias("stored_to"),
    )
    told = F.transform("told", lambda place: F.struct(place["ledger_id"], place["entry_id"]))
    no_copies = F.array().cast(_COPIES)
    acked_position = F.array_min(told).cast("struct<ledger_id: bigint, entry_id: bigint>")
    return (
        published.join(copies.hint("shuffle_hash"), list(ORIGIN), "full_outer")
        .withColumn("namespace", F.regexp_extract("topic", r"://([^/]+/[^/]+)/", 1))
        .withColumn(
            "chosen", F.when(F.col("asked_ms").isNotNull(), F.col("asked_to")).otherwise(F.col("stored_to"))
        )
        .select(
            *ORIGIN,
            "namespace",
            "asked_ms",
            "acked_ms",
            "told",
            "asked_payloads",
            "asked_attributes",
            "asked_to",
            "stored_to",
            F.coalesce("sessions", F.lit(0)).alias("sessions"),
            F.coalesce("refused", F.lit(False)).alias("refused"),
            F.coalesce("copies", no_copies).alias("copies"),
            F.coalesce("own_position", acked_position, "source").alias("position"),
            _expected_regions(namespaces).alias("expected"),
        )
    )


COPY = {
    "region": "STRING",
    "ledger_id": "BIGINT",
    "entry_id": "BIGINT",
    "batch_index": "INT",
    "source_ledger": "BIGINT",
    "source_entry": "BIGINT",
    "payload_digest": "BIGINT",
    "attributes_digest": "BIGINT",
    "bytes_digest": "BIGINT",
    "is_sound": "BOOLEAN",
}
"""What `copies` says of each, and of which type."""

_COPIES = f"ARRAY<STRUCT<{', '.join(f'{name}: {kind}' for name, kind in COPY.items())}>>"


def owed_messages(messages: DataFrame, subscriptions: DataFrame, deliveries: DataFrame) -> DataFrame:
    """What a subscription was to be given, or was given. Due is what was acknowledged and meant for one of its regions,
    and asked for after it existed, unless it began at the earliest message. What was asked for `before` it existed is
    not due to one that began at the latest. A subscription that is not replicated is one in each region."""
    asked_for = messages.where(F.col("asked_ms").isNotNull()).join(subscriptions.hint("broadcast"), "topic")
    meant = F.col("acked_ms").isNotNull() & F.arrays_overlap("expected", "regions")
    in_time = (F.col("initial") == "earliest") | (F.col("asked_ms") >= F.col("since_ms"))
    return asked_for.join(deliveries.hint("shuffle_hash"), [*SUBSCRIPTION, *ORIGIN[1:]], "full_outer").select(
        "subscription",
        "home",
        *ORIGIN,
        "namespace",
        "asked_ms",
        "acked_ms",
        "copies",
        F.coalesce(meant & in_time & ~F.col("moved"), F.lit(False)).alias("due"),
        F.coalesce(meant & ~in_time & ~F.col("moved"), F.lit(False)).alias("before"),
        F.coalesce(meant & F.col("moved"), F.lit(False)).alias("sought"),
        F.coalesce("times", F.lit(0)).alias("times"),
        F.coalesce("acknowledged", F.lit(False)).alias("acknowledged"),
        "given",
        "came",
        "given_payload",
        "given_another",
        "last_ms",
        "last_region",
        "reached",
    )


SUBSCRIPTION = ("topic", "subscription", "home")
"""`home` is the region of a subscription that is not replicated, and empty for one that is: that one is everywhere."""


def with_homes(events: DataFrame) -> DataFrame:
    """Events of subscriptions with their `home`. A name is replicated when anybody who subscribed in it said so."""
    of_clients = events.where(F.col("subscription").isNotNull())
    replicated = (
        of_clients.where((F.col("op") == "subscribe") & F.col("replicated"))
        .select("topic", "subscription", F.lit(True).alias("is_replicated"))
        .distinct()
    )
    home = F.when(F.coalesce("is_replicated", F.lit(False)), F.lit("")).otherwise(F.col("region"))
    return of_clients.join(replicated.hint("broadcast"), ["topic", "subscription"], "left").withColumn(
        "home", home
    )


def named_deliveries(of_subscriptions: DataFrame, stored: DataFrame) -> DataFrame:
    """Receives and acknowledgements, a row per place, with the origin of what was given there: as the history says, or
    else as the region's log says. `producer` is null for what neither knows."""
    is_receive = (F.col("op") == "receive") & (F.col("outcome") == "ok")
    is_ack = (F.col("op") == "acknowledge") & (F.col("outcome") != "failed")
    place = ("region", "ledger_id", "entry_id", "batch_index")
    given = ("times", "first_ms", "last_ms", "acknowledged", "payload_digest", "other_payload")
    origin = F.struct(*ORIGIN[1:])
    by_place = (
        of_subscriptions.where(is_receive | is_ack)
        .groupBy(*SUBSCRIPTION, *place)
        .agg(
            F.count(F.when(is_receive, 1)).alias("times"),
            F.min(F.when(is_receive, F.col("at_ms"))).alias("first_ms"),
            F.max(F.when(is_receive, F.col("at_ms"))).alias("last_ms"),
            F.coalesce(F.max(is_ack & (F.col("how") == "individual")), F.lit(False)).alias("acknowledged"),
            F.max(F.when(is_receive, F.col("payload_digest"))).alias("payload_digest"),
            F.min(F.when(is_receive, F.col("payload_digest"))).alias("other_payload"),
            F.array_min(F.collect_set(F.when(is_receive & F.col("producer").isNotNull(), origin))).alias(
                "origin"
            ),
        )
        .select(*SUBSCRIPTION, *place, *given, *(F.col(f"origin.{name}") for name in ORIGIN[1:]))
    )
    in_log = stored.select("topic", *place, *(F.col(name).alias(f"stored_{name}") for name in ORIGIN[1:]))
    named = by_place.where(F.col("producer").isNotNull() | (F.col("times") == 0))
    unnamed = by_place.where(F.col("producer").isNull() & (F.col("times") > 0)).join(
        in_log, ["topic", *place], "left"
    )
    filled = unnamed.select(
        *(
            F.col(f"stored_{name}").alias(name) if name in ORIGIN[1:] else F.col(name)
            for name in by_place.columns
        )
    )
    return named.unionByName(filled)


def deliveries(by_place: DataFrame, of_subscriptions: DataFrame) -> DataFrame:
    """Which subscription was `given` which message, where, how many `times`, when first (`came`) and last, and whether
    it acknowledged it, on its own or together with what stood before."""
    cumulative = (
        of_subscriptions.where(
            (F.col("op") == "acknowledge") & (F.col("how") == "cumulative") & (F.col("outcome") != "failed")
        )
        .groupBy(*SUBSCRIPTION, "region", "ledger_id")
        .agg(F.max("entry_id").alias("acknowledged_upto"))
    )
    return (
        by_place.where(F.col("producer").isNotNull())
        .join(cumulative.hint("broadcast"), [*SUBSCRIPTION, "region", "ledger_id"], "left")
        .groupBy(*SUBSCRIPTION, *ORIGIN[1:])
        .agg(
            F.sum("times").alias("times"),
            F.max("last_ms").alias("last_ms"),
            F.max(
                F.col("acknowledged")
                | F.coalesce(F.col("entry_id") <= F.col("acknowledged_upto"), F.lit(False))
            ).alias("acknowledged"),
            F.array_sort(F.collect_set(F.struct("region", "ledger_id", "entry_id", "batch_index"))).alias(
                "given"
            ),
            F.collect_list(F.struct("region", "first_ms")).alias("came"),
            F.max("payload_digest").alias("given_payload"),
            F.min("other_payload").alias("given_another"),
        )
    )


def subscriptions(of_subscriptions: DataFrame) -> DataFrame:
    """`since_ms`, in which `regions`, where it began (`initial`), whether somebody `moved` it by hand, and how far its
    consumer came in `last_region`, where it was last (`reached`: the last message received there, per ledger)."""
    is_ok = F.col("outcome") == "ok"
    subscribed = (
        of_subscriptions.where(F.col("op").isin("subscribe", "seek", "unsubscribe"))
        .groupBy(*SUBSCRIPTION)
        .agg(
            F.min(F.when((F.col("op") == "subscribe") & is_ok, F.col("at_ms"))).alias("since_ms"),
            F.collect_set(F.when((F.col("op") == "subscribe") & is_ok, F.col("region"))).alias("regions"),
            F.min("initial").alias("initial"),
            F.max(F.col("op") != "subscribe").alias("moved"),
        )
        .where(F.col("since_ms").isNotNull())
    )
    by_ledger = (
        _received(of_subscriptions)
        .groupBy(*SUBSCRIPTION, "region", "ledger_id")
        .agg(F.max(F.struct("entry_id", "batch_index")).alias("last"), F.max("at_ms").alias("until_ms"))
        .withColumn("entry_id", F.col("last.entry_id"))
        .withColumn("batch_index", F.col("last.batch_index"))
    )
    places = by_ledger.groupBy(*SUBSCRIPTION).agg(
        F.max_by("region", F.struct("until_ms", "region")).alias("last_region"),
        F.collect_list(F.struct("region", "ledger_id", "entry_id", "batch_index")).alias("places"),
    )
    reached = F.filter("places", lambda place: place["region"] == F.col("last_region"))
    # One that was never seen to subscribe is owed nothing, but what it received is known all the same.
    return subscribed.join(
        places.select(*SUBSCRIPTION, "last_region", reached.alias("reached")),
        list(SUBSCRIPTION),
        "full_outer",
    )


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
            "topic",
            "origin_region",
            "position",
            F.explode(F.array_distinct(fields_of("copies", "region"))).alias("region"),
        )
        .groupBy("topic", "origin_region", "region", F.col("position.ledger_id").alias("origin_ledger"))
        .agg(F.min("position.entry_id").alias("first_held"), F.max("position.entry_id").alias("last_held"))
    )
    absent = (
        messages.withColumn("region", F.explode(F.array_except("expected", fields_of("copies", "region"))))
        .withColumn("origin_ledger", F.col("position.ledger_id"))
        .join(reach, ["topic", "origin_region", "region", "origin_ledger"], "left")
        .join(trimmed.hint("broadcast"), ["topic", "region"], "left")
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
    declared = _owed(namespaces, F.coalesce(F.create_map(*pairs)[F.col("namespace")], own), own)
    chosen = F.when(F.size("chosen") > 0, F.array_intersect(declared, F.col("chosen")))
    return F.array_union(own, F.coalesce(chosen, declared))


def _owed(namespaces: Mapping[str, Namespace], declared: Column, own: Column) -> Column:
    """Without what policies that were changed meanwhile left out of it."""
    pairs = [
        F.lit(part)
        for name, namespace in sorted(namespaces.items())
        for (origin, other), since_ms in sorted(namespace.owed_since_ms.items())
        for part in (f"{name} {origin} {other}", since_ms)
    ]
    if pairs:
        since_ms = F.create_map(*pairs)
        # What nobody asked for is owed by a policy of all the time only.
        asked_ms = F.coalesce("asked_ms", F.lit(0.0))

        def is_owed(region: Column) -> Column:
            key = F.concat_ws(" ", F.col("namespace"), F.col("origin_region"), region)
            return asked_ms >= F.coalesce(since_ms[key], F.lit(0.0))

        declared = F.filter(declared, is_owed)
    topics = sorted({topic for namespace in namespaces.values() for topic in namespace.own_topics})
    return F.when(F.col("topic").isin(topics), own).otherwise(declared) if topics else declared
