"""The frames that every check starts from: logs and history joined.

    stored          one row per message in each region's log, without markers
    events          operations of clients and their responses, one row per line of the history
    messages        one row per origin: the published message, its response, and its copies
    missing         one row per expected copy that is not stored, of acknowledged messages and others: what that
                    absence proves, and the number of stored copies (`held`)
    subscription_messages
                    one row per subscription and message that it had to receive, or received: whether it is `due`
                    to it, how many `times` it was delivered
    strays          one row per subscription and position of a delivery that names no message, where no message is
                    stored and none was trimmed
    claims          the positions in snapshots, updates and stored cursors (`frames/stored_values.py`)
    ownership       grants of exclusive access, and the responses to clients (`evidence/grants.py`)
    outages         one row per outage of a region
    trimmed         the entry ids below which retention removed entries
    transactional   whether the run has any transaction
    keys            transaction keys in the coordinators' journals (`evidence/transaction_journals.py`)
    uncounted       one row per copy of an acknowledged message that its region's cursor does not count
                    (`frames/acknowledgements.py`)
    quiescence      since when regions and links had no fault when the run ended (`frames/quiescence.py`)

A message is identified by its *origin*: (topic, origin region, producer, sequence id). Its `position` is (ledger,
entry) in the log of its origin region. Replication keeps the order of positions, so a region that stores a later
message of the same origin region has skipped every earlier one that it does not store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_jobs.engines.frames import (
    DataFrame,
    F,
    PartFilter,
    cached,
    cached_in_parts,
    fields_of,
    parallel,
    schema,
)
from spark_jobs.frames.acknowledgements import uncounted_copies
from spark_jobs.frames.deliveries import (
    delivered_messages,
    join_deliveries,
    named_deliveries,
    subscriptions,
    with_homes,
    without_expired,
)
from spark_jobs.frames.messages import ORIGIN, entry_text, join_messages, places_of, publishes
from spark_jobs.frames.quiescence import Quiescence, RunEnd, quiescence
from spark_jobs.frames.stored_values import KeyEvidence, Ownership, PositionClaims
from spark_jobs.frames.transactions import with_ends, without_void_acks
from spark_jobs.sources.policies import NEVER_MS, Namespace

OUTAGE_SCHEMA = schema("region string, down_ms double, up_ms double")
"""`up_ms` is null for a region that stayed down."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The frames that the module's docstring describes."""

    stored: DataFrame
    events: DataFrame
    messages: DataFrame
    missing: DataFrame
    subscription_messages: DataFrame
    strays: DataFrame
    claims: PositionClaims
    ownership: Ownership
    outages: DataFrame
    trimmed: DataFrame
    transactional: bool
    keys: KeyEvidence
    uncounted: DataFrame
    quiescence: Quiescence
    individual_acks: Mapping[str, float] = field(default_factory=dict)
    """Namespace -> since when all regions replicate individual acknowledgements, where they do."""


def gather(
    stored: DataFrame,
    events: DataFrame,
    trimmed: DataFrame,
    outages: DataFrame,
    claims: PositionClaims,
    ownership: Ownership,
    keys: KeyEvidence,
    namespaces: Mapping[str, Namespace],
    end: RunEnd,
    *,
    transactional: bool,
    has_unnamed: bool,
) -> Evidence:
    """Join the logs and the history. `has_unnamed`: see `named_deliveries`."""
    with parallel() as workers:
        effective = without_void_acks(events, transactional=transactional)
        of_clients = workers.submit(_by_place, effective, stored, has_unnamed=has_unnamed)

        def joined(part: PartFilter) -> DataFrame:
            published = publishes(part(events, ("topic", "region", *ORIGIN[2:])))
            rows = join_messages(published, part(stored, ORIGIN), namespaces, transactional=transactional)
            return with_ends(rows, events, transactional=transactional)

        messages = cached_in_parts(joined)
        missing = workers.submit(lambda: cached(missing_copies(messages, trimmed)))
        of_subscriptions, by_place = of_clients.result()

        def of_each(part: PartFilter) -> DataFrame:
            delivered = delivered_messages(part(by_place, ORIGIN), of_subscriptions)
            rows = join_deliveries(part(messages, ORIGIN), subscriptions(of_subscriptions), delivered)
            return without_expired(rows, namespaces, end.end_ms)

        subscription_messages = cached_in_parts(of_each)
        uncounted = uncounted_copies(subscription_messages, claims.cursors)
        return Evidence(
            stored=stored,
            events=events,
            messages=messages,
            missing=missing.result(),
            subscription_messages=subscription_messages,
            strays=not_trimmed(by_place.where(F.col("producer").isNull() & (F.col("times") > 0)), trimmed),
            claims=claims,
            ownership=ownership,
            outages=outages,
            trimmed=trimmed,
            transactional=transactional,
            keys=keys,
            # Without markers only one query uses it, and not all of its columns.
            uncounted=cached(uncounted) if claims.has_markers else uncounted,
            quiescence=quiescence({region for one in namespaces.values() for region in one.regions}, end),
            individual_acks={
                name: one.individual_acks_since_ms
                for name, one in namespaces.items()
                if one.individual_acks_since_ms < NEVER_MS
            },
        )


def _by_place(events: DataFrame, stored: DataFrame, *, has_unnamed: bool) -> tuple[DataFrame, DataFrame]:
    of_subscriptions = with_homes(events)
    return of_subscriptions, cached(named_deliveries(of_subscriptions, stored, has_unnamed=has_unnamed))


def not_trimmed(places: DataFrame, trimmed: DataFrame) -> DataFrame:
    """Return the rows whose position (topic, region, ledger_id, entry_id) retention did not trim: the former message at
    a trimmed position is unknown."""
    is_trimmed = F.col("entry_id") < F.col("below")[F.col("ledger_id")]
    return places.join(trimmed.hint("broadcast"), ["topic", "region"], "left").where(
        ~F.coalesce(is_trimmed, F.lit(False))
    )


def missing_copies(messages: DataFrame, trimmed: DataFrame) -> DataFrame:
    """Return the expected copies that are not stored. `absence` is what the absence proves of an acknowledged message:

    trimmed    retention may have removed the copy: nothing is proven
    missing    the region stores later messages of that origin region, or is the origin region: the copy is lost
    behind     the region stores no later message of that origin region: lost, or not replicated yet
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
    may_be_trimmed = F.when(own, entry < F.col("below")[F.col("origin_ledger")]).otherwise(
        F.col("first_held").isNull() | (entry < F.col("first_held"))
    )
    return absent.withColumn(
        "absence",
        F.when(F.col("below").isNotNull() & F.coalesce(may_be_trimmed, F.lit(True)), "trimmed")
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
        places_of("copies").alias("places"),
        "absence",
    )
