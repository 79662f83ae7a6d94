"""Messages that a policy may have expired: they were not delivered to a subscription, and need not be."""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.engines.frames import Column, DataFrame, F
from spark_jobs.sources.lifetimes import Lifetime
from spark_jobs.sources.run_folder import Namespace


def without_expired(owed: DataFrame, namespaces: Mapping[str, Namespace], end_ms: float) -> DataFrame:
    """`aged`: when the history ended it was older than TTL or a quota of its topic allows, so its subscription may have
    passed it. `expired`: and it never came; such a message is not `due`."""
    may_expire = _may_expire(namespaces, end_ms)
    aged = F.lit(False) if may_expire is None else F.coalesce(may_expire, F.lit(False))
    return (
        owed.withColumn("aged", aged)
        .withColumn("expired", F.col("due") & (F.col("times") == 0) & F.col("aged"))
        .withColumn("due", F.col("due") & ~F.col("expired"))
    )


def _may_expire(namespaces: Mapping[str, Namespace], end_ms: float) -> Column | None:
    """None: nothing ever does."""
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
    result = None
    for one in found:
        result = one if result is None else result | one
    return result


def _is_older(lifetime: Lifetime, end_ms: float) -> Column:
    return F.col("asked_ms") <= F.lit(float(end_ms - lifetime.expires_after_ms))
