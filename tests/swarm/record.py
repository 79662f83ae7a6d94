"""The record of a generated run: its history and the additional records of workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.client import Message
from emulator.run.history_events import payload_digest
from emulator.simulation.history import SimulatedHistory, message_id_text, text_of
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


def received_fields(message: Message, region: str) -> dict[str, Any]:
    """Return what a history states of a message that a client of this region received."""
    return {
        "origin_region": message.replicated_from or region,
        "producer": message.producer_name,
        "sequence_id": message.sequence_id,
        "message_id": message_id_text(message),
        "payload_digest": payload_digest(message.payload),
        "detail": text_of(message),
    }
