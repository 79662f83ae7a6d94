"""Small generated runs in virtual time, as run directories: honest ones, and ones with a random manipulation.

    python -m tests.spark_jobs.generated_runs --honest 300 --agreements 60

Every honest run is free of false alarms: the regions kept all guarantees, according to the checkers of the simulation,
and the evidence is complete, so no check may be invalid or unknown. Both engines agree on a run if they write the same
report.json, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from emulator.cli.seed_report import store_run
from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.scenarios.chaos.workload import built_in_workload, chaos_object, under_chaos
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.scenarios.run import prepare, run_scenario
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import embedded_engine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.random_tampering import tamper
from tests.swarm.generator.kinds import draw
from tests.swarm.runner import run_plan

ROOT = Path(__file__).parents[2]
CHAOS_SECONDS = 3.0
ON_THE_WAY = "may still be in progress"
MESSAGES_PER_SECOND = 5

KINDS = (
    "chaos mild",
    "swarm",
    "failover",
    "chaos harsh",
    "swarm",
    "transaction-key",
    "chaos harsh",
    "metadata-sync",
    "swarm",
    "barriers",
)
"""Kinds of generated runs, in turn: random faults around the built-in workload of `geoemu chaos`, or kinds of
`tests.swarm`, without the operations of its workloads, whose histories are not complete."""


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    seed: int
    kind: str
    path: Path
    is_honest: bool
    """Whether the regions kept every guarantee that the simulation checks."""
    change: str | None = None
    """The random manipulation of the evidence."""

    def __str__(self) -> str:
        change = "" if self.change is None else f", {self.change}"
        return f"seed {self.seed} of {self.kind}{change}"


def generate_run(seed: int, path: Path) -> GeneratedRun:
    """Simulate the run of a seed, and write its directory."""
    kind = KINDS[seed % len(KINDS)]
    outcome = _chaos(seed, kind.split()[1]) if kind.startswith("chaos") else _swarm(seed, kind)
    store_run(outcome, path)
    return GeneratedRun(seed, kind, path, outcome.violation is None)


def generate_tampered_run(seed: int, path: Path) -> GeneratedRun:
    """Write the directory of the run of a seed, with a random manipulation unless the seed is divisible by 4."""
    run = generate_run(seed, path)
    if seed % 4 == 0:
        return run
    return GeneratedRun(seed, run.kind, path, False, tamper(path, Random(f"tampering/{seed}")))


def _chaos(seed: int, profile: str) -> SimulationOutcome:
    topology = _topology()
    workload = built_in_workload(topology, MESSAGES_PER_SECOND)
    step = chaos_object(None, "mild" if profile == "mild" else "harsh", CHAOS_SECONDS, lose=False)
    return run_scenario(prepare(under_chaos(workload, topology, step), topology, "chaos"), seed)


def _swarm(seed: int, kind: str) -> SimulationOutcome:
    plan = draw(kind, seed)
    if any("/" in one.topic.rpartition("/default/")[2] for one in (*plan.producers, *plan.consumers)):
        plan = draw("failover", seed)  # histories cannot name such topics
    return run_plan(plan if kind == "metadata-sync" else replace(plan, acts=()))


@cache
def _topology() -> Topology:
    return load_topology(ROOT / "topology.yaml")


def false_alarms(evaluation: Evaluation) -> list[str]:
    """Return the name and the sentence of each check that is invalid, or unknown although nothing is missing. A run may
    end while copies are on their way."""
    is_cut_off = any(one.verdict == "unknown" and ON_THE_WAY in one.sentence for one in evaluation.checks)
    alarms = ("invalid",) if is_cut_off else ("invalid", "unknown")
    return [
        f"{one.name} is {one.verdict}: {one.sentence}" for one in evaluation.checks if one.verdict in alarms
    ]


def report_text(engine: QueryEngine, path: Path) -> str:
    """Return the content of report.json."""
    return json.dumps(evaluate_run(engine, path).as_json(), indent=1)


def difference(one: str, other: str) -> str | None:
    """Return the first line in which two texts differ; None if they are equal."""
    if one == other:
        return None
    pairs = zip(one.splitlines(), other.splitlines(), strict=False)
    lines = (f"{a.strip()} | {b.strip()}" for a, b in pairs if a != b)
    return next(lines, "one report has more lines than the other")


def check_honest(seeds: Sequence[int]) -> Iterator[str]:
    """Evaluate honest runs with the embedded engine; yield a sentence for each false alarm."""
    verdicts: dict[str, int] = {}
    for number, seed in enumerate(seeds, 1):
        with tempfile.TemporaryDirectory() as folder, embedded_engine() as engine:
            run = generate_run(seed, Path(folder) / "run")
            if not run.is_honest:
                verdicts["violated"] = verdicts.get("violated", 0) + 1
                continue
            evaluation = evaluate_run(engine, run.path)
        verdicts[evaluation.verdict] = verdicts.get(evaluation.verdict, 0) + 1
        for alarm in false_alarms(evaluation):
            _progress(f"FALSE ALARM: {run}: {alarm}")
            yield f"{run}: {alarm}"
        _progress(f"{number} of {len(seeds)} honest runs: {verdicts}")


def check_agreement(engine: QueryEngine, seeds: Sequence[int]) -> Iterator[str]:
    """Evaluate runs with `engine` and the embedded engine; yield a sentence for each pair of different reports."""
    for number, seed in enumerate(seeds, 1):
        with tempfile.TemporaryDirectory() as folder:
            run = generate_tampered_run(seed, Path(folder) / "run")
            with embedded_engine() as embedded:
                expected = report_text(embedded, run.path)
            found = difference(expected, report_text(engine, run.path))
        if found is not None:
            _progress(f"DIFFERENCE: {run}: {found}")
            yield f"{run}: {found}"
        _progress(f"{number} of {len(seeds)} agreements: {run}: {json.loads(expected)['headline']}")


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_jobs.generated_runs")
    parser.add_argument("--honest", type=int, default=0, metavar="N", help="number of honest runs")
    parser.add_argument(
        "--agreements", type=int, default=0, metavar="N", help="number of runs that both engines evaluate"
    )
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="SEED", help="the first seed")
    options = parser.parse_args()
    found = list(check_honest(range(options.first, options.first + options.honest)))
    if options.agreements:
        found += _with_spark(range(options.first, options.first + options.agreements))
    print("\n".join(found) or "no false alarm and no difference")
    return 1 if found else 0


def _with_spark(seeds: Sequence[int]) -> list[str]:
    from spark_jobs.engines.spark import spark_engine

    with spark_engine("local[1]") as engine:
        return list(check_agreement(engine, seeds))


if __name__ == "__main__":
    sys.exit(main())
