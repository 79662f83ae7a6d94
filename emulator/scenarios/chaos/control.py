"""What the caller of a run decides about its random faults, and what it learns of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from emulator.scenarios.chaos.memory import MemoryCurves


class ChaosObserver(Protocol):
    """Receives each beginning, end and repair: its time in seconds since the first, the step, and its failure, if any.
    Must not block."""

    def __call__(self, seconds: float, text: str, failure: str | None) -> None: ...


def observe_nothing(seconds: float, text: str, failure: str | None) -> None:
    """The observer of a run whose caller is not interested."""


@dataclass(frozen=True, slots=True)
class ChaosControl:
    """Controls all `chaos` steps of a run."""

    seed: int = 1
    """Seed of the steps that name none."""
    observe: ChaosObserver = observe_nothing
    memory: MemoryCurves | None = None
    """Samples the memory of regions meanwhile. None: it is not sampled, as in a simulation."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it to end active faults now and to begin no others."""
