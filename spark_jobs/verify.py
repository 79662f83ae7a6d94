"""`python -m spark_jobs.verify RUN_DIR`: the verdict on a run, and its report.

Exit code 0 valid, 1 invalid or a limit was missed, 2 unknown; also 2, with one sentence on standard error, when it
could not be found out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from emulator.run.limits import LIMITS_FILE, Limit, parse_limits, read_limits
from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.ready_signal import Word
from spark_jobs.engines.session import LOCAL_MASTER
from spark_jobs.engines.starting import ENGINES, choose, started
from spark_jobs.sources.run_folder import looks_like_a_run, open_run_folder
from spark_jobs.verdict import EXIT_CODES


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    run: Path = options.run_dir
    if not options.wait and not looks_like_a_run(run):
        return _give_up(f"{run} is not a run directory; use one that `geoemu up` or `geoemu run` created")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    word = Word() if options.wait else None
    try:
        name, remark = choose(options.engine, options.master)
        if remark:
            print(remark, file=sys.stderr, flush=True)
        with started(name, master=options.master, evidence_bytes=open_run_folder(run).size_bytes) as engine:
            if word is not None:
                _warm_up(engine, word)
                word.wait()
            return _verify(engine, run, options)
    except EngineUnavailable as problem:
        return _give_up(str(problem))
    except PermissionError as problem:
        return _give_up(f"user {os.getuid()} has no permission to read {problem.filename}")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _verify(engine: QueryEngine, run: Path, options: argparse.Namespace) -> int:
    # Only now: of no use where no engine can start.
    from spark_jobs.evaluation import judge_run
    from spark_jobs.figures.limits import exit_code
    from spark_jobs.report.ci_report import junit, markdown
    from spark_jobs.report.report import summary, write_report

    judgement = judge_run(
        engine, run, in_network=options.in_network, limits=_limits(run, options), follow=options.message
    )
    if options.called is not None:
        judgement = dataclasses.replace(judgement, run=options.called)
    try:
        page = write_report(judgement, options.report or run / "report")
    except OSError as problem:
        return _give_up(f"the verdict is {judgement.verdict}, but the report cannot be written: {problem}")
    if options.called is not None and page.is_relative_to(run):
        page = page.relative_to(run)
        page = Path(options.called) / page if Path(options.called).is_absolute() else page
    for path, render in ((options.junit, junit), (options.markdown, markdown)):
        if path is not None:
            try:
                path.write_text(render(judgement), encoding="utf-8")
            except OSError as problem:
                return _give_up(
                    f"the verdict is {judgement.verdict}, but {path} cannot be written: {problem}"
                )
    print(json.dumps(judgement.as_json()) if options.json else summary(judgement, page), flush=True)
    return exit_code(judgement.verdict, judgement.limits)


def _limits(run: Path, options: argparse.Namespace) -> tuple[Limit, ...]:
    """Those typed, or those that the run was made with."""
    if options.expect is not None:
        limits: tuple[Limit, ...] = options.expect
        return limits
    file = run / LIMITS_FILE
    return read_limits(file.read_text()) if file.is_file() else ()


def _warm_up(engine: QueryEngine, word: Word) -> None:
    """Wake everything while others still work, and no longer: what is left of it would only come first."""
    from spark_jobs.engines.interrupted import Interrupted, Interruptible
    from spark_jobs.engines.warm_up import warm_up

    with contextlib.suppress(Interrupted):
        warm_up(Interruptible(engine, word.is_given))


def _give_up(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return EXIT_CODES["unknown"]


def _parsed_limits(text: str) -> tuple[Limit, ...]:
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
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="directory of the run")
    parser.add_argument(
        "--master",
        help=f"use this Spark cluster, which must see RUN_DIR under the same path (default: {LOCAL_MASTER})",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="compute the verdict with Spark, or with DuckDB in this process, without Java, for runs of up to a million"
        " messages (default: spark, or embedded where there is no Java)",
    )
    parser.add_argument("--json", action="store_true", help="print report.json instead of text")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help="write the report to this directory (default: RUN_DIR/report)",
    )
    parser.add_argument(
        "--expect",
        metavar="LIMITS",
        type=_parsed_limits,
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
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the checks as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the checks as Markdown")
    parser.add_argument(
        "--in-network", action="store_true", help="connect to the regions from a container in their network"
    )
    parser.add_argument(
        "--called",
        metavar="NAME",
        help="name of the run in the report (default: its directory)",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="start the engine now, verify when a line arrives on standard input",
    )
    options = parser.parse_args(arguments)
    if options.master is not None and options.engine == "embedded":
        parser.error("--master requires Spark: the embedded engine runs in this process")
    return options


if __name__ == "__main__":
    sys.exit(main())
