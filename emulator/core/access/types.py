"""Claimants, grants, decisions and rules of exclusive access (docs/components/access.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, Protocol

from emulator.errors import ServerError
from emulator.model.values import AccessMode

NO_OWNER: Final = ""
"""Owner name of an epoch that only fences earlier epochs."""


class Claimant(Protocol):
    """A client's producer that is connected to the topic or requests access. Compared by identity."""

    @property
    def producer_name(self) -> str: ...
    @property
    def access_mode(self) -> AccessMode: ...
    @property
    def topic_epoch(self) -> int | None:
        """The epoch in which the producer claims to own the topic; None: it claims none. Honoured only if the newest
        grant has this epoch and names the producer."""
        ...

    @property
    def queue_priority(self) -> int:
        """Priority in the wait queue; the highest is promoted first."""
        ...

    @property
    def was_opened_before(self) -> bool:
        """Whether the same instance of the client's producer was connected before."""
        ...


@dataclass(frozen=True, slots=True)
class AccessGrant:
    """The stored form of one producer's exclusive access."""

    epoch: int
    owner: str
    """Name of the producer."""
    first_entry: int
    """Inclusive lower bound of the ids of the owner's entries; earlier ones belong to other epochs."""
    end_entry: int | None = None
    """Exclusive upper bound of the ids of the owner's entries. None: the producer still owns the topic."""


class GrantStep(Enum):
    """The kind of a write of a grant."""

    GRANT = "a new epoch and its owner"
    END = "the topic has no owner any more"
    RESUME = "the former owner continues in its epoch"
    FENCE = "an epoch without an owner: the former owner is fenced"


class GrantChange(NamedTuple):
    """One write of a grant."""

    step: GrantStep
    before: AccessGrant | None
    """The newest grant before this write; None: the first grant."""
    owner: str

    def at(self, entry_id: int) -> AccessGrant:
        """Return the grant to store. `entry_id`: the end of the log once every earlier append has its outcome."""
        before = self.before
        if self.step is GrantStep.GRANT:
            return AccessGrant(next_epoch(before), self.owner, entry_id)
        if self.step is GrantStep.FENCE:
            return AccessGrant(next_epoch(before), NO_OWNER, entry_id, entry_id)
        assert before is not None
        return replace(before, end_entry=entry_id if self.step is GrantStep.END else None)


def next_epoch(newest: AccessGrant | None) -> int:
    return 0 if newest is None else newest.epoch + 1


# Decisions.


class Admit(NamedTuple):
    """Let the claimant publish from now on."""

    claimant: Claimant
    epoch: int | None
    """Epoch of the grant; None for shared access."""


class Enqueue(NamedTuple):
    """Let the claimant wait for exclusive access."""

    claimant: Claimant


class Refuse(NamedTuple):
    claimant: Claimant
    code: ServerError
    sentence: str


class Evict(NamedTuple):
    """Disconnect the claimant: it may not publish any more. The state machine has removed it already."""

    claimant: Claimant


class WriteGrant(NamedTuple):
    """Store `change.at(end of the log)` once every earlier append has its outcome; then call `written` or
    `not_written`."""

    change: GrantChange


Decision = Admit | Enqueue | Refuse | Evict | WriteGrant


class QueueEntry(NamedTuple):
    """A claim that waits: for exclusive access, or for a write of the grant. Sorted as PIP-440 requires: by priority,
    then time of arrival, then at random."""

    negative_priority: int
    arrived_us: int
    tie_breaker: int
    serial: int
    """Unique number, so that no two entries are equal."""
    claimant: Claimant


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Switches for upstream behaviour that differs from the proposals (docs/PROTOCOL.md, switches)."""

    first_come_first_served: bool = False
    """Whether priorities are ignored."""
    promotes_once: bool = False
    """Whether the next waiting producer is not promoted when the grant of another one could not be stored."""
    forgets_fenced: bool = False
    """Whether a fenced shared producer is treated as new, and a fenced owner may use WaitForExclusive again."""


AS_PROPOSED: Final = AccessRules()


class Grants:
    """The newest grant of a topic and at most one pending write. Owned by `Access`."""

    def __init__(self, newest: AccessGrant | None) -> None:
        self.newest = newest
        self.change: GrantChange | None = None
        """The pending write; None: no write is in progress."""
        self._unknown_outcome: GrantStep | None = None
        """Step of a failed write that may be stored nevertheless: the last one, or the last one with a newer epoch. A
        successful write clears it; no producer is admitted before."""

    @property
    def has_owner(self) -> bool:
        return self.newest is not None and self.newest.end_entry is None

    @property
    def is_certain(self) -> bool:
        """Whether `newest` is known to be the stored grant: no failed write may be stored."""
        return self._unknown_outcome is None

    @property
    def may_have_stored_newer_epoch(self) -> bool:
        """Whether a failed write may have stored a grant with a newer epoch than `newest`."""
        return self._unknown_outcome in (GrantStep.GRANT, GrantStep.FENCE)

    def is_stale(self, claimant: Claimant) -> bool:
        """Whether the claimant claims an epoch older than the newest (PIP-68), whether or not it was its own."""
        epoch = claimant.topic_epoch
        return epoch is not None and self.newest is not None and epoch < self.newest.epoch

    def is_newest_owner(self, claimant: Claimant) -> bool:
        """Whether the claimant claims the newest epoch and is its owner. One that claims an epoch above the newest, or
        the newest of another owner, is treated as if it claimed none."""
        grant = self.newest
        return (
            grant is not None
            and claimant.access_mode is not AccessMode.SHARED
            and claimant.topic_epoch == grant.epoch
            and claimant.producer_name == grant.owner
        )

    def write(self, step: GrantStep, owner: str) -> WriteGrant:
        assert self.change is None
        self.change = GrantChange(step, self.newest, owner)
        return WriteGrant(self.change)

    def write_no_owner(self) -> WriteGrant:
        """Begin to store that the topic has no owner."""
        if self.newest is None or self.may_have_stored_newer_epoch:
            return self.write(GrantStep.FENCE, NO_OWNER)
        return self.write(GrantStep.END, self.newest.owner)

    def written(self, grant: AccessGrant) -> GrantStep:
        step = self._end_change()
        self.newest, self._unknown_outcome = grant, None
        return step

    def not_written(self) -> GrantStep:
        step = self._end_change()
        if not self.may_have_stored_newer_epoch:
            self._unknown_outcome = step
        return step

    def _end_change(self) -> GrantStep:
        assert self.change is not None
        step, self.change = self.change.step, None
        return step
