"""Checks of workloads whose programs check themselves: only they know the responses that they received. They report a
problem in the detail of their result, after a prefix that names its kind."""

from __future__ import annotations

from collections.abc import Callable

from emulator.simulation.checkers import Found
from tests.swarm.evidence import Evidence


def told(workload: str, kind: str, sentence: str) -> Callable[[Evidence], Found]:
    """Return a check for the problems of one kind that the programs of a workload report; `sentence` describes the
    kind."""

    def check(evidence: Evidence) -> Found:
        for operation in evidence.operations:
            if operation.workload == workload and operation.detail.startswith(kind):
                said = f"{operation.topic}: {sentence}: {operation.detail.removeprefix(kind)}"
                yield said, {"region": operation.region, "topic": operation.topic}

    return check


def acted(workload: str) -> Callable[[Evidence], bool]:
    """Return a predicate: did any program of the workload run?"""
    return lambda evidence: any(operation.workload == workload for operation in evidence.operations)
