"""`make swarm`: randomised fault-injection runs in virtual time, one for each seed.

    python -m tests.swarm [--workload NAME] [--seeds N] [--from S] [--jobs J] [--without MUTANT] [--shrink]

Exit codes: 0 no seed failed, 1 a seed failed, 2 an unknown name, 130 interrupted. `make` itself ends with 2 whenever
this program does not end with 0.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import emulator
from emulator.cli.application import INTERRUPTED_EXIT_CODE
from emulator.cli.seed_report import SeedReport
from emulator.compiled import compiled_digest
from emulator.model.suggestions import nearest
from emulator.runtimes.spinner import spinner
from tests.swarm.generator.kinds import KINDS
from tests.swarm.mutants import BY_NAME, overrides_without
from tests.swarm.names import FORMER_WORKLOADS
from tests.swarm.runner import run_seed
from tests.swarm.search import run_workload
from tests.swarm.shrink import shrink, story_of


def at_least(least: int) -> Callable[[str], int]:
    """Return an argument parser for whole numbers of at least `least`. A run with no seeds would pass untested."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, at least {least}")
        return number

    return parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that the command line selects. Return the exit code."""
    options = _parser().parse_args(arguments)
    if options.list:
        _print_workloads()
        return 0
    problem = _unknown("workload", options.workload, list(KINDS))
    if options.without is not None:
        problem = problem or _unknown("mutant", options.without, list(BY_NAME)) or _not_of_sources()
    if problem:
        print(problem, file=sys.stderr)
        return 2
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.swarm", description="Run generated workloads and faults in virtual time."
    )
    parser.add_argument("--workload", default="swarm", help="one of --list; default: swarm, a random mix")
    parser.add_argument("--list", action="store_true", help="list the workloads, and exit")
    parser.add_argument(
        "--seeds",
        type=at_least(1),
        help="number of seeds; default: 100, or as many as the time budget allows",
    )
    parser.add_argument("--from", dest="first", type=at_least(0), default=1, help="the first seed")
    parser.add_argument("--jobs", type=at_least(1), default=1, help="number of processes")
    parser.add_argument("--time-budget", type=float, metavar="SECONDS", help="stop after this time")
    parser.add_argument(
        "--without", metavar="MUTANT", help="remove one safeguard (docs/reference/mutants.md)"
    )
    parser.add_argument("--shrink", action="store_true", help="minimise the first failing seed")
    parser.add_argument("--run-dir", type=Path, help="run directory of the first failing seed")
    return parser


def _run(options: argparse.Namespace) -> int:
    number_of_seeds = options.seeds
    if number_of_seeds is None and options.time_budget is None:
        number_of_seeds = 100
    seeds = (
        count(options.first)
        if number_of_seeds is None
        else range(options.first, options.first + number_of_seeds)
    )

    def replay(seed: int) -> str:
        workload = "" if options.workload == "swarm" else f" WORKLOAD={options.workload}"
        without = f" WITHOUT={options.without}" if options.without else ""
        return f"make swarm SEED={seed}{workload}{without}"

    report = SeedReport(options.workload, options.first, replay, options.run_dir)
    results = run_workload(
        options.workload,
        seeds,
        jobs=options.jobs,
        time_budget_seconds=options.time_budget,
        without=options.without,
    )
    report.follow(results, stop_at_first=options.shrink)
    results.close()
    if number_of_seeds == 1:
        report.print_trace()
    if report.failed:
        _store(report, options)
    report.print_summary()
    return 1 if report.failed else 0


def _store(report: SeedReport, options: argparse.Namespace) -> None:
    """Run the first failing seed again, to store its run directory and to shrink it."""
    seed, overrides = report.failed[0].seed, overrides_without(options.without)
    outcome = run_seed(options.workload, seed, overrides=overrides)
    report.store(outcome)
    if options.shrink:
        with spinner(f"shrinking seed {seed}", sys.stderr):
            outcome = shrink(outcome, overrides=overrides)
        print(f"seed {seed}, shrunk:")
        for line in story_of(outcome):
            print(f"    {line}")
        report.store(outcome, "-shrunk")


def _print_workloads() -> None:
    width = max(map(len, KINDS))
    for name, kind in KINDS.items():
        print(f"{name:{width}}  {kind.about}")


def _not_of_sources() -> str:
    """Return the error message if modules are compiled: they call each other without the methods of a mutant."""
    if compiled_digest(Path(emulator.__file__).parent) is None:
        return ""
    return "a mutant replaces methods of the sources, and modules are compiled: `make slow` removes the compiled ones"


def _unknown(what: str, name: str, known: list[str]) -> str:
    """Return the error message for an unknown workload or mutant; empty if the name is known."""
    if name in known:
        return ""
    if present := FORMER_WORKLOADS.get(name):
        return f"{what} {name}: was renamed to {present}"
    guess = nearest(name, known)
    hint = f"; did you mean {guess}?" if guess else ""
    choice = f"one of {', '.join(known)}" if what == "workload" else "a mutant of docs/reference/mutants.md"
    return f"{what} {name}: must be {choice}{hint}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
