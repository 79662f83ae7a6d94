"""The checks of every run in the order of docs/INVARIANTS.md, then the measurements without a guarantee. `evaluation`
adds the service contract (INV-20), fail-over plans (INV-125) and metadata convergence (INV-53).

To add one, write a file with `find` (from Evidence to findings, inside the engine), `conclude` (from findings to
verdict and sentence) and a `CHECK`, and add a line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.checks import (
    consumed,
    converged,
    cursors_converged,
    cursors_correct,
    keys,
    measured,
    one_owner,
    order,
    phantom_writes,
    places,
    processed,
    replicated,
    snapshots_safe,
    times_agree,
    transactions,
)
from spark_jobs.checks.check import COUNTED_BY, Check, Count, Counted
from spark_jobs.checks.finding import (
    EXAMPLES,
    GROUP,
    FindingGroup,
    all_of,
    finding,
    finding_group,
    group_findings,
)
from spark_jobs.engines.frames import Column, DataFrame, F, selected
from spark_jobs.frames.evidence import Evidence

CHECKS: Sequence[Check] = (
    replicated.STORED,
    replicated.REPLICATED,
    phantom_writes.CHECK,
    order.CHECK,
    consumed.CHECK,
    converged.CHECK,
    snapshots_safe.CHECK,
    places.CHECK,
    cursors_correct.CHECK,
    cursors_converged.CHECK,
    one_owner.CHECK,
    transactions.ATOMIC,
    transactions.INVISIBLE,
    keys.FENCED,
    keys.EPOCHS,
    processed.CHECK,
    times_agree.CHECK,
    measured.OUTCOMES,
    measured.REDELIVERED,
    measured.FAILOVER_GAP,
)


def all_findings(evidence: Evidence, checks: Sequence[Check] = CHECKS) -> DataFrame:
    """Return the counts and grouped findings of all checks as one frame, which one job computes."""
    counted = [
        _counted(
            evidence,
            frame,
            [(check, count) for check in checks for count in check.counts if count.of == frame],
        )
        for frame in COUNTED_BY
    ]
    found = [
        frame.withColumn("check", F.lit(check.name))
        for check in checks
        if check.find is not None and (frame := check.find(evidence)) is not None
    ]
    if not found:
        found = [finding(evidence.outages, "nothing").where(F.lit(False)).withColumn("check", F.lit(""))]
    return all_of([*filter(None, counted), group_findings(all_of(found))])


def _counted(evidence: Evidence, frame: Counted, counts: Sequence[tuple[Check, Count]]) -> DataFrame | None:
    """Compute all counts of one frame in one pass, in the schema of `group_findings`."""
    if not counts:
        return None
    by = COUNTED_BY[frame]
    sums = [F.sum(_number(count).cast("bigint")).alias(f"n{i}") for i, (_, count) in enumerate(counts)]
    named = [
        F.struct(F.lit(check.name).alias("check"), F.lit(count.kind).alias("kind"), F.col(f"n{i}").alias("n"))
        for i, (check, count) in enumerate(counts)
    ]
    rows: DataFrame = getattr(evidence.claims if hasattr(evidence.claims, frame) else evidence, frame)
    each = rows.groupBy(by).agg(*sums).select(by, F.explode(F.array(*named)).alias("one"))
    columns = {"kind": "one.kind", by: by}
    return selected(
        each,
        {
            "check": "one.check",
            **{name: columns.get(name, "CAST(NULL AS string)") for name in GROUP},
            "n": "one.n",
            "first_ms": "CAST(NULL AS double)",
            "last_ms": "CAST(NULL AS double)",
            "examples": F.array().cast(EXAMPLES),
        },
    )


def _number(count: Count) -> Column:
    return F.expr(count.number) if isinstance(count.number, str) else count.number()


def collect_findings(findings: DataFrame) -> dict[str, list[FindingGroup]]:
    """Collect findings by the name of their check, in an order that does not depend on when tasks finish."""
    found: dict[str, list[FindingGroup]] = {}
    for row in sorted(findings.collect(), key=lambda row: [row[name] or "" for name in GROUP]):
        found.setdefault(row["check"], []).append(finding_group(row.asDict()))
    return found
