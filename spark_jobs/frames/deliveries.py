"""Deliveries: the messages that each subscription had to receive, and those that it received.

A subscription need not receive messages that TTL or a quota may have expired.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce

from spark_jobs.engines.frames import Column, DataFrame, F, clustered
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN
from spark_jobs.sources.policies import Lifetime, Namespace

SUBSCRIPTION = ("topic", "subscription", "home")
"""Columns that identify a subscription. `home` is its region, or empty if it is replicated and so in every region."""


_PLACE = ("region", "ledger_id", "entry_id", "batch_index")


def with_homes(events: DataFrame) -> DataFrame:
    """Return the events of subscriptions with their `home`. A subscription is replicated if any of its subscribe
    requests is."""
    of_clients = events.where(F.col("subscription").isNotNull())
    replicated = (
        operations(of_clients, "subscribe")
        .where(F.col("replicated"))
        .select("topic", "subscription", F.lit(True).alias("is_replicated"))
        .distinct()
    )
    home = F.when(F.coalesce("is_replicated", F.lit(False)), F.lit("")).otherwise(F.col("region"))
    return of_clients.join(replicated.hint("broadcast"), ["topic", "subscription"], "left").withColumn(
        "home", home
    )


def named_deliveries(of_subscriptions: DataFrame, stored: DataFrame, *, has_unnamed: bool) -> DataFrame:
    """Return receives and acknowledgements, one row per subscription and position, with the message's origin: from the
    history, else for a received message from the region's log. `producer` is null if no origin was found, and for
    positions that were only acknowledged. `has_unnamed`: whether the history has a delivery without an origin."""
    is_receive = (F.col("op") == "receive") & (F.col("outcome") == "ok")
    is_ack = (F.col("op") == "acknowledge") & (F.col("outcome") != "failed")
    aggregates = ("times", "first_ms", "last_ms", "acknowledged", "payload_digest", "other_payload")
    origin = F.struct(*ORIGIN[1:])
    by_place = (
        of_subscriptions.where(is_receive | is_ack)
        .groupBy(*SUBSCRIPTION, *_PLACE)
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
        .select(*SUBSCRIPTION, *_PLACE, *aggregates, *(F.col(f"origin.{name}") for name in ORIGIN[1:]))
    )
    if not has_unnamed:
        return by_place
    in_log = stored.select("topic", *_PLACE, *(F.col(name).alias(f"stored_{name}") for name in ORIGIN[1:]))
    named = by_place.where(F.col("producer").isNotNull() | (F.col("times") == 0))
    unnamed = by_place.where(F.col("producer").isNull() & (F.col("times") > 0)).join(
        in_log, ["topic", *_PLACE], "left"
    )
    filled = unnamed.select(
        *(
            F.col(f"stored_{name}").alias(name) if name in ORIGIN[1:] else F.col(name)
            for name in by_place.columns
        )
    )
    return named.unionByName(filled)


def delivered_messages(by_place: DataFrame, of_subscriptions: DataFrame) -> DataFrame:
    """Return one row per subscription and delivered message: its `positions`, the number of deliveries (`times`), the
    first at each position with its region (`first_deliveries`), the last (`last_ms`), whether it was acknowledged,
    alone or cumulatively, and the highest and the lowest digest of the received payloads."""
    cumulative = (
        of_subscriptions.where(
            (F.col("op") == "acknowledge") & (F.col("how") == "cumulative") & (F.col("outcome") != "failed")
        )
        .groupBy(*SUBSCRIPTION, "region", "ledger_id")
        .agg(F.max("entry_id").alias("acknowledged_upto"))
    )
    message = [*SUBSCRIPTION, *ORIGIN[1:]]
    named = by_place.where(F.col("producer").isNotNull())
    return (
        # Most messages are received at one position, so a task would group each of its rows alone.
        clustered(named, message)
        .join(cumulative.hint("broadcast"), [*SUBSCRIPTION, "region", "ledger_id"], "left")
        .groupBy(*message)
        .agg(
            F.sum("times").alias("times"),
            F.max("last_ms").alias("last_ms"),
            F.max(
                F.col("acknowledged")
                | F.coalesce(F.col("entry_id") <= F.col("acknowledged_upto"), F.lit(False))
            ).alias("acknowledged"),
            F.collect_list(F.struct(*_PLACE, "first_ms")).alias("places"),
            F.max("payload_digest").alias("highest_payload_digest"),
            F.min("other_payload").alias("lowest_payload_digest"),
        )
        .withColumn("positions", _distinct_positions("places"))
        .withColumn("first_deliveries", _fields_of_each("places", "region", "first_ms"))
        .drop("places")
    )


def _distinct_positions(places: str) -> Column:
    """Return the positions of deliveries, sorted. Most messages have one, which needs no set."""
    positions = _fields_of_each(places, *_PLACE)
    return F.when(F.size(places) == 1, positions).otherwise(F.sort_array(F.array_distinct(positions)))


def _fields_of_each(structs: str, *names: str) -> Column:
    """Return an array of structs with only these fields."""
    return F.transform(structs, lambda each: F.struct(*(each[name].alias(name) for name in names)))


def subscriptions(of_subscriptions: DataFrame) -> DataFrame:
    """Return one row per subscription: `since_ms`, its `regions`, its `initial` position, whether a client `moved` it
    (seek, unsubscribe), whether it `reads_compacted`, the `last_region` where it received a message, and the
    highest position received there in each ledger (`reached`)."""
    is_ok = F.col("outcome") == "ok"
    subscribed = (
        of_subscriptions.where(F.col("op").isin("subscribe", "seek", "unsubscribe"))
        .groupBy(*SUBSCRIPTION)
        .agg(
            F.min(F.when((F.col("op") == "subscribe") & is_ok, F.col("at_ms"))).alias("since_ms"),
            F.collect_set(F.when((F.col("op") == "subscribe") & is_ok, F.col("region"))).alias("regions"),
            F.min("initial").alias("initial"),
            F.max(F.col("op") != "subscribe").alias("moved"),
            F.coalesce(F.max("compacted"), F.lit(False)).alias("reads_compacted"),
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
    # A subscription without a successful subscribe in the history had to receive nothing; its deliveries are known.
    return subscribed.join(
        places.select(*SUBSCRIPTION, "last_region", reached.alias("reached")),
        list(SUBSCRIPTION),
        "full_outer",
    )


def _received(events: DataFrame) -> DataFrame:
    return operations(events, "receive", "ok")


def join_deliveries(messages: DataFrame, subscriptions: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Return the messages that a subscription had to receive, or received. A message is checked if it was acknowledged,
    is expected in one of the subscription's regions, belongs to no uncommitted transaction, and no client moved the
    subscription. A checked message is one of: `due`; `left_out`: not received by a subscription with compacted reads,
    because compaction keeps only the newest message of a key; `before`: published before the subscription existed,
    which began at the latest message. `sought`: not checked, because a client moved the subscription. A subscription
    that is not replicated is a separate one in each region."""
    published = messages.where(F.col("asked_ms").isNotNull()).join(subscriptions.hint("broadcast"), "topic")
    is_expected = F.col("acked_ms").isNotNull() & F.arrays_overlap("expected", "regions")
    in_time = (F.col("initial") == "earliest") | (F.col("asked_ms") >= F.col("since_ms"))
    is_checked = is_expected & ~F.col("moved") & ~F.col("unpublished")
    left_out = F.coalesce("reads_compacted", F.lit(False)) & (F.coalesce("times", F.lit(0)) == 0)
    return published.join(deliveries.hint("shuffle_hash"), [*SUBSCRIPTION, *ORIGIN[1:]], "full_outer").select(
        "subscription",
        "home",
        *ORIGIN,
        "namespace",
        "asked_ms",
        "acked_ms",
        "copies",
        F.coalesce(is_checked & in_time & ~left_out, F.lit(False)).alias("due"),
        F.coalesce(is_checked & in_time & left_out, F.lit(False)).alias("left_out"),
        F.coalesce(is_checked & ~in_time, F.lit(False)).alias("before"),
        F.coalesce(is_expected & F.col("moved") & ~F.col("unpublished"), F.lit(False)).alias("sought"),
        F.coalesce("times", F.lit(0)).alias("times"),
        F.coalesce("acknowledged", F.lit(False)).alias("acknowledged"),
        "positions",
        "first_deliveries",
        "highest_payload_digest",
        "lowest_payload_digest",
        "last_ms",
        "last_region",
        "reached",
    )


