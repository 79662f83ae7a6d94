"""Types of access to a topic: the claimant, the grant, decisions and rules (docs/components/access.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, Protocol

from emulator.errors import ServerError
from emulator.model.values import AccessMode

NO_OWNER: Final = ""
"""Owner of an epoch that only fences the epochs before it."""


class Claimant(Protocol):
    """A client's producer that is connected to the topic, or requests to be. Compared by identity."""

    @property
    def producer_name(self) -> str: ...
    @property
    def access_mode(self) -> AccessMode: ...
    @property
    def topic_epoch(self) -> int | None:
        """The epoch that it claims. It counts only if the grant of that epoch names the producer."""
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
class AccessGrant:
    """Exclusive access, as it is stored."""

    epoch: int
    owner: str
    """Name of the producer."""
    first_entry: int
    """The owner's entries have this id or a larger one; entries of others have smaller ones."""
    end_entry: int | None = None
    """Entries of other producers have this id or a larger one. None: the owner still has the topic."""


class GrantStep(Enum):
    """What a write of the grant stores."""

    GRANT = "a new epoch and its owner"
    END = "the topic has no owner any more"
    RESUME = "the former owner continues in its epoch"
    BAR = "an epoch without an owner: the former owner is fenced"


class GrantChange(NamedTuple):
    """One write of a grant."""

    step: GrantStep
    before: AccessGrant | None
    """The newest grant so far."""
    owner: str

    def at(self, entry_id: int) -> AccessGrant:
        """What is to be stored. `entry_id`: the end of the log, when everything issued before has its outcome."""
        before = self.before
        if self.step is GrantStep.GRANT:
            return AccessGrant(next_epoch(before), self.owner, entry_id)
        if self.step is GrantStep.BAR:
            return AccessGrant(next_epoch(before), NO_OWNER, entry_id, entry_id)
        assert before is not None
        return replace(before, end_entry=entry_id if self.step is GrantStep.END else None)


def next_epoch(newest: AccessGrant | None) -> int:
    return 0 if newest is None else newest.epoch + 1


# What is decided.


class Admit(NamedTuple):
    """It may publish from now on."""

    claimant: Claimant
    epoch: int | None
    """Set only for exclusive access."""


class Enqueue(NamedTuple):
    """It waits for exclusive access."""

    claimant: Claimant


class Refuse(NamedTuple):
    claimant: Claimant
    code: ServerError
    sentence: str


class Evict(NamedTuple):
    """Disconnect it: it may not publish any more. It has left the state machine already."""

    claimant: Claimant


class WriteGrant(NamedTuple):
    """Store `change.at(end of the log)` when everything issued before has its outcome; then call `written` or
    `not_written`."""

    change: GrantChange


Decision = Admit | Enqueue | Refuse | Evict | WriteGrant


class QueueEntry(NamedTuple):
    """A waiting producer. Sorted as PIP-440 requires: priority, then creation time, then chance."""

    descending_priority: int
    arrived_us: int
    draw: int
    serial: int
    """Makes any two different."""
    claimant: Claimant


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Where upstream's behaviour differs from the proposals (docs/PROTOCOL.md, switches)."""

    first_come_first_served: bool = False
    """Priorities are ignored."""
    promotes_once: bool = False
    """When storing a promotion fails, no other producer is promoted: the topic stays without an owner."""
    forgets_fenced: bool = False
    """A fenced shared producer is treated like a new one, and a fenced owner may wait again with its old epoch."""


AS_PROPOSED: Final = AccessRules()
