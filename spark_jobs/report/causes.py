"""Possible causes of a violated guarantee: the faults near a check's witnesses.

A fault is listed with a check when it affected a region or link that the check's witnesses name, between the first of
their times and 5 s after the last: a region that fails loses messages that it acknowledged before and had not
replicated yet. That is no proof, but the first thing to check. The texts are in `wording`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.verdict import CheckResult
from spark_jobs.wording import duration_text, hint

AFTERWARDS_SECONDS = 5.0
CAUSES_MAX = 3
_PARTICIPLES = {
    "kill": "killed",
    "lose": "lost",
    "power_loss": "without power",
    "disk": "given a disk that is {}",
    "skew": "given a wrong wall clock ({})",
    "stop": "stopped",
    "restart": "restarted",
    "pause": "paused",
    "cut": "cut",
    "hold": "held",
    "latency": "given a latency of {}",
    "bandwidth": "limited to {}",
    "stall": "stalled for {}",
    "flap": "flapping ({})",
    "profile": "given the profile {}",
    "reset": "reset",
    "half_open": "made half-open",
    "drop": "made to lose {}",
    "delay": "made to delay {}",
    "duplicate": "made to repeat {}",
    "reorder": "made to swap {}",
}
_REGION_FIELDS = ("region", "other_region", "origin_region")
_REGION_FIELDS_OF: Mapping[str, Sequence[str]] = {"without a result": ("region", "other_region")}
"""Kind of witness -> fields with its regions, if not all: the origin region of a message does not affect its result."""
_AT_ANY_TIME_LATER = frozenset({"skipped", "not reached"})
"""Kinds of witness with the time of a receipt: a consumer may miss the message at any time after it."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The regions and the period that the witnesses of a check name."""

    regions: frozenset[str]
    from_s: float
    to_s: float
    of_subscription: bool = False
    """Whether a witness names a subscription, so that a fault of a program is a possible cause."""


def causes(check: CheckResult, timeline: Timeline) -> list[str]:
    """Return sentences on the up to CAUSES_MAX faults nearest to the witnesses of a check, or one that there was no
    fault; nothing if the witnesses name no region."""
    scope = _scope_of(check.witness, timeline)
    if scope is None:
        return []
    near = [
        fault for fault in (*timeline.down, *timeline.machines, *timeline.links) if _is_near(fault, scope)
    ]
    if scope.of_subscription:
        near += [fault for fault in timeline.programs if _is_near(fault, scope)]
    # An outage of a cluster's store affects all regions of the cluster.
    of_clusters = frozenset(
        lane.cluster for lane in timeline.lanes if lane.cluster and lane.region in scope.regions
    )
    near += [one for one in timeline.stores if _is_near(one, dataclasses.replace(scope, regions=of_clusters))]
    if not near:
        return [_no_fault(scope, timeline)]
    near.sort(key=lambda fault: (fault.from_s > scope.to_s, abs(fault.from_s - scope.from_s)))
    return [sentence_of(fault) for fault in near[:CAUSES_MAX]]


def _no_fault(scope: _Scope, timeline: Timeline) -> str:
    names = sorted(scope.regions)
    links = "a link between them" if len(names) > 1 else "one of its links"
    upto = min(scope.to_s + AFTERWARDS_SECONDS, max(timeline.seconds, scope.to_s))
    where = f"{' and '.join(names)} or of {links}"
    return hint("no-fault", where=where, since=f"{scope.from_s:.3f}", upto=f"{upto:.3f}")


def sentence_of(fault: Interval) -> str:
    """Return the sentence on a fault: `us-east was killed at 4.000 s, for 5.000 s.`"""
    until = f", for {duration_text(fault.seconds)}" if fault.ended else ", until the end"
    fields: dict[str, object] = {"region": fault.region, "at": f"{fault.from_s:.3f}", "until": until}
    if fault.what == "away":
        return hint("store-away", **fields)
    done = _PARTICIPLES[fault.what].format(fault.detail)
    if fault.actor is not None:
        return hint("program-down", program=fault.actor, done=done, **fields)
    if fault.other_region is None:
        return hint("region-down", done=done, **fields)
    arrow = "→" if fault.one_way else "↔"
    return hint("link-fault", other_region=fault.other_region, arrow=arrow, done=done, **fields)


def _scope_of(witnesses: Sequence[Mapping[str, Any]], timeline: Timeline) -> _Scope | None:
    regions = {
        str(witness[name])
        for witness in witnesses
        for name in _REGION_FIELDS_OF.get(witness.get("kind", ""), _REGION_FIELDS)
        if witness.get(name)
    }
    if not regions:
        return None
    times = [(at_ms - timeline.start_ms) / 1000 for at_ms in _times(witnesses)] or [0.0, timeline.seconds]
    if any(witness.get("kind") in _AT_ANY_TIME_LATER for witness in witnesses):
        times.append(timeline.seconds)
    of_subscription = any(witness.get("subscription") for witness in witnesses)
    return _Scope(frozenset(regions), min(times), max(times), of_subscription)


def _times(witnesses: Iterable[Mapping[str, Any]]) -> list[float]:
    names = ("asked_ms", "at_ms", "until_ms")
    return [witness[name] for witness in witnesses for name in names if witness.get(name) is not None]


def _is_near(fault: Interval, scope: _Scope) -> bool:
    ends = {fault.region, *filter(None, [fault.other_region])}
    # If witnesses name several regions, both ends of a link must be among them; else one end is enough.
    about = ends <= scope.regions if len(scope.regions) > 1 else bool(ends & scope.regions)
    return about and fault.from_s <= scope.to_s + AFTERWARDS_SECONDS and fault.to_s >= scope.from_s
