"""The links of a run: declared latency, measured lag, and the faults of each direction.

All values come from the topology, from facts of the history and from the figures of `measures`; no query is run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.figures.measures import Measures
from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval

_GRAVEST_FIRST = ("cut", "hold", "half_open")
"""Kinds of faults that stop all traffic of a link; every other kind only slows or damages it."""


@dataclass(frozen=True, slots=True)
class LinkSummary:
    """One direction of a link during a run."""

    source: str
    target: str
    latency_ms: float | None
    """Declared one-way latency, before any fault; None if the topology declares no such link."""
    lag_seconds: Mapping[str, float] | None
    """Percentile, or `max` -> replication lag at consumers; None if no consumer measured it."""
    faults: tuple[Interval, ...] = ()
    """Its faults, sorted by start."""

    @property
    def state(self) -> str:
        """The gravest fault at the end of the history, or `up`."""
        return _gravest(fault for fault in self.faults if not fault.ended)

    @property
    def worst(self) -> str:
        """The gravest fault of the run, or `up`."""
        return _gravest(self.faults)

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "state": self.state}


def summarise_links(
    declared: Mapping[tuple[str, str], float], timeline: Timeline, measures: Measures
) -> tuple[LinkSummary, ...]:
    """Return every declared link, then others with a fault or a measured lag. `declared`: latency in ms by source and
    target."""
    lags = {tuple(name.split(" > ", 1)): lag for name, lag in measures.lag_seconds.items()}
    faults: dict[tuple[str, str], list[Interval]] = {}
    for fault in timeline.links:
        there = fault.region, fault.other_region or ""
        for direction in (there,) if fault.one_way else (there, there[::-1]):
            faults.setdefault(direction, []).append(fault)
    others = {link for link in {*faults, *lags} if len(link) == 2 and all(link)} - {*declared}
    return tuple(
        LinkSummary(
            link[0],
            link[1],
            declared.get((link[0], link[1])),
            lags.get(link),
            tuple(faults.get((link[0], link[1]), ())),
        )
        for link in [*declared, *sorted(others)]
    )


def _gravest(faults: Iterable[Interval]) -> str:
    kinds = {fault.what for fault in faults}
    return next((kind for kind in _GRAVEST_FIRST if kind in kinds), min(kinds, default="up"))
