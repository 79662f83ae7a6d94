"""Prints the results of simulated seeds as they arrive, and stores the run folder of a seed."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from emulator import __version__
from emulator.run.manifest import write_manifest

if TYPE_CHECKING:
    from emulator.simulation.outcome import Figures, SimulationOutcome
    from emulator.simulation.parallel_runner import SeedResult

PROGRESS_SECONDS = 2.0
RUNS = Path(".geoemu") / "simulated"
"""Directory of the run folders of failed seeds, in the current folder."""


@dataclass(slots=True)
class SeedReport:
    """The seeds of one scenario or workload."""

    name: str
    first: int
    replay: Callable[[int], str]
    """The command that runs a seed again."""
    run_dir: Path | None = None
    """Run folder of the seed that is stored. None: a new one in `RUNS`."""
    failed: list[SeedResult] = field(default_factory=list)
    _done: int = 0
    _digest: str = ""
    _virtual_seconds: float = 0.0
    _figures: list[Figures] = field(default_factory=list)
    _seconds: float = 0.0

    def follow(self, results: Iterable[SeedResult], *, stop_at_first: bool = False) -> None:
        """Collect the results, and print violations and progress. `stop_at_first`: stop after the first failing
        seed."""
        began = last_progress = time.monotonic()
        for result in results:
            self._done += 1
            self._digest = result.digest
            self._virtual_seconds += result.virtual_seconds
            self._figures.append(result.figures)
            if result.violation is not None:
                self.failed.append(result)
                self._print_violation(result)
                if stop_at_first:
                    break
            if time.monotonic() - last_progress >= PROGRESS_SECONDS:
                last_progress = time.monotonic()
                rate = self._done / (last_progress - began)
                progress = f"{self._done} seeds, {len(self.failed)} failed, {rate:.1f} per second"
                print(progress, file=sys.stderr, flush=True)
        self._seconds = max(time.monotonic() - began, 0.001)

    def print_trace(self) -> None:
        """Print the digest of the last seed's trace."""
        print(f"trace {self._digest}: the same seed and code give the same trace on any machine")

    def print_summary(self) -> None:
        """Print a verdict on all seeds, and the range of each figure."""
        seconds = self._seconds
        print(
            f"{self._done} seeds of {self.name} from {self.first}: {self._verdict()} in {seconds:.1f} s "
            f"({self._done / seconds:.1f} seeds per second, {self._virtual_seconds / seconds:,.0f} times real time)"
        )
        for line in _table(self._figures):
            print(line)

    def store(self, outcome: SimulationOutcome, suffix: str = "") -> None:
        """Write the run folder of a seed, with `suffix` in its name, and print its path."""
        path = self.run_dir or _free_folder(RUNS, f"{outcome.name}-{outcome.seed}")
        path = path.with_name(path.name + suffix)
        store_run(outcome, path)
        write_manifest(path, __version__, self.replay(outcome.seed), scenario=self.name)
        which = ", shrunk" if suffix else ""
        print(f"the run directory of seed {outcome.seed}{which}: {path} (geoemu verify {path})", flush=True)

    def _print_violation(self, result: SeedResult) -> None:
        violation = result.violation
        assert violation is not None
        print(f"seed {result.seed} violates {violation.invariant} ({violation.check}): {violation.sentence}")
        for name, value in violation.witness.items():
            print(f"    {name}: {value}")
        print(f"    replay: {self.replay(result.seed)}", flush=True)

    def _verdict(self) -> str:
        if not self.failed:
            return "clean"
        numbers = ", ".join(str(result.seed) for result in self.failed[:10])
        return f"{len(self.failed)} failed ({numbers}{', …' if len(self.failed) > 10 else ''})"


def store_run(outcome: SimulationOutcome, path: Path) -> None:
    """Write the logs and histories of a simulated run as an ordinary run folder that has ended."""
    from emulator.config.topology import RegionPorts
    from emulator.run.directory import RunDirectory
    from emulator.run.record import new_record
    from emulator.simulation.run_folder import write_evidence

    regions = outcome.topology.regions
    ports = {region.name: RegionPorts(region.service_port, region.admin_port) for region in regions}
    record = new_record("simulated", outcome.topology, ports, ended=True)
    path.mkdir(parents=True, exist_ok=True)
    RunDirectory(path).create(record, outcome.topology)
    write_evidence(outcome, path)


def _table(figures: Iterable[Figures]) -> list[str]:
    """Return a line for each figure, with its minimum, median and maximum over all seeds."""
    found: dict[str, list[float]] = defaultdict(list)
    for of_seed in figures:
        for what, value in of_seed.items():
            found[what].append(value)
    width = max(map(len, found), default=0)
    return [
        f"  {what:{width}}  min {min(values):g}  median {median(values):g}  max {max(values):g}"
        for what, values in sorted(found.items())
    ]


def _free_folder(parent: Path, name: str) -> Path:
    for number in count(1):
        path = parent / (name if number == 1 else f"{name}.{number}")
        if not path.exists():
            return path
    raise AssertionError("there are numbers enough")
