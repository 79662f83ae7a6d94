"""Random kills between the steps of a scenario, of programs and regions, which are started again before the next step.

A pure function of scenario file, topology and seed. The steps of the scenario stay in their order, so its conditions,
contract and limits keep their meaning; only the moments differ. The result is a scenario file that repeats the kills.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from emulator.config.topology import Topology
from emulator.config.yaml_source import read_yaml
from emulator.errors import Refused
from emulator.runtimes.fault_draws import DrawnFault, Situation
from emulator.scenarios.actors.specs import ProgramSpec
from emulator.scenarios.chaos.drawing import DRAWS
from emulator.scenarios.format.conditions import ProgramCondition
from emulator.scenarios.format.machine_steps import PowerLoss
from emulator.scenarios.format.steps import Begin, Chaos, Drain, Finish, OnRegion
from emulator.scenarios.rehearsal import Step, step_text
from emulator.scenarios.scenario import Scenario, load_scenario

KILLS_MAX: Final = 3
"""Maximum number of kills in a run; there is at least one."""
BEFORE_SECONDS: Final = (0.0, 2.0)
"""Shortest and longest time from the end of a step to a kill."""
DOWN_SECONDS: Final = (0.1, 3.0)
"""Shortest and longest time from a kill to the start."""
PROGRAM_PROBABILITY: Final = 0.6
"""Probability that a kill is of a program, if one is running and a region as well."""

StepObject = Mapping[str, Any]


@dataclass(slots=True)
class _Running:
    """The regions and programs that are running before a step."""

    regions: dict[str, str]
    """Region -> its cluster; of all regions of the topology."""
    down: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)

    @property
    def up(self) -> list[str]:
        return [name for name in self.regions if name not in self.down]

    def apply(self, step: Step, programs: frozenset[str]) -> None:
        """Follow a step: a region or program that it ends or pauses is not running after it."""
        match step.action:
            case Begin():
                self.programs |= programs & set(step.actors)
            case Finish():
                self.programs -= set(step.actors)
            case OnRegion(program=str(program)):
                self._change(step.verb, self.programs, {program})
            case OnRegion(region=region, cluster=cluster) if region or cluster:
                named = set(region or ()) or {name for name, one in self.regions.items() if one == cluster}
                ended = set(self.up)
                self._change(step.verb, ended, named)
                self.down = set(self.regions) - ended
            case PowerLoss(region=region):
                self.down |= set(region)
            case ProgramCondition(program=program, exit_code=int()):
                self.programs.discard(program)
            case Chaos(lose=True):
                self.down |= set(self.regions)  # which region is lost depends on another seed

    @staticmethod
    def _change(verb: str, running: set[str], named: set[str]) -> None:
        if verb in ("start", "restart", "resume"):
            running |= named
        else:
            running -= named


def with_random_kills(path: Path, topology: Topology, seed: int) -> str:
    """Return a scenario file with random kills between its steps. Raises ConfigurationError for an invalid file,
    Refused for one in which no program or region is running between two steps."""
    scenario = load_scenario(path, topology)
    values = read_yaml(path).values
    possible = list(_possible(scenario, topology))
    if not possible:
        raise Refused(f"{path}: no program or region is running between its steps, so none can be killed")
    random = Random(f"{seed}/kills")
    places = random.sample(possible, min(random.randint(1, KILLS_MAX), len(possible)))
    kills = {index: list(_kill(random, *running)) for index, *running in sorted(places)}
    return _text(values, kills, seed)


def _possible(scenario: Scenario, topology: Topology) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield each place for a kill: the index of the step after it, and the regions and programs that are running there.
    Places are after the first actor began, and before the last drain."""
    running = _Running({region.name: region.cluster for region in topology.regions})
    programs = frozenset(one.name for one in scenario.parts if isinstance(one, ProgramSpec))
    drains = [index for index, step in enumerate(scenario.steps) if isinstance(step.action, Drain)]
    end = drains[-1] if drains else len(scenario.steps) - 1
    has_begun = False
    for index, step in enumerate(scenario.steps[: end + 1]):
        regions, begun = running.up, sorted(running.programs)
        if has_begun and (regions or begun):
            yield index, regions, begun
        has_begun = has_begun or isinstance(step.action, Begin)
        running.apply(step, programs)


def _kill(random: Random, regions: Sequence[str], programs: Sequence[str]) -> Iterator[StepObject]:
    """Yield the steps of a kill: a time, the kill, another time, and the start."""
    fault = _draw(random, regions, programs)
    assert fault.end is not None, "a kill ends with a start"
    yield _wait(random, BEFORE_SECONDS)
    yield fault.begin
    yield _wait(random, DOWN_SECONDS)
    yield fault.end


def _draw(random: Random, regions: Sequence[str], programs: Sequence[str]) -> DrawnFault:
    if programs and (not regions or random.random() < PROGRAM_PROBABILITY):
        program = {"program": random.choice(programs)}
        return DrawnFault({"kill": program}, {"start": program}, frozenset())
    ended_by, draw = DRAWS["kill"]
    return draw.draw("kill", ended_by, Situation(random, regions, regions_max=1))


def _wait(random: Random, limits: tuple[float, float]) -> StepObject:
    return {"wait": f"{round(random.uniform(*limits) * 1000)}ms"}


def _text(values: Mapping[str, Any], kills: Mapping[int, Sequence[StepObject]], seed: int) -> str:
    steps = [one for index, step in enumerate(values["steps"]) for one in (*kills.get(index, ()), step)]
    head = {key: value for key, value in values.items() if key != "steps"}
    written = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=120)
    lines = "".join(f"- {{{step_text(step)}}}\n" for step in steps)
    return f"# {values['name']} with the random kills of seed {seed}, for `geoemu run`.\n{written}steps:\n{lines}"
