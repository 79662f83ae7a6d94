"""`geoemu simulate`: randomised runs of a scenario in virtual time, one for each seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from emulator.cli.options import DEFAULT_TOPOLOGY
from emulator.errors import ConfigurationError, Problem
from emulator.model.suggestions import nearest

if TYPE_CHECKING:
    from emulator.simulation.scenarios.run import SimulatedScenario

SWARM = "generated workloads run with `make swarm` in a checkout of geoemu"


@dataclass(frozen=True, slots=True)
class Simulate:
    """The arguments of the verb."""

    scenario: str
    """File or name of a scenario."""
    topology: Path
    seeds: int | None
    first: int
    jobs: int
    time_budget_seconds: float | None
    run_dir: Path | None

    def perform(self) -> int:
        """Run the seeds. Return the exit code: 0 when no seed failed."""
        from emulator.cli.seed_report import SeedReport
        from emulator.simulation.parallel_runner import run_seeds
        from emulator.simulation.scenarios.run import run_scenario, run_scenario_seed

        scenario = self._read()
        report = SeedReport(self.scenario, self.first, self._replay, self.run_dir)
        numbers = count(self.first) if self.seeds is None else range(self.first, self.first + self.seeds)
        run = partial(run_scenario_seed, scenario)
        report.follow(run_seeds(run, numbers, jobs=self.jobs, time_budget_seconds=self.time_budget_seconds))
        if self.seeds == 1:
            report.print_trace()
        if report.failed:
            report.store(run_scenario(scenario, report.failed[0].seed))
        report.print_summary()
        return 1 if report.failed else 0

    def _read(self) -> SimulatedScenario:
        """Return what to run. ConfigurationError for an unknown name or a scenario that cannot be simulated."""
        from emulator.config.loading import load_topology
        from emulator.scenarios.scenario import find_scenario
        from emulator.simulation.scenarios.run import prepare_scenario

        path = find_scenario(Path(self.scenario))
        if not self.scenario or not path.exists():
            raise ConfigurationError([self._unknown()])
        return prepare_scenario(path, load_topology(self.topology))

    def _unknown(self) -> Problem:
        from emulator.scenarios.scenario import shipped_scenarios

        known = shipped_scenarios()
        guess = nearest(self.scenario, known)
        hint = f"; did you mean {guess}?" if guess else ""
        rule = f"must be one of {', '.join(known)} or a scenario's file{hint}; {SWARM}"
        return Problem("command line", None, "SCENARIO", self.scenario, rule)

    def _replay(self, seed: int) -> str:
        topology = "" if self.topology == DEFAULT_TOPOLOGY else f" -f {quote(str(self.topology))}"
        return f"geoemu simulate {quote(self.scenario)}{topology} --seeds 1 --from {seed}"


def scenarios() -> dict[str, str]:
    """Return the shipped scenarios with a description of each."""
    from emulator.config.yaml_source import read_yaml
    from emulator.scenarios.scenario import SHIPPED, shipped_scenarios

    known = {}
    for name in shipped_scenarios():
        written = read_yaml(SHIPPED / f"{name}.yaml").values
        known[name] = " ".join(str(written.get("description", "")).split()).partition(". ")[0]
    return known


def print_scenarios() -> None:
    """Print one line for each scenario."""
    known = scenarios()
    width = max(map(len, known))
    for name, about in known.items():
        print(f"{name:{width}}  {about}")
