"""The words of access to a topic: who asks, what is granted, what is decided (docs/components/access.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, Protocol

from emulator.errors import ServerError
from emulator.model.values import AccessMode

NOBODY: Final = ""
"""Owner of an epoch that bars all before it."""


class Claimant(Protocol):
    """A producer that is connected to the topic, or wants to be. Compared by identity."""

    @property
    def producer_name(self) -> str: ...
    @property
    def access_mode(self) -> AccessMode: ...
    @property
    def topic_epoch(self) -> int | None:
        """The epoch that it says it was granted. A claim: it counts only if the grant of that epoch names it."""
        ...

    @property
    def queue_priority(self) -> int:
        """The highest is promoted first."""
        ...

    @property
    def was_opened_before(self) -> bool:
        """It is the same instance of the client's producer as before, connected again."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """Exclusive access, as it is stored."""

    epoch: int
    owner: str
    """Name of the producer."""
    first_entry: int
    """What the owner publishes lies here or behind; what others published lies before."""
    end_entry: int | None = None
    """What others publish lies here or behind. None: nobody else may publish yet."""


class Step(Enum):
    """What a write makes true."""

    GRANT = "a new epoch and its owner"
    END = "the topic has no owner any more"
    RESUME = "the former owner continues in its epoch"
    BAR = "an epoch without an owner: the former owner is fenced"


class Change(NamedTuple):
    """One write of a grant."""

    step: Step
    before: Grant | None
    """The newest grant so far."""
    owner: str

    def at(self, entry_id: int) -> Grant:
        """What is to be stored. `entry_id`: the end of the log, when everything issued before has its outcome."""
        before = self.before
        if self.step is Step.GRANT:
            return Grant(next_epoch(before), self.owner, entry_id)
        if self.step is Step.BAR:
            return Grant(next_epoch(before), NOBODY, entry_id, entry_id)
        assert before is not None
        return replace(before, end_entry=entry_id if self.step is Step.END else None)


def next_epoch(newest: Grant | None) -> int:
    return 0 if newest is None else newest.epoch + 1


# What is decided.


class Admit(NamedTuple):
    """It may publish from now on."""

    claimant: Claimant
    epoch: int | None
    """Where exclusive access was asked for."""


class Wait(NamedTuple):
    """It stands in line."""

    claimant: Claimant


class Refuse(NamedTuple):
    claimant: Claimant
    code: ServerError
    sentence: str


class Evict(NamedTuple):
    """It publishes no more, from this step on. Already out of the machine."""

    claimant: Claimant


class Write(NamedTuple):
    """Store `change.at(end of the log)` when everything issued before has its outcome; then say `written`, or
    `not_written`."""

    change: Change


Decision = Admit | Wait | Refuse | Evict | Write


class Place(NamedTuple):
    """One in line. Sorted as PIP-440 says: priority, then creation time, then chance."""

    descending_priority: int
    arrived_us: int
    draw: int
    serial: int
    """Makes any two different."""
    claimant: Claimant


@dataclass(frozen=True, slots=True)
class Habits:
    """What upstream does otherwise (docs/PROTOCOL.md, switches)."""

    first_come_first_served: bool = False
    """Priorities count for nothing."""
    promotes_once: bool = False
    """When storing a promotion fails nobody else is tried: the topic stays without an owner."""
    forgets_losers: bool = False
    """A shared producer that was fenced off is no different from any other that comes too late, and an owner that was
    fenced off may stand in line again with its old epoch."""


AS_PROPOSED: Final = Habits()
