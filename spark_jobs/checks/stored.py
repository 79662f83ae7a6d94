"""INV-1: every message that a region acknowledged is in its log."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.circumstances import Circumstances
from spark_jobs.checks.finding import FindingGroup, finding
from spark_jobs.checks.judging import (
    Check,
    Count,
    absence_verdict,
    examples,
    loss_remark,
    of_kind,
    per_region,
    total,
    trimmed_remark,
)
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import count


def find(evidence: Evidence) -> DataFrame:
    absent = evidence.missing.where(
        F.col("acked_ms").isNotNull() & (F.col("region") == F.col("origin_region"))
    )
    return finding(absent, F.col("absence"), at_ms="acked_ms")


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    judged = total(found, "judged")
    verdict, proof, reasons = absence_verdict(of_kind(found, "missing", "behind"), circumstances)
    absent = sum(one.n for one in proof)
    if not judged:
        verdict, sentence = "not applicable", "No publish was acknowledged: there is nothing to check."
    elif verdict == "valid":
        sentence = (
            f"{count(judged, 'acknowledged message')}: each is in the log of the region that acknowledged it."
        )
    else:
        sentence = (
            f"{absent:,} of {count(judged, 'acknowledged message')} {'is' if absent == 1 else 'are'} missing"
            f" from the log of the region that acknowledged {'it' if absent == 1 else 'them'}"
            f" ({per_region(proof)})"
        )
        sentence += f"; not proven lost, because {reasons}." if reasons else "."
    return CHECK.result(
        verdict,
        sentence + trimmed_remark(found) + loss_remark(of_kind(found, "missing", "behind"), circumstances),
        examples(proof),
    )


CHECK = Check(
    "acknowledged-stored",
    "acknowledged messages are stored",
    "INV-1",
    [Count("judged", "messages", "acked_ms IS NOT NULL")],
    find,
    conclude,
)
