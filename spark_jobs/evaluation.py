"""The verdict on a run: all checks and figures of its evidence, and their results for the report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.run.limits import REPLICATION_LAG, Limit
from spark_jobs.checks import CHECKS, all_findings, collect_findings
from spark_jobs.checks.check import Check, circumstances_of
from spark_jobs.checks.finding import FindingGroup
from spark_jobs.checks.inconsistent_history import find_inconsistencies
from spark_jobs.checks.metadata_converged import metadata_converged
from spark_jobs.checks.plans_kept import plan_figures, plans_kept
from spark_jobs.checks.replication_state import (
    SubscriptionState,
    measure_replication_state,
    replication_state_result,
)
from spark_jobs.checks.service_contract import check_of
from spark_jobs.engines.frames import parallel, split_for_threads
from spark_jobs.figures.cursors import CursorCurve, collect_cursors
from spark_jobs.figures.curves import Curve, collect_curves, shown
from spark_jobs.figures.headline import EVIDENCE, SCENARIO_FAILED, headline
from spark_jobs.figures.journeys import Journey, collect_journeys, follow_messages
from spark_jobs.figures.limits import LimitResult, check_limits
from spark_jobs.figures.links import LinkSummary, summarise_links
from spark_jobs.figures.loss import Loss, loss_result, measure_loss
from spark_jobs.figures.markers import MarkerCount, count_markers
from spark_jobs.figures.measures import Measures, take_measures
from spark_jobs.figures.ownership import Contest, measure_ownership
from spark_jobs.figures.replication_lag import LinkLag, measure_replication_lag, own_markers
from spark_jobs.figures.scenario_run import ScenarioRun, read_scenario_run
from spark_jobs.figures.timeline import Timeline, TimelineCount, actors_shown, collect_counts, make_timeline
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.faults import down_on_purpose, regions_lost, store_outages
from spark_jobs.frames.metadata import MetadataComparison, compare_metadata
from spark_jobs.frames.plans import PlanComparison, compare_plans
from spark_jobs.frames.summary import DAMAGES_SHOWN_MAX, HistorySummary, down_at_the_end
from spark_jobs.loading import LoadedRun, NormalisedRun
from spark_jobs.sources.plans import recorded_plans
from spark_jobs.sources.run_folder import EvidenceDamage, RunFolder, forgotten_regions
from spark_jobs.verdict import INFORMATION, CheckResult, Verdict, Witness, overall

TOPICS_SHOWN_MAX = 3
Findings = Mapping[str, Sequence[FindingGroup]]
"""Findings by the name of their check."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The content of report.json and report.html."""

    run: str
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    figures: Mapping[str, Any]
    timeline: Timeline
    limits: tuple[LimitResult, ...] = ()
    """Limits of the run, each with its result. The verdict does not depend on them."""
    scenario: ScenarioRun = field(default_factory=ScenarioRun)
    journeys: tuple[Journey, ...] = ()
    """Journeys of the messages that witnesses name."""
    followed: tuple[Journey, ...] = ()
    """Journeys of the messages that the caller named."""
    curves: tuple[Curve, ...] = ()
    """Latency and lag over time: the curves with the highest p99 of each kind."""
    ownership: tuple[Contest, ...] = ()
    """Number of topics of each host before and after faults of hosts."""
    links: tuple[LinkSummary, ...] = ()
    markers: tuple[MarkerCount, ...] = ()
    """Markers of replicated subscriptions over time."""
    cursors: tuple[CursorCurve, ...] = ()
    """Positions of replicated subscriptions over time."""

    @property
    def headline(self) -> str:
        return headline(self.verdict, self.checks, self.figures, self.limits)

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "headline": self.headline,
            "run": self.run,
            **self.scenario.as_json(),
            "checks": [check.as_json() for check in self.checks],
            "journeys": [journey.as_json() for journey in self.journeys],
            "followed": [journey.as_json() for journey in self.followed],
            "curves": [curve.as_json() for curve in self.curves],
            "ownership": [contest.as_json() for contest in self.ownership],
            "links": [link.as_json() for link in self.links],
            "markers": [marker.as_json() for marker in self.markers],
            "cursors": [curve.as_json() for curve in self.cursors],
            "limits": [limit.as_json() for limit in self.limits],
            "figures": dict(self.figures),
            "timeline": self.timeline.as_json(),
        }


