"""INV-5: a subscription received every acknowledged message at least once.

The check covers acknowledged messages that a region of the subscription must store: all messages if it began at the
earliest, else those published after its creation. A replicated subscription is one subscription in all regions; any
other is a separate one in each region. Not checked: subscriptions moved by a seek or an unsubscribe, messages that a
subscription with compacted reads did not receive, and messages that may have expired.

A message that was never received is *skipped*, and lost to the consumer, if the consumer's last region stores it before
a message that was received there. If it is stored after all received messages, the consumer may not have reached it
when the history ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    CHECKED,
    HISTORIES,
    Check,
    Circumstances,
    Count,
    examples,
    of_kind,
    total,
    unless_unchecked,
)
from spark_jobs.checks.finding import FindingGroup, finding
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import position_text
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count


def find(evidence: Evidence) -> DataFrame:
    missed = evidence.subscription_messages.where(F.col("due") & (F.col("times") == 0)).withColumn(
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
    checked = total(found, CHECKED)
    skipped, not_stored = of_kind(found, "skipped"), of_kind(found, "not stored")
    gone = [one for one in not_stored if one.origin_region in circumstances.lost]
    # Messages that a consumer may still receive: the loss of their origin region does not explain them.
    waiting = [*of_kind(found, "not reached"), *(one for one in not_stored if one not in gone)]
    verdict, sentences = _failures(found, skipped, waiting, checked, circumstances)
    if gone:
        lost = " and ".join(sorted({one.origin_region or "?" for one in gone}))
        sentences.append(
            f"{count(sum(one.n for one in gone))} of {checked:,} were lost with {lost} before a consumer received them"
            " (see loss of a region)."
        )
    verdict = unless_unchecked(verdict, checked)
    if verdict == "not applicable":
        sentences.append("No subscription had an acknowledged message to receive: there is nothing to check.")
    elif not sentences:
        names = sorted({one.subscription or "?" for one in of_kind(found, CHECKED)})
        scope = f"{count(len(names), 'subscription')} with {count(checked)} to receive in all"
        what = count(checked, "acknowledged message") if len(names) == 1 else scope
        sentences.append(f"{what}: each was received at least once ({', '.join(names)}).")
    sentences += [
        f"Not checked: {count(total(found, kind))} {text}"
        for kind, text in _NOT_CHECKED.items()
        if total(found, kind)
    ]
    return CHECK.result(verdict, " ".join(sentences), examples([*skipped, *waiting]))


def _failures(
    found: Sequence[FindingGroup],
    skipped: Sequence[FindingGroup],
    waiting: Sequence[FindingGroup],
    checked: int,
    circumstances: Circumstances,
) -> tuple[Verdict, list[str]]:
    verdict: Verdict = "valid"
    sentences = []
    if skipped:
        verdict = "invalid"
        sentences.append(
            f"{_never_received(skipped, checked)}, although later ones in the same region's log were received."
        )
        if circumstances.history_damaged:
            verdict = "unknown"
            sentences.append("Not proven skipped, because a part of the history is missing.")
    if waiting:
        verdict = "invalid" if verdict == "invalid" else "unknown"
        sentences.append(
            f"{_never_received(waiting, checked)}: the consumer had not reached them when the history ended."
        )
    if stray := total(found, "stray"):
        verdict = "invalid" if verdict == "invalid" else "unknown"
        sentences.append(
            f"{count(stray)} received that no producer in the history published:"
            " a part of the history is missing."
        )
    return verdict, sentences


_NOT_CHECKED = {
    "before": "published before a subscription existed that began at the latest message.",
    "left_out": "that subscriptions with compacted reads did not receive; compaction keeps the newest message of each"
    " key.",
    "sought": "of subscriptions moved by a seek or an unsubscribe.",
    "expired": "not received that had expired, or that the policies allow to be evicted.",
}


def _never_received(found: Sequence[FindingGroup], checked: int) -> str:
    names = ", ".join(sorted({one.subscription or "?" for one in found}))
    return f"{sum(one.n for one in found):,} of {count(checked, 'message')} not received by {names}"


CHECK = Check(
    "consumers-received-everything",
    "consumers received everything",
    "INV-5",
    [
        Count(CHECKED, "subscription_messages", "due"),
        Count("stray", "subscription_messages", "asked_ms IS NULL"),
        *(Count(kind, "subscription_messages", kind) for kind in _NOT_CHECKED),
    ],
    find,
    conclude,
    evidence=HISTORIES,
)
