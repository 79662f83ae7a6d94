"""Small frames of values that regions store besides messages: claims about positions, grants, transaction keys.

A snapshot (P; b: X) of region a claims: a subscription that acknowledged everything up to P in a has acknowledged
everything up to X in b that ever reaches a. An update of a region claims that a subscription has acknowledged
everything up to a position. A cursor counts everything up to its mark-delete, and in its ranges, as consumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.engines.frames import Column, DataFrame, F, cached, schema, small_frame
from spark_jobs.frames.messages import place_number
from spark_jobs.sources.coordinator_journals import JOURNAL_SCHEMA
from spark_jobs.sources.region_values import GRANT, POSITION, RANGE

SNAPSHOT_SCHEMA = schema(
    "topic string, region string, position string, upto bigint, other_region string, other_upto bigint,"
    " written_ms double"
)
"""Everything in `other_region` up to `other_upto` that reaches `region` is stored there at or before `upto`.
`position`: that of the marker. `written_ms`: when the marker was written, by the clock of `region`. Places are
`place_number`s."""

UPDATE_SCHEMA = schema(
    "topic string, subscription string, source_region string, position string, region string, upto bigint,"
    " written_ms double, has_arrived boolean"
)
"""The subscription has acknowledged everything up to `upto` in `region`, according to `source_region`. `has_arrived`:
whether the log of `region` contains the replicated marker."""

CURSOR_SCHEMA = schema(
    "topic string, subscription string, region string, first bigint, last bigint, end bigint"
)
"""A range of entries from `first` to `last` that counts as consumed; `end`: the newest entry of the log."""

POSITION_SCHEMA = schema(
    "topic string, subscription string, region string, mark_delete bigint, is_replicated boolean,"
    " is_ahead boolean, was_moved boolean, has_claims boolean"
)
"""A stored cursor. `mark_delete`: everything up to it is acknowledged. `is_ahead`: consumers of the region acknowledged
what no update of another region covers. `was_moved`: a seek moved the cursor. `has_claims`: other regions acknowledged
entries which the region has not read yet."""

_END_SCHEMA = schema("region string, log_topic string, higher bigint")

GRANT_SCHEMA = schema(
    "region string, log_topic string, topic string, epoch bigint, owner string, first_entry bigint, until bigint,"
    " is_bounded boolean, problem string"
)
"""A grant. `until`: the first entry that it does not cover; null: it lasts to the end of the log, or with `is_bounded`
its end is unknown. `problem`: a kind of finding, or null."""

RETURNED_EPOCH_SCHEMA = schema("region string, topic string, producer string, epoch bigint")
"""An epoch that a client received, according to its history."""


@dataclass(frozen=True, slots=True)
class PositionClaims:
    """Positions in the snapshots, updates and cursors that regions store."""

    snapshots: DataFrame
    updates: DataFrame
    cursors: DataFrame
    positions: DataFrame
    """One row per stored cursor."""
    has_markers: bool = True
    """Whether there is any snapshot or update."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Grants of exclusive access, stored and returned to clients."""

    grants: DataFrame
    returned: DataFrame
    """Epochs in the responses to clients."""
    is_known: bool
    """Whether there is any grant or epoch."""


@dataclass(frozen=True, slots=True)
class KeyEvidence:
    """Entries of the coordinators' journals, in JOURNAL_SCHEMA."""

    entries: DataFrame
    is_known: bool
    """Whether any client used a transaction key."""


def read_position_claims(
    markers: DataFrame | None, topic: Column | None = None, cursors: tuple[DataFrame, DataFrame] | None = None
) -> PositionClaims:
    """Return the positions in markers and cursors. `markers`: rows of `region_log` with a claim; None: there are
    none. `topic`: see `topic_in_history`. `cursors`: result of `read_cursors`; None: no cursors."""
    ranges, positions = cursors or (small_frame([], CURSOR_SCHEMA), small_frame([], POSITION_SCHEMA))
    if markers is None:
        snapshots, updates = small_frame([], SNAPSHOT_SCHEMA), small_frame([], UPDATE_SCHEMA)
    else:
        claimed = _own_claims(markers, F.col("topic") if topic is None else topic)
        snapshots, updates = cached(_snapshots(claimed)), cached(_updates(claimed, markers))
    return PositionClaims(snapshots, updates, ranges, positions, has_markers=markers is not None)


def _own_claims(markers: DataFrame, topic: Column) -> DataFrame:
    """Return one row per position in a readable marker of its own region."""
    own = (F.col("origin_region") == F.col("region")) & F.col("claim.problem").isNull()
    return (
        markers.where(own)
        .select(
            F.col("topic").alias("log_topic"),
            topic.alias("topic"),
            *("region", "ledger_id", "entry_id"),
            F.concat_ws(":", "ledger_id", "entry_id").alias("position"),
            F.col("publish_time_ms").cast("double").alias("written_ms"),
            F.col("claim.subscription").alias("subscription"),
            F.col("claim.upto").alias("upto"),
            F.explode(F.col("claim.positions")).alias("place"),
        )
        .withColumn("other_region", F.col("place.region"))
        .withColumn("other_upto", F.col("place.at"))
    )


