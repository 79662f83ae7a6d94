"""Start and stop the chosen engine.

Spark is the default. Where it is not installed, or finds no Java, the embedded engine computes the verdict and prints
a note: the verdict is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal, get_args

from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.session import java_problem

EngineName = Literal["spark", "embedded"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


def choose(name: EngineName | None, master: str | None = None) -> tuple[EngineName, str | None]:
    """The engine that was named, or else the one that can work; and a remark if that is not the usual one."""
    if name is not None or master is not None:
        return name or "spark", None
    problem = _spark_problem()
    if problem is None or why_not("embedded"):
        return "spark", None
    return "embedded", f"{problem} The embedded engine computes the verdict."


def why_not(name: EngineName) -> str | None:
    """Why an engine cannot work here, as one sentence; None when it can."""
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
    """The engine, ready, until the end of the block. Raises EngineUnavailable, also for what fails within."""
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
