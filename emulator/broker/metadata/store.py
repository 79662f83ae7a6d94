"""The cluster's configuration store, as one region uses it (docs/components/metadata.md).

Reads are synchronous and cannot fail, because they use an in-memory mirror of the store. A caller that reads a value
and watches it without an await in between misses no change. A change waits for the medium, and fails when the medium is
unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol

from emulator.core.metadata.mirror import Mirror, OnChange, Watch
from emulator.errors import StorageError
from emulator.model.values import Change
from emulator.storage.configuration.contract import (
    ConfigurationMedium,
    ConfigurationRows,
    Conflict,
    T,
    check_expected,
)

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
RETRY_SECONDS_MAX = 1.0


class SharedPaths(Protocol):
    """The paths that clusters synchronise, and the changes of these paths (docs/components/metadata-sync.md)."""

    def covers(self, path: str) -> bool:
        """Whether a path is synchronised."""
        ...

    def changing(
        self, path: str, value: bytes | None, *, is_seed: bool, touched: Iterable[str]
    ) -> Callable[[ConfigurationRows], None]:
        """Return the work of a transaction that sets the value of a path and records the event."""
        ...


class ChangePublisher(Protocol):
    """Runs before a shared path is changed: publishes the change, or checks that it can be published."""

    async def publish(
        self, path: str, value: bytes | None, touched: Iterable[str], of: int | None = None
    ) -> Callable[[ConfigurationRows], None]:
        """Publish or check a change, and return the work of the transaction that makes it. `of`: the version of the
        path on which the change is based (-1: the path did not exist; None: any). Conflict when that version is
        outdated, before the change is published: here or in the transaction. StorageError, ProtocolError."""
        ...


def _check_nothing(rows: ConfigurationRows) -> None: ...


def _put(path: str, value: bytes | None, rows: ConfigurationRows) -> None:
    rows.put(path, value)


class Metadata:
    """One region's access to the configuration store of its cluster."""

    def __init__(
        self, medium: ConfigurationMedium, spawn: Callable[[Coroutine[Any, Any, Any]], None]
    ) -> None:
        self._medium = medium
        self._spawn = spawn
        self._mirror = Mirror()
        self._reading = False
        self._read_again = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """Awaited revisions, each with the future of its caller."""
        self._retry_seconds = RETRY_SECONDS
        self.read_failure: StorageError | None = None
        """Why the store is unavailable, so that the mirror may be outdated; None if the last read did not fail."""
        self._on_availability: list[Callable[[StorageError | None], None]] = []
        self._closed = False
        self.shared: SharedPaths | None = None
        """The paths shared with other clusters; None without metadata sync."""
        self.publisher: ChangePublisher | None = None
        """Called before shared paths are changed; None if changes are only published afterwards."""

    async def open(self) -> None:
        """Read the whole store once, and listen for later changes. StorageError when the store is not available."""
        reading = await self._medium.read(-1)
        self._mirror.replace(reading.revision, reading.changes)
        self._medium.listen(self._start_reading)

    # Reads, from the mirror.

    @property
    def revision(self) -> int:
        """The revision up to which the mirror and the watches have received every change."""
        return self._mirror.revision

    def get(self, path: str) -> Change | None:
        return self._mirror.get(path)

    def list(self, prefix: str) -> list[Change]:
        return self._mirror.list(prefix)

    def watch(self, prefix: str, on_change: OnChange) -> Watch:
        """Call `on_change` for each change of a path with `prefix`, by revision, after the mirror has it (M3). If the
        store no longer has all changes, only the newest one of each path is passed."""
        return self._mirror.watch(prefix, lambda change: self._notify(on_change, change))

    def _notify(self, on_change: OnChange, change: Change) -> None:
        """Call one watch. An exception of it must not affect other watches, or callers that wait for a revision."""
        try:
            on_change(change)
        except Exception as problem:
            message = f"a watch failed at {change.path} of the configuration store"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": problem})

    def watch_availability(self, on_availability: Callable[[StorageError | None], None]) -> None:
        """Call `on_availability` with the error when the store becomes unavailable, and with None when it is back."""
        self._on_availability.append(on_availability)

    # Changes.

    async def put(
        self,
        path: str,
        value: bytes | None,
        expected: int | None = None,
        *,
        is_seed: bool = False,
        touched: Iterable[str] = (),
        check: Callable[[ConfigurationRows], None] = _check_nothing,
    ) -> int:
        """Set a path, or delete it (None). Return a revision that contains the change, once it is durable and in the
        mirror (M1).

        `expected`: the version that the path must have; -1: the path must not exist. Conflict contains the current
        version; if changes are published before they are made, the change may still take effect. StorageError has
        `definite` set if the change was certainly not made. For shared paths: `is_seed` marks a value from the
        topology, which any other change outranks; `touched` names elements that count as set even if their value stays
        the same. `check` is called in the transaction, before its change, which is undone if it raises.
        """
        change: Callable[[ConfigurationRows], None]
        if self.shared is None or not self.shared.covers(path):
            change = partial(_put, path, value)
        elif self.publisher is not None and not is_seed:
            change = await self.publisher.publish(path, value, touched)
        else:
            change = self.shared.changing(path, value, is_seed=is_seed, touched=touched)

        def work(rows: ConfigurationRows) -> None:
            check_expected(path, expected, rows.get(path))
            check(rows)
            change(rows)

        revision, _ = await self._medium.transact(work)
        await self._wait_for(revision)
        return revision

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> T:
        """Change several paths atomically (M7). The changes are durable and in the mirror on return. StorageError."""
        revision, outcome = await self._medium.transact(work)
        await self._wait_for(revision)
        return outcome

    async def update(
        self, path: str, change: Callable[[bytes | None], bytes | None], *, touched: Iterable[str] = ()
    ) -> int:
        """Set a path atomically to the result of `change` for its current value; None deletes it, and stands for a
        missing path. `change` may be called repeatedly. Return a revision as `put` does. StorageError, and errors of
        `change`."""
        current = self._mirror.get(path)
        while True:
            value = change(None if current is None else current.value)
            try:
                of = -1 if current is None else current.version
                if self.publisher is None or self.shared is None or not self.shared.covers(path):
                    return await self.put(path, value, of, touched=touched)
                await self.transact(await self.publisher.publish(path, value, touched, of))
                return self._mirror.revision
            except Conflict as conflict:
                current = conflict.current

    async def refresh(self) -> None:
        """Wait until the mirror has all changes committed before the call. StorageError when the store is
        unavailable."""
        reading = await self._medium.read(self._mirror.revision)
        await self._wait_for(reading.revision)

    async def _wait_for(self, revision: int) -> None:
        """Wait until the mirror has a revision. StorageError when a read of the store fails meanwhile: then a change of
        that revision was made, but this region cannot confirm it."""
        if self._mirror.revision >= revision:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, reached))
        self._start_reading()
        await reached

    # Following.

    def _start_reading(self) -> None:
        """Start to read the store, which may have new commits; if a read is running, read again after it."""
        if self._reading:
            self._read_again = True
        elif not self._closed:
            self._reading = True
            self._spawn(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            reading = await self._medium.read(self._mirror.revision)
        except Exception as failure:
            self._reading = False
            self._handle_failure(
                failure if isinstance(failure, StorageError) else StorageError(str(failure), definite=False)
            )
            if not isinstance(failure, StorageError):
                raise  # the loop reports the error; the store is nevertheless read again
            return
        self._reading = False
        if self.read_failure is not None:
            logger.info("the configuration store is available again")
            self._set_read_failure(None)
        self._retry_seconds = RETRY_SECONDS
        if reading.whole:
            self._mirror.replace(reading.revision, reading.changes)
        else:
            self._mirror.apply(reading.changes)
        self._resolve_waiting()
        if self._read_again:
            self._read_again = False
            self._start_reading()

    def _handle_failure(self, failure: StorageError) -> None:
        """Fail waiting callers, and schedule the next read; reads continue to use the mirror (M2)."""
        if self._closed:
            return
        if self.read_failure is None:
            logger.warning(
                "the configuration store is unavailable; this region continues with the values that it has read: "
                "%s",
                failure,
            )
        self._set_read_failure(failure)
        waiting, self._waiting = self._waiting, []
        for _, reached in waiting:
            if not reached.done():
                reached.set_exception(StorageError(str(failure), definite=False))
        asyncio.get_running_loop().call_later(self._retry_seconds, self._start_reading)
        self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS_MAX)

    def _set_read_failure(self, failure: StorageError | None) -> None:
        changed = (self.read_failure is None) != (failure is None)
        self.read_failure = failure
        if changed:
            for on_availability in self._on_availability:
                on_availability(failure)

    def _resolve_waiting(self) -> None:
        remaining = []
        for revision, reached in self._waiting:
            if reached.done():
                continue
            if revision <= self._mirror.revision:
                reached.set_result(None)
            else:
                remaining.append((revision, reached))
        self._waiting = remaining

    async def close(self) -> None:
        self._closed = True
        await self._medium.close()
