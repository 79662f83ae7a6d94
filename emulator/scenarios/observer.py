"""What somebody who watches a play is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.scenario import Scenario, Step
from emulator.scenarios.workload import (
    Counts,
    Part,
)

AFTER_LAST_STEP = "after the last step"
"""How the failure of an actor begins that failed although every step came true."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How things stand at one moment of a play."""

    seconds: float
    """Since the play began."""
    actors: tuple[tuple[Part, Counts], ...]
    """Those that have begun."""
    regions: tuple[RegionStatus, ...]


@dataclass(frozen=True, slots=True)
class PlayResult:
    """How a play ended."""

    scenario: Scenario
    run_dir: Path
    seconds: float
    steps_done: int
    failure: str | None
    """The step that failed and how far it came, or the program that failed after the last step. None: no failure."""
    counts: Mapping[str, Counts]
    """What each actor had done in the end."""

    @property
    def completed(self) -> bool:
        return self.failure is None


class Observer(Protocol):
    """Whoever watches a play. Its methods are called in the order of events and must not block."""

    def play_began(self, scenario: Scenario) -> None: ...

    def step_began(self, step: Step) -> None: ...

    def step_ended(self, step: Step, seconds: float, failure: str | None) -> None: ...

    def looked(self, snapshot: Snapshot) -> None:
        """Called a few times a second, also while a step goes on."""
        ...

    def play_ended(self, result: PlayResult) -> None:
        """Not called when the play is cancelled."""
        ...
