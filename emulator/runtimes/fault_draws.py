"""Random draws of faults: how `geoemu chaos` chooses regions, links and values for a row of the catalogue.

A draw returns a beginning and an end as steps of a scenario file, so that a plan can be written as one. A row of
`faults.FAULTS` with a `draw` takes part in random faults; nothing else names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from emulator.model.frame_faults import MARKERS, FrameAction
from emulator.model.values import CLIENTS

StepObject = Mapping[str, Any]
"""A step as in a scenario file: verb -> object."""
Claim = tuple[str, ...]
"""What a fault needs for itself: (kind, name, …), such as ("region", "us-east") or ("link", "eu", "us"). Faults with a
common claim are never active at the same time."""

ONE_REGION_PROBABILITY: Final = 0.7
"""Probability that a fault of regions affects only one of them."""
CLIENTS_PROBABILITY: Final = 0.35
"""Probability that a fault of a link is between a region and its clients."""
ONE_WAY_PROBABILITY: Final = 0.4
DRAWN_FRAMES: Final = (
    "send",
    "send_receipt",
    "send",
    "send_receipt",
    "producer_success",
    "connected",
    *MARKERS,
)
"""Names of frames between regions that random faults affect, the more often named the more often."""


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """A fault without times."""

    begin: StepObject
    end: StepObject | None
    """The step that ends the fault; None: it ends by itself."""
    claims: frozenset[Claim]


@dataclass(frozen=True, slots=True)
class Situation:
    """What a draw depends on."""

    random: Random
    regions: Sequence[str]
    regions_max: int
    """Maximum number of regions that one fault may affect."""


@dataclass(frozen=True, slots=True)
class FaultDraw:
    """How a kind of fault takes part in random faults."""

    draw: Callable[[str, str, Situation], DrawnFault]
    """(verb, verb that ends it or "", situation) -> fault."""
    mild: int
    """Weight in the profile `mild`: one fault at a time. 0: never."""
    harsh: int
    """Weight in the profile `harsh`: several at a time, several regions at once."""


def region_draw(mild: int, harsh: int, *, stops_clock: bool = False) -> FaultDraw:
    """Return the draw of a fault whose object is a region or several. `stops_clock`: meanwhile the clock of the region
    cannot be set."""

    def draw(verb: str, ended_by: str, situation: Situation) -> DrawnFault:
        random, regions = situation.random, situation.regions
        single = random.random() < ONE_REGION_PROBABILITY
        count = 1 if single else random.randint(1, min(situation.regions_max, len(regions)))
        chosen = sorted(random.sample(list(regions), count))
        claims = {("region", name) for name in chosen}
        claims |= {("clock", name) for name in chosen} if stops_clock else set()
        named = chosen[0] if count == 1 else chosen
        return DrawnFault({verb: named}, {ended_by: named} if ended_by else None, frozenset(claims))

    return FaultDraw(draw, mild, harsh)


def link_draw(
    mild: int,
    harsh: int,
    values: Callable[[Random], dict[str, Any]] | None = None,
    *,
    at_once: bool = False,
) -> FaultDraw:
    """Return the draw of a fault of the links between two regions, or between a region and its clients. `values` draws
    the other fields of the step's object. `at_once`: it ends by itself."""

    def draw(verb: str, ended_by: str, situation: Situation) -> DrawnFault:
        random = situation.random
        ends = _ends(situation)
        one_way = random.random() < ONE_WAY_PROBABILITY
        named: Any = {"from": ends[0], "to": ends[1]} if one_way else {"between": ends}
        if values is not None:
            named |= values(random)
        elif not one_way:
            named = ends
        end = None if at_once else {ended_by: ends}
        return DrawnFault({verb: named}, end, frozenset({("link", *sorted(ends))}))

    return FaultDraw(draw, mild, harsh)


def frame_draw(mild: int, harsh: int) -> FaultDraw:
    """Return the draw of a fault of single frames between two regions. Of one region alone its clients lose a PING:
    real clients do not recover from other lost frames as long as their connection is open."""

    def draw(verb: str, ended_by: str, situation: Situation) -> DrawnFault:
        random = situation.random
        alone = len(situation.regions) == 1
        ends = [CLIENTS, situation.regions[0]] if alone else random.sample(list(situation.regions), 2)
        what = "ping" if alone else random.choice(DRAWN_FRAMES)
        begun = {
            "link": "->".join(ends),
            "what": what,
            "count": random.randint(1, 3),
            "nth": random.randint(1, 5),
        }
        if verb == FrameAction.DELAY:
            begun["by"] = f"{random.randint(50, 3000)}ms"
        return DrawnFault({verb: begun}, {ended_by: ends}, frozenset({("link", *sorted(ends))}))

    return FaultDraw(draw, mild, harsh)


def object_draw(
    mild: int,
    harsh: int,
    begin: Callable[[Random], dict[str, Any]],
    end: Mapping[str, Any] | None,
    claim: str,
) -> FaultDraw:
    """Return the draw of a fault of one region whose object has `region` and other fields: those of `begin`, and at the
    end those of `end` (None: it ends by itself, or the verb that ends it takes the region alone). `claim`: the kind of
    claim on the region."""

    def draw(verb: str, ended_by: str, situation: Situation) -> DrawnFault:
        region = situation.random.choice(situation.regions)
        started = {verb: {"region": region, **begin(situation.random)}}
        ended: StepObject | None = {ended_by: region} if ended_by else None
        if end is not None:
            ended = {verb: {"region": region, **end}}
        return DrawnFault(started, ended, frozenset({(claim, region)}))

    return FaultDraw(draw, mild, harsh)


def _ends(situation: Situation) -> list[str]:
    random, regions = situation.random, list(situation.regions)
    if len(regions) == 1 or random.random() < CLIENTS_PROBABILITY:
        ends = [CLIENTS, random.choice(regions)]
        random.shuffle(ends)
        return ends
    return random.sample(regions, 2)


def random_latency(random: Random) -> dict[str, Any]:
    jitter = {"jitter": f"{random.randint(1, 200)}ms"} if random.random() < 0.5 else {}
    return {"is": f"{random.randint(50, 1000)}ms", **jitter}


def random_bandwidth(random: Random) -> dict[str, Any]:
    return {"is": f"{random.randint(20, 2000)}KB/s"}


def random_stall(random: Random) -> dict[str, Any]:
    return {"every": f"{random.randint(1000, 4000)}ms", "for": f"{random.randint(50, 900)}ms"}


def random_flap(random: Random) -> dict[str, Any]:
    return {"period": f"{random.randint(1000, 5000)}ms", "up": f"{random.randint(20, 80)}%"}


def random_disk(random: Random) -> dict[str, Any]:
    state = random.choice(("slow", "full", "failing"))
    return {"is": state, "by": f"{random.randint(10, 1000)}ms"} if state == "slow" else {"is": state}


def random_offset(random: Random) -> dict[str, Any]:
    drift = {"drift": f"{random.randint(-500, 500)}ppm"} if random.random() < 0.3 else {}
    return {**drift, "by": f"{random.choice('+-')}{random.randint(10, 5000)}ms"}
