"""What became of the publishes, and how many of those without a clear answer were stored all the same."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.finding import Circumstances, Found
from spark_jobs.checks.judging import Check, Count, count, total
from spark_jobs.verdict import INFORMATION, CheckResult

_COUNTS = [
    Count("asked", "messages", "asked_ms IS NOT NULL"),
    Count("acknowledged", "messages", "acked_ms IS NOT NULL"),
    Count("failed", "messages", "refused"),
    Count("unknown", "messages", "asked_ms IS NOT NULL AND acked_ms IS NULL AND NOT refused"),
    Count(
        "unknown_stored",
        "messages",
        "asked_ms IS NOT NULL AND acked_ms IS NULL AND NOT refused AND SIZE(copies) > 0",
    ),
]


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
    asked, unknown = total(found, "asked"), total(found, "unknown")
    if not asked:
        return CHECK.result("not applicable", "No message was published.")
    sentence = (
        f"{count(asked)} published: {total(found, 'acknowledged'):,} acknowledged,"
        f" {total(found, 'failed'):,} certainly failed, {unknown:,} without a response"
    )
    if unknown:
        sentence += f" ({total(found, 'unknown_stored'):,} of these are stored)"
    return CHECK.result("measured", sentence + ".")


CHECK = Check("publish-outcomes", "publish outcomes", INFORMATION, _COUNTS, None, conclude)
