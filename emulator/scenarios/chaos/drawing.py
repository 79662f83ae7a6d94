"""Draw single random faults: a beginning and an end, as steps of a scenario file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from emulator.config.topology import Topology

StepObject = Mapping[str, Any]
"""A step as in a scenario file: verb -> object."""
Claim = tuple[str, ...]
"""What a fault needs for itself: (kind, name, …), such as ("region", "us-east") or ("link", "eu", "us")."""


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """A fault without times."""

    begin: StepObject
    end: StepObject | None
    """The step that ends the fault; None: it ends by itself."""
    claims: frozenset[Claim]


@dataclass(frozen=True, slots=True)
class _Kind:
    draw: Callable[[Random, Topology, int], DrawnFault]
    """(random source, topology, maximum number of regions) -> fault."""
    mild: int
    """Weight in the profile `mild`; 0: never."""
    harsh: int
    between_regions: bool = False
    """Whether the fault needs a second region."""


def draw_fault(random: Random, topology: Topology, profile: str, regions_max: int) -> DrawnFault:
    """Draw a fault that the profile and the topology allow."""
    kinds = [one for one in KINDS if len(topology.regions) > 1 or not one.between_regions]
    weights = [one.mild if profile == "mild" else one.harsh for one in kinds]
    kind = random.choices(kinds, weights)[0]
    return kind.draw(random, topology, regions_max)


def _on_regions(verb: str, undo: str | None) -> Callable[[Random, Topology, int], DrawnFault]:
    def draw(random: Random, topology: Topology, regions_max: int) -> DrawnFault:
        names = list(topology.region_names)
        count = 1 if random.random() < 0.7 else random.randint(1, min(regions_max, len(names)))
        chosen = sorted(random.sample(names, count))
        claims: set[Claim] = {("region", name) for name in chosen}
        if verb == "pause":  # a paused region accepts no new offset
            claims |= {("clock", name) for name in chosen}
        named = chosen[0] if count == 1 else chosen
        return DrawnFault({verb: named}, None if undo is None else {undo: named}, frozenset(claims))

    return draw


def _on_link(verb: str) -> Callable[[Random, Topology, int], DrawnFault]:
    def draw(random: Random, topology: Topology, regions_max: int) -> DrawnFault:
        ends = _ends(random, topology)
        one_way = random.random() < 0.4
        named = {"from": ends[0], "to": ends[1]} if one_way else list(ends)
        return _link_fault({verb: named}, ends)

    return draw


def _latency(random: Random, topology: Topology, regions_max: int) -> DrawnFault:
    ends = _ends(random, topology)
    latency = {"between": list(ends), "is": f"{random.randint(50, 1000)}ms"}
    if random.random() < 0.5:
        latency["jitter"] = f"{random.randint(1, 200)}ms"
    return _link_fault({"latency": latency}, ends)


def _ends(random: Random, topology: Topology) -> tuple[str, str]:
    one, other = random.sample(list(topology.region_names), 2)
    return one, other


def _link_fault(begin: StepObject, ends: tuple[str, str]) -> DrawnFault:
    return DrawnFault(begin, {"heal": list(ends)}, frozenset({("link", *sorted(ends))}))


def _skew(random: Random, topology: Topology, regions_max: int) -> DrawnFault:
    region = random.choice(topology.region_names)
    sign = random.choice("+-")
    begin = {"skew": {"region": region, "by": f"{sign}{random.randint(10, 5000)}ms"}}
    return DrawnFault(begin, {"skew": {"region": region, "by": "0ms"}}, frozenset({("clock", region)}))


KINDS: Final = (
    _Kind(_on_regions("kill", "start"), 3, 4),
    _Kind(_on_regions("stop", "start"), 1, 1),
    _Kind(_on_regions("pause", "resume"), 2, 3),
    _Kind(_on_regions("restart", None), 1, 1),
    _Kind(_on_link("cut"), 3, 3, between_regions=True),
    _Kind(_on_link("hold"), 2, 2, between_regions=True),
    _Kind(_latency, 2, 2, between_regions=True),
    _Kind(_skew, 0, 2),
)
