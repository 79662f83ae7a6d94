"""Find history lines without a line that they require: a response to a publish without the request, a publish in a
session that no client opened, a delivery or acknowledgement of a subscription without a subscribe. Each is reported as
damage, because a line is lost or forged; the checks evaluate all lines nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.history import operations
from spark_jobs.sources.run_folder import EvidenceDamage

PUBLISH = ("region", "topic", "producer", "session", "sequence_id")
SUBSCRIPTION = ("region", "topic", "subscription")
SHOWN_MAX = 5
"""Maximum number of sentences per kind of contradiction; further ones are only counted."""


def find_inconsistencies(events: DataFrame) -> list[EvidenceDamage]:
    """Return a damage for each of the first SHOWN_MAX contradictions of a kind, and one with the number of the others.
    `events`: readable lines in ROW_SCHEMA, with the sequence ids that their program wrote."""
    used = _used(events)
    return [*_find_unrequested(events), *_find_unopened(used), *_find_unsubscribed(used)]


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
    columns = ("op", "outcome", "region", "topic", "producer", "session", "subscription")
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


def _subscription(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the subscription of a row, without the partition in its topic: a consumer subscribes to a partitioned
    topic and receives from its partitions."""
    region, topic, name = (str(row[column]) for column in SUBSCRIPTION)
    head, dash, number = topic.rpartition("-partition-")
    return region, head if dash and number.isdigit() else topic, name


def _damages(sentences: Sequence[str], n: int, what: str) -> list[EvidenceDamage]:
    shown = [EvidenceDamage(sentence) for sentence in sentences[:SHOWN_MAX]]
    return shown if n <= SHOWN_MAX else [*shown, EvidenceDamage(f"{n - SHOWN_MAX:,} more {what}")]
