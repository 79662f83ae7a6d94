"""The newest grant of a topic, and the change of it that is being written."""

from __future__ import annotations

from emulator.core.access.types import NO_OWNER, AccessGrant, Claimant, GrantChange, GrantStep, WriteGrant
from emulator.model.values import AccessMode


class Grants:
    """Owned by `Access`. At most one change is being written at a time."""

    def __init__(self, newest: AccessGrant | None) -> None:
        self.newest = newest
        self.change: GrantChange | None = None
        """Being written."""
        self._unknown_outcome: GrantStep | None = None
        """A failed write that may be stored nevertheless: it is overwritten before any claim relies on `newest`."""

    @property
    def has_owner(self) -> bool:
        return self.newest is not None and self.newest.end_entry is None

    @property
    def is_certain(self) -> bool:
        """Whether `newest` is what the store has."""
        return self._unknown_outcome is None

    @property
    def may_have_newer_epoch(self) -> bool:
        """Whether a grant may be stored although its owner received an error."""
        return self._unknown_outcome in (GrantStep.GRANT, GrantStep.BAR)

    def is_stale(self, claimant: Claimant) -> bool:
        """Whether another producer was granted the topic after this one (PIP-68)."""
        epoch = claimant.topic_epoch
        return epoch is not None and self.newest is not None and epoch < self.newest.epoch

    def names(self, claimant: Claimant) -> bool:
        """Whether the newest grant is the claimant's. An epoch above the newest was never granted, and one of another
        owner is not this one's: a producer that claims one enters as if for the first time."""
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
        """Store that the topic has no owner."""
        if self.newest is None or self.may_have_newer_epoch:
            return self.write(GrantStep.BAR, NO_OWNER)
        return self.write(GrantStep.END, self.newest.owner)

    def written(self, grant: AccessGrant) -> GrantStep:
        step = self._take_step()
        self.newest, self._unknown_outcome = grant, None
        return step

    def not_written(self) -> GrantStep:
        step = self._take_step()
        if not self.may_have_newer_epoch:
            self._unknown_outcome = step
        return step

    def _take_step(self) -> GrantStep:
        assert self.change is not None
        step, self.change = self.change.step, None
        return step
