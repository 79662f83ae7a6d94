"""A coordinator's log: entries that are written one after the other, read at a start, and gathered into checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from emulator.errors import StorageDamaged, StorageError
from emulator.storage.contract import Log, Store

logger = logging.getLogger(__name__)

READ_ENTRIES: Final = 1_000
READ_BYTES: Final = 4_194_304
CHECKPOINT_ENTRIES: Final = 1_000
"""So many entries are written before a checkpoint is worth its bytes."""


class TransactionJournal:
    """One internal log. It is created when something is to be written for the first time."""

    def __init__(self, store: Store, name: str, spawn: Callable[[Coroutine[Any, Any, Any]], None]) -> None:
        self._store = store
        self.name = name
        self._spawn = spawn
        self._log: Log | None = None
        self._creating = asyncio.Lock()
        self.unsummed = 0
        """Entries since the last checkpoint."""
        self.newest: asyncio.Future[int] | None = None
        """The newest write; when it is done, all are."""
        self._batch: list[bytes] = []
        """What was appended in this turn of the loop. Invariant: while it is not empty, `newest` is its write."""

    async def read(self) -> list[bytes]:
        """Everything durable, from the store. StorageError when it fails."""
        self._log = await self._store.open_log(self.name, create=False)
        if self._log is None:
            return []
        entries: list[bytes] = []
        at = self._log.first_entry_id
        while read := await self._log.read(at, READ_ENTRIES, READ_BYTES):
            entries.extend(entry.data for entry in read)
            at = read[-1].entry_id + 1
        self.unsummed = len(entries)
        return entries

    async def ready(self) -> None:
        """From now on `append` may be called. StorageError when the log cannot be created."""
        if self._log is None:
            async with self._creating:
                if self._log is None:
                    self._log = await self._store.open_log(self.name)

    @property
    def is_ready(self) -> bool:
        """`append` may be called."""
        return self._log is not None

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        """Write entries; they are durable in the order of the calls. Everything of one turn of the loop is one write,
        all of it or none of it, and has one future: whoever waits for it must not cancel it."""
        assert self._log is not None, f"{self.name} is not ready"
        self.unsummed += len(entries)
        if not self._batch:
            loop = asyncio.get_running_loop()
            self.newest = loop.create_future()
            loop.call_soon(self.flush)
        self._batch += entries
        assert self.newest is not None
        return self.newest

    def flush(self) -> None:
        """Issue what was appended: something else that is issued now must come behind it."""
        batch, self._batch = self._batch, []
        if batch:
            assert self._log is not None
            assert self.newest is not None
            self._log.append(batch).add_done_callback(partial(_pass_on, self.newest))

    def checkpoint(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        """Write entries that tell everything, and let go of what is before them once they are durable."""
        assert self._log is not None, f"{self.name} is not ready"
        self.flush()
        self.newest = self._log.append(entries)
        self.unsummed = 0
        self.newest.add_done_callback(self._written)
        return self.newest

    def _written(self, written: asyncio.Future[int]) -> None:
        if not written.cancelled() and written.exception() is None:
            self._spawn(self._trim(written.result()))

    def figures(self) -> dict[str, str | int]:
        """For people."""
        log = self._log
        if log is None:
            return {"managedLedgerName": self.name, "numberOfEntries": 0, "totalSize": 0}
        return {
            "managedLedgerName": self.name,
            "numberOfEntries": log.next_entry_id - log.first_entry_id,
            "totalSize": log.size_bytes,
            "entriesSinceCheckpoint": self.unsummed,
        }

    async def _trim(self, before_entry_id: int) -> None:
        assert self._log is not None
        try:
            await self._log.trim(before_entry_id)
        except StorageError as failure:  # the next checkpoint tries again
            logger.warning("%s is not trimmed: %s", self.name, failure)


def _pass_on(promised: asyncio.Future[int], written: asyncio.Future[int]) -> None:
    failure = written.exception()
    if failure is None:
        promised.set_result(written.result())
    else:
        promised.set_exception(failure)
        promised.exception()  # nobody may be waiting; that is no news


def damaged(name: str, problem: ValueError) -> StorageDamaged:
    """What a log says that cannot be read."""
    return StorageDamaged(f"{name}: {problem}")
