"""The register of situations: one for each row of the table of reasons.

A situation is an asynchronous generator. It establishes the condition of its row and yields a function that returns the
codes of the current reasons. When resumed it ends the condition, and yields once more before its clean-up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from emulator.model.reasons import Reason, ReasonRow

Codes = Callable[[], Iterable[str]]
Ask = Callable[[], Reason]
Situation = Callable[[], AsyncIterator[Codes]]
SITUATIONS: dict[ReasonRow, Situation] = {}


def situation(cause: ReasonRow) -> Callable[[Situation], Situation]:
    """Register the only situation of a row."""

    def register(drive: Situation) -> Situation:
        assert cause not in SITUATIONS, f"{cause.name} has two situations"
        SITUATIONS[cause] = drive
        return drive

    return register


def of_machine(cause: ReasonRow) -> Callable[[Callable[[], Iterator[Ask]]], object]:
    """Register a situation of a pure state machine: a generator that yields a function for the current reason."""

    def register(act: Callable[[], Iterator[Ask]]) -> object:
        @situation(cause)
        async def scene() -> AsyncIterator[Codes]:
            steps = act()
            yield of_reason(next(steps))
            next(steps, None)
            yield tuple

        return act

    return register


def of_reason(ask: Ask) -> Codes:
    """Return a function that returns the code of one reason as a tuple; without a reason, an empty one."""
    return lambda: tuple(filter(None, [ask().code]))