def _snapshots(claimed: DataFrame) -> DataFrame:
    return claimed.where(F.col("upto").isNotNull()).select(*SNAPSHOT_SCHEMA.names)


def _updates(claimed: DataFrame, markers: DataFrame) -> DataFrame:
    """Return the positions of updates. An update has arrived if the other region stores its copy."""
    copy = ["other_region", "log_topic", "region", "ledger_id", "entry_id"]
    arrived = (
        markers.where(F.col("origin_region") != F.col("region"))
        .select(
            F.col("region").alias("other_region"),
            F.col("topic").alias("log_topic"),
            F.col("origin_region").alias("region"),
            F.col("source_ledger").alias("ledger_id"),
            F.col("source_entry").alias("entry_id"),
            F.lit(True).alias("is_copied"),
        )
        .distinct()
    )
    updates = claimed.where(F.col("upto").isNull()).join(arrived, copy, "left")
    return updates.select(
        "topic",
        "subscription",
        F.col("region").alias("source_region"),
        "position",
        F.col("other_region").alias("region"),
        F.col("other_upto").alias("upto"),
        "written_ms",
        F.coalesce("is_copied", F.lit(False)).alias("has_arrived"),
    )


def newest_entries(rows: DataFrame, ends: Mapping[tuple[str, str], int]) -> DataFrame:
    """Return the ledger and the highest entry id (`end`) by region and topic (`log_topic`), of topics with a readable
    entry. `rows`: those of `region_log`; `ends`: entry ids that may be higher than those of the newest rows."""
    newest = (
        rows.where(F.col("damage").isNull())
        .groupBy("region", F.col("topic").alias("log_topic"))
        .agg(F.max("ledger_id").alias("ledger_id"), F.max("entry_id").alias("end"))
    )
    if not ends:
        return newest
    higher = small_frame([(*place, end) for place, end in ends.items()], _END_SCHEMA).hint("broadcast")
    # The greatest that is not null.
    end = F.greatest("end", F.coalesce("higher", F.col("end"))).alias("end")
    return newest.join(higher, ["region", "log_topic"], "left").select(
        "region", "log_topic", "ledger_id", end
    )


def read_cursors(values: DataFrame, newest: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the ranges of stored cursors in CURSOR_SCHEMA, and the cursors in POSITION_SCHEMA, of logs with an entry.
    `values`: rows of `region_values`; `newest`: see `newest_entries`."""
    of_logs = values.where(F.col("subscription").isNotNull()).join(
        cached(newest).hint("broadcast"), ["region", "log_topic"]
    )
    first, last, end = (place_number(F.col("ledger_id"), F.col(name)) for name in ("first", "last", "end"))
    cursor = ("topic", "subscription", "region")
    ranges = of_logs.where(F.col("kind") == RANGE).select(
        *cursor, first.alias("first"), last.alias("last"), end.alias("end")
    )
    flags = ("is_replicated", "is_ahead", "was_moved", "has_claims")
    positions = of_logs.where(F.col("kind") == POSITION).select(*cursor, last.alias("mark_delete"), *flags)
    return cached(ranges), cached(positions)


def read_ownership(values: DataFrame, events: DataFrame, *, is_known: bool) -> Ownership:
    """Return the grants among the rows of `region_values`, and the epochs in the responses among events. `is_known`:
    there is any grant or epoch."""
    if not is_known:
        return Ownership(small_frame([], GRANT_SCHEMA), small_frame([], RETURNED_EPOCH_SCHEMA), is_known)
    returned = events.where(F.col("topic_epoch").isNotNull())
    epoch = F.col("topic_epoch").alias("epoch")
    return Ownership(
        cached(grants_of(values)),
        cached(returned.select("region", "topic", "producer", epoch).distinct()),
        is_known,
    )


def grants_of(values: DataFrame) -> DataFrame:
    """Return the grants among the rows of `region_values`, in GRANT_SCHEMA."""
    return values.where(F.col("kind") == GRANT).select(
        *("region", "log_topic", "topic", "epoch", "owner"),
        F.col("first").alias("first_entry"),
        F.col("last").alias("until"),
        *("is_bounded", "problem"),
    )


def read_keys(journals: DataFrame | None, *, is_known: bool) -> KeyEvidence:
    """Return the readable entries among the rows of `coordinator_journals`; None: no transactions. `is_known`: a
    journal or a client's history shows that a client used a key."""
    if journals is None:
        return KeyEvidence(small_frame([], JOURNAL_SCHEMA), is_known)
    return KeyEvidence(journals.where(F.col("damage").isNull()), is_known)
