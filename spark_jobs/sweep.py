"""`python -m spark_jobs.sweep DIR…`: the verdicts on many runs and exports in one session of the engine, worst first.

Exit code 1: a run is invalid or missed a limit; else 2: a verdict or limit is unknown; else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.run.limits import Limit
from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.masters import DEFAULT_MASTER
from spark_jobs.engines.starting import ENGINES, EngineName, choose, started
from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.limits import exit_code
from spark_jobs.sources.export_folder import ExportUnreadable
from spark_jobs.sources.run_folder import looks_like_a_run, open_run_folder
from spark_jobs.verdict import EXIT_CODES, Verdict, worst_first
from spark_jobs.verify import LimitsUnreadable, evaluate_run, exit_code_of, limits_of, parsed_limits
from spark_jobs.wording import count

Expected = tuple[Limit, ...] | None
"""Limits to check instead of those stored with each run; None: the stored ones."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The verdict on one run, or the reason why there is none."""

    run: Path
    evaluation: Evaluation | None = None
    problem: str = ""
    """Why the run was not evaluated: a sentence without its full stop; empty if it was."""

    @property
    def verdict(self) -> Verdict:
        return "unknown" if self.evaluation is None else self.evaluation.verdict

    @property
    def exit_code(self) -> int:
        if self.evaluation is None:
            return EXIT_CODES["unknown"]
        return exit_code(self.evaluation.verdict, self.evaluation.limits)

    @property
    def failed_checks(self) -> list[str]:
        checks = () if self.evaluation is None else self.evaluation.checks
        return [check.name for check in checks if check.verdict == self.verdict != "valid"]

    @property
    def missed_limits(self) -> list[str]:
        limits = () if self.evaluation is None else self.evaluation.limits
        return [one.limit.text for one in limits if one.outcome != "kept"]

    @property
    def summary(self) -> str:
        """The headline, or the reason why there is no verdict; then limits that were not kept."""
        sentence = self.problem if self.evaluation is None else self.evaluation.headline
        missed = self.missed_limits
        return f"{sentence} Limits not kept: {', '.join(missed)}." if missed else sentence

    def as_json(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "headline": self.summary,
            "checks": self.failed_checks,
            "limits": self.missed_limits,
            "evaluated": self.evaluation is not None,
        }


def find_runs(directories: Iterable[Path]) -> list[Path]:
    """Return the runs and exports among directories, and among the entries of directories that are none; each run once.
    A directory without runs stays in the list."""
    found: dict[Path, Path] = {}
    for directory in directories:
        inside = [] if looks_like_a_run(directory) else _runs_in(directory)
        for run in inside or [directory]:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _runs_in(directory: Path) -> list[Path]:
    names = sorted(directory.glob("*/"), key=lambda path: (len(path.name), path.name))
    return [path for path in names if looks_like_a_run(path)]


def sweep(
    name: EngineName,
    runs: Sequence[Path],
    *,
    master: str | None = None,
    expect: Any = None,
    in_network: bool = False,
) -> list[SweepResult]:
    """Evaluate all runs in one session, and return the results, worst first. `expect`: see `verify.limits_of`;
    `in_network`: see `open_run_folder`. Raises EngineUnavailable if the engine does not start; if it fails later, the
    remaining runs have no verdict."""
    readable, results = [], []
    for run in runs:
        problem, size_bytes = _size(run)
        if problem:
            results.append(SweepResult(run, problem=problem))
        else:
            readable.append((run, size_bytes))
    try:
        with _session(name, master, max((size for _, size in readable), default=0)) as session:
            for run, _ in readable:
                with session() as engine:
                    results.append(_evaluated(engine, run, expect, in_network))
    except EngineUnavailable as failure:
        if not any(one.evaluation for one in results):
            raise
        done = {one.run for one in results}
        results += [
            SweepResult(run, problem=f"it was not evaluated: {failure}")
            for run, _ in readable
            if run not in done
        ]
    return sorted(results, key=lambda one: worst_first(one.exit_code, len(one.failed_checks)))


