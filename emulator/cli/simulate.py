"""`geoemu simulate`: randomised fault-injection runs in virtual time, one for each seed."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING

from emulator import __version__
from emulator.cli.options import DEFAULT_TOPOLOGY
from emulator.errors import ConfigurationError, Problem
from emulator.model.suggestions import nearest
from emulator.run.manifest import note_made_by
from emulator.runtimes.spinner import patience
from emulator.simulation.names import RENAMED

if TYPE_CHECKING:
    from emulator.simulation.fleet import SeedResult
    from emulator.simulation.outcome import Figures, Outcome
    from emulator.simulation.story.run import Story

PROGRESS_SECONDS = 2.0
TOLD_MAX = 50
"""Up to this number of names are listed in an error."""
RUNS = Path(".geoemu") / "simulated"
"""Directory of the run folders of failed seeds, in the current folder."""


@dataclass(frozen=True, slots=True)
class Simulate:
    """What was typed."""

    subject: str
    """A workload, or the file or name of a scenario."""
    topology: Path
    """Of a scenario."""
    seeds: int | None
    first: int
    jobs: int
    time_budget_seconds: float | None
    shrink: bool
    without: str | None
    run_dir: Path | None

    def perform(self) -> int:
        """The exit code: 0 when no seed failed."""
        from emulator.simulation.fleet import run_seeds

        subject = self._read()
        began = told = time.monotonic()
        done, virtual_seconds, failed, figures = 0, 0.0, list["SeedResult"](), list["Figures"]()
        numbers = count(self.first) if self.seeds is None else range(self.first, self.first + self.seeds)
        results = run_seeds(
            subject,
            numbers,
            jobs=self.jobs,
            time_budget_seconds=self.time_budget_seconds,
            without=self.without,
        )
        for result in results:
            done += 1
            virtual_seconds += result.virtual_seconds
            figures.append(result.figures)
            if result.violation is not None:
                failed.append(result)
                self._tell(result)
                if self.shrink:
                    break
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                _say(f"{done} seeds, {len(failed)} failed, {done / (told - began):.1f} per second")
        if self.seeds == 1:
            print(f"trace {result.digest}: the same seed and code give the same trace on any machine")
        seconds = max(time.monotonic() - began, 0.001)
        if failed:
            self._keep(subject, failed[0])
        print(
            f"{done} seeds of {self.subject} from {self.first}: {_verdict(failed)} in {seconds:.1f} s "
            f"({done / seconds:.1f} seeds per second, {virtual_seconds / seconds:,.0f} times real time)"
        )
        for line in _table(figures):
            print(line)
        return 1 if failed else 0

    def _read(self) -> str | Story:
        """Return what to run. ConfigurationError for an unknown or unsuitable name."""
        from emulator.simulation.ablations import BY_NAME
        from emulator.simulation.draw.kinds import KINDS

        if self.without is not None:
            _check_known("--without", self.without, list(BY_NAME))
        if self.subject in KINDS:
            return self.subject
        return self._read_story(list(KINDS))

    def _read_story(self, kinds: list[str]) -> Story:
        from emulator.config.loading import load_topology
        from emulator.scenarios.scenario import find_scenario, shipped_scenarios
        from emulator.simulation.story.run import load_story

        path = find_scenario(Path(self.subject))
        if not path.exists():
            _check_known("SCENARIO", self.subject, [*kinds, *shipped_scenarios()], " or a scenario's file")
        if self.shrink:
            rule = f"is for workloads ({', '.join(kinds)}), not for scenarios: a scenario file is not reduced"
            raise ConfigurationError([Problem("command line", None, "--shrink", self.subject, rule)])
        return load_story(path, load_topology(self.topology))

    def _tell(self, result: SeedResult) -> None:
        violation = result.violation
        assert violation is not None
        print(f"seed {result.seed} violates {violation.invariant} ({violation.check}): {violation.sentence}")
        for name, value in violation.witness.items():
            print(f"    {name}: {value}")
        print(f"    replay: {self._replay(result.seed)}", flush=True)

    def _replay(self, seed: int) -> str:
        without = f" --without {self.without}" if self.without else ""
        topology = "" if self.topology == DEFAULT_TOPOLOGY else f" -f {quote(str(self.topology))}"
        return f"geoemu simulate {quote(self.subject)}{topology} --seeds 1 --from {seed}{without}"

    def _keep(self, subject: str | Story, result: SeedResult) -> None:
        """Run the seed again, to store its run folder and to shrink it."""
        from emulator.simulation.ablations import seams_without
        from emulator.simulation.fleet import run_one
        from emulator.simulation.shrink import shrink, story_of

        seams = seams_without(self.without)
        outcome = run_one(subject, result.seed, seams)
        self._keep_outcome(outcome, result.seed, "")
        if self.shrink:
            with patience(f"shrinking seed {result.seed}", sys.stderr):
                outcome = shrink(outcome, seams=seams)
            print(f"seed {result.seed}, shrunk:")
            for line in story_of(outcome):
                print(f"    {line}")
            self._keep_outcome(outcome, result.seed, "-shrunk")

    def _keep_outcome(self, outcome: Outcome, seed: int, which: str) -> None:
        path = self.run_dir or _free_folder(RUNS, f"{outcome.plan.kind}-{seed}")
        path = path.with_name(path.name + which)
        keep_run(outcome, path)
        note_made_by(path, __version__, self._replay(seed), scenario=self.subject)
        print(
            f"the run directory of seed {seed}{which and ', shrunk'}: {path} (geoemu verify {path})",
            flush=True,
        )


def worlds() -> dict[str, str]:
    """Return workloads and shipped scenarios with a description of each."""
    from emulator.config.yaml_source import read_yaml
    from emulator.scenarios.scenario import SHIPPED, shipped_scenarios
    from emulator.simulation.draw.kinds import KINDS

    known = {name: kind.about for name, kind in KINDS.items()}
    for name in shipped_scenarios():
        written = read_yaml(SHIPPED / f"{name}.yaml").values
        known[name] = " ".join(str(written.get("description", "")).split()).partition(". ")[0]
    return known


def tell_worlds() -> None:
    """Print one line for each workload and scenario."""
    known = worlds()
    width = max(map(len, known))
    for name, about in known.items():
        print(f"{name:{width}}  {about}")


def _check_known(option: str, value: str, known: list[str], otherwise: str = "") -> None:
    if value not in known:
        if present := RENAMED.get(value):
            problem = Problem("command line", None, option, value, f"was renamed to {present}")
            raise ConfigurationError([problem])
        guess = nearest(value, known)
        hint = f"; did you mean {guess}?" if guess else ""
        choice = (
            ", ".join(known) if len(known) <= TOLD_MAX else f"the {len(known)} mutants of docs/INVARIANTS.md"
        )
        rule = f"must be one of {choice}{otherwise}{hint}"
        problem = Problem("command line", None, option, value, rule)
        raise ConfigurationError([problem])


def _verdict(failed: list[SeedResult]) -> str:
    if not failed:
        return "clean"
    numbers = ", ".join(str(result.seed) for result in failed[:10])
    return f"{len(failed)} failed ({numbers}{', …' if len(failed) > 10 else ''})"


def _table(figures: Iterable[Figures]) -> list[str]:
    """Return a line for each figure, over all seeds."""
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


def keep_run(outcome: Outcome, path: Path) -> None:
    """Write the logs and histories of a simulated run as an ordinary run folder that has ended."""
    from emulator.run.directory import RunDirectory, RunRecord, links_of, region_record
    from emulator.run.processes import identify
    from emulator.simulation.run_folder import write_evidence

    topology = outcome.plan.topology
    owner = identify(os.getpid())
    assert owner is not None, "this process has an identity"
    record = RunRecord(
        runtime="simulated",
        owner=owner,
        detached=False,
        regions={
            region.name: region_record(region, region.service_port, region.admin_port)
            for region in topology.regions
        },
        links=links_of(topology),
        ended=True,
    )
    path.mkdir(parents=True, exist_ok=True)
    RunDirectory(path).create(record, topology)
    write_evidence(outcome, path)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
