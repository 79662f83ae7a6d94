"""What clients asked and what they were told, in the order in which it happened: events of `emulator.run.history`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.run.history import Event, Outcome
from emulator.simulation.claims import Claims
from emulator.simulation.clocks import EPOCH_MS
from emulator.simulation.evidence import Asked, Deed, Given, Windows, full, note_publish, origin_of
from emulator.simulation.tasks import Tasks


class Record:
    """Written by all actors of a world; read by the checkers, and by whoever writes a run folder."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.events: list[Event] = []
        self.given = Given()
        self.asked: Asked = {}
        self.deeds: list[Deed] = []
        self.claims = Claims()
        self.tasks = Tasks()
        self.windows = Windows(now_seconds)
        self._now_seconds = now_seconds
        self._sessions = 0

    def note(self, actor: str, op: str, outcome: Outcome, **fields: Any) -> None:
        """Stamped with the true time, never a region's."""
        self.tell(actor, op, outcome, **fields)
        event = self.events[-1]
        if op == "publish":
            note_publish(self.asked, event)
        elif op == "receive":
            topic, subscription = full(event.topic), event.subscription or ""
            self.given.add(event.region or "", topic, subscription, origin_of(event), event.detail or "")

    def tell(self, actor: str, op: str, outcome: Outcome, **fields: Any) -> None:
        """For the run's folder: the swarm judges this by what the same actor noted elsewhere."""
        at_ms = round(EPOCH_MS + self._now_seconds() * 1000, 3)
        self.events.append(Event(at_ms, actor, op, outcome, **fields))

    def new_session(self, producer: str) -> str:
        """A name that no other opened producer of this world has."""
        self._sessions += 1
        return f"{producer}#{self._sessions}"

    def fact(self, op: str, **fields: Any) -> None:
        """Something that was done to the world."""
        self.note("simulation", op, "fact", **fields)
