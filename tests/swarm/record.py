"""The record of a generated run: its history and the additional records of workloads."""

from __future__ import annotations

from collections.abc import Callable

from emulator.simulation.history import SimulatedHistory
from tests.swarm.checkers.claims import Claims
from tests.swarm.checkers.transaction_tasks import Tasks
from tests.swarm.evidence import OperationResult


class Record(SimulatedHistory):
    """A history, with records that workloads keep for their own checks."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        super().__init__(now_seconds)
        self.operations: list[OperationResult] = []
        self.claims = Claims()
        self.tasks = Tasks()
