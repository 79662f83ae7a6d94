"""A FIFO of tasks that wait for a shared budget: the longest waiting task goes first, so that fast tasks cannot starve
the others."""

from __future__ import annotations

from typing import Protocol


class QueuedTask(Protocol):
    """A task that is scheduled when its turn may have come."""

    def schedule(self) -> None:
        """Use the turn soon, or leave the queue."""
        ...


class Turns:
    """The queue. A task that is next and cannot use its turn must leave, or it blocks all tasks behind it."""

    def __init__(self) -> None:
        self._line: dict[QueuedTask, None] = {}

    @property
    def first(self) -> QueuedTask | None:
        return next(iter(self._line), None)

    def is_next(self, one: QueuedTask) -> bool:
        """Return whether no other task has waited longer."""
        first = self.first
        return first is None or first is one

    def wait(self, one: QueuedTask) -> None:
        """Append the task, or keep its place if it already waits."""
        self._line.setdefault(one)

    def leave(self, one: QueuedTask) -> None:
        """Remove the task: it had its turn, or needs none."""
        self._line.pop(one, None)
