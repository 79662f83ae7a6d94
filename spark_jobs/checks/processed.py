"""INV-72: a message is acknowledged by one committed transaction of a subscription, in each region.

A client that reads, processes and writes in transactions processes each message once, within this guarantee. A
cumulative acknowledgement beyond an earlier one is allowed, even if its transaction processed messages that the earlier
one acknowledged; and a transaction belongs to one region. So the check only counts messages that several committed
transactions processed, within a region and across regions. An acknowledgement by two of them is a violation.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    CHECKED,
    HISTORIES,
    Check,
    Circumstances,
    examples,
    of_kind,
    per_region,
    total,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.frames.messages import ORIGIN, position_text
from spark_jobs.frames.transactions import COMMITTED, returned_ends
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count

_SUBSCRIPTION = ("region", "topic", "subscription")
_PLACE = ("ledger_id", "entry_id", "batch_index")
TWICE = "acknowledged twice"
ONCE, AGAIN, AGAIN_UNDER_A_KEY, ELSEWHERE = (
    "processed",
    "processed again",
    "processed again under a key",
    "processed in two regions",
)


def find(evidence: Evidence) -> DataFrame | None:
    if not evidence.transactional:
        return None
    committed = _committed(evidence)
    acknowledged = _acknowledged(evidence.events, committed)
    return all_of(
        [
            finding(acknowledged, CHECKED),
            _twice(acknowledged, evidence.events),
            *_processed(evidence, committed),
        ]
    )


def _committed(evidence: Evidence) -> DataFrame:
    """Return the committed transactions. One that only acknowledged has no marker: its client's response counts."""
    in_log = evidence.stored.where(F.col("fate") == COMMITTED).select("region", "transaction")
    returned = returned_ends(evidence.events).where(F.col("returned_end") == COMMITTED)
    return in_log.unionByName(returned.select("region", "transaction")).distinct()


def _acknowledged(events: DataFrame, committed: DataFrame) -> DataFrame:
    """Return the positions that committed transactions acknowledged, without rejected acknowledgements."""
    by = [*_SUBSCRIPTION, *_PLACE, "how", "transaction"]
    return (
        operations(events, "acknowledge")
        .where(F.col("transaction").isNotNull())
        .groupBy(*by)
        .agg(F.max(F.col("outcome") == "failed").alias("is_refused"), F.min("at_ms").alias("at_ms"))
        .where(~F.col("is_refused"))
        .join(committed, ["region", "transaction"])
    )


def _twice(acknowledged: DataFrame, events: DataFrame) -> DataFrame:
    """Find positions acknowledged by two transactions, except in subscriptions moved by a seek or an unsubscribe."""
    moved = (
        events.where(F.col("op").isin("seek", "unsubscribe"))
        .select(*_SUBSCRIPTION, F.lit(True).alias("is_moved"))
        .distinct()
    )
    twice = (
        acknowledged.groupBy(*_SUBSCRIPTION, *_PLACE, "how")
        .agg(
            F.array_sort(F.collect_set("transaction")).alias("transactions"),
            F.max("at_ms").alias("at_ms"),
        )
        .where(F.size("transactions") > 1)
        .join(moved, list(_SUBSCRIPTION), "left")
        .where(F.col("is_moved").isNull())
    )
    return finding(
        twice,
        TWICE,
        position=position_text(F.struct(*_PLACE)),
        transaction=F.concat_ws(" and ", "transactions"),
    )


