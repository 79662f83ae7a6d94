"""Messages: the publish requests of clients, joined with the stored copies.

A message is identified by its *origin*: (topic, origin region, producer, sequence id). A place is the position of a
copy: (region, ledger, entry, index in its batch).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_jobs.engines.frames import Column, DataFrame, F, clustered, fields_of
from spark_jobs.evidence.positions import LEDGER
from spark_jobs.frames.history import operations
from spark_jobs.frames.transactions import PLAIN, with_fates
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.policies import Namespace, ReplicationPolicy

ORIGIN = ("topic", "origin_region", "producer", "sequence_id")
"""The columns that identify a message."""

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
"""The fields of each of the `copies`, and their types."""

_COPIES = f"ARRAY<STRUCT<{', '.join(f'{name}: {kind}' for name, kind in COPY.items())}>>"


def position_text(place: Column) -> Column:
    """Return `ledger:entry:batch_index`, the form of message ids in the history."""
    return F.concat_ws(":", place["ledger_id"], place["entry_id"], place["batch_index"])


def entry_text(position: Column) -> Column:
    """Return `ledger:entry`, or null for a null position."""
    return F.when(position.isNotNull(), F.concat_ws(":", position["ledger_id"], position["entry_id"]))


def place_number(ledger: Column, entry: Column) -> Column:
    """Return a number that orders the entries of one log, as `evidence.positions.place_number` does."""
    return ledger * F.lit(LEDGER) + entry


def place_text(place: Column) -> Column:
    """Return `ledger:entry` of a position that is one number."""
    ledger = F.floor(place / F.lit(LEDGER))
    return entry_text(F.struct(ledger.alias("ledger_id"), (place - ledger * F.lit(LEDGER)).alias("entry_id")))


def places_of(copies: str) -> Column:
    """Return region and position, as one number (`at`), of each copy."""
    return F.transform(
        copies,
        lambda copy: F.struct(
            copy["region"].alias("region"), place_number(copy["ledger_id"], copy["entry_id"]).alias("at")
        ),
    )


def each_copy(messages: DataFrame) -> DataFrame:
    """Return one row per copy of each message: its `region`, and its position there as a number (`at`)."""
    each = messages.withColumn("copy", F.explode("copies")).withColumn("region", F.col("copy.region"))
    return each.withColumn("at", place_number(F.col("copy.ledger_id"), F.col("copy.entry_id")))


def topic_in_history(log_topics: Collection[str], history_topics: Collection[str]) -> Column:
    """Return the name in the history of the stored `topic`; system topics keep theirs."""
    names = {topic: history_topic(topic, history_topics) for topic in sorted(log_topics)}
    renamed = {topic: name for topic, name in names.items() if name not in (None, topic)}
    if not renamed:
        return F.col("topic")
    pairs = [F.lit(text) for pair in renamed.items() for text in pair]
    return F.coalesce(F.create_map(*pairs)[F.col("topic")], F.col("topic"))


def stored_messages(
    rows: DataFrame, log_topics: Collection[str], history_topics: Collection[str], *, transactional: bool
) -> DataFrame:
    """Return rows of `region_log` without markers, damages and system topics. `log_topic` is the stored topic, `topic`
    its name in the history; `fate`: see `transactions`. `transactional`: whether any row belongs to a transaction."""
    system = [topic for topic in sorted(log_topics) if history_topic(topic, history_topics) is None]
    read = rows.where(F.col("damage").isNull())
    messages = with_fates(read, transactional=transactional).where(F.col("marker_type").isNull())
    return (messages.where(~F.col("topic").isin(system)) if system else messages).select(
        "region",
        F.col("topic").alias("log_topic"),
        topic_in_history(log_topics, history_topics).alias("topic"),
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
        "transaction",
        "fate",
    )


def publishes(events: DataFrame) -> DataFrame:
    """Return one row per message of a publish request. `acked_ms` is null unless a client received a receipt; `refused`
    means that every attempt certainly failed. Several `sessions` may have published under one sequence id, with
    different contents and target regions: `asked_payloads` has the digest of each content, `asked_targets` each list of
    regions as `targets_text` returns it. `receipts` are the positions in the receipts."""
    is_ok, is_asked = F.col("outcome") == "ok", F.col("outcome") == "asked"
    receipt = F.when(is_ok & F.col("ledger_id").isNotNull(), F.struct("ledger_id", "entry_id", "batch_index"))
    # One set for everything that is collected: Spark creates and transfers an object per set and message.
    line = F.struct(
        "session",
        F.when(is_asked, F.col("payload_digest")).alias("payload"),
        F.when(is_asked, F.col("attributes_digest")).alias("attributes"),
        F.when(is_asked, targets_text("replicate_to")).alias("targets"),
        receipt.alias("receipt"),
    )

    def count(outcome: str) -> Column:
        return F.count(F.when(F.col("outcome") == outcome, 1))

    return (
        operations(events, "publish")
        .withColumn("origin_region", F.col("region"))
        .groupBy(*ORIGIN)
        .agg(
            F.coalesce(F.min(F.when(is_asked, F.col("at_ms"))), F.min("at_ms")).alias("asked_ms"),
            F.min(F.when(is_ok, F.col("at_ms"))).alias("acked_ms"),
            F.collect_set(line).alias("lines"),
            F.max(F.when(is_asked, F.col("replicate_to"))).alias("asked_to"),
            F.max(F.when(is_asked, F.col("transaction"))).alias("asked_transaction"),
            (
                (count("failed") > 0)
                & (count("failed") >= count("asked"))
                & (count("ok") + count("unknown") == 0)
            ).alias("refused"),
        )
        .select(
            *ORIGIN,
            "asked_ms",
            "acked_ms",
            F.sort_array(_values_of("lines", "receipt")).alias("receipts"),
            _values_of("lines", "payload").alias("asked_payloads"),
            _values_of("lines", "attributes").alias("asked_attributes"),
            "asked_to",
            _values_of("lines", "targets").alias("asked_targets"),
            "asked_transaction",
            F.size(_values_of("lines", "session")).alias("sessions"),
            "refused",
        )
    )


def _values_of(structs: str, field: str) -> Column:
    """Return the distinct values of one field of an array of structs, without nulls."""
    values = fields_of(structs, field)
    # Most messages have one value: comparing it takes less time than building a set.
    lowest, several = F.array_min(values), F.array_distinct(F.filter(values, lambda value: value.isNotNull()))
    return F.when(lowest == F.array_max(values), F.array(lowest)).otherwise(several)


def targets_text(regions: str) -> Column:
    """Return the regions to which a message is restricted, sorted; the empty text for all regions."""
    return F.coalesce(F.array_join(F.array_sort(regions), " "), F.lit(""))


def join_messages(
    published: DataFrame, stored: DataFrame, namespaces: Mapping[str, Namespace], *, transactional: bool
) -> DataFrame:
    """Return one row per message that was published or stored. `copies` is empty if no region stores the message.
    `chosen`: the regions to which the message is restricted; null: it is not. Of several requests with different
    regions, the stored message decides. `transactional`: see `stored_messages`."""
    own = F.col("region") == F.col("origin_region")
    place = F.struct(*COPY)
    # Regions store the copies of a message in different logs, so in different tasks.
    copies = (
        clustered(stored, ORIGIN)
        .groupBy(*ORIGIN)
        .agg(
            # Sorted, so that the first copy is the same in every evaluation. Unlike `array_sort`, Spark compiles it.
            F.sort_array(F.collect_list(place)).alias("copies"),
            F.min(F.when(own, F.struct("ledger_id", "entry_id"))).alias("own_position"),
            F.min(
                F.when(
                    F.col("source_ledger").isNotNull(),
                    F.struct(
                        F.col("source_ledger").alias("ledger_id"), F.col("source_entry").alias("entry_id")
                    ),
                )
            ).alias("source"),
            F.max("replicate_to").alias("stored_to"),
            F.max(F.when(own, F.col("transaction"))).alias("stored_transaction"),
            _fates(own, transactional=transactional).alias("fates"),
        )
    )
    entries = F.transform("receipts", lambda place: F.struct(place["ledger_id"], place["entry_id"]))
    no_copies = F.array().cast(_COPIES)
    acked_position = F.array_min(entries).cast("struct<ledger_id: bigint, entry_id: bigint>")
    return (
        published.join(copies.hint("shuffle_hash"), list(ORIGIN), "full_outer")
        .withColumn("namespace", F.regexp_extract("topic", r"://([^/]+/[^/]+)/", 1))
        .withColumn(
            "chosen", F.when(_is_chosen_by_request(), F.col("asked_to")).otherwise(F.col("stored_to"))
        )
        .select(
            *ORIGIN,
            "namespace",
            "asked_ms",
            "acked_ms",
            "receipts",
            "asked_payloads",
            "asked_attributes",
            "asked_targets",
            "stored_to",
            "chosen",
            F.coalesce("sessions", F.lit(0)).alias("sessions"),
            F.coalesce("refused", F.lit(False)).alias("refused"),
            F.coalesce("copies", no_copies).alias("copies"),
            F.coalesce("own_position", acked_position, "source").alias("position"),
            _expected_regions(namespaces).alias("expected"),
            "asked_transaction",
            F.coalesce("stored_transaction", "asked_transaction").alias("transaction"),
            F.coalesce("fates", F.array().cast("array<string>")).alias("fates"),
        )
    )


def _fates(own: Column, *, transactional: bool) -> Column:
    """Return the fates of the origin region's copies, sorted. Without transactions all are PLAIN."""
    if transactional:
        return F.array_sort(F.collect_set(F.when(own, F.coalesce("fate", F.lit(PLAIN)))))
    return F.when(F.max(own), F.array(F.lit(PLAIN)))


