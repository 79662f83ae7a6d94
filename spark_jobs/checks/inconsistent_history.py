"""Find history lines without a line that they require: a response to a publish without the request, a publish in a
session that no client opened, a session in the files of two programs, a delivery or acknowledgement of a subscription
without a subscribe. Each is reported as damage, because a line is lost or forged; the checks evaluate all lines
nevertheless.

So is a response of a region that was down by then, until the end: the record of its outage is forged, or that of its
restart is missing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.history import operations
from spark_jobs.sources.run_folder import EvidenceDamage
from spark_jobs.wording import count

PUBLISH = ("region", "topic", "producer", "session", "sequence_id")
SUBSCRIPTION = ("region", "topic", "subscription")
RESPONSE_MS = 10_000.0
"""Time after the end of a region in which a client may still record a response of the region: it was on its way, or the
client was busy."""
_RESPONSES = (
    "connect",
    "publish",
    "subscribe",
    "seek",
    "unsubscribe",
    "begin_transaction",
    "end_transaction",
)
"""Operations whose response a region sends when it has performed them. Messages may wait in the queue of a client."""
SHOWN_MAX = 5
"""Maximum number of sentences per kind of contradiction; further ones are only counted."""


def find_inconsistencies(events: DataFrame, down: Mapping[str, float]) -> list[EvidenceDamage]:
    """Return a damage for each of the first SHOWN_MAX contradictions of a kind, and one with the number of the others.
    `events`: readable lines in ROW_SCHEMA, with the sequence ids that their program wrote. `down`: time since when each
    region was down until the end of the history."""
    used = _used(events)
    return [
        *_find_unrequested(events),
        *_find_unopened(used),
        *_find_shared_sessions(used),
        *_find_unsubscribed(used),
        *_find_responses_of_down(events, down),
    ]


def _find_unrequested(events: DataFrame) -> list[EvidenceDamage]:
    is_asked = F.count_if(F.col("outcome") == "asked")
    responses = (
        operations(events, "publish")
        .groupBy(*PUBLISH)
        .agg(is_asked.alias("asked"))
        .where(F.col("asked") == 0)
        .drop("asked")
    )
    few = responses.orderBy(*PUBLISH).limit(SHOWN_MAX + 1).collect()
    n = len(few) if len(few) <= SHOWN_MAX else responses.count()
    sentences = [
        f"{row['producer']} received a response for message {row['sequence_id']} in {row['region']} (session"
        f" {row['session']}), which it never published"
        for row in few
    ]
    return _damages(sentences, n, "responses to publishes that were never invoked")


def _used(events: DataFrame) -> list[Mapping[str, Any]]:
    """Return the distinct sessions and subscriptions of each operation; there are about as many as programs."""
    of_interest = F.col("op").isin("connect", "publish", "subscribe", "receive", "acknowledge")
    columns = ("op", "outcome", "region", "topic", "producer", "session", "subscription", "history_file")
    return [row.asDict() for row in events.where(of_interest).select(*columns).distinct().collect()]


def _find_unopened(used: Iterable[Mapping[str, Any]]) -> list[EvidenceDamage]:
    used = list(used)
    opened = {row["session"] for row in used if row["op"] == "connect" and row["outcome"] == "ok"}
    published = {(row["session"], row["producer"]) for row in used if row["op"] == "publish"}
    sentences = [
        f"{producer} published in session {session}, which has no line that opens it"
        for session, producer in sorted(published)
        if session not in opened
    ]
    return _damages(sentences, len(sentences), "sessions that were never opened")


def _find_shared_sessions(used: Iterable[Mapping[str, Any]]) -> list[EvidenceDamage]:
    """Find sessions of producers in the files of two programs: one is a copy, under which a publish counts twice."""
    files: dict[str, set[str]] = {}
    for row in used:
        if row["op"] == "publish":
            files.setdefault(row["session"], set()).add(row["history_file"])
    sentences = [
        f"session {session} published in the histories of {' and '.join(sorted(names))}"
        for session, names in sorted(files.items())
        if len(names) > 1
    ]
    return _damages(sentences, len(sentences), "sessions in several histories")


def _find_unsubscribed(used: Iterable[Mapping[str, Any]]) -> list[EvidenceDamage]:
    """Find subscriptions without a subscribe. One without a response counts, because it may have taken effect."""
    used = list(used)
    subscribed = {
        _subscription(row) for row in used if row["op"] == "subscribe" and row["outcome"] != "failed"
    }
    delivered = {_subscription(row) for row in used if row["op"] in ("receive", "acknowledge")}
    sentences = [
        f"{subscription} received or acknowledged messages of {topic} in {region}, where no line"
        " says that it subscribed"
        for region, topic, subscription in sorted(delivered - subscribed)
    ]
    return _damages(sentences, len(sentences), "deliveries without a subscribe")


def _find_responses_of_down(events: DataFrame, down: Mapping[str, float]) -> list[EvidenceDamage]:
    """Find regions that are recorded as down until the end, and responded to clients later."""
    if not down:
        return []
    is_late = reduce(
        operator.or_,
        (
            (F.col("region") == region) & (F.col("at_ms") > at_ms + RESPONSE_MS)
            for region, at_ms in down.items()
        ),
    )
    late = events.where(F.col("op").isin(*_RESPONSES) & (F.col("outcome") == "ok") & is_late)
    found = late.groupBy("region").agg(F.count("*").alias("n"), F.max("at_ms").alias("last_ms")).collect()
    sentences = [
        f"{row['region']} is recorded as down until the end, but clients received {count(row['n'], 'response')} of it"
        f" up to {(row['last_ms'] - down[row['region']]) / 1000:.1f} s later"
        for row in sorted(found, key=lambda row: str(row["region"]))
    ]
    return _damages(sentences, len(sentences), "regions that responded while they were down")


def _subscription(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the subscription of a row, without the partition in its topic: a consumer subscribes to a partitioned
    topic and receives from its partitions."""
    region, topic, name = (str(row[column]) for column in SUBSCRIPTION)
    head, dash, number = topic.rpartition("-partition-")
    return region, head if dash and number.isdigit() else topic, name


def _damages(sentences: Sequence[str], n: int, what: str) -> list[EvidenceDamage]:
    shown = [EvidenceDamage(sentence) for sentence in sentences[:SHOWN_MAX]]
    return shown if n <= SHOWN_MAX else [*shown, EvidenceDamage(f"{n - SHOWN_MAX:,} more {what}")]