def _size(run: Path) -> tuple[str, int]:
    """Return why a run cannot be read, or an empty text, and its size in bytes."""
    if not looks_like_a_run(run):
        return "it is not a run directory and contains none", 0
    try:
        return "", open_run_folder(run).size_bytes
    except (ExportUnreadable, OSError) as problem:
        return str(problem), 0


@contextmanager
def _session(name: EngineName, master: str | None, evidence_bytes: int) -> Iterator[Any]:
    """Start the engine, and return a context manager for each run: Spark keeps one session, DuckDB gets a new database,
    so that no frames of earlier runs stay in memory."""
    if name != "spark":
        yield lambda: started(name, evidence_bytes=evidence_bytes)
        return
    with started(name, master=master, evidence_bytes=evidence_bytes) as engine:

        @contextmanager
        def same() -> Iterator[QueryEngine]:
            yield engine

        yield same


def _evaluated(engine: QueryEngine, run: Path, expect: Expected, in_network: bool) -> SweepResult:
    try:
        limits = limits_of(run, expect)
        return SweepResult(run, evaluate_run(engine, run, limits=limits, in_network=in_network))
    except (ExportUnreadable, LimitsUnreadable, OSError) as problem:
        return SweepResult(run, problem=str(problem))


def overall_exit_code(results: Iterable[SweepResult]) -> int:
    codes = (one.exit_code for one in results)
    return min(codes, key=lambda code: worst_first(code, 0), default=EXIT_CODES["unknown"])


def as_text(results: Sequence[SweepResult]) -> str:
    """Return the text that the command line prints: a line per run, and its headline unless it is valid."""
    verdicts = Counter(one.verdict for one in results)
    names: Sequence[Verdict] = ("invalid", "unknown", "valid")
    head = ", ".join(f"{verdicts[name]} {name}" for name in names if verdicts[name])
    missed = sum(one.verdict == "valid" and one.exit_code == 1 for one in results)
    lines = [f"{count(len(results), 'run')}: {head}" + (f", {missed} with a missed limit" if missed else "")]
    for one in results:
        lines.append(f"  {one.verdict:<8} {one.run}")
        if one.exit_code:
            lines.append(f"           {one.summary}")
        if one.failed_checks:
            lines.append(f"           checks: {', '.join(one.failed_checks)}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    return exit_code_of(lambda: _perform(options))


def _perform(options: argparse.Namespace) -> int:
    name, remark = choose(options.engine, options.master)
    if remark:
        print(remark, file=sys.stderr, flush=True)
    results = sweep(
        name,
        find_runs(options.directories),
        master=options.master,
        expect=options.expect,
        in_network=options.in_network,
    )
    status = overall_exit_code(results)
    content = {"exit_code": status, "runs": [one.as_json() for one in results]}
    text = json.dumps(content) if options.json else as_text(results)
    print(text.encode(errors="backslashreplace").decode(), flush=True)
    return status


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.sweep",
        description="Compute the verdicts on many runs in one session, and print the worst first.",
        epilog="example: python -m spark_jobs.sweep .geoemu/runs --json",
    )
    parser.add_argument(
        "directories",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="a run directory, an export, or a directory of them",
    )
    parser.add_argument("--master", help=f"use this Spark cluster (default: {DEFAULT_MASTER})")
    parser.add_argument("--engine", choices=ENGINES, help="Spark, or DuckDB in this process (default: spark)")
    parser.add_argument(
        "--in-network", action="store_true", help="connect to the regions from a container in their network"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--expect",
        metavar="LIMITS",
        type=parsed_limits,
        help="check these limits on every run (default: those stored with each run)",
    )
    options = parser.parse_args(arguments)
    if options.master is not None and options.engine == "embedded":
        parser.error("--master requires Spark: the embedded engine runs in this process")
    return options


if __name__ == "__main__":
    sys.exit(main())