@dataclass(frozen=True, slots=True)
class QueryResults:
    """Results of the engine's queries on the evidence."""

    findings: Findings
    loss: Loss
    subscriptions: Sequence[SubscriptionState]
    plans: Sequence[PlanComparison]
    metadata: MetadataComparison | None
    """None: there are no clusters that share metadata."""
    inconsistencies: Sequence[EvidenceDamage]
    """Contradictions in the history, reported after all other damages: missing lines cause contradictions."""
    lags: Sequence[LinkLag]
    """Computed only for a limit."""
    curves: Sequence[Curve]
    measures: Measures
    counts: Sequence[TimelineCount]
    markers: tuple[MarkerCount, ...]
    cursors: tuple[CursorCurve, ...]


def evaluate(
    run: LoadedRun,
    normalised: NormalisedRun,
    *,
    limits: Sequence[Limit] = (),
    follow: Sequence[tuple[str, int]] = (),
) -> Evaluation:
    """Run all checks and compute all figures. `follow`: producer and sequence id of each message whose journey is
    reported."""
    folder, history, evidence = run.folder, run.history, normalised.evidence
    checks = [*CHECKS, *([check_of(folder.contracts)] if folder.contracts else [])]
    queried = _query(run, normalised, checks, limits)
    damages = [*_all_damages(run, normalised.damages), *queried.inconsistencies]
    circumstances = circumstances_of(folder, history, damages, run.read_at_ms)
    lost = queried.loss.lost
    further = [
        plans_kept(queried.plans, circumstances),
        metadata_converged(queried.metadata, circumstances, history.end_ms, folder.clusters),
        loss_result(queried.loss),
        replication_state_result(queried.subscriptions, lost, folder.namespaces),
    ]
    results = (
        _completeness(damages, history, lost, [*normalised.remarks, *_policy_remarks(folder)]),
        *(
            check.conclude_on_evidence(queried.findings.get(check.name, []), circumstances)
            for check in checks
        ),
        *filter(None, further),
    )
    figures = _figures(run, queried)
    timeline = _timeline(folder, history, results, queried)
    return Evaluation(
        run=str(folder.path),
        verdict=overall(results),
        checks=results,
        figures=figures,
        timeline=timeline,
        links=summarise_links(folder.latencies_ms, timeline, queried.measures),
        markers=queried.markers,
        cursors=queried.cursors,
        limits=check_limits(limits, figures),
        scenario=read_scenario_run(folder, history.facts, history.start_ms),
        curves=shown(queried.curves),
        ownership=measure_ownership(evidence, history.facts),
        followed=follow_messages(evidence, follow),
        journeys=collect_journeys(evidence, [witness for check in results for witness in check.witness]),
    )


def _query(
    run: LoadedRun, normalised: NormalisedRun, checks: Sequence[Check], limits: Sequence[Limit]
) -> QueryResults:
    """Run all queries, in as few jobs as possible, and concurrently if the engine does. No submitted task uses the
    result of another one."""
    evidence, history, namespaces = normalised.evidence, run.history, run.folder.namespaces
    lost = regions_lost(history.facts)
    remaining = {log.region for log in run.folder.logs if log.backend != "memory"} - set(lost)
    with parallel() as workers:
        parts = [workers.submit(_findings, evidence, some) for some in split_for_threads(checks)]
        timed = workers.submit(_timed, evidence, history)
        loss = workers.submit(measure_loss, evidence, lost)
        subscriptions = workers.submit(
            measure_replication_state, evidence, remaining - normalised.unread_regions, namespaces
        )
        plans = workers.submit(compare_plans, evidence, recorded_plans(history.facts))
        metadata = workers.submit(compare_metadata, run.metadata, history.end_ms)
        inconsistencies = workers.submit(
            find_inconsistencies, normalised.lines, down_at_the_end(history.facts)
        )
        drawn = workers.submit(_replicated_subscriptions, run, evidence)
        lags = workers.submit(_replication_lags, run, evidence, limits)
        curves, measures, counts = timed.result()
        return QueryResults(
            {name: found for part in parts for name, found in part.result().items()},
            loss.result(),
            subscriptions.result(),
            plans.result(),
            metadata.result(),
            inconsistencies.result(),
            lags.result(),
            curves,
            measures,
            counts,
            *drawn.result(),
        )


