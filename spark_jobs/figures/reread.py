"""How many messages a subscription was given more than once. At least once is the promise, so this is a figure."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks.finding import Circumstances, Found, finding
from spark_jobs.checks.judging import Check, Count, count, examples, of_kind, total
from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.frames.evidence import Evidence
from spark_jobs.verdict import INFORMATION, CheckResult


def find(evidence: Evidence) -> DataFrame:
    return finding(evidence.owed.where(F.col("times") > 1), "redelivered", at_ms="last_ms")


def conclude(found: Sequence[Found], circumstances: Circumstances) -> CheckResult:
    received, deliveries = total(found, "received"), total(found, "deliveries")
    again = of_kind(found, "redelivered")
    if not received:
        return CHECK.result("not applicable", "No consumer received a message.")
    if not again:
        sentence = f"{count(received)} received, each once."
    else:
        sentence = (
            f"{sum(one.n for one in again):,} of {count(received, 'received message')} were received more than once"
            f" ({count(deliveries - received, 'repeated delivery').replace('deliverys', 'deliveries')})."
        )
    return CHECK.result("measured", sentence, examples(again))


CHECK = Check(
    "redelivered",
    "redelivered",
    INFORMATION,
    [Count("received", "owed", "times > 0"), Count("deliveries", "owed", "times")],
    find,
    conclude,
)
