"""Whether the times in the histories agree: a client requests a publish before any client receives the message.

All histories of a run use the clock of one machine. A message that was delivered or acknowledged long before its
request shows that the clock of a program differs, or that a history was changed. Then times of faults and operations
cannot be compared, so the verdict is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.check import HISTORIES, Check, Circumstances, Count, total
from spark_jobs.checks.finding import FindingGroup
from spark_jobs.engines.frames import Column, F, fields_of
from spark_jobs.verdict import INFORMATION, CheckResult
from spark_jobs.wording import count

EARLY_MS = 10_000.0
"""Tolerated difference: the clock of a machine may be set while a run is running."""


def _delivered_early() -> Column:
    return _is_early(F.array_min(fields_of("first_deliveries", "first_ms")))


def _acknowledged_early() -> Column:
    return _is_early(F.col("acked_ms"))


def _is_early(at_ms: Column) -> Column:
    return F.coalesce(at_ms < F.col("asked_ms") - F.lit(EARLY_MS), F.lit(False))


def conclude(found: Sequence[FindingGroup], circumstances: Circumstances) -> CheckResult:
    if not total(found, "published"):
        return CHECK.result("not applicable", "No message was published.")
    early = [
        f"{count(n)} {what} more than {EARLY_MS / 1000:.0f} s before the publish was requested"
        for kind, what in (("delivered", "delivered"), ("acknowledged", "acknowledged"))
        if (n := total(found, kind))
    ]
    if not early:
        return CHECK.result(
            "valid", "No message was delivered or acknowledged before its publish was requested."
        )
    why = "the clock of a program differs, or a history was changed"
    return CHECK.result("unknown", f"{' and '.join(early)}: {why}.")


CHECK = Check(
    "times-agree",
    "the times of the histories agree",
    INFORMATION,
    [
        Count("published", "messages", "asked_ms IS NOT NULL"),
        Count("acknowledged", "messages", _acknowledged_early),
        Count("delivered", "subscription_messages", _delivered_early),
    ],
    None,
    conclude,
    evidence=HISTORIES,
)
