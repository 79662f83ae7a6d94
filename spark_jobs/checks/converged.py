"""INV-6: the regions of a namespace store the same messages, acknowledged or not, with the same bytes.

The check requires no history, so it applies to traffic of any application.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.checks.check import (
    CHECKED,
    LOGS,
    Check,
    Circumstances,
    Count,
    absence_verdict,
    examples,
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
from spark_jobs.frames.messages import entry_text
from spark_jobs.verdict import CheckResult, worst
from spark_jobs.wording import count


def find(evidence: Evidence) -> DataFrame:
    regions = F.size(F.array_distinct(fields_of("copies", "region")))
    once = F.size("copies") == regions
    contents = F.size(F.array_distinct(fields_of("copies", "bytes_digest")))
    differing = evidence.messages.where(once & (contents > 1))
    # Several messages with one sequence id: each region must store as many different contents as all regions together.
    several = evidence.messages.where(
        ~once & (F.col("sessions") > 1) & (contents * regions > F.size("copies"))
    )
    absent = evidence.missing.where(F.col("held") > 0)
    named = F.col("acked_ms").isNotNull()
    return all_of(
        [
            finding(absent.where(~named), F.col("absence"), at_ms="COALESCE(acked_ms, asked_ms)"),
            finding(absent.where(named), F.concat(F.lit("named "), F.col("absence")), at_ms="acked_ms"),
            _differs(differing),
            _differs(several),
        ]
    )


def _differs(messages: DataFrame) -> DataFrame:
    placed = messages.withColumn("origin_position", entry_text(F.col("position")))
    return finding(placed, "differs", position="NULL", at_ms="asked_ms")


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    checked = total(found, CHECKED)
    verdict, absent, reasons = absence_verdict(of_kind(found, "missing", "behind"), circumstances)
    named = of_kind(found, "named missing", "named behind")
    differing = of_kind(found, "differs")
    sentences = []
    if absent:
        why = f"; not proven lost, because {reasons}" if reasons else ""
        sentences.append(
            f"The regions differ: {count(sum(one.n for one in absent))} that another region stores are missing"
            f" ({per_region(absent)}){why}."
        )
    if named:
        elsewhere = [replace(one, kind=one.kind.removeprefix("named ")) for one in named]
        named_verdict, lacking, _ = absence_verdict(elsewhere, circumstances)
        verdict = worst([verdict, named_verdict])
        if lacking:
            sentences.append(
                f"{count(sum(one.n for one in lacking), 'acknowledged message')} missing ({per_region(lacking)}):"
                " see INV-1 and INV-2."
            )
    if differing:
        sentences.append(
            f"{count(sum(one.n for one in differing))} stored with different bytes in different regions."
        )
    if not checked:
        sentences = [
            "No message is stored for more than one region: there is nothing to compare.",
            *sentences,
        ]
    elif not sentences:
        sentences.append(
            f"{count(checked)}: each is stored with the same bytes in every region that must store it."
        )
    verdict = unless_unchecked(worst([verdict, "invalid" if differing else "valid"]), checked)
    elsewhere = [replace(one, kind=one.kind.removeprefix("named ")) for one in named]
    lacking = [*of_kind(found, "missing", "behind"), *elsewhere]
    return CHECK.result(
        verdict,
        " ".join(sentences) + trimmed_remark(found) + loss_remark(lacking, circumstances),
        examples([*differing, *absent]),
    )


CHECK = Check(
    "regions-converge",
    "regions converge",
    "INV-6",
    [Count(CHECKED, "messages", "SIZE(copies) > 0 AND SIZE(expected) > 1")],
    find,
    conclude,
    evidence=LOGS,
)
