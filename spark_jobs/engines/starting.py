"""Start and stop the chosen engine, and warm it up until there is a run to verify.

Spark is the default. If it cannot run here and the caller requested neither an engine nor a cluster, the embedded
engine computes the same verdict, and the program prints a note.

The caller of `--wait` writes a line to standard input when the run can be verified. If it closes standard input
instead, it has exited or needs no verdict. A starting Spark would notice that only after its start, which takes a
minute on a busy machine; so the whole program exits at once, and Java with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Literal, get_args

from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.masters import is_local
from spark_jobs.engines.scratch import space_warning
from spark_jobs.engines.session import java_problem
from spark_jobs.verdict import EXIT_CODES

EngineName = Literal["spark", "embedded"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
SCRATCH_RATIOS: dict[EngineName, float] = {"spark": 1.4, "embedded": 0.5}
"""Estimated temporary data for one byte of evidence, with a margin. Measured: 0.8 with 1,000,000 messages of 100 bytes
and at least 1.2 with 10,000,000 by Spark, 0.2 with 1,000,000 by the embedded engine."""


def choose(name: EngineName | None, master: str | None = None) -> tuple[EngineName, str | None]:
    """Return the requested engine (a master requests Spark), else the first of Spark and embedded that can run here,
    and a remark if that is the latter. If none can run, the result is Spark."""
    if name is not None or master is not None:
        return name or "spark", None
    problem = _spark_problem()
    if problem is None or why_not("embedded"):
        return "spark", None
    return "embedded", f"{problem} The embedded engine computes the verdict."


def space_remark(name: EngineName, master: str | None, evidence_bytes: int) -> str | None:
    """Return a warning if the temporary data of the engine may fill the disk. Those of a cluster are on its workers."""
    if name == "spark" and master is not None and not is_local(master):
        return None
    return space_warning(evidence_bytes, SCRATCH_RATIOS[name])


def why_not(name: EngineName) -> str | None:
    """Return why an engine cannot run here, as one sentence; None when it can."""
    if name == "spark":
        problem = _spark_problem()
        return problem and f"{problem} Or use --engine embedded."
    if find_spec("duckdb") is None:
        return "The embedded engine needs the package duckdb, and it is not installed: pip install duckdb."
    return None


def _spark_problem() -> str | None:
    if find_spec("pyspark") is None:
        return "Spark is not installed: make setup GOAL=run, or pip install 'geoemu[spark]'."
    return java_problem()


@contextlib.contextmanager
def started(name: EngineName, *, master: str | None = None, evidence_bytes: int = 0) -> Iterator[QueryEngine]:
    """Start an engine that ends with the block. Raises EngineUnavailable, also for errors of the engine within it."""
    if problem := why_not(name):
        raise EngineUnavailable(problem)
    if name == "spark":
        from spark_jobs.engines.spark import spark_engine

        with spark_engine(master, evidence_bytes=evidence_bytes) as engine:
            yield engine
    else:
        from spark_jobs.engines.embedded.engine import embedded_engine

        with embedded_engine(evidence_bytes) as embedded:
            yield embedded


class ReadySignal:
    """The line on standard input that requests the verdict, read in a thread. Must be created in the main thread."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self.line = ""
        """The line, without its newline, when it has arrived."""
        signal.signal(signal.SIGUSR1, _exit)
        threading.Thread(target=self._listen, daemon=True).start()

    def is_given(self) -> bool:
        return self._requested.is_set()

    def wait(self) -> None:
        """Block until the line arrives. If standard input is closed instead, this program exits as with an unknown
        verdict."""
        self._requested.wait()

    def _listen(self) -> None:
        if line := sys.stdin.readline():
            self.line = line.strip()
            self._requested.set()
        else:
            os.kill(os.getpid(), signal.SIGUSR1)


def _exit(*_: object) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if os.getpgrp() == os.getpid():
        # The group contains only this program, which ignores the signal, and the processes that it started.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    sys.exit(EXIT_CODES["unknown"])


class Interrupted(Exception):
    """The result of the work is no longer needed."""


class Interruptible:
    """An engine until `is_over` returns true; then each access raises Interrupted. `frames.py` accesses the engine for
    every function of a frame, so an evaluation ends within one step or one job."""

    def __init__(self, engine: QueryEngine, is_over: Callable[[], bool]) -> None:
        self._engine = engine
        self._is_over = is_over

    def __getattr__(self, name: str) -> Any:
        if self._is_over():
            raise Interrupted
        return getattr(self._engine, name)
