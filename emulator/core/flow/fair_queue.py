"""Who waits for a budget that several share: whoever has waited longest goes first, so that who is quick does not keep
it from all others for ever."""

from __future__ import annotations

from typing import Protocol


class QueuedTask(Protocol):
    """Is told when its turn may have come."""

    def schedule(self) -> None:
        """Take the turn in a moment, or give way."""
        ...


class Turns:
    """A line. Whoever is next and cannot use its turn leaves, or nobody behind it ever gets one."""

    def __init__(self) -> None:
        self._line: dict[QueuedTask, None] = {}

    @property
    def first(self) -> QueuedTask | None:
        return next(iter(self._line), None)

    def is_next(self, one: QueuedTask) -> bool:
        """Nobody has waited longer."""
        first = self.first
        return first is None or first is one

    def wait(self, one: QueuedTask) -> None:
        """It takes its place at the end, or keeps the one it has."""
        self._line.setdefault(one)

    def leave(self, one: QueuedTask) -> None:
        """It had its turn, or wants none."""
        self._line.pop(one, None)
