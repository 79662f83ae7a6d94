"""INV-6: the regions of a namespace hold the same messages, acknowledged or not, with the same bytes.

Needs no history: it holds for traffic of any application.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.checks.finding import Circumstances, Found, all_of, finding
from spark_jobs.checks.judging import (
    Check,
    Count,
    absence_verdict,
    count,
    examples,
    of_kind,
    per_region,
    total,
    trimmed_remark,
)
from spark_jobs.evidence import Evidence
from spark_jobs.verdict import CheckResult, worst


def find(evidence: Evidence) -> DataFrame:
    # With a second copy in one region it may be another message under the same number: INV-2 speaks of those.
    once = F.size("copies") == F.size(F.array_distinct("copies.region"))
    differing = evidence.messages.where(once & (F.size(F.array_distinct("copies.payload_crc32c")) > 1))
    absent = evidence.missing.where(F.col("held") > 0)
    return all_of(
        [
            finding(absent, F.col("absence"), at_ms="COALESCE(acked_ms, asked_ms)"),
            finding(differing, "differs", at_ms="asked_ms"),
        ]
    )


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
    judged = total(found, "judged")
    verdict, absent, reasons = absence_verdict(of_kind(found, "missing", "behind"), circumstances)
    differing = of_kind(found, "differs")
    sentences = []
    if absent:
        why = f"; not proven lost, because {reasons}" if reasons else ""
        sentences.append(
            f"The regions differ: {count(sum(one.n for one in absent))} held elsewhere are missing"
            f" ({per_region(absent)}){why}."
        )
    if differing:
        sentences.append(
            f"{count(sum(one.n for one in differing))} stored with other bytes in one region than in another."
        )
    if not judged:
        sentences = ["No message is stored in any region: there is nothing to prove."]
    elif not sentences:
        sentences.append(
            f"{count(judged)}: the same ones, with the same bytes, in every region that should hold them."
        )
    return CHECK.result(
        worst([verdict, "invalid" if differing else "valid", "valid" if judged else "unknown"]),
        " ".join(sentences) + trimmed_remark(found),
        examples([*differing, *absent]),
    )


CHECK = Check(
    "regions-converge",
    "regions converge",
    "INV-6",
    [Count("judged", "messages", "SIZE(copies) > 0")],
    find,
    conclude,
)
