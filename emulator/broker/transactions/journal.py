"""A coordinator's log: appends entries, reads them when the coordinator is loaded, and replaces them by checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from emulator.broker.shared_outcome import SharedOutcome
from emulator.errors import StorageDamaged, StorageError
from emulator.storage.contract import Log, Store

logger = logging.getLogger(__name__)

READ_ENTRIES: Final = 1_000
READ_BYTES: Final = 4_194_304
CHECKPOINT_ENTRIES_MIN: Final = 1_000
"""Minimum number of entries after which a checkpoint is written. Owners of large states write it later."""


class TransactionJournal:
    """One internal log of a coordinator. `ready` creates it before the first write."""

    def __init__(self, store: Store, name: str, spawn: Callable[[Coroutine[Any, Any, Any]], None]) -> None:
        self._store = store
        self.name = name
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._log: Log | None = None
        self._creating = asyncio.Lock()
        self.since_checkpoint = 0
        """Number of entries since the last checkpoint was written; after `read`, of all entries in the log."""
        self.newest: SharedOutcome | None = None
        """The newest write; when it is done, all earlier ones are."""
        self._batch: list[bytes] = []
        """Appended entries that are not issued yet. Invariant: while it is not empty, `newest` is its write."""

    async def read(self) -> list[bytes]:
        """Return all durable entries of the log. StorageError when the store fails."""
        self._log = await self._store.open_log(self.name, create=False)
        if self._log is None:
            return []
        entries: list[bytes] = []
        at = self._log.first_entry_id
        while read := await self._log.read(at, READ_ENTRIES, READ_BYTES):
            entries.extend(entry.data for entry in read)
            at = read[-1].entry_id + 1
        self.since_checkpoint = len(entries)
        return entries

    async def ready(self) -> None:
        """Create the log, so that `append` may be called. StorageError when that fails."""
        if self._log is None:
            async with self._creating:
                if self._log is None:
                    self._log = await self._store.open_log(self.name)

    @property
    def is_ready(self) -> bool:
        """Whether `append` may be called."""
        return self._log is not None

    def append(self, entries: Sequence[bytes]) -> SharedOutcome:
        """Write entries; they become durable in the order of the calls. All entries appended in one iteration of the
        event loop, or until `flush` or `checkpoint`, are one atomic write with one outcome."""
        assert self._log is not None, f"{self.name} is not ready"
        self.since_checkpoint += len(entries)
        if not self._batch:
            self.newest = SharedOutcome()
            self._loop.call_soon(self.flush)
        self._batch += entries
        assert self.newest is not None
        return self.newest

    def flush(self) -> None:
        """Issue the appended entries now, so that they precede the next write to another log."""
        batch, self._batch = self._batch, []
        if batch:
            assert self._log is not None
            assert self.newest is not None
            self.newest.follow(self._log.append(batch))

    def checkpoint(self, entries: Sequence[bytes]) -> SharedOutcome:
        """Write entries that contain the whole state, and trim the log before them once they are durable."""
        assert self._log is not None, f"{self.name} is not ready"
        self.flush()
        written = self._log.append(entries)
        self.since_checkpoint = 0
        written.add_done_callback(self._trim_before)
        self.newest = SharedOutcome()
        self.newest.follow(written)
        return self.newest

    def _trim_before(self, written: asyncio.Future[int]) -> None:
        if not written.cancelled() and written.exception() is None:
            self._spawn(self._trim(written.result()))

    def stats(self) -> dict[str, str | int]:
        """Return statistics of the log for the admin API."""
        log = self._log
        if log is None:
            return {"managedLedgerName": self.name, "numberOfEntries": 0, "totalSize": 0}
        return {
            "managedLedgerName": self.name,
            "numberOfEntries": log.next_entry_id - log.first_entry_id,
            "totalSize": log.size_bytes,
            "entriesSinceCheckpoint": self.since_checkpoint,
        }

    async def _trim(self, before_entry_id: int) -> None:
        assert self._log is not None
        try:
            await self._log.trim(before_entry_id)
        except StorageError as failure:  # the next checkpoint retries it
            logger.warning("%s is not trimmed: %s", self.name, failure)


def damaged(name: str, problem: ValueError) -> StorageDamaged:
    """Return the error for an entry that cannot be read."""
    return StorageDamaged(f"{name}: {problem}")