def _replicated_subscriptions(
    run: LoadedRun, evidence: Evidence
) -> tuple[tuple[MarkerCount, ...], tuple[CursorCurve, ...]]:
    """Return the markers and the positions over time, of runs with any marker."""
    start_ms, end_ms = run.history.start_ms, run.history.end_ms
    stored = [(region, log.markers) for region, log in run.logs.items()]
    if not any(n for _, n in stored):
        return (), ()
    return count_markers(run.rows, stored, start_ms, end_ms), collect_cursors(evidence, start_ms, end_ms)


def _replication_lags(run: LoadedRun, evidence: Evidence, limits: Sequence[Limit]) -> Sequence[LinkLag]:
    if not any(limit.measure in REPLICATION_LAG for limit in limits):
        return ()
    history = run.history
    markers = own_markers(run.rows, evidence)
    return measure_replication_lag(evidence, markers, history.end_ms, regions_lost(history.facts))


def _findings(evidence: Evidence, checks: Sequence[Check]) -> Findings:
    return collect_findings(all_findings(evidence, checks))


def _timed(
    evidence: Evidence, history: HistorySummary
) -> tuple[Sequence[Curve], Measures, Sequence[TimelineCount]]:
    start_ms, end_ms = history.start_ms, history.end_ms
    curves = collect_curves(evidence, start_ms, end_ms)
    measures = take_measures(evidence, end_ms, curves, down_on_purpose(history.facts))
    actors = [name for _, name in actors_shown(measures)[0]]
    return curves, measures, collect_counts(evidence, start_ms, end_ms, actors)


def _all_damages(run: LoadedRun, others: Iterable[EvidenceDamage]) -> list[EvidenceDamage]:
    folder, logs = run.folder, sorted(run.logs.items())
    damages = [*folder.damages, *others]
    damages += [EvidenceDamage(text, region) for region, log in logs for text in log.damages]
    damages += [EvidenceDamage(text) for text in run.history.damages]
    for region, log in logs:
        named_already = {*folder.regions, *(damage.region or "" for damage in damages)}
        damages += forgotten_regions(f"the log of {region}", log.origins, named_already)
    # Two readers may have found the same file damaged.
    return list(dict.fromkeys(damages))


def _completeness(
    all_damages: Sequence[EvidenceDamage],
    history: HistorySummary,
    lost: Collection[str],
    remarks: Sequence[str],
) -> CheckResult:
    """Check that logs and history are complete. The log of a lost region is optional: without it, only the messages
    that a restart of the region would recover are unknown."""
    damages = [damage for damage in all_damages if damage.region not in lost]
    failures = [fact for fact in history.facts if fact["op"] == "step" and fact["error"]]
    sentences = []
    if damages:
        shown = "; ".join(damage.sentence for damage in damages[:DAMAGES_SHOWN_MAX])
        more = len(damages) - DAMAGES_SHOWN_MAX
        sentences.append(f"Evidence is missing: {shown}{f'; and {more} more' if more > 0 else ''}.")
    if failures:
        sentences.append(f"{SCENARIO_FAILED}{failures[0]['error']}.")
    if not sentences:
        unread = sorted({damage.region or "" for damage in all_damages})
        reasons = "; ".join(damage.sentence for damage in all_damages[:DAMAGES_SHOWN_MAX])
        but = f" but for the log of {' and '.join(unread)}, which was lost ({reasons})" if unread else ""
        sentence = f"All logs and all lines of the history are readable, and every file has its end{but}."
        return _complete("valid", " ".join([sentence, *remarks]))
    witness = tuple({"damage": damage.sentence} for damage in damages[:DAMAGES_SHOWN_MAX])
    return _complete("unknown", " ".join(sentences), witness)


def _complete(verdict: Verdict, sentence: str, witness: tuple[Witness, ...] = ()) -> CheckResult:
    return CheckResult(EVIDENCE, "the evidence is complete", INFORMATION, verdict, sentence, witness)


