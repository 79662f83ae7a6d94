"""Summary of logs and history, computed before they are compared: contents, damages, time range, facts, outages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.engines.frames import Column, DataFrame, F
from spark_jobs.sources.run_folder import EvidenceDamage

DAMAGES_SHOWN_MAX = 5
_FACT = ("at_ms", "op", "region", "other_region", "topic", "subscription", "error", "detail", "plan")
DOWN = {
    "kill": True,
    "lose": True,
    "power_loss": True,
    "stop": True,
    "pause": True,
    "start": False,
    "resume": False,
    "restart": False,
}
_CLIENT_OPS = ("publish", "receive", "acknowledge", "end_transaction")


@dataclass(frozen=True, slots=True)
class LogSummary:
    """Counts, topics and the first DAMAGES_SHOWN_MAX damages of one region's log."""

    messages: int
    markers: int
    topics: tuple[str, ...]
    damages: tuple[str, ...]
    in_transactions: int = 0
    """Number of messages and markers of transactions."""
    origins: tuple[str, ...] = ()
    """Origin regions of its messages."""
    claims: int = 0
    """Number of snapshots and updates, unreadable markers included."""
    marker_damages: tuple[str, ...] = ()
    """The first DAMAGES_SHOWN_MAX damages of its markers."""


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """Contents of the history that are required before it is joined with the logs."""

    topics: frozenset[str]
    facts: tuple[Mapping[str, Any], ...]
    """Facts of the run, sorted by time."""
    damages: tuple[str, ...]
    """Damages of lines, one sentence each."""
    start_ms: float
    end_ms: float
    last_client_ms: float
    """Time of the last request or response of a publish, receive, acknowledgement or end of a transaction; 0: none."""
    in_transactions: int = 0
    """Number of lines that name a transaction."""
    with_keys: int = 0
    """Number of lines that name a transaction key."""
    with_epochs: int = 0
    """Number of lines that name a topic epoch."""
    unnamed: int = 0
    """Number of deliveries without the origin of their message."""


def summarise_logs(rows: DataFrame) -> dict[str, LogSummary]:
    """Summarise every log in one pass, which also fills the cache."""
    is_message = F.col("damage").isNull() & F.col("marker_type").isNull()
    summed = rows.groupBy("region").agg(
        F.count_if(is_message).alias("messages"),
        F.count_if(F.col("marker_type").isNotNull()).alias("markers"),
        F.collect_set("topic").alias("topics"),
        F.slice(F.array_sort(F.collect_set("damage")), 1, DAMAGES_SHOWN_MAX).alias("damages"),
        F.count_if(F.col("transaction").isNotNull()).alias("in_transactions"),
        F.array_sort(F.collect_set(F.when(is_message, F.col("origin_region")))).alias("origins"),
        F.count_if(F.col("claim").isNotNull()).alias("claims"),
        F.slice(F.array_sort(F.collect_set(_marker_damage())), 1, DAMAGES_SHOWN_MAX).alias("marker_damages"),
    )
    return {
        row["region"]: LogSummary(
            row["messages"],
            row["markers"],
            tuple(row["topics"]),
            tuple(row["damages"]),
            row["in_transactions"],
            tuple(row["origins"]),
            row["claims"],
            tuple(row["marker_damages"]),
        )
        for row in summed.collect()
    }


def _marker_damage() -> Column:
    """Return the sentence of an unreadable marker; null for other entries."""
    place = F.concat_ws(":", "ledger_id", "entry_id")
    where = (F.lit("the marker at "), "topic", F.lit(" "), place, F.lit(" in "), "region", F.lit(": "))
    problem = F.col("claim.problem")
    return F.when(problem.isNotNull(), F.concat(*where, problem))


def summarise_history(lines: DataFrame) -> HistorySummary:
    """Summarise the history in one pass."""
    good = F.col("damage").isNull()
    at_ms = F.when(good, F.col("at_ms"))
    is_delivery = (F.col("op") == "receive") & (F.col("outcome") == "ok")
    row = lines.agg(
        F.collect_set(F.when(good & (F.col("op") == "publish"), F.col("topic"))).alias("topics"),
        F.collect_list(F.when(good & (F.col("outcome") == "fact"), F.struct(*_FACT))).alias("facts"),
        F.array_sort(F.collect_set("damage")).alias("damages"),
        F.count_if(good & F.col("transaction").isNotNull()).alias("in_transactions"),
        F.count_if(good & F.col("transaction_key").isNotNull()).alias("with_keys"),
        F.count_if(good & F.col("topic_epoch").isNotNull()).alias("with_epochs"),
        F.count_if(good & is_delivery & F.col("producer").isNull()).alias("unnamed"),
        F.min(at_ms).alias("start_ms"),
        F.max(at_ms).alias("end_ms"),
        F.max(F.when(F.col("op").isin(*_CLIENT_OPS), at_ms)).alias("last_client_ms"),
    ).collect()[0]
    return HistorySummary(
        topics=frozenset(row["topics"]),
        facts=tuple(sorted((fact.asDict() for fact in row["facts"]), key=lambda fact: fact["at_ms"])),
        damages=tuple(row["damages"]),
        start_ms=row["start_ms"] or 0.0,
        end_ms=row["end_ms"] or 0.0,
        last_client_ms=row["last_client_ms"] or 0.0,
        in_transactions=row["in_transactions"],
        with_keys=row["with_keys"],
        with_epochs=row["with_epochs"],
        unnamed=row["unnamed"],
    )


def summarise_table(rows: DataFrame, counted: str) -> tuple[list[EvidenceDamage], int]:
    """Return the first DAMAGES_SHOWN_MAX different damages of each region among the rows of a source, and the number of
    rows in which the column `counted` is not null."""
    damages = F.slice(F.array_sort(F.collect_set("damage")), 1, DAMAGES_SHOWN_MAX)
    found = rows.groupBy("region").agg(damages.alias("damages"), F.count(counted).alias("n")).collect()
    found = sorted(found, key=lambda row: str(row["region"]))
    return [EvidenceDamage(text, row["region"]) for row in found for text in row["damages"]], sum(
        row["n"] for row in found
    )


def outages(facts: Iterable[Mapping[str, Any]]) -> list[tuple[str, float, float | None]]:
    """Return each outage: region, start, and end, or None if the region stayed down. `facts`: sorted by time."""
    found: list[tuple[str, float, float | None]] = []
    for fact in facts:
        region, at_ms, goes_down = fact["region"], fact["at_ms"], DOWN.get(fact["op"])
        if goes_down:
            found.append((region, at_ms, None))
        elif goes_down is False:
            found = [
                (where, since, at_ms if where == region and until is None else until)
                for where, since, until in found
            ]
    return found


def down_at_the_end(facts: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return each region that was down when the history ended -> time since when it was down. `facts`: sorted by
    time."""
    down: dict[str, float] = {}
    for region, since_ms, until_ms in outages(facts):
        if until_ms is None:
            down.setdefault(region, since_ms)
    return down
