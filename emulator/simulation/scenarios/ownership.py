"""What one simulated play measured of hosts: the load of the busiest one, and how long topics had no owner, after each
host that died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from emulator.run.history_events import HistoryEvent
from emulator.simulation.outcome import Figures

_ENDS = {"kill": "killed", "stop": "stopped", "pause": "paused"}
_NUMBERS = "-0123456789"

Place = tuple[str | None, str | None]
"""Region and topic."""


@dataclass(slots=True)
class _Death:
    """Of a host: since when its topics have no owner, and how long they had none."""

    words: str
    at_ms: float
    orphans: set[Place]
    waits_seconds: list[float] = field(default_factory=list)
    most: int = 0
    """Topics of the busiest host when all had an owner again."""


def ownership_figures(events: Iterable[HistoryEvent]) -> Figures:
    """By the rules of the report (`spark_jobs.figures.ownership`)."""
    owners: dict[Place, str] = {}
    deaths: list[_Death] = []
    for event in events:
        place = (event.region, event.topic)
        if event.op == "connect" and event.topic_epoch is not None:
            owners[place] = event.actor
            _take_over(deaths, place, event.at_ms, owners)
        elif event.op == "note":
            verb, _, host = (event.detail or "").partition(" ")
            orphans = {place for place, owner in owners.items() if owner == host}
            if verb in _ENDS and orphans:
                deaths.append(_Death(f"{host} {_ENDS[verb]}", event.at_ms, orphans))
                owners = {place: owner for place, owner in owners.items() if owner != host}
    return {name: value for death in deaths for name, value in _figures_of(death).items()}


def _take_over(deaths: Iterable[_Death], place: Place, at_ms: float, owners: dict[Place, str]) -> None:
    for death in deaths:
        if place in death.orphans:
            death.orphans.remove(place)
            death.waits_seconds.append((at_ms - death.at_ms) / 1000)
            if not death.orphans:
                alike = [owner for other, owner in owners.items() if _base(other) == _base(place)]
                death.most = max(Counter(alike).values())


def _base(place: Place) -> Place:
    """The topics that hosts share are numbered."""
    region, topic = place
    return region, (topic or "").rstrip(_NUMBERS)


def _figures_of(death: _Death) -> Figures:
    if death.orphans:
        return {f"{death.words}: topics without a new owner": float(len(death.orphans))}
    return {
        f"{death.words}: most topics of one host afterwards": float(death.most),
        f"{death.words}: last topic without an owner for (s)": round(max(death.waits_seconds), 4),
    }
