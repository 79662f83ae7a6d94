"""Positions of replicated subscriptions in each region: what another fail-over would redeliver, and which are split.

A region's stored cursor contains the messages that the subscription acknowledged in any region. Acknowledged messages
that it lacks would be redelivered if the subscription failed over to the region now. After the loss of a region no
snapshot completes, so no cursor updates are replicated, and the number of such messages grows with consumption.

A position is *split* when each of two regions' cursors contains messages that the other lacks: in either region the
subscription receives some again. A fail-back can cause that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from emulator.model.values import TopicName
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN
from spark_jobs.sources.policies import NEVER_MS, Namespace
from spark_jobs.verdict import INFORMATION, CheckResult
from spark_jobs.wording import count, hint


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """Positions of one replicated subscription."""

    subscription: str
    topic: str
    region: str
    """The region of its last delivery."""
    redelivered: Mapping[str, int]
    """Other remaining region of the namespace -> acknowledged messages in its log that its cursor lacks: the number
    that a fail-over there would redeliver."""
    split: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Two regions -> number of messages that only the first cursor contains, and only the second. Both are positive."""

    def as_json(self) -> dict[str, Any]:
        return {
            "subscription": self.subscription,
            "topic": self.topic,
            "region": self.region,
            "read_again_after_failover": dict(sorted(self.redelivered.items())),
            "split": [
                {"regions": list(pair), "counted_by_one": list(numbers)}
                for pair, numbers in sorted(self.split.items())
            ],
        }


def measure_replication_state(
    evidence: Evidence, regions: Collection[str], namespaces: Mapping[str, Namespace]
) -> tuple[SubscriptionState, ...]:
    """Compute the state of each replicated subscription. `regions`: remaining regions whose cursors are readable."""
    if not regions:
        return ()
    acknowledged = evidence.subscription_messages.where(F.col("acknowledged") & (F.col("home") == ""))
    columns = ("topic", "subscription", "namespace")
    # Distinct rows, because Spark would sort all messages for the highest string.
    rows = acknowledged.select(*columns, F.coalesce("last_region", F.lit("")).alias("last_region")).distinct()
    totals = {
        tuple(row)[:3]: row.asDict() for row in sorted(rows.collect(), key=lambda row: row["last_region"])
    }
    if not totals:
        return ()
    uncounted: dict[tuple[str, str], list[tuple[frozenset[str], int]]] = {}
    ordered = sorted(regions)
    for topic, subscription, *lacks, n in _patterns(evidence.uncounted, ordered).collect():
        pattern = frozenset(region for region, is_lacking in zip(ordered, lacks, strict=True) if is_lacking)
        uncounted.setdefault((topic, subscription), []).append((pattern, n))
    return tuple(
        _state_of(row, uncounted.get((row["topic"], row["subscription"]), []), regions, namespaces)
        for row in sorted(
            totals.values(), key=lambda row: [row[name] or "" for name in ("subscription", *columns)]
        )
    )


def _patterns(uncounted: DataFrame, regions: Sequence[str]) -> DataFrame:
    """Count messages by the regions that store the message and whose cursor lacks it: topic, subscription, a boolean
    for each region, number."""
    # Booleans and not a set of names, which Spark would collect as an object per message.
    lacks = [f"lacks_{number}" for number in range(len(regions))]
    return (
        uncounted.where(F.col("region").isin(*regions))
        .groupBy("subscription", *ORIGIN)
        .agg(
            *(
                F.max(F.col("region") == region).alias(name)
                for name, region in zip(lacks, regions, strict=True)
            )
        )
        .groupBy("topic", "subscription", *lacks)
        .count()
    )


def _state_of(
    row: Mapping[str, Any],
    patterns: Iterable[tuple[frozenset[str], int]],
    regions: Collection[str],
    namespaces: Mapping[str, Namespace],
) -> SubscriptionState:
    patterns = list(patterns)
    namespace = namespaces.get(row["namespace"])
    shared = sorted(set(regions) & set(namespace.regions if namespace is not None else ()))
    redelivered = {name: sum(n for uncounted, n in patterns if name in uncounted) for name in shared}
    split = {}
    for one, other in combinations(shared, 2):
        only_one = sum(n for uncounted, n in patterns if other in uncounted and one not in uncounted)
        only_other = sum(n for uncounted, n in patterns if one in uncounted and other not in uncounted)
        if only_one and only_other:
            split[one, other] = (only_one, only_other)
    redelivered.pop(row["last_region"], None)
    return SubscriptionState(row["subscription"], row["topic"], row["last_region"], redelivered, split)


def replication_state_result(
    subscriptions: Iterable[SubscriptionState], lost: Collection[str], namespaces: Mapping[str, Namespace]
) -> CheckResult | None:
    """Return the figure of the report; None when there is nothing to print."""
    subscriptions = list(subscriptions)
    if not subscriptions:
        return None
    sentences = [_failover_sentence(one) for one in subscriptions if one.redelivered]
    missed = {
        region
        for one in subscriptions
        if any(one.redelivered.values())
        for region in lost
        if _is_replication_cluster(region, one.topic, namespaces)
    }
    if missed:
        them = "it" if len(missed) == 1 else "them"
        sentences.append(hint("snapshots-stopped", regions=" and ".join(sorted(missed)), them=them))
    sentences += [
        f"{one.subscription} is split: {count(only_one)} acknowledged in {first} and not in {second},"
        f" {only_other:,} in {second} and not in {first}."
        for one in subscriptions
        for (first, second), (only_one, only_other) in sorted(one.split.items())
    ]
    if not sentences:
        return None
    return CheckResult(
        "next-failover", "redelivered by another fail-over", INFORMATION, "measured", " ".join(sentences)
    )


def _is_replication_cluster(lost: str, topic: str, namespaces: Mapping[str, Namespace]) -> bool:
    """Return whether the topic's replication clusters name the lost region at the end of the run."""
    namespace = namespaces.get(TopicName.parse(topic).full_namespace)
    if namespace is None:
        return False
    own = namespace.own_topics.get(str(TopicName.parse(topic).partitioned or topic))
    since_ms = namespace.replicated_since_ms if own is None else own.since_ms
    regions = namespace.regions if own is None else own.regions
    others = [name for name in regions if name != lost]
    return lost in regions and any(since_ms.get((name, lost), 0.0) < NEVER_MS for name in others)


def _failover_sentence(subscription: SubscriptionState) -> str:
    would = ", ".join(
        f"{count(n)} again in {region}" if index == 0 else f"{n:,} in {region}"
        for index, (region, n) in enumerate(sorted(subscription.redelivered.items()))
    )
    return f"If {subscription.subscription} failed over from {subscription.region} now, it would receive {would}."
