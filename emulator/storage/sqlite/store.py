"""A region's log and keys in one SQLite file: the default store.

    store    ids, durable ends, keys, the newest entries; on the event loop
    writer   when and in which thread a group is committed; reading
    commit   the commit of a group; the WAL; sweeping trimmed entries
    rows     the layout of entries in the tables
    file     the file: its tables, its lock, its errors

A `SqliteLog` is a lane (S5): once broken it stays broken, and opening the log again creates a new object from the
file.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from emulator.errors import StorageError
from emulator.storage.contract import Entry, Log, Versioned
from emulator.storage.lanes import KeyedStore, KeyLane, LogLane
from emulator.storage.sqlite import file, rows
from emulator.storage.sqlite.commit import Committer, SqliteAppend, SqliteChange, SqlitePut, SqliteWrite
from emulator.storage.sqlite.rows import LogFacts
from emulator.storage.sqlite.writer import SqliteWriter

RECENT_BYTES = 8 * 1024 * 1024
"""Maximum size of the newest entries of all logs in memory: reads of these need no thread and no file."""

T = TypeVar("T")
R = TypeVar("R")


async def open_sqlite(path: str | Path, region: str) -> SqliteStore:
    """Open or create the store of `region`. Raises StorageError if the file cannot be used (S6)."""
    return SqliteStore(*await asyncio.to_thread(_open, Path(path), region))


def _open(path: Path, region: str) -> tuple[Committer, dict[str, Versioned], set[str]]:
    with contextlib.ExitStack() as undo:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = undo.enter_context(file.take_ownership(path, region))
            connection = undo.enter_context(contextlib.closing(file.open_for_writing(path, region)))
            values = {
                key: Versioned(value, version)
                for key, value, version in connection.execute("SELECT key, value, version FROM key_values")
            }
            names = {name for (name,) in connection.execute("SELECT name FROM logs")}
            committer = Committer(path, connection, lock)
        except OSError as error:
            what = f"{path} cannot be opened: {error.strerror}: {error.filename}"
            raise StorageError(what, definite=True) from error
        except sqlite3.Error as error:
            raise file.storage_error(error, f"{path} cannot be opened", definite=True) from error
        undo.pop_all()
    return committer, values, names


class SqliteLog(LogLane):
    """Implements `contract.Log`."""

    def __init__(self, store: SqliteStore, name: str, facts: LogFacts) -> None:
        super().__init__()
        self.name = name
        self.ledger_id = facts.log_id
        self.first_entry_id = facts.first_entry_id
        self.next_entry_id = facts.next_entry_id
        self.size_bytes = facts.size_bytes
        self.recent: deque[tuple[int, tuple[bytes, ...]]] = deque()
        """First id and entries of the newest appends, contiguous up to `next_entry_id`."""
        self._store = store
        self._next_issued_id = facts.next_entry_id
        """Id of the next append. Invariant: next_entry_id <= _next_issued_id."""

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        assert entries, "an append has at least one entry"
        if self.refusal is not None:
            return self._store.failed_future(self.refusal)
        first = self._next_issued_id
        self._next_issued_id += len(entries)
        future = self._store.new_future()
        return self._store.issue(SqliteAppend(self, future, self.ledger_id, first, tuple(entries)))

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        if self.deleted is not None:
            raise self.deleted
        start, end = max(from_entry_id, self.first_entry_id), self.next_entry_id
        if start >= end or max_entries <= 0:
            return []
        if self.recent and start >= self.recent[0][0]:
            return self._read_recent(start, max_entries, max_bytes)
        found = await self._store.read_rows(self, start, end, max_entries, max_bytes)
        if self.deleted is None and self.first_entry_id > start:  # trimmed during the read
            return await self.read(start, max_entries, max_bytes)
        if self.deleted is None and not (found and found[0].entry_id == start):
            raise StorageError(f"log {self.name!r} lacks entry {start}", definite=True)
        return found

    def _read_recent(self, start: int, max_entries: int, max_bytes: int) -> list[Entry]:
        """Read from memory; `start` is in one of the recent appends."""
        found: list[Entry] = []
        position = bisect_right(self.recent, start, key=lambda append: append[0]) - 1
        for first, entries in islice(self.recent, position, None):
            for entry_id in range(max(start, first), first + len(entries)):
                data = entries[entry_id - first]
                found.append(Entry(entry_id, data))
                max_bytes -= len(data)
                if len(found) == max_entries or max_bytes <= 0:
                    return found
        return found

    async def trim(self, before_entry_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        before, floor = min(before_entry_id, self.next_entry_id), self.next_entry_id
        if before <= self.first_entry_id:
            return

        def work(committer: Committer) -> int:
            committer.garbage.add(self.ledger_id)
            return rows.trim_log(committer.connection, self.ledger_id, before, floor)

        def finish(trimmed_bytes: int) -> None:
            self.first_entry_id = max(self.first_entry_id, before)
            self.size_bytes -= trimmed_bytes

        await self._store.change(work, finish)

    def stored(self, append: SqliteAppend) -> int:
        """Update the log after a durable append; return its first id."""
        self.next_entry_id = append.first + len(append.entries)
        self.size_bytes += append.size_bytes
        self._store.cache_append(self, append)
        return append.first


class SqliteStore(KeyedStore):
    """Implements `contract.Store`. Created by `open_sqlite`."""

    def __init__(self, committer: Committer, values: dict[str, Versioned], names: set[str]) -> None:
        super().__init__(values, names)
        self._names: set[str]
        self._committer = committer
        self._writer = SqliteWriter(asyncio.get_running_loop(), committer, _resolve)
        self._logs: dict[str, SqliteLog] = {}
        """The newest object of each log that was opened."""
        self._recent: deque[tuple[SqliteLog, int]] = deque()
        """Log and bytes of each append kept in memory, oldest first."""
        self._recent_bytes = 0
        self._closed: asyncio.Future[None] | None = None

    @property
    def commits(self) -> int:
        """Number of committed groups."""
        return self._committer.commits

    async def open_log(self, name: str, *, create: bool = True) -> SqliteLog | None:
        log = self._logs.get(name)
        if log is not None and log.refusal is None:
            return log
        opened: SqliteLog | None = await self._issue_opening(name, create, lambda log: log)
        return opened

    def create_log(
        self, name: str, wrap: Callable[[Log], Log] = lambda log: log
    ) -> asyncio.Future[Log] | None:
        return None if name in self._names or name in self._logs else self._issue_opening(name, True, wrap)

    def _issue_opening(self, name: str, create: bool, wrap: Callable[[Log], Log]) -> asyncio.Future[Any]:
        is_missing = create and name not in self._names  # unless a write with an unknown outcome created it

        def work(committer: Committer) -> LogFacts | None:
            facts = None if is_missing else rows.log_facts(committer.connection, name)
            if facts is None and create:
                return rows.create_log(committer.connection, name)
            return facts

        def finish(facts: LogFacts | None) -> Log | None:
            log = self._logs.get(name)
            if log is not None and log.refusal is None:  # another caller opened it meanwhile
                return wrap(log)
            if facts is None:
                return None
            self._names.add(name)
            log = self._logs[name] = SqliteLog(self, name, facts)
            return wrap(log)

        return self.issue(SqliteChange(self.new_future(), work, finish))

    async def delete_log(self, name: str) -> None:
        error = StorageError(f"log {name!r} was deleted", definite=True)
        if (log := self._logs.get(name)) is not None:
            log.refusal = error

        def work(committer: Committer) -> None:
            log_id = rows.delete_log(committer.connection, name)
            if log_id is not None:
                committer.garbage.add(log_id)

        def finish(_: None) -> None:
            self._names.discard(name)
            if (log := self._logs.pop(name, None)) is not None:
                log.refusal = log.deleted = error

        await self.change(work, finish)

    def _write_key(self, lane: KeyLane, value: Versioned | None) -> asyncio.Future[Any]:
        return self.issue(SqlitePut(lane, self.new_future(), value))

    async def close(self) -> None:
        if self._closed is None:
            self._closed = self.new_future()
            self._writer.close(SqliteWrite(None, self._closed))
        await asyncio.shield(self._closed)

    def lose_power(self) -> None:
        """Drop what is not synced. Implements `contract.Volatile`."""
        self._writer.lose_power()

    # For the logs

    def issue(self, write: SqliteWrite) -> asyncio.Future[Any]:
        if self._closed is None:
            self._writer.issue(write)
        else:
            write.future.set_exception(StorageError("the store is closed", definite=True))
        return write.future

    async def change(self, work: Callable[[Committer], T], finish: Callable[[T], R]) -> R:
        """Issue a change that is no append and no write of a key; when it is durable, return the result of `finish`."""
        outcome: R = await self.issue(SqliteChange(self.new_future(), work, finish))
        return outcome

    async def read_rows(
        self, log: SqliteLog, start: int, end: int, max_entries: int, max_bytes: int
    ) -> list[Entry]:
        if self._closed is not None:
            raise StorageError("the store is closed", definite=True)
        try:
            return await self._writer.reader.read(log.ledger_id, start, end, max_entries, max_bytes)
        except sqlite3.Error as error:
            what = f"log {log.name!r} cannot be read from entry {start}"
            raise file.storage_error(error, what, definite=True) from error

    def cache_append(self, log: SqliteLog, append: SqliteAppend) -> None:
        """Keep a durable append in memory, and drop the oldest ones above RECENT_BYTES."""
        size = append.size_bytes + _OBJECT_BYTES * (2 + len(append.entries))
        log.recent.append((append.first, append.entries))
        self._recent.append((log, size))
        self._recent_bytes += size
        while self._recent_bytes > RECENT_BYTES:
            oldest, oldest_size = self._recent.popleft()
            oldest.recent.popleft()
            self._recent_bytes -= oldest_size


_OBJECT_BYTES = 64
"""Approximate overhead of a Python object."""


def _resolve(group: list[SqliteWrite]) -> None:
    """Resolve the futures of a group: its writes are durable unless `error` is set."""
    for write in group:
        if write.error is None:
            outcome = write.stored()
            if not write.future.done():  # the wait may have been cancelled
                write.future.set_result(outcome)
        else:
            write.failed(write.error)
            if not write.future.done():
                write.future.set_exception(write.error)
