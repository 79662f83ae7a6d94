"""Possible causes of a violated guarantee: the faults near a check's witnesses.

A fault is listed with a witness when it affected a region or link that the witness names, at that time or shortly
after: messages that a region had acknowledged and not yet sent are lost a moment later. That is no proof, but the
first thing to check. The texts are in `hints`.
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
_DONE = {
    "kill": "killed",
    "lose": "lost",
    "stop": "stopped",
    "restart": "restarted",
    "pause": "paused",
    "cut": "cut",
    "hold": "held",
}
_PLACES = ("region", "other_region", "origin_region")
_PLACES_OF: Mapping[str, Sequence[str]] = {"without a result": ("region", "other_region")}
"""By kind of witness, where it happened: the origin of an order has no part in its answer."""
_AT_ANY_TIME_LATER = frozenset({"skipped", "not reached"})
"""Kinds of witness that name when a message was acknowledged: a consumer passes it at any time from then on."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the witnesses of a check name."""

    regions: frozenset[str]
    from_s: float
    to_s: float
    of_subscription: bool = False
    """Programs may have a part in it."""


def causes(check: CheckResult, timeline: Timeline) -> list[str]:
    """A sentence for each fault near the witnesses of a check, or one that there is none."""
    scene = _scene(check.witness, timeline)
    if scene is None:
        return []
    near = [fault for fault in (*timeline.down, *timeline.links) if _is_beside(fault, scene)]
    if scene.of_subscription:
        near += [fault for fault in timeline.programs if _is_beside(fault, scene)]
    # A cluster's store is about each of its regions.
    of_clusters = frozenset(
        lane.cluster for lane in timeline.lanes if lane.cluster and lane.region in scene.regions
    )
    near += [
        one for one in timeline.stores if _is_beside(one, dataclasses.replace(scene, regions=of_clusters))
    ]
    if not near:
        return [_no_fault(scene, timeline)]
    near.sort(key=lambda fault: (fault.from_s > scene.to_s, abs(fault.from_s - scene.from_s)))
    return [sentence_of(fault) for fault in near[:CAUSES_MAX]]


def _no_fault(scene: _Scene, timeline: Timeline) -> str:
    names = sorted(scene.regions)
    links = "a link between them" if len(names) > 1 else "one of its links"
    upto = min(scene.to_s + AFTERWARDS_SECONDS, max(timeline.seconds, scene.to_s))
    where = f"{' and '.join(names)} or of {links}"
    return hint("no-fault", where=where, since=f"{scene.from_s:.3f}", upto=f"{upto:.3f}")


def sentence_of(fault: Interval) -> str:
    """`us-east was killed at 4.000 s, for 5.000 s.`"""
    until = f", for {duration_text(fault.seconds)}" if fault.ended else ", until the end"
    fields: dict[str, object] = {"region": fault.region, "at": f"{fault.from_s:.3f}", "until": until}
    if fault.what == "away":
        return hint("store-away", **fields)
    done = f"given a latency of {fault.detail}" if fault.what == "latency" else _DONE[fault.what]
    if fault.actor is not None:
        return hint("program-down", program=fault.actor, done=done, **fields)
    if fault.other_region is None:
        return hint("region-down", done=done, **fields)
    arrow = "→" if fault.one_way else "↔"
    return hint("link-fault", other_region=fault.other_region, arrow=arrow, done=done, **fields)


def _scene(witnesses: Sequence[Mapping[str, Any]], timeline: Timeline) -> _Scene | None:
    regions = {
        str(witness[name])
        for witness in witnesses
        for name in _PLACES_OF.get(witness.get("kind", ""), _PLACES)
        if witness.get(name)
    }
    if not regions:
        return None
    times = [(at_ms - timeline.start_ms) / 1000 for at_ms in _times(witnesses)] or [0.0, timeline.seconds]
    if any(witness.get("kind") in _AT_ANY_TIME_LATER for witness in witnesses):
        times.append(timeline.seconds)
    of_subscription = any(witness.get("subscription") for witness in witnesses)
    return _Scene(frozenset(regions), min(times), max(times), of_subscription)


def _times(witnesses: Iterable[Mapping[str, Any]]) -> list[float]:
    names = ("asked_ms", "at_ms", "until_ms")
    return [witness[name] for witness in witnesses for name in names if witness.get(name) is not None]


def _is_beside(fault: Interval, scene: _Scene) -> bool:
    ends = {fault.region, *filter(None, [fault.other_region])}
    # A link between two regions that are named, or any of one that is named alone.
    about = ends <= scene.regions if len(scene.regions) > 1 else bool(ends & scene.regions)
    return about and fault.from_s <= scene.to_s + AFTERWARDS_SECONDS and fault.to_s >= scene.from_s
