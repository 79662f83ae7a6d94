"""Judges of workloads whose programs judge themselves: they alone know what they were told, and say what was wrong
with it in the detail of their result, behind a word that says of which kind it is."""

from __future__ import annotations

from collections.abc import Callable

from emulator.simulation.checkers import Found
from tests.swarm.evidence import Evidence


def told(workload: str, kind: str, sentence: str) -> Callable[[Evidence], Found]:
    """What programs of a workload say of this kind, after a sentence that says what is wrong with all of it."""

    def check(evidence: Evidence) -> Found:
        for operation in evidence.operations:
            if operation.workload == workload and operation.detail.startswith(kind):
                said = f"{operation.topic}: {sentence}: {operation.detail.removeprefix(kind)}"
                yield said, {"region": operation.region, "topic": operation.topic}

    return check


def acted(workload: str) -> Callable[[Evidence], bool]:
    """Whether there were any."""
    return lambda evidence: any(operation.workload == workload for operation in evidence.operations)
