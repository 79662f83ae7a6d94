"""The contract of a cluster's configuration store, which outlives the cluster's regions.

The regions of one cluster share one store: a file that they all open, a remote service, memory in tests. It is slow and
may be unavailable; a region reads from its mirror (`broker/metadata/store.py`).

M1  A resolved `write` is durable: it survives `kill -9` of every region at any later moment.
M3  Revisions grow by one with each change of anything; `read` gives changes in that order, each once, none left out.
M4  A write with `expected` happens only if the path has that version (-1: it must not exist), whatever region wrote it.
M5  Old changes may be forgotten. A reader that asks for forgotten ones gets all values instead, never a gap.
M6  Every commit, of any region, is followed by a call of what was given to `listen`.
M7  The changes of a `transact` are atomic: no other write comes between its reads and its writes, and readers see all
    of them or none.

The path's version is 0 for its first value and grows by one; a deleted path begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from emulator.errors import StorageError
from emulator.model.values import Change

ABSENT = -1
"""The version of a path without a value."""
T = TypeVar("T")
CHANGES_KEPT = 10_000
"""A region that missed more than these is given all values (M5)."""


class Conflict(StorageError):
    """The path is not as expected. Nothing was changed."""

    def __init__(self, path: str, expected: int, current: Change | None) -> None:
        self.current = current
        """The current value, for the caller's next attempt."""
        version = ABSENT if current is None else current.version
        super().__init__(f"{path} has version {version}, not {expected}", definite=True)


class ConfigurationRead(NamedTuple):
    """What a medium has."""

    revision: int
    changes: Sequence[Change]
    """In the order of revisions."""
    whole: bool
    """`changes` are those that made the present values, not those since the requested revision."""


class ConfigurationRows(Protocol):
    """The store inside one transaction: it reads its own writes; other readers see them after the commit."""

    def get(self, path: str) -> Change | None: ...

    def put(self, path: str, value: bytes | None) -> None:
        """Set a path; None: delete it, which is nothing when there is none."""
        ...


class ConfigurationMedium(Protocol):
    """As one region has it open. Implementations inherit `write`."""

    def listen(self, on_commit: Callable[[], None]) -> None:
        """Call this on the loop after commits, one's own too; some calls may be for nothing."""
        ...

    async def read(self, after: int) -> ConfigurationRead:
        """What was committed after a revision; -1: everything. StorageError when it cannot be had now."""
        ...

    async def write(self, path: str, value: bytes | None, expected: int | None) -> int:
        """Set a path, or delete it; gives the revision. Conflict, or StorageError (`definite`)."""

        def put(rows: ConfigurationRows) -> None:
            check_expected(path, expected, rows.get(path))
            rows.put(path, value)

        revision, _ = await self.transact(put)
        return revision

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        """Change several paths in one step (M7); gives the revision, and what `work` gives. It runs on whatever thread,
        waits for nothing, and whatever it raises undoes what it did. StorageError (`definite`)."""
        ...

    async def close(self) -> None:
        """Harmless when called twice."""
        ...


def check_expected(path: str, expected: int | None, current: Change | None) -> None:
    """M4: Conflict when a path is not as expected."""
    if expected is not None and expected != (ABSENT if current is None else current.version):
        raise Conflict(path, expected, current)
