"""`geoemu simulate`: randomised runs of a scenario in virtual time, one for each seed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from emulator.cli.application import INTERRUPTED_EXIT_CODE, app
from emulator.cli.completion import complete_scenario
from emulator.cli.options import DEFAULT_TOPOLOGY, TopologyFile, chaos_seconds, seconds
from emulator.errors import ConfigurationError, Problem
from emulator.model.suggestions import nearest

if TYPE_CHECKING:
    from emulator.config.topology import Topology
    from emulator.simulation.scenarios.run import SimulatedScenario

SIMULATED_RATE_PER_SECOND: Final = 5
"""Messages per second of each producer of the built-in workload in virtual time, so that many seeds are run."""
SIMULATED_SECONDS: Final = 10.0
"""Default of the virtual time of random faults."""
SWARM = "generated workloads run with `make swarm` in a checkout of geoemu"


def _moved_to_swarm(value: str | bool | None) -> None:
    """Reject an option that only `make swarm` has now."""
    if value:
        raise typer.BadParameter(SWARM)


ChaosProfile = Annotated[
    Literal["mild", "harsh"] | None,
    typer.Option(
        "--chaos",
        help=(
            "Replace the steps of the scenario by random faults, other ones for each seed, as `geoemu chaos` "
            "does. Default of SCENARIO: built-in producers and consumers."
        ),
    ),
]
ChaosTime = Annotated[
    float | None,
    typer.Option(
        "--for",
        metavar="TIME",
        parser=chaos_seconds,
        help="Virtual time of the random faults, with --chaos. Default: 10s.",
    ),
]


@app.command(
    epilog="Example: geoemu simulate region-failover --seeds 50 --jobs 2; random faults: geoemu simulate --chaos mild"
)
def simulate(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A scenario, as for `run`: a file, or one of --list.",
            autocompletion=complete_scenario,
        ),
    ] = "",
    list_: Annotated[
        bool,
        typer.Option("--list", help="List the shipped scenarios, and exit."),
    ] = False,
    file: TopologyFile = DEFAULT_TOPOLOGY,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            min=1,
            help=("Number of seeds. Default: 100, or as many as the time budget allows."),
        ),
    ] = None,
    first: Annotated[int, typer.Option("--from", metavar="S", min=0, help="The first seed.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", metavar="J", min=1, help="Number of processes.")] = 1,
    time_budget: Annotated[
        float | None,
        typer.Option(
            "--time-budget", metavar="TIME", parser=seconds, help=("Stop after this time: 90s, or 90.")
        ),
    ] = None,
    chaos: ChaosProfile = None,
    chaos_for: ChaosTime = None,
    shrink: Annotated[bool, typer.Option("--shrink", hidden=True, callback=_moved_to_swarm)] = False,
    without: Annotated[str | None, typer.Option("--without", hidden=True, callback=_moved_to_swarm)] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="Run directory of the first failing seed. Default: a new one in .geoemu/simulated.",
        ),
    ] = None,
) -> None:
    """Run a scenario in virtual time, once for each seed. Exit code 0 if no seed failed, else 1."""
    if list_:
        print_scenarios()
        return
    if chaos is None and chaos_for is not None:
        raise typer.BadParameter("needs --chaos", param_hint="--for")
    faults = None if chaos is None else RandomFaults(chaos, chaos_for or SIMULATED_SECONDS)
    if seeds is None and time_budget is None:
        seeds = 100
    try:
        exit_code = Simulate(scenario, file, seeds, first, jobs, time_budget, run_dir, faults).perform()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    raise typer.Exit(exit_code)


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """The random faults that replace the steps of a scenario."""

    profile: Literal["mild", "harsh"]
    seconds: float

    def of(self, scenario: str, topology: Topology) -> SimulatedScenario:
        """Return the actors of a scenario, or the built-in ones, under faults whose seed is that of the simulation."""
        from emulator.scenarios.chaos.workload import (
            BUILT_IN,
            built_in_workload,
            chaos_object,
            find_workload,
            under_chaos,
        )
        from emulator.simulation.scenarios.run import prepare

        if scenario in ("", BUILT_IN):
            workload = built_in_workload(topology, SIMULATED_RATE_PER_SECOND)
        else:
            workload = find_workload(scenario, topology)
        step = chaos_object(None, self.profile, self.seconds, lose=False)
        return prepare(under_chaos(workload, topology, step), topology, scenario or BUILT_IN)


@dataclass(frozen=True, slots=True)
class Simulate:
    scenario: str
    """File or name of a scenario."""
    topology: Path
    seeds: int | None
    first: int
    jobs: int
    time_budget_seconds: float | None
    run_dir: Path | None
    faults: RandomFaults | None = None

    def perform(self) -> int:
        """Run the seeds, and store the first that failed. Return the exit code: 0 if no seed failed, else 1."""
        from emulator.cli.seed_report import SeedReport
        from emulator.simulation.parallel_runner import run_seeds
        from emulator.simulation.scenarios.run import run_scenario, run_scenario_seed

        scenario = self._read()
        report = SeedReport(self.scenario or "chaos", self.first, self._replay, self.run_dir)
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
        """Read the scenario and the topology. Raises ConfigurationError."""
        from emulator.scenarios.scenario import find_scenario
        from emulator.simulation.scenarios.run import prepare_scenario

        if self.faults is not None:
            return self.faults.of(self.scenario, self._load_topology())
        path = find_scenario(Path(self.scenario))
        if not self.scenario or not path.exists():
            raise ConfigurationError([self._unknown()])
        return prepare_scenario(path, self._load_topology())

    def _load_topology(self) -> Topology:
        """Read the topology, without its security, for which virtual time has no meaning. Raises ConfigurationError."""
        from emulator.config.loading import load_topology
        from emulator.config.security import SecurityConfig

        topology = load_topology(self.topology)
        if topology.security.tls is not None:
            print(f"{self.topology}: security.tls has no effect in virtual time", file=sys.stderr)
        if topology.security.authentication is not None:
            print(f"{self.topology}: security.authentication has no effect in virtual time", file=sys.stderr)
        if topology.security.authorization is not None:
            print(f"{self.topology}: security.authorization has no effect in virtual time", file=sys.stderr)
        return replace(topology, security=SecurityConfig())

    def _unknown(self) -> Problem:
        from emulator.scenarios.scenario import shipped_scenarios

        known = shipped_scenarios()
        guess = nearest(self.scenario, known)
        hint = f"; did you mean {guess}?" if guess else ""
        rule = f"must be one of {', '.join(known)} or a scenario's file{hint}; {SWARM}"
        return Problem("command line", None, "SCENARIO", self.scenario, rule)

    def _replay(self, seed: int) -> str:
        topology = "" if self.topology == DEFAULT_TOPOLOGY else f" -f {quote(str(self.topology))}"
        scenario = f" {quote(self.scenario)}" if self.scenario else ""
        faults = f" --chaos {self.faults.profile} --for {self.faults.seconds:g}s" if self.faults else ""
        return f"geoemu simulate{scenario}{topology}{faults} --seeds 1 --from {seed}"


def scenarios() -> dict[str, str]:
    """Return the shipped scenarios by name, with the first sentence of each description."""
    from emulator.config.yaml_source import read_yaml
    from emulator.scenarios.scenario import SHIPPED, shipped_scenarios

    known = {}
    for name in shipped_scenarios():
        written = read_yaml(SHIPPED / f"{name}.yaml").values
        known[name] = " ".join(str(written.get("description", "")).split()).partition(". ")[0]
    return known


def print_scenarios() -> None:
    known = scenarios()
    width = max(map(len, known))
    for name, about in known.items():
        print(f"{name:{width}}  {about}")
