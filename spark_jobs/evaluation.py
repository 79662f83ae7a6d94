"""From a run directory to a verdict: reads the evidence, runs all checks, gathers what the report shows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.run.limits import Limit
from spark_jobs.checks import CHECKS
from spark_jobs.checks import service_contract as answered
from spark_jobs.checks.finding import Found
from spark_jobs.checks.metadata_converged import metadata_converged
from spark_jobs.checks.replication_state import standing_result
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import BoundThreads, DataFrame, F, cached, small_frame, use_engine
from spark_jobs.figures.curves import Curve, shown
from spark_jobs.figures.journeys import Journey, collect_journeys, follow_messages
from spark_jobs.figures.limits import LimitResult, hold_limits
from spark_jobs.figures.loss import loss_result, regions_lost
from spark_jobs.figures.ownership import Contest, measure_ownership
from spark_jobs.figures.summary import (
    DAMAGES_SHOWN_MAX,
    History,
    Stored,
    circumstances_of,
    count_stored,
    outages,
    survey,
)
from spark_jobs.figures.timeline import Timeline, make_timeline
from spark_jobs.frames import history
from spark_jobs.frames.evidence import OUTAGE_SCHEMA, Ownership, Promises, gather
from spark_jobs.frames.faults import down_on_purpose
from spark_jobs.frames.messages import stored_messages
from spark_jobs.frames.sessions import renumbered
from spark_jobs.questions import Answers, ask
from spark_jobs.report.headline import EVIDENCE, SCENARIO_FAILED, headline
from spark_jobs.report.story import Story, read_story
from spark_jobs.sources import region_log as source
from spark_jobs.sources.grants import read_ownership
from spark_jobs.sources.promises import read_promises
from spark_jobs.sources.run_folder import Damage, RunFolder, forgotten_regions, open_run_folder
from spark_jobs.sources.store_outages import store_absences
from spark_jobs.sources.transaction_keys import read_keys
from spark_jobs.verdict import INFORMATION, CheckResult, Verdict, Witness, overall

TOPICS_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """Everything that report.json and report.html say."""

    run: str
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    figures: Mapping[str, Any]
    timeline: Timeline
    limits: tuple[LimitResult, ...] = ()
    """What was expected of the run, and whether it came true. The verdict does not depend on it."""
    story: Story = field(default_factory=Story)
    """What was played."""
    journeys: tuple[Journey, ...] = ()
    """Of the messages that witnesses name."""
    followed: tuple[Journey, ...] = ()
    """Of the messages that somebody asked about."""
    curves: tuple[Curve, ...] = ()
    """How late messages came: of each kind those that were latest."""
    ownership: tuple[Contest, ...] = ()
    """Who owned how many topics before and after a host died."""

    @property
    def headline(self) -> str:
        return headline(self.verdict, self.checks, self.figures, self.limits)

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "headline": self.headline,
            "run": self.run,
            **self.story.as_json(),
            "checks": [check.as_json() for check in self.checks],
            "journeys": [journey.as_json() for journey in self.journeys],
            "followed": [journey.as_json() for journey in self.followed],
            "curves": [curve.as_json() for curve in self.curves],
            "ownership": [contest.as_json() for contest in self.ownership],
            "limits": [limit.as_json() for limit in self.limits],
            "figures": dict(self.figures),
            "timeline": self.timeline.as_json(),
        }


def judge_run(
    engine: QueryEngine,
    run: Path,
    *,
    in_network: bool = False,
    limits: Sequence[Limit] = (),
    follow: Sequence[tuple[str, int]] = (),
) -> Judgement:
    """Read everything, check everything. Whatever the state of the folder, there is a judgement. `in_network`: see
    `open_run_folder`. `follow`: producers and numbers of messages whose journeys are wanted."""
    folder = open_run_folder(run, in_network=in_network)
    engine.tune(folder.size_bytes)
    with use_engine(engine):
        return _judge(folder, limits, follow)


def _judge(folder: RunFolder, limits: Sequence[Limit], follow: Sequence[tuple[str, int]]) -> Judgement:
    lines, torn = history.read_history(folder)
    lines = cached(lines)
    # At once: the logs wait for Python workers to start, the history does not.
    with BoundThreads(1) as aside:
        logs = aside.submit(_read_logs, folder)
        told = survey(lines)
        rows, stored = logs.result()
    read_at_ms = time.time() * 1000
    trimmed, trim_damages = source.read_trimmed(folder, told.topics)
    log_topics = {topic for log in stored.values() for topic in log.topics}
    promises, ownership, value_damages = _read_values(folder, rows, told)
    transactional = bool(told.in_transactions or any(log.in_transactions for log in stored.values()))
    journals, journal_damages = source.read_coordinators(folder) if transactional else ([], [])
    keys, key_damages = read_keys(journals, told=told.with_keys > 0)
    messages = stored_messages(rows, log_topics, told.topics, transactional=transactional)
    good_lines = history.events_of(lines)
    events, remarks = renumbered(good_lines, messages)
    evidence = gather(
        messages,
        events,
        trimmed,
        small_frame(outages(told.facts), OUTAGE_SCHEMA),
        promises,
        ownership,
        keys,
        folder.namespaces,
        told.end_ms,
        transactional=transactional,
    )
    judged = [*CHECKS, *([answered.check_of(folder.answers)] if folder.answers else [])]
    lost = regions_lost(told.facts)
    unread = {damage.region for damage in (*folder.damages, *value_damages)}
    answers = ask(
        evidence,
        judged,
        good_lines,
        lost=lost,
        left={log.region for log in folder.logs if log.backend != "memory"} - unread - set(lost),
        namespaces=folder.namespaces,
        down_on_purpose=down_on_purpose(told.facts),
        start_ms=told.start_ms,
        end_ms=told.end_ms,
    )
    found, loss, standings, measures = answers.found, answers.loss, answers.standings, answers.measures
    others = [*torn, *trim_damages, *value_damages, *journal_damages, *key_damages]
    damages = [*_all_damages(folder, stored, told, others), *answers.unfounded]
    circumstances = circumstances_of(folder, told, damages, read_at_ms)
    checks = (
        _wholeness(damages, told, loss.lost, [*remarks, *_policy_remarks(folder)]),
        *(check.conclude(found.get(check.name, []), circumstances) for check in judged),
        *filter(
            None,
            [
                metadata_converged(folder, circumstances, told.end_ms),
                loss_result(loss),
                standing_result(standings, loss.lost, folder.namespaces),
            ],
        ),
    )
    figures = {
        **_figures(folder, stored, found, told),
        "loss": loss.as_json() if loss.lost else None,
        "measures": measures.as_json(),
        "standings": [standing.as_json() for standing in standings],
    }
    return Judgement(
        run=str(folder.path),
        verdict=overall(checks),
        checks=checks,
        figures=figures,
        timeline=_timeline(folder, told, checks, answers),
        limits=hold_limits(limits, figures),
        story=read_story(folder, told.facts, told.start_ms),
        curves=shown(answers.curves),
        ownership=measure_ownership(evidence, told.facts),
        followed=follow_messages(evidence, follow),
        journeys=collect_journeys(evidence, [witness for check in checks for witness in check.witness]),
    )


def _read_logs(folder: RunFolder) -> tuple[DataFrame, dict[str, Stored]]:
    rows = cached(source.read_region_logs(folder))
    return rows, count_stored(rows)


def _read_values(
    folder: RunFolder, rows: DataFrame, told: History
) -> tuple[Promises, Ownership, list[Damage]]:
    """What regions keep beside their logs."""
    markers = rows.where(F.col("marker").isNotNull()).select(
        "region", "topic", "origin_region", "ledger_id", "entry_id", "marker"
    )
    newest = rows.where(F.col("damage").isNull()).groupBy("region", "topic")
    ends = {
        (row["region"], row["topic"]): (row["ledger_id"], row["entry_id"])
        for row in newest.agg(
            F.max("ledger_id").alias("ledger_id"), F.max("entry_id").alias("entry_id")
        ).collect()
    }
    for place, end in source.read_ends(folder).items():
        if place in ends:
            ends[place] = (ends[place][0], max(ends[place][1], end))
    values, damages = source.read_values(folder)
    markers_said = [row.asDict() for row in markers.collect()]
    found, unread = read_promises(markers_said, values, ends, told.topics)
    ownership, gone = read_ownership(values, told.epochs, told.topics)
    return found, ownership, [*damages, *unread, *gone]


def _all_damages(
    folder: RunFolder, stored: Mapping[str, Stored], told: History, others: Iterable[Damage]
) -> list[Damage]:
    damages = [*folder.damages, *others]
    damages += [Damage(text, region) for region, log in sorted(stored.items()) for text in log.damages]
    damages += [Damage(text) for text in told.damages]
    for region, log in sorted(stored.items()):
        named_already = {*folder.regions, *(damage.region or "" for damage in damages)}
        damages += forgotten_regions(f"the log of {region}", log.origins, named_already)
    # The same file may have been tripped over twice.
    return list(dict.fromkeys(damages))


def _wholeness(
    all_damages: Sequence[Damage], told: History, lost: Collection[str], remarks: Sequence[str]
) -> CheckResult:
    """A lost region owes no log: without one it is merely not known what bringing it back would give."""
    damages = [damage for damage in all_damages if damage.region not in lost]
    failures = [fact for fact in told.facts if fact["op"] == "step" and fact["error"]]
    sentences = []
    if damages:
        shown = "; ".join(damage.sentence for damage in damages[:DAMAGES_SHOWN_MAX])
        more = len(damages) - DAMAGES_SHOWN_MAX
        sentences.append(f"Evidence is missing: {shown}{f'; and {more} more' if more > 0 else ''}.")
    if failures:
        sentences.append(f"{SCENARIO_FAILED}{failures[0]['error']}.")
    if not sentences:
        unread = sorted({damage.region or "" for damage in all_damages})
        but = f" but for the log of {' and '.join(unread)}, which was lost" if unread else ""
        sentence = f"All logs and all lines of the history are readable, and every file has its end{but}."
        return _whole("valid", " ".join([sentence, *remarks]))
    witness = tuple({"damage": damage.sentence} for damage in damages[:DAMAGES_SHOWN_MAX])
    return _whole("unknown", " ".join(sentences), witness)


def _policy_remarks(folder: RunFolder) -> list[str]:
    """What was judged by policies that are not those of the topology."""
    changed = [name for name, one in folder.namespaces.items() if one.owed_since_ms]
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


def _whole(verdict: Verdict, sentence: str, witness: tuple[Witness, ...] = ()) -> CheckResult:
    return CheckResult(EVIDENCE, "the evidence is complete", INFORMATION, verdict, sentence, witness)


def _figures(
    folder: RunFolder,
    stored: Mapping[str, Stored],
    found: Mapping[str, Sequence[Found]],
    told: History,
) -> dict[str, Any]:
    kinds = ("asked", "acknowledged", "failed", "unknown", "unknown_stored")
    outcomes = sorted(found.get("publish-outcomes", []), key=lambda one: kinds.index(one.kind))
    reread = found.get("redelivered", [])
    by_region: dict[str, dict[str, int]] = {}
    for one in outcomes:
        by_region.setdefault(one.origin_region or "?", {})[one.kind] = one.n
    gaps = [
        (example["until_ms"] - example["at_ms"]) / 1000
        for one in found.get("failover-gap", [])
        if one.kind == "gap"
        for example in one.examples
    ]
    deliveries, received = _sum(reread, "deliveries"), _sum(reread, "received")
    return {
        "duration_seconds": round((told.end_ms - told.start_ms) / 1000, 3),
        "published": {kind: _sum(outcomes, kind) for kind in kinds},
        "published_by_region": by_region,
        "received": {
            "messages": received,
            "deliveries": deliveries,
            "again": _sum(reread, "redelivered"),
        },
        "failover_gap_seconds": round(max(gaps), 3) if gaps else None,
        "gaps": _gaps_by_subscription(found),
        "stored": {region: stored[region].messages for region in folder.regions if region in stored},
        "markers": {region: stored[region].markers for region in folder.regions if region in stored},
    }


def _gaps_by_subscription(found: Mapping[str, Sequence[Found]]) -> dict[str, float | None]:
    """Its longest fail-over, in seconds; None where it never came back."""
    gaps: dict[str, float | None] = {}
    for one in found.get("failover-gap", []):
        name = one.subscription or "?"
        if one.kind == "never resumed":
            gaps[name] = None
            continue
        for example in one.examples:
            longest = gaps.get(name, 0.0)
            seconds = round((example["until_ms"] - example["at_ms"]) / 1000, 3)
            gaps[name] = None if longest is None else max(longest, seconds)
    return gaps


def _sum(found: Iterable[Found], kind: str) -> int:
    return sum(one.n for one in found if one.kind == kind)


def _timeline(folder: RunFolder, told: History, checks: Iterable[CheckResult], answers: Answers) -> Timeline:
    gaps = [
        witness
        for check in checks
        if check.name == "failover-gap"
        for witness in check.witness
        if witness["kind"] == "gap"
    ]
    named = {fact["region"] for fact in told.facts if fact["region"]}
    regions = [*folder.regions, *sorted(named - set(folder.regions))]
    return make_timeline(
        regions,
        folder.clusters,
        told.start_ms,
        told.end_ms,
        answers.slices,
        told.facts,
        gaps,
        answers.measures,
        store_absences(folder.path, folder.clusters, told.start_ms, (told.end_ms - told.start_ms) / 1000),
    )
