"""All that a verdict asks of the evidence, in as few questions as there can be; none waits for another one's answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.checks import all_findings, collect_findings
from spark_jobs.checks.finding import Found
from spark_jobs.checks.inconsistent_history import unfounded
from spark_jobs.checks.judging import Check
from spark_jobs.checks.replication_state import Standing, measure_standings
from spark_jobs.engines.frames import DataFrame, parallel, split_for_threads
from spark_jobs.figures.curves import Curve, collect_curves
from spark_jobs.figures.loss import Loss, measure_loss
from spark_jobs.figures.measures import Measures, take_measures
from spark_jobs.figures.timeline import Slice, actors_shown, collect_slices
from spark_jobs.frames.evidence import Evidence
from spark_jobs.sources.run_folder import Damage, Namespace


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of them."""

    found: Mapping[str, Sequence[Found]]
    """By the name of the check."""
    loss: Loss
    standings: Sequence[Standing]
    unfounded: Sequence[Damage]
    """Last of the damages: where lines are known to be gone, this is only what follows from it."""
    curves: Sequence[Curve]
    measures: Measures
    slices: Sequence[Slice]


def ask(
    evidence: Evidence,
    checks: Sequence[Check],
    lines: DataFrame,
    *,
    lost: Mapping[str, float],
    left: Collection[str],
    namespaces: Mapping[str, Namespace],
    down_on_purpose: Mapping[str, Sequence[float]],
    start_ms: float,
    end_ms: float,
) -> Answers:
    """`lines`: as their program wrote them. `lost`: regions, and when. `left`: those whose cursors could be read.
    `down_on_purpose`: programs, and when steps ended them."""
    with parallel() as workers:
        parts = [workers.submit(_found, evidence, some) for some in split_for_threads(checks)]
        timed = workers.submit(_timed, evidence, down_on_purpose, start_ms, end_ms)
        loss = workers.submit(measure_loss, evidence, lost)
        standings = workers.submit(measure_standings, evidence, left, namespaces)
        doubts = workers.submit(unfounded, lines)
        curves, measures, slices = timed.result()
        return Answers(
            {name: found for part in parts for name, found in part.result().items()},
            loss.result(),
            standings.result(),
            doubts.result(),
            curves,
            measures,
            slices,
        )


def _found(evidence: Evidence, checks: Sequence[Check]) -> Mapping[str, Sequence[Found]]:
    return collect_findings(all_findings(evidence, checks))


def _timed(
    evidence: Evidence, down_on_purpose: Mapping[str, Sequence[float]], start_ms: float, end_ms: float
) -> tuple[Sequence[Curve], Measures, Sequence[Slice]]:
    curves = collect_curves(evidence, start_ms, end_ms)
    measures = take_measures(evidence, end_ms, curves, down_on_purpose)
    actors = [name for _, name in actors_shown(measures)[0]]
    return curves, measures, collect_slices(evidence, start_ms, end_ms, actors)