def _is_chosen_by_request() -> Column:
    return F.coalesce(F.size("asked_targets") == 1, F.lit(False)) | (
        F.col("asked_ms").isNotNull() & F.col("copies").isNull()
    )


def _expected_regions(namespaces: Mapping[str, Namespace]) -> Column:
    """Return the origin region, and the regions of its topic's or namespace's policy that the message allows."""
    own = F.array("origin_region")
    if not namespaces:
        return own
    policies = {
        name: ReplicationPolicy(frozenset(one.regions), one.replicated_since_ms)
        for name, one in namespaces.items()
    }
    of_topics = {topic: policy for one in namespaces.values() for topic, policy in one.own_topics.items()}
    place = F.col("namespace")
    if of_topics:
        # Partitions have the policies of their partitioned topic.
        base = F.regexp_extract("topic", r"^(.+)-partition-[0-9]+$", 1)
        owner = F.when(base != "", base).otherwise(F.col("topic"))
        place = F.when(owner.isin(sorted(of_topics)), owner).otherwise(place)
    policies |= of_topics
    pairs = [
        part
        for name, policy in sorted(policies.items())
        for part in (F.lit(name), F.array(*map(F.lit, sorted(policy.regions))).cast("array<string>"))
    ]
    declared = _without_added(place, policies, F.coalesce(F.create_map(*pairs)[place], own))
    chosen = F.when(F.size("chosen") > 0, F.array_intersect(declared, F.col("chosen")))
    return F.array_union(own, F.coalesce(chosen, declared))


def _without_added(place: Column, policies: Mapping[str, ReplicationPolicy], declared: Column) -> Column:
    """Remove the regions that the policy did not name when the message was published, or no longer names."""
    pairs = [
        F.lit(part)
        for name, policy in sorted(policies.items())
        for (origin, other), since_ms in sorted(policy.since_ms.items())
        for part in (f"{name} {origin} {other}", since_ms)
    ]
    if not pairs:
        return declared
    since_ms = F.create_map(*pairs)
    # A message without a publish request is expected only in regions that the policy named during the whole run.
    asked_ms = F.coalesce("asked_ms", F.lit(0.0))

    def is_expected(region: Column) -> Column:
        key = F.concat_ws(" ", place, F.col("origin_region"), region)
        return asked_ms >= F.coalesce(since_ms[key], F.lit(0.0))

    return F.filter(declared, is_expected)
