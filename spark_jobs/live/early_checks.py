"""The checks that are evaluated while a run is running, by the queries and conclusions of the verdict.

Only findings that no later evidence can undo are used. A copy that is missing although its region stores a later
message of the same origin region is lost: replication keeps the order. A copy that is merely not there yet is lag.
A message that an update counts as acknowledged, and that no client asked to acknowledge, is skipped: clients record the
request first. What else consumers skipped, cursors, transactions, ownership and metadata are checked when the run has
ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.checks import collect_findings, converged, order, phantom_writes, replicated, snapshots_safe
from spark_jobs.checks.check import CHECKED, Check, Circumstances
from spark_jobs.checks.finding import FindingGroup, all_of, finding, group_findings
from spark_jobs.engines.frames import Column, DataFrame, F, release, small_frame
from spark_jobs.frames.evidence import OUTAGE_SCHEMA, Evidence, missing_copies
from spark_jobs.frames.messages import position_text
from spark_jobs.frames.quiescence import Quiescence
from spark_jobs.frames.stored_values import (
    PositionClaims,
    read_keys,
    read_ownership,
    read_position_claims,
)
from spark_jobs.live.window import JoinedWindow
from spark_jobs.verdict import CheckResult


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """A check and the kinds of its findings that are final while the run is running."""

    check: Check
    final: frozenset[str]


LIVE_CHECKS: Sequence[LiveCheck] = (
    LiveCheck(replicated.STORED, frozenset({"missing"})),
    LiveCheck(replicated.REPLICATED, frozenset({"missing", "duplicated", "duplicated by replication"})),
    LiveCheck(
        phantom_writes.CHECK,
        frozenset(
            {"never published", "refused", "other payload", "other attributes", "corrupt", "restricted"}
        ),
    ),
    LiveCheck(order.CHECK, frozenset({"out of order", "out of the origin's order", "wrong source"})),
    LiveCheck(converged.CHECK, frozenset({"differs"})),
    LiveCheck(snapshots_safe.CHECK, frozenset({"broken snapshot", "broken update"})),
)
MARKER_STEPS = 3
"""Number of steps in which a marker is compared: the copies of messages before it may be read later than the marker."""


class EarlyChecks:
    """Evaluates `LIVE_CHECKS`, with empty frames for evidence that they do not use."""

    def __init__(self) -> None:
        self._markers: list[DataFrame | None] = []
        """Markers of the latest steps; None: a step has none."""
        self._nothing = small_frame([], OUTAGE_SCHEMA)
        self._claims = read_position_claims(None)
        self._ownership = read_ownership(self._nothing, self._nothing, is_known=False)
        self._keys = read_keys(None, is_known=False)

    def find_violations(
        self,
        joined: JoinedWindow,
        trimmed: DataFrame,
        markers: DataFrame | None,
        topic: Column,
    ) -> Mapping[str, Sequence[FindingGroup]]:
        """Return the final findings of a step, by the name of their check. `markers`: new rows with a claim, cached;
        None: there are none. `topic`: see `topic_in_history`."""
        release(*filter(None, self._markers[: 1 - MARKER_STEPS]))
        self._markers = [*self._markers[1 - MARKER_STEPS :], markers]
        recent = [of_step for of_step in self._markers if of_step is not None]
        claims = read_position_claims(all_of(recent), topic) if recent else self._claims
        evidence = self._evidence(joined, trimmed, claims)
        findings = self._find(evidence, joined)
        if recent:
            release(claims.snapshots, claims.updates, claims.cursors, claims.positions)
        return findings

    def _find(self, evidence: Evidence, joined: JoinedWindow) -> Mapping[str, Sequence[FindingGroup]]:
        frames = [(replicated.REPLICATED.name, _stored_again(joined.again))]
        for live in LIVE_CHECKS:
            found = live.check.find(evidence) if live.check.find is not None else None
            if found is not None:
                is_final = F.col("kind").isin(*sorted(live.final))
                frames.append((live.check.name, found.where(is_final)))
        named = [frame.withColumn("check", F.lit(name)) for name, frame in frames]
        return collect_findings(group_findings(all_of(named)))

    def _evidence(self, joined: JoinedWindow, trimmed: DataFrame, claims: PositionClaims) -> Evidence:
        return Evidence(
            stored=joined.stored,
            events=self._nothing,
            messages=joined.messages,
            missing=missing_copies(joined.messages, trimmed),
            subscription_messages=joined.unacknowledged,
            strays=self._nothing,
            claims=claims,
            ownership=self._ownership,
            outages=self._nothing,
            trimmed=trimmed,
            transactional=False,
            keys=self._keys,
            uncounted=self._nothing,
            quiescence=Quiescence(self._nothing, self._nothing),
        )


def _stored_again(again: DataFrame) -> DataFrame:
    place = F.struct("ledger_id", "entry_id", "batch_index")
    namespaced = again.withColumn("namespace", F.regexp_extract("topic", r"://([^/]+/[^/]+)/", 1))
    return finding(namespaced, "duplicated", position=position_text(place), times="NULL")


def invalid_results(
    findings: Mapping[str, Sequence[FindingGroup]], checked: int, circumstances: Circumstances
) -> list[CheckResult]:
    """Return the results that are invalid. `checked`: number of messages that were checked until now."""
    counts = [FindingGroup(kind, checked) for kind in (CHECKED, "expected")]
    results = [
        live.check.conclude([*found, *counts], circumstances)
        for live in LIVE_CHECKS
        if (found := findings.get(live.check.name))
    ]
    return [result for result in results if result.verdict == "invalid"]
