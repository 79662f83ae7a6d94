"""Draw single random faults from the catalogue (`runtimes/fault_table.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from emulator.config.topology import Topology
from emulator.runtimes.fault_draws import DrawnFault, FaultDraw, Situation
from emulator.runtimes.fault_table import FAULTS

DRAWS: Final[Mapping[str, tuple[str, FaultDraw]]] = {
    verb: (row.ended_by, row.draw) for verb, row in FAULTS.items() if row.draw is not None
}
"""Verb -> (verb that ends it, draw)."""


def draw_fault(random: Random, topology: Topology, profile: str, regions_max: int) -> DrawnFault:
    """Draw a fault that the profile and the topology allow."""
    weights = [draw.mild if profile == "mild" else draw.harsh for _, draw in DRAWS.values()]
    verb = random.choices(list(DRAWS), weights)[0]
    ended_by, draw = DRAWS[verb]
    return draw.draw(verb, ended_by, Situation(random, topology.region_names, regions_max))