def without_expired(
    subscription_messages: DataFrame, namespaces: Mapping[str, Namespace], end_ms: float
) -> DataFrame:
    """Add `aged` and `expired`. `aged`: at the end of the history the message was older than TTL or a quota of its
    namespace or topic allows, so its subscription may have skipped it. `expired`: aged, never received, and so no
    longer `due`."""
    may_expire = _may_expire(namespaces, end_ms)
    aged = F.lit(False) if may_expire is None else F.coalesce(may_expire, F.lit(False))
    return (
        subscription_messages.withColumn("aged", aged)
        .withColumn("expired", F.col("due") & (F.col("times") == 0) & F.col("aged"))
        .withColumn("due", F.col("due") & ~F.col("expired"))
    )


def _may_expire(namespaces: Mapping[str, Namespace], end_ms: float) -> Column | None:
    """Return the condition under which a message may have expired; None if no policy expires messages."""
    found = [
        (F.col("namespace") == name) & _is_older(namespace.lifetime, end_ms)
        for name, namespace in namespaces.items()
        if namespace.lifetime.expires
    ]
    partitioned = F.regexp_extract("topic", r"^(.+)-partition-[0-9]+$", 1)
    found += [
        ((F.col("topic") == topic) | (partitioned == topic)) & _is_older(lifetime, end_ms)
        for namespace in namespaces.values()
        for topic, lifetime in namespace.own_lifetimes.items()
        if lifetime.expires
    ]
    return reduce(operator.or_, found) if found else None


def _is_older(lifetime: Lifetime, end_ms: float) -> Column:
    return F.col("asked_ms") <= F.lit(float(end_ms - lifetime.expires_after_ms))