def _processed(evidence: Evidence, committed: DataFrame) -> list[DataFrame]:
    keys = (
        operations(evidence.events, "begin_transaction")
        .where(F.col("transaction").isNotNull())
        .groupBy("region", "transaction")
        .agg(F.max("transaction_key").alias("of_key"))
    )
    in_log = evidence.stored.select(
        "topic", "region", *_PLACE, *(F.col(name).alias(f"stored_{name}") for name in ORIGIN[1:])
    )
    received = (
        operations(evidence.events, "receive", "ok")
        .where(F.col("transaction").isNotNull())
        .join(committed, ["region", "transaction"])
        .join(keys, ["region", "transaction"], "left")
        .join(in_log, ["topic", "region", *_PLACE], "left")
    )
    origin = [F.coalesce(name, f"stored_{name}").alias(name) for name in ORIGIN[1:]]
    here = (
        received.select("region", "topic", "subscription", "transaction", "of_key", "at_ms", *origin)
        .groupBy("region", "subscription", *ORIGIN)
        .agg(
            F.array_sort(F.collect_set("transaction")).alias("transactions"),
            F.min(F.coalesce("of_key", F.lit(""))).alias("key"),
            F.max(F.coalesce("of_key", F.lit(""))).alias("other_key"),
            F.max("at_ms").alias("at_ms"),
        )
        .withColumn("transaction", F.concat_ws(" and ", "transactions"))
    )
    is_one_key = (F.col("key") != "") & (F.col("key") == F.col("other_key"))
    again = here.where(F.size("transactions") > 1)
    elsewhere = (
        here.groupBy("subscription", *ORIGIN)
        .agg(F.array_sort(F.collect_set("region")).alias("regions"), F.max("at_ms").alias("at_ms"))
        .where(F.size("regions") > 1)
        .withColumn("region", F.element_at("regions", 1))
        .withColumn("other_region", F.element_at("regions", 2))
    )
    return [
        finding(here, ONCE),
        finding(again, F.when(is_one_key, AGAIN_UNDER_A_KEY).otherwise(AGAIN)),
        finding(elsewhere, ELSEWHERE),
    ]


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    checked, twice = total(found, CHECKED), of_kind(found, TWICE)
    if not checked and not twice:
        return CHECK.result("not applicable", "No committed transaction acknowledged a message.")
    counted = [_subscription_sentence(name, found) for name in _subscriptions(found)]
    if not twice:
        sentences = [
            f"{count(checked, 'acknowledgement')} of committed transactions: no message was acknowledged by two.",
            *counted,
        ]
        return CHECK.result("valid", " ".join(sentences), examples(of_kind(found, AGAIN, AGAIN_UNDER_A_KEY)))
    unproven = circumstances.damaged_regions | circumstances.lost
    proven = [one for one in twice if one.region not in unproven and not circumstances.history_damaged]
    sentences = [
        f"{count(total(twice, TWICE), 'acknowledgement')} in two committed transactions"
        f" ({per_region(twice)})."
    ]
    if not proven:
        sentences.append("Not proven wrong, because a part of the logs or of the history is missing.")
    verdict: Verdict = "invalid" if proven else "unknown"
    return CHECK.result(verdict, " ".join([*sentences, *counted]), examples(proven or twice))


def _subscriptions(found: Sequence[FindingGroup]) -> list[str]:
    return sorted({one.subscription or "?" for one in of_kind(found, ONCE)})


def _subscription_sentence(name: str, found: Sequence[FindingGroup]) -> str:
    """Return a sentence such as `plain: 1,350 messages processed, 35 of them more than once.`"""
    own = [one for one in found if (one.subscription or "?") == name]
    again, under_a_key = total(own, AGAIN), total(own, AGAIN_UNDER_A_KEY)
    parts = [f"{again:,} of them more than once"] if again else []
    parts += [f"{under_a_key:,} of them more than once under one key"] if under_a_key else []
    parts = parts or ["each once"]
    # A message that two regions processed is counted in each of them.
    elsewhere = total(own, ELSEWHERE)
    parts += [f"{elsewhere:,} in more than one region"] if elsewhere else []
    return f"{name}: {count(total(own, ONCE))} processed, {', '.join(parts)}."


CHECK = Check(
    "processed-once",
    "transactions acknowledge each message once",
    "INV-72",
    [],
    find,
    conclude,
    evidence=HISTORIES,
)
