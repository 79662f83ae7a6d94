"""The scenario of a run: the head of the report, and the steps with their outcomes. Uses no engine."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from emulator.run.history import run_name
from emulator.run.manifest import MadeBy, read_made_by
from spark_jobs.sources.run_folder import RunFolder

StepOutcome = Literal["done", "failed", "interrupted", "not tried"]
_STEP = re.compile(r"step (\d+) (begins|done|failed): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One step of the scenario."""

    number: int
    text: str
    outcome: StepOutcome
    at_s: float | None = None
    """Start of the step, in seconds since the start of the run; None: it never began."""
    seconds: float | None = None
    """Duration of the step; None: it did not end."""
    error: str | None = None

    @property
    def phase(self) -> str | None:
        """Heading of a `phase` step; None for other steps."""
        verb, _, words = self.text.partition(": ")
        return words.strip("'\"") if verb == "phase" else None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Scenario, topology, version and command of a run. Fields are empty if no file of the run has them."""

    scenario: str = ""
    description: str = ""
    topology: str = ""
    clusters: str = ""
    """Clusters with their regions: `americas (us-east, us-west), europe (eu-central)`."""
    runtime: str = ""
    created_at: str = ""
    version: str = ""
    command: str = ""
    """Command that repeats the run."""
    folder: str = ""
    """Working directory of the command."""


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """Head of the report and steps of the scenario."""

    head: RunInfo = RunInfo()
    steps: tuple[ScenarioStep, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def read_scenario_run(folder: RunFolder, facts: Sequence[Mapping[str, Any]], start_ms: float) -> ScenarioRun:
    """Read head and steps from the files of the run directory, also if damaged, and from its facts, sorted by time."""
    made_by = read_made_by(folder.path) or MadeBy("", "")
    head = RunInfo(
        scenario=made_by.scenario or _scenario_played(facts),
        description=made_by.description.strip(),
        topology=_json_text(folder.path / "topology.json", "name"),
        clusters=_clusters(folder),
        runtime=_json_text(folder.path / "run.json", "runtime"),
        created_at=run_name(folder.path),
        version=made_by.version,
        command=made_by.command,
        folder=made_by.folder,
    )
    return ScenarioRun(head, tuple(_steps(facts, made_by.steps, start_ms)))


def _steps(
    facts: Iterable[Mapping[str, Any]], planned: Sequence[str], start_ms: float
) -> Iterable[ScenarioStep]:
    found: dict[int, ScenarioStep] = {}
    for fact in facts:
        step = _STEP.fullmatch(fact["detail"] or "") if fact["op"] == "step" else None
        if step is None:
            continue
        number, at_s = int(step[1]), round((fact["at_ms"] - start_ms) / 1000, 3)
        begun = found.get(number)
        if step[2] == "begins" or begun is None or begun.at_s is None:
            found[number] = ScenarioStep(number, step[3], "interrupted", at_s)
        else:
            outcome: StepOutcome = "done" if step[2] == "done" else "failed"
            seconds = round(at_s - begun.at_s, 3)
            found[number] = dataclasses.replace(begun, outcome=outcome, seconds=seconds, error=fact["error"])
    for number, text in enumerate(planned, 1):
        found.setdefault(number, ScenarioStep(number, text, "not tried"))
    return [found[number] for number in sorted(found)]


def _scenario_played(facts: Iterable[Mapping[str, Any]]) -> str:
    for fact in facts:
        begun = re.fullmatch("play of (.*) begins", fact["detail"] or "") if fact["op"] == "phase" else None
        if begun is not None:
            return begun[1]
    return ""


def _clusters(folder: RunFolder) -> str:
    names: dict[str, list[str]] = {}
    for region, cluster in folder.clusters.items():
        names.setdefault(cluster, []).append(region)
    return ", ".join(f"{cluster} ({', '.join(regions)})" for cluster, regions in names.items())


def _json_text(file: Path, key: str) -> str:
    try:
        return str(json.loads(file.read_text()).get(key, ""))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
