"""INV-18: a stored cursor counts only messages that the subscription acknowledged, and nothing beyond the log's end."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    UNPROVEN_BY_HISTORY,
    Check,
    Circumstances,
    Count,
    examples,
    of_kind,
    per_region,
    total,
    unless_unchecked,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.acknowledgements import open_copies
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, place_text
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count


def find(evidence: Evidence) -> DataFrame:
    cursors = evidence.claims.cursors
    open_messages = (
        open_copies(evidence.subscription_messages)
        .where((F.col("home") == "") | (F.col("home") == F.col("region")))
        .select("subscription", *ORIGIN, "region", "at", "acked_ms")
    )
    claimed = open_messages.join(cursors.hint("broadcast"), ["topic", "subscription", "region"]).where(
        (F.col("at") >= F.col("first")) & (F.col("at") <= F.col("last"))
    )
    beyond = cursors.where(F.col("last") > F.col("end"))
    return all_of(
        [
            finding(claimed, "counted as consumed", position=place_text(F.col("at")), at_ms="acked_ms"),
            finding(beyond, "beyond the end", position=place_text(F.col("last"))),
        ]
    )


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    ranges = total(found, "ranges")
    claimed, beyond = of_kind(found, "counted as consumed"), of_kind(found, "beyond the end")
    sentences = []
    if claimed:
        sentences.append(
            f"{count(total(claimed, 'counted as consumed'))} counted as consumed by a stored cursor, although no"
            f" consumer acknowledged them ({per_region(claimed)})."
        )
    if beyond:
        sentences.append(f"Stored cursors are beyond the end of the log ({per_region(beyond)}).")
    verdict: Verdict = "invalid" if sentences else "valid"
    if claimed and not beyond and circumstances.history_damaged:
        verdict = "unknown"
        sentences.append(UNPROVEN_BY_HISTORY)
    verdict = unless_unchecked(verdict, ranges)
    if verdict == "not applicable":
        sentences = ["No stored cursor could be read."]
    elif not sentences:
        sentences = [f"{count(ranges, 'range')} of stored cursors: everything in them was acknowledged."]
    return CHECK.result(verdict, " ".join(sentences), examples([*beyond, *claimed]))


CHECK = Check(
    "cursors-correct",
    "stored cursors are correct",
    "INV-18",
    [Count("ranges", "cursors", "1")],
    find,
    conclude,
)
