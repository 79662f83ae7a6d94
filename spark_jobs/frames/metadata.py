"""Shared metadata: the documents that result from the events in the event topic, and how stores differ from them.

    copies      one row per event and message that contains it (`sources/metadata.py`)
    events      one row per event, with the time and the place of its first publish
    deciding    the events that decide a document: the winner of each element, and the latest deletion of the document
    expected    one row per element of each document that results from all events
    differences one row per cluster and element whose stored value is not the expected one

The latest event of an element wins: at equal times that of the cluster whose name sorts first, within a cluster the one
with the higher sequence. Events not later than the latest deletion of their document have no effect. The number of
partitions of a topic is the largest of all its events. Only differences are joined with the events that explain them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_jobs.engines.frames import Column, DataFrame, F, Window, cached, read
from spark_jobs.evidence.metadata_events import EXISTENCE, PARTITIONS, WHOLE
from spark_jobs.sources.metadata import (
    CLAIM,
    DOCUMENT,
    RECORD,
    STORE,
    ClusterSync,
    ConfigurationStores,
    MetadataEvents,
    read_settings,
    store_path,
)
from spark_jobs.sources.run_folder import RunFolder

UNDER_WAY_MS = 10_000.0
"""Time for which a store may lack a published event, or the event topic a stored change."""
WITNESSES_MAX = 5
"""Maximum number of differences per kind, and of events per difference, that are collected."""

Kind = Literal["differs", "not received", "not published", "event differs"]
"""Kind of a difference. `differs`: the store has applied the events, but has other values. `event differs`: regions
store one event with different contents."""

STAMP = ("time_ms", "counter", "source", "sequence", "incarnation")
_ELEMENT = ("cluster", "path", "element")
_CONTENT = ("path", "element", "value", "partitions", "is_deletion", *STAMP, "origin")
_IS_NUMBER = f"element LIKE '{PARTITIONS}/%'"


@dataclass(frozen=True, slots=True)
class SharedMetadata:
    """The evidence: rows of configuration stores in STORE_SCHEMA, and copies of events in EVENT_SCHEMA."""

    clusters: tuple[str, ...]
    """The clusters whose stores were read."""
    stores: DataFrame
    copies: DataFrame
    damages: tuple[str, ...]
    """A sentence for each unreadable store and log."""


@dataclass(frozen=True, slots=True)
class MetadataDifference:
    """A stored element that is not the result of the events, or an event of which regions store different contents."""

    kind: Kind
    cluster: str | None
    path: str
    element: str
    stored: str | None
    """`stored` and `expected` are JSON; None: the element does not exist."""
    expected: str | None
    since_ms: float
    """Latest time of an event that the store does not claim to have, or of a change that was not published."""
    events: tuple[Mapping[str, Any], ...] = ()
    """The first WITNESSES_MAX events that determine the expected value; the winning one is the first."""


@dataclass(frozen=True, slots=True)
class MetadataComparison:
    """The comparison of all stores with the events."""

    clusters: tuple[str, ...]
    events: int
    damages: tuple[str, ...]
    documents: Mapping[Literal["wrong", "overdue", "behind"], int]
    """Number of documents with an element that differs, that is overdue, that is behind for any time."""
    differences: tuple[MetadataDifference, ...]
    """Up to WITNESSES_MAX of each kind and age."""


def read_metadata(folder: RunFolder) -> SharedMetadata | None:
    """Read stores and events; None if fewer than two clusters share metadata, or the run directory has no store. Stores
    are read before the logs, so that the logs contain every event that a store has applied."""
    settings = read_settings(folder)
    with_store = [
        name for name, one in settings.items() if one.is_in_run_dir or store_path(folder.path, name).exists()
    ]
    if len(settings) < 2 or not with_store:
        return None
    stores = cached(read(ConfigurationStores(folder.path, settings, tuple(with_store))))
    is_head = F.col("damage").isNotNull() | (F.col("kind") == STORE)
    heads = {
        row["cluster"]: row["damage"] for row in stores.where(is_head).select("cluster", "damage").collect()
    }
    return _with_events(folder, settings, stores, heads)


def _with_events(
    folder: RunFolder, settings: Mapping[str, ClusterSync], stores: DataFrame, heads: Mapping[str, str | None]
) -> SharedMetadata:
    topic = next(iter(settings.values())).topic
    copies = cached(read(MetadataEvents(folder.logs, topic, folder.clusters, settings)))
    rows = copies.where(F.col("damage").isNotNull()).select("region", "damage").collect()
    unreadable = sorted(filter(None, heads.values()))
    return SharedMetadata(
        tuple(name for name in settings if name in heads and heads[name] is None),
        stores,
        copies,
        (*unreadable, *(row["damage"] for row in sorted(rows, key=lambda row: str(row["region"])))),
    )


def compare_metadata(metadata: SharedMetadata | None, end_ms: float) -> MetadataComparison | None:
    """Compare every store with the documents that result from the events; None if there are none. `end_ms`: end of the
    history."""
    if metadata is None:
        return None
    events = cached(each_event(metadata.copies))
    deciding = cached(deciding_events(events))
    differing = cached(differing_elements(expected_elements(deciding), metadata.stores))
    numbers = {row["what"]: row["n"] for row in _numbers(events, differing).collect()}
    found: list[MetadataDifference] = []
    documents: Mapping[Any, int] = {}
    if numbers["contents"] > numbers["events"]:
        found += _conflicting(events)
    if numbers["differing"]:
        explained = cached(_explained(differing, deciding, events, metadata.stores))
        documents = _documents(explained, end_ms)
        found += _shown(explained, end_ms)
    return MetadataComparison(metadata.clusters, numbers["events"], metadata.damages, documents, tuple(found))


def _numbers(events: DataFrame, differing: DataFrame) -> DataFrame:
    def number(frame: DataFrame, what: str) -> DataFrame:
        return frame.agg(F.count("*").alias("n")).select(F.lit(what).alias("what"), "n")

    return (
        number(events, "contents")
        .union(number(events.select(*STAMP).distinct(), "events"))
        .union(number(differing, "differing"))
    )


def each_event(copies: DataFrame) -> DataFrame:
    """Return the events of their copies, each once: with the regions that store it, and the time and place of its first
    publish. An event has several rows if the contents of its copies differ."""
    first = F.min(F.struct("at_ms", "region", "position"))
    return (
        copies.where(F.col("damage").isNull())
        .groupBy(*_CONTENT, "excluded_by")
        .agg(first.alias("first"))
        .select(
            *_CONTENT,
            "excluded_by",
            F.col("first.at_ms").alias("published_ms"),
            F.col("first.region").alias("region"),
            F.col("first.position").alias("position"),
        )
    )


def deciding_events(events: DataFrame) -> DataFrame:
    """Return the events that decide their document. `place`: rank among the events of the document, 1 is the latest;
    `is_in_effect`: whether the event sets its element."""
    of_path = Window.partitionBy("path")
    latest = (
        F.desc("time_ms"),
        F.desc("counter"),
        "source",
        F.desc("sequence"),
        F.desc("incarnation"),
        "value",
    )
    is_end = F.col("is_deletion") & (F.col("element") == EXISTENCE)
    ranked = (
        events.withColumn("place", F.row_number().over(of_path.orderBy(*latest)))
        .withColumn("winner", F.min("place").over(Window.partitionBy("path", "element")))
        .withColumn("deleted_at", F.min(F.when(is_end, F.col("place"))).over(of_path))
    )
    is_later = F.col("deleted_at").isNull() | (F.col("place") < F.col("deleted_at"))
    is_winner = F.col("place") == F.col("winner")
    return (
        ranked.where(is_winner | F.coalesce(F.col("place") == F.col("deleted_at"), F.lit(False)))
        .withColumn("is_in_effect", is_winner & ~F.col("is_deletion") & is_later)
        .drop("winner", "deleted_at")
    )


def expected_elements(deciding: DataFrame) -> DataFrame:
    """Return the elements of all documents that exist: path, element, its value as JSON (`expected`)."""
    in_effect = deciding.where(F.col("is_in_effect"))
    existing = in_effect.where(F.col("element") == EXISTENCE).select("path")
    shown = F.when(F.expr(_IS_NUMBER), F.lit(PARTITIONS)).otherwise(F.col("element"))
    return (
        in_effect.withColumn("element", shown)
        .join(existing, ["path"])
        .groupBy("path", "element", "excluded_by")
        .agg(F.max("partitions").alias("partitions"), F.max("value").alias("value"))
        .select(
            "path",
            "element",
            "excluded_by",
            F.coalesce(F.col("partitions").cast("string"), "value").alias("expected"),
        )
    )


def differing_elements(expected: DataFrame, stores: DataFrame) -> DataFrame:
    """Return the elements of stored and expected documents whose values differ, for each cluster that was read and
    shares the path."""
    read_stores = stores.where(F.col("kind") == STORE).select("cluster").hint("broadcast")
    of_each = (
        expected.crossJoin(read_stores)
        .where(~F.array_contains("excluded_by", F.col("cluster")))
        .select(*_ELEMENT, "expected")
    )
    documents = stores.where(F.col("kind") == DOCUMENT).select(*_ELEMENT, F.col("value").alias("stored"))
    # Of a partitioned topic without properties no event needs to set them.
    absent = F.when(F.col("element") == WHOLE, F.lit("{}")).otherwise(F.lit(""))
    return of_each.join(documents, list(_ELEMENT), "full_outer").where(
        F.coalesce("stored", absent) != F.coalesce("expected", absent)
    )


def _decides(name: str) -> Column:
    """Return whether the event with the element `name` helps to determine `element`: itself, existence, or a number of
    partitions."""
    event = F.col(name)
    return (
        (event == F.col("element"))
        | (event == EXISTENCE)
        | ((F.col("element") == PARTITIONS) & F.expr(f"{name} LIKE '{PARTITIONS}/%'"))
    )


def _explained(differing: DataFrame, deciding: DataFrame, events: DataFrame, stores: DataFrame) -> DataFrame:
    """Add to each difference its kind, `since_ms`, and the events that determine the expected value."""
    unpublished = _unpublished(differing, events, stores)
    return (
        differing.join(_of_events(differing, deciding, stores), list(_ELEMENT), "left")
        .join(unpublished, list(_ELEMENT), "left")
        .select(
            *_ELEMENT,
            "stored",
            "expected",
            F.when(F.col("unpublished_ms").isNotNull(), "not published")
            .when(F.col("unclaimed_ms").isNotNull(), "not received")
            .otherwise("differs")
            .alias("kind"),
            F.greatest(
                F.coalesce("unpublished_ms", F.lit(0.0)), F.coalesce("unclaimed_ms", F.lit(0.0))
            ).alias("since_ms"),
            "events",
        )
    )


def _of_events(differing: DataFrame, deciding: DataFrame, stores: DataFrame) -> DataFrame:
    """Return per difference the events that determine the expected value, and the latest publish of one that the store
    does not claim to have applied."""
    claims = stores.where(F.col("kind") == CLAIM).select("cluster", "origin", F.col("sequence").alias("upto"))
    is_winner = F.when(F.col("expected").isNotNull(), F.col("is_in_effect")).otherwise(F.col("is_deletion"))
    is_own = (F.col("name") != EXISTENCE) | (F.col("element") == EXISTENCE) | F.col("expected").isNull()
    shown = F.struct(
        F.when(is_winner & is_own, 0).otherwise(1).alias("rank"),
        *("place", "time_ms", "source", "sequence", "region", "position", "name", "is_deletion", "value"),
    )
    is_claimed = F.col("sequence") <= F.coalesce("upto", F.lit(0))
    return (
        differing.join(deciding.withColumnRenamed("element", "name"), ["path"])
        .where(_decides("name"))
        .join(claims, ["cluster", "origin"], "left")
        .groupBy(*_ELEMENT)
        .agg(
            F.max(F.when(~is_claimed, F.col("published_ms"))).alias("unclaimed_ms"),
            F.slice(F.sort_array(F.collect_list(shown)), 1, WITNESSES_MAX).alias("events"),
        )
    )


def _unpublished(differing: DataFrame, events: DataFrame, stores: DataFrame) -> DataFrame:
    """Return per difference the latest time at which the store applied an event that no region's log contains."""
    known = events.select(*STAMP).distinct().withColumn("is_known", F.lit(True))
    records = stores.where(F.col("kind") == RECORD).select(
        "cluster", "path", F.col("element").alias("name"), *STAMP, "at_ms"
    )
    return (
        differing.select(*_ELEMENT)
        .join(records, ["cluster", "path"])
        .where(_decides("name"))
        .join(known, list(STAMP), "left")
        .where(F.col("is_known").isNull())
        .groupBy(*_ELEMENT)
        .agg(F.max("at_ms").alias("unpublished_ms"))
    )


