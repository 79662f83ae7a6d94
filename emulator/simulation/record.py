"""What clients asked and what they were told, in the order in which it happened: events of `emulator.history`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from emulator.history import Event, Outcome
from emulator.simulation.clocks import EPOCH_MS
from emulator.simulation.evidence import Origin, full, origin_of


class Record:
    """Written by all actors of a world; read by the checkers, and by whoever writes a run folder."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.events: list[Event] = []
        self.received: dict[tuple[str, str], set[tuple[Origin, str]]] = defaultdict(set)
        """By (topic, subscription): what its consumers were given, wherever."""
        self._now_seconds = now_seconds

    def note(self, actor: str, op: str, outcome: Outcome, **fields: Any) -> None:
        """Stamped with the true time, never a region's."""
        at_ms = round(EPOCH_MS + self._now_seconds() * 1000, 3)
        event = Event(at_ms, actor, op, outcome, **fields)
        self.events.append(event)
        if op == "receive":
            received = self.received[full(event.topic), event.subscription or ""]
            received.add((origin_of(event), event.detail or ""))

    def fact(self, op: str, **fields: Any) -> None:
        """Something that was done to the world."""
        self.note("simulation", op, "fact", **fields)


def seconds_of(event: Event) -> float:
    """Virtual seconds since the beginning."""
    return (event.at_ms - EPOCH_MS) / 1000
