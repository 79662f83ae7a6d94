"""INV-5: a subscription saw every acknowledged message at least once.

Judged are messages asked for after the subscription existed and meant for a region in which it exists. One name is
one subscription, in however many regions it is used (that is what a replicated subscription is).

A message that was never received but stands, in the region where the consumer was last, in front of something that
was received there, was skipped: lost to the consumer. One that stands behind everything received may simply
not have been reached when the history ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.checks.finding import Circumstances, Found, finding
from spark_jobs.checks.judging import Check, Count, count, examples, of_kind, total
from spark_jobs.evidence import Evidence, position_text
from spark_jobs.verdict import CheckResult, Verdict


def find(evidence: Evidence) -> DataFrame:
    missed = evidence.owed.where(F.col("due") & (F.col("times") == 0)).withColumn(
        "copy", F.get(F.filter("copies", lambda one: one["region"] == F.col("last_region")), F.lit(0))
    )
    passed = F.coalesce(F.col("reached")[F.col("copy.ledger_id")] >= F.col("copy.entry_id"), F.lit(False))
    return finding(
        missed,
        F.when(passed, "skipped").otherwise("not reached"),
        region="last_region",
        position=F.when(F.col("copy").isNotNull(), position_text(F.col("copy"))),
        at_ms="acked_ms",
        times="NULL",
    )


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
    judged = total(found, "judged")
    skipped, waiting, stray = (
        of_kind(found, "skipped"),
        of_kind(found, "not reached"),
        of_kind(found, "stray"),
    )
    verdict: Verdict = "valid"
    sentences = []
    if skipped:
        verdict = "invalid"
        sentences.append(
            f"{_never_received(skipped, judged)}, although later ones in the same region's log were."
        )
        if circumstances.history_damaged:
            verdict = "unknown"
            sentences.append("Not proven skipped, because a part of the history is missing.")
    if waiting:
        verdict = "invalid" if verdict == "invalid" else "unknown"
        sentences.append(
            f"{_never_received(waiting, judged)}: the consumer had not come that far when the history ended."
        )
    if stray:
        verdict = "invalid" if verdict == "invalid" else "unknown"
        sentences.append(
            f"{count(total(stray, 'stray'))} received that no producer in the history asked to publish:"
            " a part of the history is missing."
        )
    if not judged:
        verdict = "unknown"
        sentences.append("No subscription existed before an acknowledged publish: there is nothing to prove.")
    elif not sentences:
        names = sorted(one.subscription or "?" for one in of_kind(found, "judged"))
        owed = f"{len(names)} subscriptions were owed {count(judged)} in all"
        what = count(judged, "acknowledged message") if len(names) == 1 else owed
        sentences.append(f"{what}: each was received at least once ({', '.join(names)}).")
    return CHECK.result(verdict, " ".join(sentences), examples([*skipped, *waiting]))


def _never_received(found: Sequence[Found], judged: int) -> str:
    names = ", ".join(sorted({one.subscription or "?" for one in found}))
    return f"{sum(one.n for one in found):,} of {count(judged, 'message')} never received by {names}"


CHECK = Check(
    "consumer-saw-everything",
    "consumers saw everything",
    "INV-5",
    [Count("judged", "owed", "due"), Count("stray", "owed", "asked_ms IS NULL")],
    find,
    conclude,
)
