"""Every promise that is checked, in the order of docs/INVARIANTS.md; then what is only measured.

To add one: a file with `find` (Evidence in, findings out, inside Spark), `conclude` (findings in, verdict and
sentence out) and a `CHECK`, and a line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.checks import (
    consumed,
    converged,
    failover,
    order,
    outcomes,
    places,
    promised,
    replicated,
    reread,
    stored,
    unasked,
)
from spark_jobs.checks.finding import EXAMPLES, GROUP, Found, all_of, found_of, summed_up
from spark_jobs.checks.judging import COUNTED_BY, Check, Count, Counted
from spark_jobs.evidence import Evidence

CHECKS: Sequence[Check] = (
    stored.CHECK,
    replicated.CHECK,
    unasked.CHECK,
    order.CHECK,
    consumed.CHECK,
    converged.CHECK,
    promised.SNAPSHOTS,
    places.CHECK,
    promised.CURSORS,
    outcomes.CHECK,
    reread.CHECK,
    failover.CHECK,
)


def all_findings(evidence: Evidence, checks: Sequence[Check] = CHECKS) -> DataFrame:
    """What all checks count and find, summed up: one frame, one job."""
    counted = [
        _counted(
            evidence,
            frame,
            [(check, count) for check in checks for count in check.counts if count.of == frame],
        )
        for frame in COUNTED_BY
    ]
    found = [
        check.find(evidence).withColumn("check", F.lit(check.name))
        for check in checks
        if check.find is not None
    ]
    return all_of([*filter(None, counted), *([summed_up(all_of(found))] if found else [])])


def _counted(evidence: Evidence, frame: Counted, counts: Sequence[tuple[Check, Count]]) -> DataFrame | None:
    """All counts of one frame in one pass, in the shape of `summed_up`."""
    if not counts:
        return None
    by = COUNTED_BY[frame]
    sums = [
        F.expr(f"SUM(CAST({count.number} AS BIGINT))").alias(f"n{i}") for i, (_, count) in enumerate(counts)
    ]
    named = ", ".join(
        f"STRUCT('{check.name}' AS check, '{count.kind}' AS kind, n{i} AS n)"
        for i, (check, count) in enumerate(counts)
    )
    rows: DataFrame = getattr(evidence.promises if hasattr(evidence.promises, frame) else evidence, frame)
    each = rows.groupBy(by).agg(*sums).select(by, F.expr(f"INLINE(ARRAY({named}))"))
    return each.selectExpr(
        "check",
        *(name if name in ("kind", by) else f"CAST(NULL AS STRING) AS {name}" for name in GROUP),
        "n",
        "CAST(NULL AS DOUBLE) AS first_ms",
        "CAST(NULL AS DOUBLE) AS last_ms",
        f"CAST(ARRAY() AS {EXAMPLES}) AS examples",
    )


def collect_findings(findings: DataFrame) -> dict[str, list[Found]]:
    """By the name of the check. In an order that does not depend on which task was done first."""
    found: dict[str, list[Found]] = {}
    for row in sorted(findings.collect(), key=lambda row: [row[name] or "" for name in GROUP]):
        found.setdefault(row["check"], []).append(found_of(row.asDict()))
    return found
