"""Starts the engine that somebody asked for, and ends it.

Spark is asked unless somebody says otherwise. Where it cannot run for want of a Java, the embedded engine does its work
and says so: the verdict is the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal, get_args

from spark_jobs.engines.contract import Engine, EngineUnavailable
from spark_jobs.session import java_problem

EngineName = Literal["spark", "embedded"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


def chosen(name: EngineName | None, master: str | None = None) -> EngineName:
    """The one that was named, or else the one that can work; in that case it says on standard error why."""
    if name is not None or master is not None:
        return name or "spark"
    problem = java_problem()
    if problem is None or find_spec("duckdb") is None:
        return "spark"
    print(f"{problem} Judged by the embedded engine instead.", file=sys.stderr)
    return "embedded"


@contextlib.contextmanager
def started(name: EngineName, *, master: str | None = None, evidence_bytes: int = 0) -> Iterator[Engine]:
    """The engine, ready, until the end of the block. Raises EngineUnavailable, also for what fails within."""
    if name == "spark":
        from spark_jobs.engines.spark import spark_engine

        with spark_engine(master, evidence_bytes=evidence_bytes) as engine:
            yield engine
        return
    if find_spec("duckdb") is None:
        raise EngineUnavailable(
            "the embedded engine needs duckdb, which is not installed: pip install duckdb"
        )
    from spark_jobs.engines.embedded.engine import embedded_engine

    with embedded_engine() as engine:
        yield engine
