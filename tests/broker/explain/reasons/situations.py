"""The register of situations: one for each row of the table of reasons.

A situation is an asynchronous generator. It builds the condition of its row and yields a function that returns the
codes of the reasons that are given now. Resumed, it ends the condition and yields nothing more before its clean-up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from emulator.model.reasons import Reason, ReasonRow

Codes = Callable[[], Iterable[str]]
Situation = Callable[[], AsyncIterator[Codes]]
SITUATIONS: dict[ReasonRow, Situation] = {}


def situation(cause: ReasonRow) -> Callable[[Situation], Situation]:
    """Register the situation of a row. A row has one."""

    def register(drive: Situation) -> Situation:
        assert cause not in SITUATIONS, f"{cause.name} has two situations"
        SITUATIONS[cause] = drive
        return drive

    return register


def of_reason(ask: Callable[[], Reason]) -> Codes:
    """The codes of one reason."""
    return lambda: tuple(filter(None, [ask().code]))
