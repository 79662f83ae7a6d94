"""Since when regions and links had no fault when a run ended: what was sent before must have arrived.

A position that a region sent is applied by another one within milliseconds while both run and the link between them is
up. After a fault replicators connect again with growing delays, so more time is required. A region that restarted may
have lost an update that it had stored and not applied; the snapshot after its return repeats the position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from emulator.run.history_events import latency_in
from emulator.run.history_schema import LINK_VERBS
from spark_jobs.engines.frames import DataFrame, schema, small_frame
from spark_jobs.frames.faults import REGION_ENDS
from spark_jobs.frames.summary import DOWN
from spark_jobs.sources.policies import NEVER_MS
from spark_jobs.sources.run_folder import Link

REST_MS = 2_000.0
"""Time within which a position is sent, replicated and applied in a run without faults, besides the latency."""
AFTER_FAULT_MS = 10_000.0
"""Time after the last fault of a region or link until replicators are connected again."""
REGION_SCHEMA = schema("region string, since_ms double, until_ms double, has_clock boolean")
"""`since_ms`: the last start of the region; NEVER_MS: it was down at the end. `until_ms`: latest time of what it must
have finished when the run ended. `has_clock`: its clock always agreed with the clock of the history."""
LINK_SCHEMA = schema("source_region string, region string, is_settled boolean")
"""`is_settled`: the link and both regions had no fault for AFTER_FAULT_MS when the run ended."""


@dataclass(frozen=True, slots=True)
class Quiescence:
    """The end of a run, as frames of literal rows."""

    regions: DataFrame
    links: DataFrame


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What is known of the end of a run."""

    facts: Sequence[Mapping[str, Any]]
    """Facts of the history, sorted by time."""
    end_ms: float
    """Time of the last line of the history."""
    last_client_ms: float = 0.0
    """Time of the last operation of a client: a later stop of a region ends the run."""
    latency_ms: float = 0.0
    """Longest one-way latency that the topology declares."""
    routes: Mapping[Link, Sequence[Link]] = field(default_factory=dict)
    """Link (from, to) -> the links over which it is routed, if it is not direct."""
    with_other_clocks: Collection[str] = ()
    """Regions whose clocks were set to another time."""

    @property
    def longest_latency_ms(self) -> float:
        elsewhere = self.latency_ms if self.routes else 0  # a route may have other hops
        set_ms = [
            latency_in(fact["detail"]) + elsewhere
            for fact in self.facts
            if fact["op"] in ("latency", "profile")
        ]
        return max([self.latency_ms, *set_ms])


def quiescence(regions: Iterable[str], end: RunEnd) -> Quiescence:
    """Return for each region and link since when it had no fault. A region that stopped after the last operation of a
    client ended with the run."""
    regions = sorted(regions)
    until_ms = dict.fromkeys(regions, end.end_ms)
    since_ms = dict.fromkeys(regions, 0.0)
    skewed = set(end.with_other_clocks)
    for fact in end.facts:
        op, region, at_ms = fact["op"], fact["region"], fact["at_ms"]
        if region not in until_ms:
            continue
        if op == "stop" and at_ms > end.last_client_ms:
            until_ms[region] = min(until_ms[region], at_ms)
        elif op in DOWN:
            since_ms[region] = NEVER_MS if DOWN[op] else at_ms
        elif op == "skew":
            skewed.add(region)
    rest_ms = REST_MS + 2 * end.longest_latency_ms
    rows = [
        (region, since_ms[region], until_ms[region] - rest_ms, region not in skewed) for region in regions
    ]
    last_ms = _last_faults(end)
    links = [
        (one, other, _last_fault(end.routes.get((one, other), [(one, other)]), last_ms) <= settled_ms)
        for one, other in permutations(regions, 2)
        for settled_ms in [min(until_ms[one], until_ms[other]) - AFTER_FAULT_MS]
    ]
    return Quiescence(small_frame(rows, REGION_SCHEMA), small_frame(links, LINK_SCHEMA))


_Place = tuple[str | None, str | None]
_EVERYWHERE: _Place = (None, None)


def _last_faults(end: RunEnd) -> dict[_Place, float]:
    """Return (region, None) or a pair of regions -> time of the last fault or repair; NEVER_MS: no `heal` ended a
    fault of the link."""
    last: dict[_Place, float] = {}
    for fact in end.facts:
        op, region, other, at_ms = fact["op"], fact["region"], fact["other_region"], fact["at_ms"]
        if op == "stop" and at_ms > end.last_client_ms:
            continue
        if op == "heal" and region is None:
            last = {place: at_ms if of_ms == NEVER_MS else of_ms for place, of_ms in last.items()}
            last[_EVERYWHERE] = at_ms
        elif op in LINK_VERBS and region is not None:
            last[min(region, other), max(region, other)] = at_ms if op in ("heal", "reset") else NEVER_MS
        elif op in REGION_ENDS or op in DOWN or op in ("disk", "skew"):
            last[region, None] = at_ms
    return last


def _last_fault(hops: Sequence[Link], last_ms: Mapping[_Place, float]) -> float:
    """Return the time of the last fault of links and of the regions at their ends; 0: there was none."""
    places: list[_Place] = [(region, None) for hop in hops for region in hop]
    places += [(min(hop), max(hop)) for hop in hops]
    return max(last_ms.get(place, 0.0) for place in (*places, _EVERYWHERE))