def _is_overdue(end_ms: float) -> Column:
    return (F.col("kind") != "differs") & (F.col("since_ms") < F.lit(float(end_ms - UNDER_WAY_MS)))


def _documents(explained: DataFrame, end_ms: float) -> dict[str, int]:
    is_wrong, is_overdue = F.col("kind") == "differs", _is_overdue(end_ms)
    row = (
        explained.groupBy("cluster", "path")
        .agg(
            F.max(is_wrong).alias("wrong"),
            F.max(is_overdue).alias("overdue"),
            F.max(~is_wrong).alias("behind"),
        )
        .agg(*(F.count_if(F.col(name)).alias(name) for name in ("wrong", "overdue", "behind")))
        .collect()[0]
    )
    return {name: row[name] for name in ("wrong", "overdue", "behind")}


def _shown(explained: DataFrame, end_ms: float) -> list[MetadataDifference]:
    """Return the first WITNESSES_MAX differences of each kind and age, by cluster and path."""
    order = Window.partitionBy("kind", "is_overdue").orderBy(*_ELEMENT)
    rows = (
        explained.withColumn("is_overdue", _is_overdue(end_ms))
        .withColumn("rank", F.row_number().over(order))
        .where(F.col("rank") <= WITNESSES_MAX)
        .collect()
    )
    return [
        MetadataDifference(
            **{name: row[name] for name in ("kind", *_ELEMENT, "stored", "expected", "since_ms")},
            events=tuple(event.asDict() for event in row["events"] or ()),
        )
        for row in sorted(rows, key=lambda row: [row[name] for name in ("kind", *_ELEMENT)])
    ]


def _conflicting(events: DataFrame) -> list[MetadataDifference]:
    """Return the first events of which regions store different contents."""
    event = F.struct(
        "time_ms", "source", "sequence", "region", "position", F.col("element").alias("name"), "value"
    )
    rows: Sequence[Any] = (
        events.groupBy(*STAMP)
        .agg(
            F.count("*").alias("n"),
            F.min("path").alias("path"),
            F.min("element").alias("element"),
            F.slice(F.sort_array(F.collect_list(event)), 1, WITNESSES_MAX).alias("events"),
        )
        .where(F.col("n") > 1)
        .orderBy(*STAMP)
        .limit(WITNESSES_MAX)
        .collect()
    )
    return [
        MetadataDifference(
            kind="event differs",
            cluster=None,
            path=row["path"],
            element=row["element"],
            stored=row["events"][0]["value"],
            expected=row["events"][1]["value"],
            since_ms=0.0,
            events=tuple(event.asDict() for event in row["events"]),
        )
        for row in rows
    ]
