"""Follow a run that is running: read new evidence until the run has ended or the user interrupts.

The run has ended when `run.json` says so, or when the program that started it and all regions are gone. A run without
a readable `run.json` has ended when each of its histories has an end or a seal.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emulator.run.history import is_closed
from emulator.run.json_text import parse_json
from emulator.run.processes import ProcessIdentity, state_of
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import DataFrame, use_engine
from spark_jobs.live.follower import RunFollower
from spark_jobs.live.output import FollowOutput
from spark_jobs.sources.growing import GrowingRun, RunVanished
from spark_jobs.sources.run_folder import looks_like_a_run, open_run_folder

INTERVAL_S = 2.0
"""Time between the end of a step and the next one."""
_POLL_S = 0.1
ENDED = "the run has ended"
INTERRUPTED = "interrupted"


class StopSignal:
    """Requests the end of following: set by SIGINT, or by the caller of `--wait`."""

    def __init__(self, requested: Callable[[], str | None] = lambda: None) -> None:
        """`requested` returns why the caller requests the end; None: it does not."""
        self._interrupted = threading.Event()
        self._requested = requested

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Within the block, the first SIGINT sets this signal; the second one raises KeyboardInterrupt."""
        previous = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    def wait(self, seconds: float) -> None:
        """Block for this time, or until there is a reason to end."""
        deadline = time.monotonic() + seconds
        while self.reason is None and (left := deadline - time.monotonic()) > 0:
            self._interrupted.wait(min(left, _POLL_S))

    @property
    def reason(self) -> str | None:
        """Why following should end; None: it should continue."""
        if self._interrupted.is_set():
            return INTERRUPTED
        return self._requested()

    def _interrupt(self, *_: object) -> None:
        self._interrupted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)


def follow_run(
    engine: QueryEngine,
    run: Path,
    output: FollowOutput,
    stop: StopSignal,
    *,
    in_network: bool = False,
    interval_s: float = INTERVAL_S,
) -> None:
    """Follow a run until it has ended, or `stop` requests it. Raises RunVanished."""
    steps = _Steps(run, output, in_network)

    def wait() -> bool:
        stop.wait(interval_s if steps.count else 0.0)
        if not looks_like_a_run(run):
            raise RunVanished(f"the run directory {run} no longer exists")
        steps.why = stop.reason or (ENDED if has_ended(run) else None)
        return steps.why is not None

    # Without settings for little evidence, each of the dozens of shuffles of a step on Spark has 200 tasks.
    engine.tune(open_run_folder(run, in_network=in_network).size_bytes)
    engine.follow(GrowingRun(run.absolute(), in_network), steps.add, wait)
    output.ended(steps.why or ENDED)


class _Steps:
    def __init__(self, run: Path, output: FollowOutput, in_network: bool) -> None:
        self._run, self._output, self._in_network = run, output, in_network
        self._follower: RunFollower | None = None
        self.count = 0
        self.why: str | None = None

    def add(self, engine: QueryEngine, rows: DataFrame | None) -> None:
        with use_engine(engine):
            if self._follower is None:
                self._follower = RunFollower(
                    self._run, in_network=self._in_network, on_violation=self._output.violation
                )
            self._follower.step(rows)
        self.count += 1
        self._output.progress(self._follower.progress(has_ended=self.why is not None))


def has_ended(run: Path) -> bool:
    """Return whether no more evidence is written to a run directory."""
    try:
        record = parse_json((run / "run.json").read_text())
        ended, owner, regions = record["ended"], record["owner"], record["regions"].values()
        if record["runtime"] == "compose" or ended:
            return bool(ended)
        processes = [owner, *(region["process"] for region in regions if region["process"])]
        return all(_is_gone(process) for process in processes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        files = [*(run / "history").glob("*.jsonl")]
        return bool(files) and all(map(is_closed, files))


def _is_gone(process: Any) -> bool:
    return state_of(ProcessIdentity(process["pid"], process["started"])) == "gone"
