"""`python -m spark_jobs.verify RUN_DIR`: the verdict on a run, and its report.

`evaluate_run` loads, normalises and evaluates a run; `render` writes the report. Exit code 0: valid, and all limits
are kept; 1: invalid, or a limit was missed; 2: the verdict or a limit is unknown, or no verdict was computed (then
standard error has a sentence).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from emulator.run.limits import LIMITS_FILE, Limit, parse_limits, read_limits
from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.engines.masters import DEFAULT_MASTER
from spark_jobs.engines.starting import (
    ENGINES,
    Interrupted,
    Interruptible,
    ReadySignal,
    choose,
    space_remark,
    started,
)
from spark_jobs.evaluation import Evaluation, evaluate
from spark_jobs.figures.limits import exit_code
from spark_jobs.live.following import ENDED, INTERRUPTED, StopSignal, follow_run
from spark_jobs.live.output import JsonOutput, TextOutput, verdict_event
from spark_jobs.loading import load, normalise
from spark_jobs.report.ci_report import junit, markdown
from spark_jobs.report.report import summary, write_report
from spark_jobs.sources.export_folder import ExportUnreadable
from spark_jobs.sources.growing import RunVanished
from spark_jobs.sources.run_folder import looks_like_a_run, open_run_folder
from spark_jobs.tiny_run import tiny_run
from spark_jobs.verdict import EXIT_CODES

Renderer = Callable[[Evaluation], str]


class ReportNotWritten(Exception):
    """A file of the report cannot be written. The message is a sentence with the verdict and the file."""


class LimitsUnreadable(Exception):
    """The limits stored with a run cannot be read. The message is a sentence without its full stop."""


def evaluate_run(
    engine: QueryEngine,
    run: Path,
    *,
    in_network: bool = False,
    limits: Sequence[Limit] = (),
    follow: Sequence[tuple[str, int]] = (),
) -> Evaluation:
    """Compute the verdict on a run directory. Missing or damaged evidence makes the verdict unknown.

    `in_network`: see `open_run_folder`. `limits`, `follow`: see `evaluate`."""
    folder = open_run_folder(run, in_network=in_network)
    engine.tune(folder.size_bytes)
    with use_engine(engine):
        loaded = load(folder)
        normalised = normalise(loaded)
        return evaluate(loaded, normalised, limits=limits, follow=follow)


def warm_up(engine: QueryEngine) -> Evaluation:
    """Evaluate a tiny run, so that the engine loads the code of all queries. Also a self-test: the run is valid."""
    with tiny_run() as run:
        return evaluate_run(engine, run)


def render(evaluation: Evaluation, report: Path, files: Mapping[Renderer, Path | None]) -> Path:
    """Write the report, and with each renderer a further file unless its path is None; return the path of the page.
    Raises ReportNotWritten."""
    target = report
    try:
        page = write_report(evaluation, report)
        for renderer, path in files.items():
            if path is not None:
                target = path
                path.write_text(renderer(evaluation), encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        what = "the report" if target == report else str(target)
        raise ReportNotWritten(
            f"the verdict is {evaluation.verdict}, but {what} cannot be written: {problem}"
        ) from problem
    return page


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    return exit_code_of(lambda: _perform(options))


def _perform(options: argparse.Namespace) -> int:
    run: Path = options.run_dir
    if not options.wait and not looks_like_a_run(run):
        return _give_up(f"{run} is not a run directory; use one that `geoemu up` or `geoemu run` created")
    ready = ReadySignal() if options.wait else None
    try:
        name, remark = choose(options.engine, options.master)
        evidence_bytes = open_run_folder(run).size_bytes
        for line in filter(None, [remark, space_remark(name, options.master, evidence_bytes)]):
            print(line, file=sys.stderr, flush=True)
        with started(name, master=options.master, evidence_bytes=evidence_bytes) as engine:
            if options.follow:
                _follow(engine, name, run, options, ready)
            elif ready is not None:
                with contextlib.suppress(Interrupted):
                    warm_up(Interruptible(engine, ready.is_given))
                ready.wait()
            return _verify(engine, run, options)
    except (ExportUnreadable, LimitsUnreadable, ReportNotWritten, RunVanished) as problem:
        return _give_up(str(problem))


def exit_code_of(program: Callable[[], int]) -> int:
    """Run a program that computes verdicts, and return its exit code. Any failure of it is no verdict."""
    received = signal.SIGINT

    def interrupt(number: int, _: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        return program()
    except EngineUnavailable as problem:
        return _give_up(str(problem))
    except PermissionError as problem:
        return _give_up(f"user {os.getuid()} has no permission to read {problem.filename}")
    except KeyboardInterrupt:
        return 128 + received
    except BrokenPipeError:
        # The reader of the output has ended: Python would report the same error when it flushes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODES["unknown"]
    except Exception:
        traceback.print_exc()  # a defect; Python would exit with 1, the code of an invalid verdict
        return EXIT_CODES["unknown"]


def _follow(
    engine: QueryEngine, name: str, run: Path, options: argparse.Namespace, ready: ReadySignal | None
) -> None:
    """Follow the run until it has ended, or SIGINT; with `--wait` until the line on standard input, while SIGINT ends
    this program."""

    def requested() -> str | None:
        if ready is None or not ready.is_given():
            return None
        return INTERRUPTED if ready.line == INTERRUPTED else ENDED

    stop = StopSignal(requested)
    output = JsonOutput(sys.stdout) if options.json else TextOutput(sys.stdout)
    with contextlib.nullcontext() if ready is not None else stop.on_interrupt():
        output.started(options.called or str(run), name)
        follow_run(engine, run, output, stop, in_network=options.in_network)


def _verify(engine: QueryEngine, run: Path, options: argparse.Namespace) -> int:
    evaluation = evaluate_run(
        engine,
        run,
        in_network=options.in_network,
        limits=limits_of(run, options.expect),
        follow=options.message,
    )
    if options.called is not None:
        evaluation = dataclasses.replace(evaluation, run=options.called)
    files: dict[Renderer, Path | None] = {junit: options.junit, markdown: options.markdown}
    page = render(evaluation, options.report or run / "report", files)
    if options.called is not None and page.is_relative_to(run):
        page = page.relative_to(run)
        page = Path(options.called) / page if Path(options.called).is_absolute() else page
    report = evaluation.as_json()
    if options.json:
        text = json.dumps(verdict_event(report) if options.follow else report)
    else:
        text = summary(evaluation, page)
    print(text.encode(errors="backslashreplace").decode(), flush=True)
    return exit_code(evaluation.verdict, evaluation.limits)


def limits_of(run: Path, expect: tuple[Limit, ...] | None) -> tuple[Limit, ...]:
    """Return the given limits, or else those stored with the run. Raises LimitsUnreadable."""
    if expect is not None:
        return expect
    file = run / LIMITS_FILE
    try:
        return read_limits(file.read_text()) if file.is_file() else ()
    except ValueError as problem:
        raise LimitsUnreadable(f"the limits in {file} cannot be read: {problem}") from problem


def _give_up(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return EXIT_CODES["unknown"]


def parsed_limits(text: str) -> tuple[Limit, ...]:
    """Parse the value of `--expect`. Raises argparse.ArgumentTypeError."""
    try:
        return parse_limits(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _parsed_message(text: str) -> tuple[str, int]:
    producer, _, number = text.rpartition(":")
    if not producer or not number.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a message: write its producer and sequence id, such as orders:981"
        )
    return producer, int(number)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.verify",
        description="Check the stored logs of a run against its clients' histories, and write a report.",
        epilog="example: python -m spark_jobs.verify runs/latest --json",
    )
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="directory of the run, or of an export of it"
    )
    _add_engine(parser)
    _add_content(parser)
    _add_output(parser)
    options = parser.parse_args(arguments)
    if options.master is not None and options.engine == "embedded":
        parser.error("--master requires Spark: the embedded engine runs in this process")
    return options


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options of where and when the verdict is computed."""
    parser.add_argument(
        "--master",
        help=f"use this Spark cluster, which must see RUN_DIR under the same path (default: {DEFAULT_MASTER})",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="compute the verdict with Spark, or with DuckDB in this process, without Java, for runs of up to a million"
        " messages (default: spark, or embedded where there is no Java)",
    )
    parser.add_argument(
        "--in-network", action="store_true", help="connect to the regions from a container in their network"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print lags and violations while the run is running, and the verdict when it has ended",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="start the engine now, verify when a line arrives on standard input; with --follow, follow until then",
    )


def _add_content(parser: argparse.ArgumentParser) -> None:
    """Add the options of what the report contains."""
    parser.add_argument(
        "--expect",
        metavar="LIMITS",
        type=parsed_limits,
        help="check these limits, such as unrecovered=0,gap<=5s (default: those stored with the run)",
    )
    parser.add_argument(
        "--message",
        metavar="PRODUCER:NUMBER",
        type=_parsed_message,
        action="append",
        default=[],
        help="print the journey of a message, given by its producer and sequence id",
    )
    parser.add_argument(
        "--called",
        metavar="NAME",
        help="name of the run in the report (default: its directory)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is written, and where."""
    parser.add_argument("--json", action="store_true", help="print report.json instead of text")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help="write the report to this directory (default: RUN_DIR/report)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the checks as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the checks as Markdown")


if __name__ == "__main__":
    sys.exit(main())
