"""INV-5: a subscription received every acknowledged message at least once.

Checked are acknowledged messages for a region in which the subscription exists: all of them when it began at the
earliest message, else those published after it existed. A replicated subscription is one subscription, in however many
regions it is used; any other is a separate one in each region. A subscription that was moved by a seek or an
unsubscribe is not checked, and of one with compacted reads only what it received.

A message that was never received is *skipped*, and lost to the consumer, if the region where the consumer was last
stores it in front of a message that was received there. Behind everything received, the consumer may not have reached
it when the history ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_jobs.checks.circumstances import Circumstances
from spark_jobs.checks.finding import FindingGroup, finding
from spark_jobs.checks.judging import Check, Count, examples, judged_or_not, of_kind, total
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.origins import position_text
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count


def find(evidence: Evidence) -> DataFrame:
    missed = evidence.owed.where(F.col("due") & (F.col("times") == 0)).withColumn(
        "copy",
        F.try_element_at(F.filter("copies", lambda one: one["region"] == F.col("last_region")), F.lit(1)),
    )
    passed = F.exists(
        "reached",
        lambda place: (
            (place["ledger_id"] == F.col("copy.ledger_id"))
            & (
                (place["entry_id"] > F.col("copy.entry_id"))
                | (
                    (place["entry_id"] == F.col("copy.entry_id"))
                    & (place["batch_index"] > F.col("copy.batch_index"))
                )
            )
        ),
    )
    return finding(
        missed,
        F.when(F.coalesce(passed, F.lit(False)), "skipped")
        .when(F.col("copy").isNull(), "not stored")
        .otherwise("not reached"),
        region="last_region",
        position=F.when(F.col("copy").isNotNull(), position_text(F.col("copy"))),
        at_ms="acked_ms",
        times="NULL",
    )


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    judged = total(found, "judged")
    skipped, waiting = of_kind(found, "skipped"), _waiting(found, circumstances)
    verdict, sentences = _failures(found, skipped, waiting, judged, circumstances)
    gone = [one for one in of_kind(found, "not stored") if one.origin_region in circumstances.lost]
    if gone:
        lost = " and ".join(sorted({one.origin_region or "?" for one in gone}))
        sentences.append(
            f"{count(sum(one.n for one in gone))} of {judged:,} were lost with {lost} before a consumer received them"
            " (see loss of a region)."
        )
    verdict = judged_or_not(verdict, judged)
    if verdict == "not applicable":
        sentences.append("No subscription had an acknowledged message to receive: there is nothing to check.")
    elif not sentences:
        names = sorted({one.subscription or "?" for one in of_kind(found, "judged")})
        owed = f"{count(len(names), 'subscription')} with {count(judged)} to receive in all"
        what = count(judged, "acknowledged message") if len(names) == 1 else owed
        sentences.append(f"{what}: each was received at least once ({', '.join(names)}).")
    sentences += _not_checked(found)
    return CHECK.result(verdict, " ".join(sentences), examples([*skipped, *waiting]))


def _waiting(found: Sequence[FindingGroup], circumstances: Circumstances) -> list[FindingGroup]:
    """Messages that a consumer may still receive: the loss of their origin region does not explain them."""
    not_stored = of_kind(found, "not stored")
    return [
        *of_kind(found, "not reached"),
        *(one for one in not_stored if one.origin_region not in circumstances.lost),
    ]


def _failures(
    found: Sequence[FindingGroup],
    skipped: Sequence[FindingGroup],
    waiting: Sequence[FindingGroup],
    judged: int,
    circumstances: Circumstances,
) -> tuple[Verdict, list[str]]:
    verdict: Verdict = "valid"
    sentences = []
    if skipped:
        verdict = "invalid"
        sentences.append(
            f"{_never_received(skipped, judged)}, although later ones in the same region's log were received."
        )
        if circumstances.history_damaged:
            verdict = "unknown"
            sentences.append("Not proven skipped, because a part of the history is missing.")
    if waiting:
        verdict = "invalid" if verdict == "invalid" else "unknown"
        sentences.append(
            f"{_never_received(waiting, judged)}: the consumer had not reached them when the history ended."
        )
    if stray := total(found, "stray"):
        verdict = "invalid" if verdict == "invalid" else "unknown"
        sentences.append(
            f"{count(stray)} received that no producer in the history published:"
            " a part of the history is missing."
        )
    return verdict, sentences


def _not_checked(found: Sequence[FindingGroup]) -> Iterator[str]:
    if before := total(found, "before"):
        yield (
            f"Not checked: {count(before)} published before a subscription existed that began at the latest message."
        )
    if left_out := total(found, "left_out"):
        yield (
            f"Not checked: {count(left_out)} that subscriptions with compacted reads did not receive; compaction"
            " keeps the newest message of each key."
        )
    if sought := total(found, "sought"):
        yield f"Not checked: {count(sought)} of subscriptions moved by a seek or an unsubscribe."
    if expired := total(found, "expired"):
        yield (
            f"Not checked: {count(expired)} not received that had expired, or that the policies allow to be evicted."
        )


def _never_received(found: Sequence[FindingGroup], judged: int) -> str:
    names = ", ".join(sorted({one.subscription or "?" for one in found}))
    return f"{sum(one.n for one in found):,} of {count(judged, 'message')} not received by {names}"


CHECK = Check(
    "consumers-received-everything",
    "consumers received everything",
    "INV-5",
    [
        Count("judged", "owed", "due"),
        Count("stray", "owed", "asked_ms IS NULL"),
        Count("before", "owed", "before"),
        Count("sought", "owed", "sought"),
        Count("left_out", "owed", "left_out"),
        Count("expired", "owed", "expired"),
    ],
    find,
    conclude,
)
