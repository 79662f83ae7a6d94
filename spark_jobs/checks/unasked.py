"""INV-3: nothing is stored that nobody sent.

Only producers that the history knows are judged. Others on the same topic are either foreigners or a sign that a
part of the history is gone; nobody can tell, so their messages make the verdict unknown, not invalid.
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
    asked = F.col("asked_ms").isNotNull()
    known = (
        evidence.messages.where(asked)
        .groupBy("topic")
        .agg(F.collect_set("producer").alias("known_producers"))
    )
    suspects = evidence.messages.where((F.size("copies") > 0) & (~asked | F.col("refused")))
    first_copy = F.col("copies")[0]
    kind = (
        F.when(F.col("refused"), "refused")
        .when(F.array_contains("known_producers", F.col("producer")), "unasked")
        .otherwise("stranger")
    )
    return finding(
        suspects.join(F.broadcast(known), "topic"),
        kind,
        region=first_copy["region"],
        position=position_text(first_copy),
        at_ms="asked_ms",
    )


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
    judged = total(found, "judged")
    unasked, refused = of_kind(found, "unasked"), of_kind(found, "refused")
    strangers = of_kind(found, "stranger")
    sentences = []
    if unasked:
        sentences.append(f"{count(total(unasked, 'unasked'))} stored that nobody asked to publish.")
    if refused:
        sentences.append(
            f"{count(total(refused, 'refused'))} stored although the client was told that it certainly failed."
        )
    verdict: Verdict = "invalid" if sentences else "valid"
    if sentences and circumstances.history_damaged:
        verdict = "unknown"
        sentences.append("Not proven wrong, because a part of the history is missing.")
    if strangers:
        names = sorted({str(example["producer"]) for example in examples(strangers)})
        sentences.append(
            f"{count(total(strangers, 'stranger'))} come from producers that the history does not know"
            f" ({', '.join(names)}): foreigners, or a part of the history is missing."
        )
        verdict = "invalid" if verdict == "invalid" else "unknown"
    if not judged and not sentences:
        verdict = "unknown"
        sentences.append("Nothing that the history asked for is stored: there is nothing to prove.")
    elif not sentences:
        sentences.append(f"{count(judged, 'stored message')}: for each a client asked.")
    return CHECK.result(
        verdict,
        " ".join(sentences),
        examples([*unasked, *refused, *strangers]),
    )


CHECK = Check(
    "nothing-unasked",
    "nothing that nobody sent",
    "INV-3",
    [Count("judged", "messages", "SIZE(copies) > 0 AND asked_ms IS NOT NULL")],
    find,
    conclude,
)
