"""The contract of a cluster's configuration store, which outlives the cluster's regions.

The regions of one cluster share one store: a file that they all open, a remote service, memory in tests. It is slow and
may be unavailable; a region reads from its mirror (`broker/metadata/store.py`).

M1  A resolved `transact` is durable: its changes survive `kill -9` of every region at any later moment.
M3  Revisions grow by one with each change of any path; `read` returns changes in that order, without a gap, except M5.
M4  A transaction that calls `check_expected` happens only if the path has that version (-1: it must not exist),
    whatever region wrote it.
M5  Old changes may be discarded. A reader that requests discarded ones gets all current values instead.
M6  After a commit of any region, the function passed to `listen` is called; once for several commits in succession.
M7  The changes of a `transact` are atomic: no other write comes between its reads and its writes, and readers see all
    of them or none.

A path's version is 0 for its first value and grows by one; a deleted path begins at 0 again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from emulator.errors import StorageError
from emulator.model.values import Change

ABSENT = -1
"""Version of a path without a value."""
T = TypeVar("T")
CHANGES_KEPT = 10_000
"""Number of stored changes; a region that missed more gets all current values (M5)."""


class Conflict(StorageError):
    """The path does not have the expected version; nothing was changed."""

    def __init__(self, path: str, expected: int, current: Change | None) -> None:
        self.current = current
        """The current value, for the caller's next attempt."""
        version = ABSENT if current is None else current.version
        super().__init__(f"{path} has version {version}, not {expected}", definite=True)


class ConfigurationRead(NamedTuple):
    revision: int
    changes: Sequence[Change]
    """Changes in the order of their revisions."""
    whole: bool
    """Whether `changes` are all current values instead of the changes after the requested revision."""


class ConfigurationRows(Protocol):
    """The store inside one transaction: it reads its own writes; other readers see them after the commit."""

    def get(self, path: str) -> Change | None: ...

    def put(self, path: str, value: bytes | None) -> None:
        """Set a path; None: delete it, without effect if it has no value."""
        ...

    def count(self, prefix: str) -> int:
        """Return the number of paths with a prefix, which must not be empty, that have a value."""
        ...


class ConfigurationMedium(Protocol):
    """One region's access to the configuration store."""

    def listen(self, on_commit: Callable[[], None]) -> None:
        """Call `on_commit` on the event loop after commits of any region (M6), until `close`; also without a commit."""
        ...

    async def read(self, after: int) -> ConfigurationRead:
        """Return the changes after a revision; -1: all current values. StorageError if the store is unavailable."""
        ...

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        """Change several paths atomically (M7); return the store's revision and the result of `work`. `work` may run on
        any thread and must not block; an exception that it raises undoes its changes. Raises StorageError, which is
        `definite` if nothing was changed."""
        ...

    async def close(self) -> None:
        """Release the store. A second call has no effect."""
        ...


def check_expected(path: str, expected: int | None, current: Change | None) -> None:
    """Raise Conflict when a path does not have the expected version (M4)."""
    if expected is not None and expected != (ABSENT if current is None else current.version):
        raise Conflict(path, expected, current)