def _policy_remarks(folder: RunFolder) -> list[str]:
    """Name the namespaces and topics that were checked by policies other than those of the topology."""
    changed = [name for name, one in folder.namespaces.items() if one.replicated_since_ms]
    own = sorted(topic for one in folder.namespaces.values() for topic in one.own_topics)
    remarks = [
        f"The replication of {name} changed during the run: each message was checked by the policy at the time of its"
        " publish."
        for name in changed
    ]
    if own:
        shown = ", ".join(own[:TOPICS_SHOWN_MAX])
        more = f" and {len(own) - TOPICS_SHOWN_MAX} more" if len(own) > TOPICS_SHOWN_MAX else ""
        remarks.append(
            f"Replication clusters of their own: {shown}{more}. Each message was checked by its topic's policy at the"
            " time of its publish."
        )
    return remarks


def _figures(run: LoadedRun, queried: QueryResults) -> dict[str, Any]:
    findings, history = queried.findings, run.history
    kinds = ("asked", "acknowledged", "failed", "unknown", "unknown_stored")
    outcomes = sorted(findings.get("publish-outcomes", []), key=lambda one: kinds.index(one.kind))
    redelivered = findings.get("redelivered", [])
    by_region: dict[str, dict[str, int]] = {}
    for one in outcomes:
        by_region.setdefault(one.origin_region or "?", {})[one.kind] = one.n
    gaps = [
        (example["until_ms"] - example["at_ms"]) / 1000
        for one in findings.get("failover-gap", [])
        if one.kind == "gap"
        for example in one.examples
    ]
    logs = {region: run.logs[region] for region in run.folder.regions if region in run.logs}
    return {
        "duration_seconds": round((history.end_ms - history.start_ms) / 1000, 3),
        "published": {kind: _sum(outcomes, kind) for kind in kinds},
        "published_by_region": by_region,
        "received": {
            "messages": _sum(redelivered, "received"),
            "deliveries": _sum(redelivered, "deliveries"),
            "again": _sum(redelivered, "redelivered"),
        },
        "failover_gap_seconds": round(max(gaps), 3) if gaps else None,
        "gaps": _gaps_by_subscription(findings),
        "stored": {region: log.messages for region, log in logs.items()},
        "markers": {region: log.markers for region, log in logs.items()},
        "loss": queried.loss.as_json() if queried.loss.lost else None,
        "measures": queried.measures.as_json(),
        "standings": [one.as_json() for one in queried.subscriptions],
        "failover_plans": plan_figures(queried.plans),
        **({"replication_lag": [lag.as_json() for lag in queried.lags]} if queried.lags else {}),
    }


def _gaps_by_subscription(findings: Findings) -> dict[str, float | None]:
    """Return the longest fail-over of each subscription, in seconds; None if the subscription never resumed."""
    gaps: dict[str, float | None] = {}
    for one in findings.get("failover-gap", []):
        name = one.subscription or "?"
        if one.kind == "never resumed":
            gaps[name] = None
            continue
        for example in one.examples:
            longest = gaps.get(name, 0.0)
            seconds = round((example["until_ms"] - example["at_ms"]) / 1000, 3)
            gaps[name] = None if longest is None else max(longest, seconds)
    return gaps


def _sum(findings: Iterable[FindingGroup], kind: str) -> int:
    return sum(one.n for one in findings if one.kind == kind)


def _timeline(
    folder: RunFolder, history: HistorySummary, checks: Iterable[CheckResult], queried: QueryResults
) -> Timeline:
    gaps = [
        witness
        for check in checks
        if check.name == "failover-gap"
        for witness in check.witness
        if witness["kind"] == "gap"
    ]
    named = {fact["region"] for fact in history.facts if fact["region"]}
    regions = [*folder.regions, *sorted(named - set(folder.regions))]
    seconds = (history.end_ms - history.start_ms) / 1000
    return make_timeline(
        regions,
        folder.clusters,
        history.start_ms,
        history.end_ms,
        queried.counts,
        history.facts,
        gaps,
        queried.measures,
        store_outages(folder.path, folder.clusters, history.start_ms, seconds),
    )
