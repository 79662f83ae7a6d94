"""The requests of clients in a simulated world and the responses they received: events of `emulator.run.history`, in
the order in which they happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from emulator.client import Message
from emulator.run.history_events import HistoryEvent, Outcome
from emulator.simulation.evidence import DeliveredMessages, Published, Windows, note_publish, origin_of
from emulator.simulation.host import HostState
from emulator.simulation.virtual_time import EPOCH_MS

if TYPE_CHECKING:
    from emulator.simulation.region import SimulatedRegion


_LINK_OPS = ("cut", "hold", "flap", "heal")
"""Facts about links without which a link would be recorded as cut until the end."""


class SimulatedHistory:
    """Written by all programs of a world; read by the checkers and by `run_folder`."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.events: list[HistoryEvent] = []
        self.delivered = DeliveredMessages()
        self.published: Published = {}
        self.windows = Windows(now_seconds)
        self._now_seconds = now_seconds
        self._newest_at = (-1.0, 0.0)
        """The time of the newest event, in virtual seconds and as events contain it."""
        self._sessions = 0

    def note(self, actor: str, op: str, outcome: Outcome, **fields: Any) -> None:
        """Add an event to the history and to the evidence. Its time is virtual time, not a region's wall clock."""
        event = HistoryEvent(self._now_ms(), actor, op, outcome, **fields)
        self.events.append(event)
        if op == "publish":
            note_publish(self.published, event)
        elif op == "receive":
            origin, subscription = origin_of(event), event.subscription or ""
            self.delivered.add(event.region or "", origin.topic, subscription, origin, event.detail or "")

    def add_event(self, actor: str, op: str, outcome: Outcome, **fields: Any) -> None:
        """Add an event to the history, without adding it to `published` or `delivered`."""
        self.events.append(HistoryEvent(self._now_ms(), actor, op, outcome, **fields))

    def _now_ms(self) -> float:
        now_seconds = self._now_seconds()
        if now_seconds != self._newest_at[0]:  # clients send and receive several messages at once
            self._newest_at = (now_seconds, round(EPOCH_MS + now_seconds * 1000, 3))
        return self._newest_at[1]

    def new_session(self, producer: str) -> str:
        """Return a session name that is unique in this world."""
        self._sessions += 1
        return f"{producer}#{self._sessions}"

    def fact(self, op: str, **fields: Any) -> None:
        """Add a fact: a fault or another action of the run."""
        self.note("simulation", op, "fact", **fields)


def note_repair(history: SimulatedHistory, regions: Iterable[SimulatedRegion]) -> None:
    """Add the facts that links heal if any was cut, and that these regions start or resume if they are down or
    paused."""
    link_facts = [event for event in history.events if event.op in _LINK_OPS and event.outcome == "fact"]
    if link_facts and (link_facts[-1].op, link_facts[-1].region) != ("heal", None):
        history.fact("heal")
    for region in regions:
        if not region.should_run:
            history.fact("start", region=region.name)
        elif region.host.state is HostState.PAUSED:
            history.fact("resume", region=region.name)


def message_id_text(message: Message) -> str:
    """Return the message id as histories contain it: `ledger:entry:batch_index`."""
    id_ = message.id
    return f"{id_.ledger}:{id_.entry}:{id_.batch_index}"


def text_of(message: Message) -> str:
    """Return the text of the payload, without the spaces that pad it."""
    return message.payload.rstrip(b" ").decode()
