"""INV-1: every message that a region acknowledged is in its log.

INV-2: every acknowledged message is in the log of every region of its namespace, exactly once.

Without deduplication, a client that lost a publish's receipt sends the message again, and the region stores both: a
legitimate duplicate. Replication must not add duplicates: more copies than in the origin region are a violation under
any policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import (
    CHECKED,
    Check,
    Circumstances,
    Count,
    absence_verdict,
    examples,
    explained_by_loss,
    loss_remark,
    of_kind,
    per_region,
    total,
    trimmed_remark,
    unless_unchecked,
)
from spark_jobs.checks.finding import FindingGroup, all_of, finding
from spark_jobs.engines.frames import DataFrame, F, fields_of
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.messages import ORIGIN, position_text
from spark_jobs.verdict import CheckResult, worst
from spark_jobs.wording import count


def _acknowledged(evidence: Evidence) -> DataFrame:
    return evidence.missing.where(F.col("acked_ms").isNotNull())


def find_stored(evidence: Evidence) -> DataFrame:
    own = F.col("region") == F.col("origin_region")
    return finding(_acknowledged(evidence).where(own), F.col("absence"), at_ms="acked_ms")


def conclude_stored(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    checked = total(found, CHECKED)
    verdict, proof, reasons = absence_verdict(of_kind(found, "missing", "behind"), circumstances)
    absent = sum(one.n for one in proof)
    if not checked:
        verdict, sentence = "not applicable", "No publish was acknowledged: there is nothing to check."
    elif verdict == "valid":
        sentence = f"{count(checked, 'acknowledged message')}: each is in the log of the region that acknowledged it."
    else:
        sentence = (
            f"{absent:,} of {count(checked, 'acknowledged message')} {'is' if absent == 1 else 'are'} missing"
            f" from the log of the region that acknowledged {'it' if absent == 1 else 'them'}"
            f" ({per_region(proof)})"
        )
        sentence += f"; not proven lost, because {reasons}." if reasons else "."
    return STORED.result(
        verdict,
        sentence + trimmed_remark(found) + loss_remark(of_kind(found, "missing", "behind"), circumstances),
        examples(proof),
    )


STORED = Check(
    "acknowledged-stored",
    "acknowledged messages are stored",
    "INV-1",
    [Count(CHECKED, "messages", "acked_ms IS NOT NULL")],
    find_stored,
    conclude_stored,
)


def find_replicated(evidence: Evidence) -> DataFrame:
    absent = _acknowledged(evidence).where(F.col("region") != F.col("origin_region"))
    return all_of([finding(absent, F.col("absence"), at_ms="acked_ms"), _doubles(evidence.messages)])


def _doubles(messages: DataFrame) -> DataFrame:
    several = messages.where(F.size("copies") > F.size(F.array_distinct(fields_of("copies", "region"))))
    here = F.filter("copies", lambda copy: copy["region"] == F.col("region"))
    at_origin = F.filter("copies", lambda copy: copy["region"] == F.col("origin_region"))
    doubled = (
        several.withColumn("region", F.explode(F.array_distinct(fields_of("copies", "region"))))
        .select(
            *ORIGIN,
            "namespace",
            "region",
            "asked_ms",
            F.size(here).alias("times"),
            F.size(at_origin).alias("sent"),
            "sessions",
            F.array_join(F.array_sort(F.transform(here, position_text)), " and ").alias("position"),
        )
        # Several sessions that published under one sequence id published several messages.
        .where((F.col("times") > 1) & (F.col("times") > F.col("sessions")))
    )
    by_replication = (F.col("sent") > 0) & (F.col("times") > F.col("sent"))
    kind = F.when(by_replication, "duplicated by replication").otherwise("duplicated")
    return finding(doubled, kind, at_ms="asked_ms")


def conclude_replicated(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    checked, expected = total(found, CHECKED), total(found, "expected")
    absent_verdict, absent, reasons = absence_verdict(of_kind(found, "missing", "behind"), circumstances)
    doubled = of_kind(found, "duplicated", "duplicated by replication")
    legitimate = [
        one for one in doubled if one.kind == "duplicated" and not circumstances.deduplicates(one.namespace)
    ]
    wrong = [one for one in doubled if one not in legitimate]
    sentences = []
    if absent:
        why = f", not proven lost, because {reasons}" if reasons else ""
        sentences.append(
            f"{count(sum(one.n for one in absent), 'copy')} of"
            f" {count(checked, 'acknowledged message')} missing ({per_region(absent)}){why}."
        )
    if wrong:
        sentences.append(f"{count(sum(one.n for one in wrong))} stored more than once ({per_region(wrong)}).")
    if not checked:
        sentences = ["No publish was acknowledged: there is nothing to check.", *sentences]
    elif expected == checked and not sentences:
        sentences = [
            f"{count(checked, 'acknowledged message')}, each for one region only: nothing is replicated."
        ]
    elif not sentences:
        _, gone = explained_by_loss(of_kind(found, "missing", "behind"), circumstances)
        there, where = expected - sum(one.n for one in gone), " that remains" if gone else ""
        sentences.append(
            f"{count(checked, 'acknowledged message')}: each is in every region of its namespace{where}"
            f"{'' if legitimate else ', exactly once'} ({there:,} copies)."
        )
    if legitimate:
        names = ", ".join(sorted({one.namespace or "?" for one in legitimate}))
        sentences.append(
            f"{count(sum(one.n for one in legitimate))} stored more than once ({per_region(legitimate)})"
            f" in {names}, where deduplication is off: the client sent a message again without having a receipt,"
            " so these duplicates are allowed."
        )
    verdict = worst([absent_verdict, "invalid" if wrong else "valid"])
    verdict = unless_unchecked(verdict, checked)
    return REPLICATED.result(
        verdict,
        " ".join(sentences)
        + trimmed_remark(found)
        + loss_remark(of_kind(found, "missing", "behind"), circumstances),
        examples([*wrong, *absent, *legitimate]),
    )


REPLICATED = Check(
    "replicated-exactly-once",
    "replicated exactly once",
    "INV-2",
    [
        Count(CHECKED, "messages", "acked_ms IS NOT NULL"),
        Count("expected", "messages", "IF(acked_ms IS NULL, 0, SIZE(expected))"),
    ],
    find_replicated,
    conclude_replicated,
)
