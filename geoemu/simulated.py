"""Runs in virtual time, as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from emulator.config.loading import load_topology
from emulator.scenarios.scenario import find_scenario
from emulator.simulation.scenarios.run import prepare_scenario, run_scenario


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One seed of a scenario in virtual time."""

    scenario: str
    seed: int
    violation: str | None
    """The first violation, or the failure of a step, as a sentence; None if there was none."""
    figures: Mapping[str, float]
    """Measured values by name; a unit is part of the name."""
    virtual_seconds: float
    digest: str
    """Hash of the whole run: the same seed, files and version give the same one on every machine."""
    replay: str
    """The command that runs the seed again, and stores a failing run."""

    @property
    def is_valid(self) -> bool:
        return self.violation is None

    def __str__(self) -> str:
        return f"seed {self.seed} of {self.scenario}: {self.violation or 'valid'}\n  replay: {self.replay}"


def simulate(scenario: str | Path, *, topology: str | Path = "topology.yaml", seed: int = 1) -> SimulatedRun:
    """Run one seed of a scenario in virtual time.

    `scenario`: path of a file, or name of a shipped scenario. `topology`: path of the topology file. `seed`: decides
    what the files leave open (docs/SIMULATION.md). Raises ConfigurationError with every error in the files, also for
    a scenario with programs of your own, which cannot be simulated.
    """
    simulated = prepare_scenario(find_scenario(Path(scenario)), load_topology(Path(topology)))
    outcome = run_scenario(simulated, seed)
    found = outcome.violation
    violation = None if found is None else f"{found.invariant} ({found.check}): {found.sentence}"
    replay = f"geoemu simulate {quote(str(scenario))} -f {quote(str(topology))} --seeds 1 --from {seed}"
    return SimulatedRun(
        str(scenario), seed, violation, outcome.figures, outcome.virtual_seconds, outcome.digest, replay
    )
