"""Commit a group of writes as one transaction; manage the WAL; sweep deleted entries.

A write that fails breaks its *lane*, the log or the key it was for, and everything behind it in that lane is
refused (S5). A transaction holds one group, so all lanes in it break together.

Nothing is deleted at once. Trimming and deleting change one row of `logs`; the entries that became garbage
are swept in small portions between commits, or by the next owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from emulator.errors import StorageError
from emulator.storage.contract import Versioned
from emulator.storage.lanes import KeyLane, Lane, behind
from emulator.storage.sqlite import file, rows

CHECKPOINT_BYTES = file.WAL_BYTES // 2
"""WAL written since the last checkpoint at which the next one begins; the other half is for meanwhile."""
WAL_BYTES_MAX = 8 * file.WAL_BYTES
"""WAL at which a commit waits for the checkpoint rather than let it grow."""
SWEEP_ROWS = 16
"""Garbage rows deleted in one go: few, because a commit may be waiting."""

_BYTES_PER_COMMIT = 3 * file.PAGE_BYTES
"""Pages that change whatever the size of the data."""

T = TypeVar("T")


class SqliteWrite:
    """One thing to become durable. `stored` or `failed` is called on the loop, in the order of issue."""

    __slots__ = ("error", "future", "lane")

    def __init__(self, lane: Lane | None, future: asyncio.Future[Any]) -> None:
        self.lane = lane
        self.future = future
        self.error: StorageError | None = None
        """Why it did not become durable."""

    def stored(self) -> Any:
        """What the future gives."""

    def failed(self, error: StorageError) -> None:
        if self.lane is not None:
            self.lane.failed(error)


class SqliteAppendLane(Lane, Protocol):
    def stored(self, append: SqliteAppend) -> int: ...


class SqliteAppend(SqliteWrite):
    __slots__ = ("entries", "first", "log_id", "size_bytes")
    lane: SqliteAppendLane

    def __init__(
        self,
        lane: SqliteAppendLane,
        future: asyncio.Future[int],
        log_id: int,
        first: int,
        entries: tuple[bytes, ...],
    ) -> None:
        super().__init__(lane, future)
        self.log_id = log_id
        self.first = first
        self.entries = entries
        self.size_bytes = sum(map(len, entries))

    def stored(self) -> int:
        return self.lane.stored(self)


class SqlitePut(SqliteWrite):
    __slots__ = ("value",)
    lane: KeyLane

    def __init__(self, lane: KeyLane, future: asyncio.Future[Any], value: Versioned | None) -> None:
        super().__init__(lane, future)
        self.value = value
        """None: the key goes."""

    def stored(self) -> int | None:
        return self.lane.stored(self.value)


class SqliteChange(SqliteWrite):
    """Anything else that is part of the transaction: `work` does it, `finish` tells the loop's side.

    `work` raises before it has changed anything, or not at all.
    """

    __slots__ = ("finish", "result", "work")

    def __init__(
        self, future: asyncio.Future[Any], work: Callable[[Committer], T], finish: Callable[[T], Any]
    ) -> None:
        super().__init__(None, future)
        self.work = work
        self.finish = finish
        self.result: Any = None

    def stored(self) -> Any:
        return self.finish(self.result)


class Committer:
    """Owns the file. Used by one thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: IO[str]) -> None:
        self.path = path
        self.connection = connection
        self.wal = Wal(path, connection)
        self.garbage = rows.logs_with_rows(connection)
        """Ids of logs that may have trimmed or deleted rows; the table `logs` shows which rows are."""
        self.commits = 0
        """Transactions of issued writes so far."""
        self._lock = lock

    def commit(self, group: list[SqliteWrite]) -> None:
        """One transaction. Afterwards `error` of each write says whether it became durable."""
        accepted: list[SqliteWrite] = []
        for write in group:
            if write.lane is not None and write.lane.broken is not None:
                write.error = behind(write.lane.broken)
            else:
                accepted.append(write)
        committing = False
        try:
            statements = self._statements(accepted)
            changes = [write for write in accepted if isinstance(write, SqliteChange)]
            if len(statements) == 1 and not changes:
                committing = True
                self.connection.execute(*statements[0])  # a transaction by itself
            elif accepted:
                self.connection.execute("BEGIN IMMEDIATE")
                for sql, parameters in statements:
                    self.connection.execute(sql, parameters)
                for change in changes:
                    self._carry_out(change)
                committing = True
                self.connection.execute("COMMIT")
        except Exception as error:  # any error: no write may stay unresolved
            what = f"{self.path} could not be written"
            failure = file.storage_error(error, what, definite=not committing)
            failure.__cause__ = error
            self._break(accepted, failure)
        else:
            self.commits += bool(accepted)

    def _statements(self, writes: list[SqliteWrite]) -> list[rows.Statement]:
        appends: dict[int, list[SqliteAppend]] = {}
        values: dict[str, Versioned | None] = {}
        for write in writes:
            if isinstance(write, SqliteAppend):
                appends.setdefault(write.log_id, []).append(write)
            elif isinstance(write, SqlitePut):
                values[write.lane.key] = write.value  # the last one counts
        groups: list[rows.Row] = []
        for log_id, of_log in appends.items():
            entries = chain.from_iterable(append.entries for append in of_log)
            groups += rows.group_rows(log_id, of_log[0].first, entries)
        self.wal.grows_by(sum(len(row[3]) for row in groups))
        return [*rows.insert_groups(groups), *rows.write_keys(values)]

    def _carry_out(self, change: SqliteChange) -> None:
        """If it fails, as on a damaged row, the others of the group do not."""
        try:
            change.result = change.work(self)
        except (sqlite3.Error, StorageError) as error:
            if not self.connection.in_transaction:  # SQLite took everything back: the group has failed
                raise
            what = f"{self.path} could not be changed"
            change.error = file.storage_error(error, what, definite=True)

    def _break(self, writes: list[SqliteWrite], error: StorageError) -> None:
        """None of `writes` is durable, and nothing behind them in their lanes will be."""
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            self.connection.execute("ROLLBACK")
        for write in writes:
            write.error = error
            if write.lane is not None:
                write.lane.broken = error

    def sweep(self) -> None:
        """Delete a few rows that are no longer readable."""
        log_id = next(iter(self.garbage))
        self.connection.execute("PRAGMA synchronous = NORMAL")  # no fsync: it may be lost, and is done again
        try:
            swept = rows.sweep(self.connection, log_id, SWEEP_ROWS)
        except sqlite3.Error:  # no room, even to delete: the next owner tries again
            swept = 0
        finally:
            self.connection.execute("PRAGMA synchronous = FULL")
        if swept < SWEEP_ROWS:
            self.garbage.discard(log_id)
        self.wal.grows_by(file.PAGE_BYTES * swept)

    def close(self) -> None:
        """Leave one file behind that needs no WAL to be read, and let the next owner in."""
        self.wal.close()
        with contextlib.suppress(sqlite3.Error):  # a full disk or an open reader: the WAL stays and is read
            self.connection.execute("PRAGMA busy_timeout = 100")
            rows.write_ends(self.connection)
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.connection.execute("PRAGMA journal_mode = DELETE")
        self.connection.close()
        self._lock.close()


