"""Draw the plan of random faults that `geoemu chaos` injects: which faults, where, and when each begins and ends.

The plan is a pure function of topology, seed, profile and duration, so the same command repeats the same faults at the
same times. `drawing.py` draws single faults; this module places them in time.

Rules that every plan obeys:

* Every fault ends before the end of the plan, `recovery_seconds` early, so that the region or link has time to heal.
* Two faults with a common claim (the same region, link or clock) are never active at the same time.
* `mild`: one fault at a time, so at most one region is down or cut off. `harsh`: several at a time, and several regions
  at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from emulator.config.topology import Topology
from emulator.runtimes.fault_draws import DrawnFault
from emulator.scenarios.chaos.drawing import draw_fault

ProfileName = Literal["mild", "harsh"]
SECONDS_MIN: Final = 2.0
"""Shortest duration of a plan. A shorter one leaves no time for a fault and its repair."""
SECONDS_MAX: Final = 7 * 86_400.0
FULL_SPEED_SECONDS: Final = 20.0
"""Plans that are shorter than this have proportionally shorter faults and gaps."""
ATTEMPTS: Final = 20
"""Draws of a fault whose claims are free, before the lane waits."""
ROUNDING: Final = 2
"""Decimal places of all times in seconds."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How many faults a plan contains, and how hard they are."""

    name: ProfileName
    lanes: int
    """Maximum number of faults that are active at the same time."""
    fault_seconds: tuple[float, float]
    """Shortest and longest fault."""
    gap_seconds: tuple[float, float]
    """Shortest and longest time between two faults of a lane."""
    recovery_seconds: float
    """Time after a fault during which none of its claims is used."""
    regions_max: int
    """Maximum number of regions that one fault affects."""


PROFILES: Final[dict[str, Profile]] = {
    "mild": Profile("mild", 1, (0.5, 6.0), (0.5, 3.0), 2.0, 1),
    "harsh": Profile("harsh", 3, (0.3, 9.0), (0.2, 2.0), 1.5, 8),
}


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault with its times, in seconds since the beginning of the plan."""

    fault: DrawnFault
    begins: float
    ends: float
    """When its end begins; equal to `begins` for a fault that ends by itself."""


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """The faults of one seed, in the order of their beginnings."""

    seed: int
    profile: ProfileName
    seconds: float
    faults: tuple[PlannedFault, ...]

    def events(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield all beginnings and ends as (seconds, step of a scenario file), in the order of their times."""
        found = [(one.begins, 1, one.fault.begin) for one in self.faults]
        found += [(one.ends, 0, one.fault.end) for one in self.faults if one.fault.end is not None]
        for at, _, step in sorted(found, key=lambda event: event[:2]):
            yield at, dict(step)


def plan_chaos(
    topology: Topology, seed: int, profile: ProfileName, seconds: float, *, lose: bool = False
) -> ChaosPlan:
    """Return the plan of a seed. `seconds` is between SECONDS_MIN and SECONDS_MAX. With `lose`, one region is lost for
    good before the end; otherwise every fault ends."""
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ValueError(f"the duration must be between {SECONDS_MIN:g} and {SECONDS_MAX:g} seconds")
    drawing = _Drawing(topology, PROFILES[profile], min(1.0, seconds / FULL_SPEED_SECONDS), seconds)
    for lane in range(PROFILES[profile].lanes):
        drawing.fill_lane(Random(f"{seed}/{profile}/{lane}"))
    faults = drawing.faults
    if lose:
        faults = _with_a_loss(topology, Random(f"{seed}/{profile}/lose"), seconds, faults)
    return ChaosPlan(seed, profile, seconds, tuple(sorted(faults, key=lambda one: (one.begins, one.ends))))


class _Drawing:
    """The faults that were drawn so far."""

    def __init__(self, topology: Topology, profile: Profile, scale: float, seconds: float) -> None:
        self._topology = topology
        self._profile = profile
        self._scale = scale
        self._recovery = profile.recovery_seconds * scale
        self._last_end = seconds - self._recovery
        self.faults: list[PlannedFault] = []

    def fill_lane(self, random: Random) -> None:
        """Draw faults one after the other, until the next one would end too late."""
        at = self._duration(random, self._profile.gap_seconds)
        while True:
            length = self._duration(random, self._profile.fault_seconds)
            if at + length > self._last_end:
                return
            planned = self._free_fault(random, at, at + length)
            if planned is not None:
                self.faults.append(planned)
                length = planned.ends - planned.begins
            at += length + self._recovery + self._duration(random, self._profile.gap_seconds)

    def _free_fault(self, random: Random, begins: float, ends: float) -> PlannedFault | None:
        """Draw a fault none of whose claims is used at that time; None if ATTEMPTS draws found none."""
        for _ in range(ATTEMPTS):
            fault = draw_fault(random, self._topology, self._profile.name, self._profile.regions_max)
            until = begins if fault.end is None else ends
            planned = PlannedFault(fault, round(begins, ROUNDING), round(until, ROUNDING))
            if not any(self._conflict(planned, other) for other in self.faults):
                return planned
        return None

    def _conflict(self, one: PlannedFault, other: PlannedFault) -> bool:
        apart = one.begins > other.ends + self._recovery or other.begins > one.ends + self._recovery
        return not apart and not one.fault.claims.isdisjoint(other.fault.claims)

    def _duration(self, random: Random, limits: tuple[float, float]) -> float:
        return random.uniform(*limits) * self._scale


def _with_a_loss(
    topology: Topology, random: Random, seconds: float, faults: list[PlannedFault]
) -> list[PlannedFault]:
    """Return the faults with the permanent loss of one region. Later faults that use the region are omitted."""
    region = random.choice(topology.region_names)
    at = round(seconds * random.uniform(0.3, 0.6), ROUNDING)
    loss = DrawnFault({"lose": region}, None, frozenset({("region", region)}))

    def is_free(one: PlannedFault) -> bool:
        return one.ends < at or not any(region in claim[1:] for claim in one.fault.claims)

    return [*filter(is_free, faults), PlannedFault(loss, at, at)]
