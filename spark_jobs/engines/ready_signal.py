"""Warm up until there is a run to verify: the caller then writes a line to standard input.

When the caller closes standard input instead, it has exited or needs no verdict. A starting Spark would notice that
only after its start, which takes a minute on a busy machine; so the whole program exits at once, and Java with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.verdict import EXIT_CODES


class ReadySignal:
    """Reads standard input in a thread of its own. Constructed in the main thread."""

    def __init__(self) -> None:
        self._given = threading.Event()
        signal.signal(signal.SIGUSR1, _end)
        threading.Thread(target=self._listen, daemon=True).start()

    def is_given(self) -> bool:
        return self._given.is_set()

    def wait(self) -> None:
        """Block until the line arrives. If it never does, this program ends."""
        self._given.wait()

    def _listen(self) -> None:
        if sys.stdin.readline():
            self._given.set()
        else:
            os.kill(os.getpid(), signal.SIGUSR1)


def _end(*_: object) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if os.getpgrp() == os.getpid():
        # Only processes that this program started; it ends by itself.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    sys.exit(EXIT_CODES["unknown"])


class Interrupted(Exception):
    """The result of the work is no longer needed."""


class Interruptible:
    """Does what `engine` does as long as `is_over` says no. Then whatever is asked of it raises Interrupted; every
    function of a frame is asked for here (`frames.py`), so a evaluation ends within one step or one job."""

    def __init__(self, engine: QueryEngine, is_over: Callable[[], bool]) -> None:
        self._engine = engine
        self._is_over = is_over

    def __getattr__(self, name: str) -> Any:
        if self._is_over():
            raise Interrupted
        return getattr(self._engine, name)
