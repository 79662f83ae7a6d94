"""Commit a group of writes as one transaction; manage the WAL; sweep deleted entries.

A write that fails breaks its *lane*, the log or the key that it changes, and later writes of that lane are
refused (S5). A group is one transaction; if that fails, all its lanes break.

Entries are not deleted at once. Trimming and deleting change one row of `logs`; the entries that became garbage
are deleted in small portions between commits, or by the next owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from emulator.errors import StorageError
from emulator.storage.contract import Versioned
from emulator.storage.lanes import KeyLane, Lane, behind
from emulator.storage.sqlite import file, rows

CHECKPOINT_BYTES = file.WAL_BYTES // 2
"""Bytes added to the WAL at which the next checkpoint begins; commits meanwhile use the other half."""
WAL_BYTES_MAX = 8 * file.WAL_BYTES
"""Size of the WAL at which a commit waits for the checkpoint."""
SWEEP_ROWS = 16
"""Maximum number of garbage rows deleted at once: small, because a commit may be waiting."""

_BYTES_PER_COMMIT = 3 * file.PAGE_BYTES
"""Bytes of the pages that each commit changes, independent of its data."""

T = TypeVar("T")


class SqliteWrite:
    """One issued write. `stored` or `failed` is called on the event loop, in the order of issue."""

    __slots__ = ("error", "future", "lane")

    def __init__(self, lane: Lane | None, future: asyncio.Future[Any]) -> None:
        self.lane = lane
        self.future = future
        self.error: StorageError | None = None
        """Error, if the write did not become durable."""

    def stored(self) -> Any:
        """Handle durability; return the result of the future."""

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
        """New value; None: the key is deleted."""

    def stored(self) -> int | None:
        return self.lane.stored(self.value)


class SqliteChange(SqliteWrite):
    """Any other write of the transaction: `work` changes the file; once durable, `finish` runs on the event loop.

    `work` raises before its first change, or not at all.
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
    """Commits writes to the file that this process owns. Used by one thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: IO[str]) -> None:
        self.path = path
        self.connection = connection
        self.wal = Wal(path, connection)
        self.garbage = rows.logs_with_rows(connection)
        """Ids of logs that may have trimmed or deleted rows, which the table `logs` determines."""
        self.commits = 0
        """Number of transactions of issued writes so far."""
        self._lock = lock

    def commit(self, group: list[SqliteWrite]) -> None:
        """Commit a group in one transaction; set `error` of each write that did not become durable."""
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
            begin = list(islice(statements, 2))
            if len(begin) == 1 and not changes:
                committing = True
                self.connection.execute(*begin[0])  # a transaction by itself
            elif accepted:
                self.connection.execute("BEGIN IMMEDIATE")
                for sql, parameters in chain(begin, statements):
                    self.connection.execute(sql, parameters)
                for change in changes:
                    self._apply(change)
                committing = True
                self.connection.execute("COMMIT")
        except Exception as error:  # any error: no write may stay unresolved
            what = f"{self.path} could not be written"
            failure = file.storage_error(error, what, definite=not committing)
            failure.__cause__ = error
            self._fail(accepted, failure)
        else:
            self.commits += bool(accepted)

    def _statements(self, writes: list[SqliteWrite]) -> Iterator[rows.Statement]:
        appends: dict[int, list[SqliteAppend]] = {}
        values: dict[str, Versioned | None] = {}
        for write in writes:
            if isinstance(write, SqliteAppend):
                appends.setdefault(write.log_id, []).append(write)
            elif isinstance(write, SqlitePut):
                values[write.lane.key] = write.value  # the last put of a key wins
        self.wal.note_growth(sum(append.size_bytes for of_log in appends.values() for append in of_log))
        groups = (
            rows.group_rows(log_id, of_log[0].first, chain.from_iterable(append.entries for append in of_log))
            for log_id, of_log in appends.items()
        )
        yield from rows.insert_groups(chain.from_iterable(groups))
        yield from rows.write_keys(values)

    def _apply(self, change: SqliteChange) -> None:
        """Apply a change. A failure, as on a damaged row, does not fail the rest of the group."""
        try:
            change.result = change.work(self)
        except (sqlite3.Error, StorageError) as error:
            if not self.connection.in_transaction:  # SQLite rolled back: the group has failed
                raise
            what = f"{self.path} could not be changed"
            change.error = file.storage_error(error, what, definite=True)

    def _fail(self, writes: list[SqliteWrite], error: StorageError) -> None:
        """Fail `writes` and break their lanes, so that no later write of these becomes durable."""
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            self.connection.execute("ROLLBACK")
        for write in writes:
            write.error = error
            if write.lane is not None:
                write.lane.broken = error

    def sweep(self) -> None:
        """Delete up to SWEEP_ROWS rows of trimmed or deleted entries."""
        log_id = next(iter(self.garbage))
        self.connection.execute("PRAGMA synchronous = NORMAL")  # no fsync: a lost sweep is repeated
        try:
            swept = rows.sweep(self.connection, log_id, SWEEP_ROWS)
        except sqlite3.Error:  # disk full: the next owner tries again
            swept = 0
        finally:
            self.connection.execute(f"PRAGMA synchronous = {file.SYNCHRONOUS}")
        if swept < SWEEP_ROWS:
            self.garbage.discard(log_id)
        self.wal.note_growth(file.PAGE_BYTES * swept)

    def lose_power(self) -> None:
        """Cut the WAL off after the last synced commit. Without a sync of every commit, nothing in the WAL counts as
        synced. Called between two commits; no statement may follow."""
        (synchronous,) = self.connection.execute("PRAGMA synchronous").fetchone()
        file.cut_wal(self.path, keeps_commits=synchronous >= file.SYNCHRONOUS_FULL)

    def close(self) -> None:
        """Copy the WAL into the file if possible, and release the file to the next owner."""
        self.wal.close()
        with contextlib.suppress(sqlite3.Error):  # a full disk or an open reader: the WAL stays and is read
            self.connection.execute("PRAGMA busy_timeout = 100")
            rows.write_ends(self.connection)
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.connection.execute("PRAGMA journal_mode = DELETE")
        self.connection.close()
        self._lock.close()


class Wal:
    """Keeps the WAL short without delaying commits, unless it exceeds WAL_BYTES_MAX.

    A checkpoint by a second connection runs concurrently with commits, but does not copy what they add
    meanwhile. So a thread repeats such checkpoints until little is left, which the writer copies itself
    between two commits. Then SQLite writes the WAL from its beginning again.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoints of {path}")
        self._other_connection: sqlite3.Connection | None = None
        self._running: Future[None] | None = None
        self._bytes_left = file.fill_wal(path)
        """Approximate bytes written since the last checkpoint began; at first those of a crashed owner."""
        self._bytes = self._bytes_left
        """Approximate bytes written since the WAL was last restarted."""

    def note_growth(self, data_bytes: int) -> None:
        self._bytes_left += data_bytes + _BYTES_PER_COMMIT
        self._bytes += data_bytes + _BYTES_PER_COMMIT

    @property
    def is_due(self) -> bool:
        """Whether `checkpoint_if_due` begins or finishes a checkpoint."""
        if self._running is None:
            return self._bytes_left >= CHECKPOINT_BYTES
        return self._running.done() or self._bytes >= WAL_BYTES_MAX

    def checkpoint_if_due(self) -> None:
        """Begin or finish a checkpoint if one is due. Called between two commits; waits for the thread if the WAL
        exceeds WAL_BYTES_MAX."""
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
        self._running = self._thread.submit(self._checkpoint_concurrently)

    def _checkpoint_concurrently(self) -> None:
        if self._other_connection is None:
            self._other_connection = file.open_for_checkpoints(self._path)
        _checkpoint(self._other_connection)

    def close(self) -> None:
        self._thread.shutdown()
        if self._other_connection is not None:
            self._other_connection.close()


def _checkpoint(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):  # disk full: nothing is lost, the WAL has all commits
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
