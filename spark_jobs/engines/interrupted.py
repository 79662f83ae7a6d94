"""An engine whose work can be ended between two of its steps, from another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_jobs.engines.contract import QueryEngine


class Interrupted(Exception):
    """Its work is no longer wanted."""


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
