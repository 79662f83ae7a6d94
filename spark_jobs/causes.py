"""What was going on when a promise was broken: the faults beside a check's witnesses.

A fault stands beside a witness when it was about a region or a link that the witness names, at the time that the
witness names or shortly after: what a region had acknowledged and not yet sent is lost a moment later. That is no
proof. It is where a person would look first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.durations import duration_text
from spark_jobs.faults import Interval
from spark_jobs.timeline import Timeline
from spark_jobs.verdict import CheckResult

AFTERWARDS_SECONDS = 5.0
CAUSES_MAX = 3
_DONE = {"kill": "killed", "lose": "lost", "stop": "stopped", "pause": "paused", "cut": "cut", "hold": "held"}


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the witnesses of a check name."""

    regions: frozenset[str]
    from_s: float
    to_s: float


def causes(check: CheckResult, timeline: Timeline) -> list[str]:
    """A sentence for each fault beside the witnesses of a check; says so where there is none."""
    scene = _scene(check.witness, timeline)
    if scene is None:
        return []
    near = [fault for fault in (*timeline.down, *timeline.links) if _is_beside(fault, scene)]
    # A cluster's store is about each of its regions.
    of_clusters = frozenset(
        lane.cluster for lane in timeline.lanes if lane.cluster and lane.region in scene.regions
    )
    near += [
        one for one in timeline.stores if _is_beside(one, dataclasses.replace(scene, regions=of_clusters))
    ]
    if not near:
        where = " and ".join(sorted(scene.regions))
        return [f"No fault of {where} or of a link between them was in force at that time."]
    near.sort(key=lambda fault: (fault.from_s > scene.to_s, abs(fault.from_s - scene.from_s)))
    return [sentence_of(fault) for fault in near[:CAUSES_MAX]]


def sentence_of(fault: Interval) -> str:
    """`us-east was killed at 4.000 s, for 5.000 s.`"""
    until = f", for {duration_text(fault.seconds)}" if fault.ended else ", until the end"
    at = f"at {fault.from_s:.3f} s{until}."
    if fault.what == "away":
        return f"The configuration store of {fault.region} was away {at}"
    if fault.other_region is None:
        return f"{fault.region} was {_DONE.get(fault.what, fault.what)} {at}"
    arrow = "→" if fault.one_way else "↔"
    done = f"given a latency of {fault.detail}" if fault.what == "latency" else _DONE[fault.what]
    return f"The link {fault.region} {arrow} {fault.other_region} was {done} {at}"


def _scene(witnesses: Sequence[Mapping[str, Any]], timeline: Timeline) -> _Scene | None:
    names = ("region", "other_region", "origin_region")
    regions = {str(witness[name]) for witness in witnesses for name in names if witness.get(name)}
    if not regions:
        return None
    times = [(at_ms - timeline.start_ms) / 1000 for at_ms in _times(witnesses)] or [0.0, timeline.seconds]
    return _Scene(frozenset(regions), min(times), max(times))


def _times(witnesses: Iterable[Mapping[str, Any]]) -> list[float]:
    names = ("asked_ms", "at_ms", "until_ms")
    return [witness[name] for witness in witnesses for name in names if witness.get(name) is not None]


def _is_beside(fault: Interval, scene: _Scene) -> bool:
    ends = {fault.region, *filter(None, [fault.other_region])}
    # A link between two regions that are named, or any of one that is named alone.
    about = ends <= scene.regions if len(scene.regions) > 1 else bool(ends & scene.regions)
    return about and fault.from_s <= scene.to_s + AFTERWARDS_SECONDS and fault.to_s >= scene.from_s
