"""Figures that are computed like checks, without a guarantee: outcomes of publishes, redelivered messages, fail-over
gaps."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import Check, Circumstances, Count, examples, of_kind, total
from spark_jobs.checks.finding import FindingGroup, finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.history import operations
from spark_jobs.verdict import INFORMATION, CheckResult
from spark_jobs.wording import count, duration_text

_OUTCOMES = [
    Count("asked", "messages", "asked_ms IS NOT NULL"),
    Count("acknowledged", "messages", "acked_ms IS NOT NULL"),
    Count("failed", "messages", "refused"),
    Count("unknown", "messages", "asked_ms IS NOT NULL AND acked_ms IS NULL AND NOT refused"),
    Count(
        "unknown_stored",
        "messages",
        "asked_ms IS NOT NULL AND acked_ms IS NULL AND NOT refused AND SIZE(copies) > 0",
    ),
]


def conclude_outcomes(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    published, unknown = total(found, "asked"), total(found, "unknown")
    if not published:
        return OUTCOMES.result("not applicable", "No message was published.")
    sentence = (
        f"{count(published)} published: {total(found, 'acknowledged'):,} acknowledged,"
        f" {total(found, 'failed'):,} certainly failed, {unknown:,} without a response"
    )
    if unknown:
        sentence += f" ({total(found, 'unknown_stored'):,} of these are stored)"
    return OUTCOMES.result("measured", sentence + ".")


OUTCOMES = Check("publish-outcomes", "publish outcomes", INFORMATION, _OUTCOMES, None, conclude_outcomes)


def find_redelivered(evidence: Evidence) -> DataFrame:
    return finding(evidence.subscription_messages.where(F.col("times") > 1), "redelivered", at_ms="last_ms")


def conclude_redelivered(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    received, deliveries = total(found, "received"), total(found, "deliveries")
    again = of_kind(found, "redelivered")
    if not received:
        return REDELIVERED.result("not applicable", "No consumer received a message.")
    if not again:
        sentence = f"{count(received)} received, each once."
    else:
        sentence = (
            f"{sum(one.n for one in again):,} of {count(received, 'received message')} were received more than once"
            f" ({count(deliveries - received, 'repeated delivery')})."
        )
    return REDELIVERED.result("measured", sentence, examples(again))


REDELIVERED = Check(
    "redelivered",
    "redelivered",
    INFORMATION,
    [
        Count("received", "subscription_messages", "times > 0"),
        Count("deliveries", "subscription_messages", "times"),
    ],
    find_redelivered,
    conclude_redelivered,
)


def find_gaps(evidence: Evidence) -> DataFrame:
    """Find the gaps of subscriptions whose region was killed, lost, stopped or paused.

    A gap lasts from that moment to the first message received in another region, or in the same one after its start or
    resume. A message that the client returns meanwhile from its receiver queue does not end the gap."""
    outages = evidence.outages.withColumnRenamed("region", "lost_region")
    received = (
        operations(evidence.events, "receive", "ok")
        .where(F.col("region").isNotNull())
        .select("topic", "subscription", "region", "at_ms")
    )
    before = F.col("at_ms") <= F.col("down_ms")
    elsewhere = F.col("region") != F.col("lost_region")
    resumed = ~before & (elsewhere | F.coalesce(F.col("at_ms") > F.col("up_ms"), F.lit(False)))
    gaps = (
        received.crossJoin(outages.hint("broadcast"))
        .groupBy("lost_region", "down_ms", "topic", "subscription")
        .agg(
            F.max_by(F.when(before, F.col("region")), F.when(before, F.col("at_ms"))).alias("was_in"),
            F.min_by(F.when(resumed, F.col("region")), F.when(resumed, F.col("at_ms"))).alias("other_region"),
            F.min(F.when(resumed, F.col("at_ms"))).alias("until_ms"),
        )
        .where(F.col("was_in") == F.col("lost_region"))
    )
    kind = F.when(F.col("until_ms").isNull(), "never resumed").otherwise("gap")
    return finding(gaps, kind, region="lost_region", at_ms="down_ms")


def conclude_gaps(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    gaps, never = of_kind(found, "gap"), of_kind(found, "never resumed")
    seconds = [
        ((example["until_ms"] - example["at_ms"]) / 1000, example) for one in gaps for example in one.examples
    ]
    sentences = []
    if seconds:
        longest, example = max(seconds, key=lambda pair: pair[0])
        sentences.append(
            f"After {example['region']} went down, {example['subscription']} received its next message"
            f" {duration_text(longest)} later, in {example['other_region']}"
            f"{'' if len(seconds) == 1 else ' (the longest gap)'}."
        )
    if never:
        names = sorted({f"{one.subscription} after {one.region} went down" for one in never})
        sentences.append(
            f"{count(len(names), 'subscription')} received no further message: {', '.join(names)}."
        )
    if not sentences:
        return FAILOVER_GAP.result("not applicable", "No subscription was in a region that went down.")
    return FAILOVER_GAP.result("measured", " ".join(sentences), examples([*gaps, *never]))


FAILOVER_GAP = Check("failover-gap", "fail-over gap", INFORMATION, [], find_gaps, conclude_gaps)
