"""How long a subscription stood still when the region it was in went away.

From the moment the region was killed, stopped or paused to the first message received in another region, or in the
same one after it came back. Messages that a client still hands out from its own memory do not end the gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.finding import Circumstances, Found, finding
from spark_jobs.checks.judging import Check, count, examples, of_kind
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.report.durations import duration_text
from spark_jobs.verdict import INFORMATION, CheckResult


def find(evidence: Evidence) -> DataFrame:
    outages = evidence.outages.withColumnRenamed("region", "lost_region")
    received = evidence.events.where(
        (F.col("op") == "receive") & (F.col("outcome") == "ok") & F.col("region").isNotNull()
    ).select("topic", "subscription", "region", "at_ms")
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


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
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
        return CHECK.result("not applicable", "No subscription was in a region that went down.")
    return CHECK.result("measured", " ".join(sentences), examples([*gaps, *never]))


CHECK = Check("failover-gap", "fail-over gap", INFORMATION, [], find, conclude)