class Wal:
    """Keeps the WAL short without making a commit wait.

    A checkpoint by a second connection runs beside commits, but what they add meanwhile remains. So the bulk
    goes that way, in a thread, as often as it takes; the little that is left the writer copies itself,
    between two commits. Then the WAL is used from its beginning again.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoints of {path}")
        self._other_connection: sqlite3.Connection | None = None
        self._running: Future[None] | None = None
        self._bytes_left = file.fill_wal(path)
        """Written since the last checkpoint began, roughly. At first: what an owner that died left."""
        self._bytes = self._bytes_left
        """Written since the WAL began anew."""

    def grows_by(self, data_bytes: int) -> None:
        self._bytes_left += data_bytes + _BYTES_PER_COMMIT
        self._bytes += data_bytes + _BYTES_PER_COMMIT

    @property
    def is_due(self) -> bool:
        """Whether `keep_short` has work to do."""
        if self._running is None:
            return self._bytes_left >= CHECKPOINT_BYTES
        return self._running.done() or self._bytes >= WAL_BYTES_MAX

    def keep_short(self) -> None:
        """Between two commits."""
        if not self.is_due:
            return
        if self._running is None:
            self._begin_round()
            return
        self._running.result()
        if self._bytes_left >= CHECKPOINT_BYTES // 4 and self._bytes < WAL_BYTES_MAX:
            self._begin_round()
            return
        self._running = None
        _checkpoint(self._connection)
        self._bytes_left = self._bytes = 0

    def _begin_round(self) -> None:
        self._bytes_left = 0
        self._running = self._thread.submit(self._checkpoint_beside)

    def _checkpoint_beside(self) -> None:
        if self._other_connection is None:
            self._other_connection = file.open_for_checkpoints(self._path)
        _checkpoint(self._other_connection)

    def close(self) -> None:
        self._thread.shutdown()
        if self._other_connection is not None:
            self._other_connection.close()


def _checkpoint(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):  # no room for it now; nothing is lost, the WAL has it all
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
