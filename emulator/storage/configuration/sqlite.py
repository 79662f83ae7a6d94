"""The configuration store of a cluster in one SQLite file that all its regions have open.

    meta(key, value)                                  format_version, cluster, identity
    kv(path, value, version, revision)                current values
    changes(revision, path, value, version)           the change log; the oldest are discarded (M5)

A write is one immediate transaction: a deferred one that reads before it writes would fail when another process
committed in between, whatever its busy timeout. `synchronous = NORMAL`: a commit survives the kill of every process,
and costs no fsync; the last commits may be lost when the machine loses power.

Commits of other processes are detected by `PRAGMA data_version` on a connection that never writes, every
`POLL_SECONDS`. A process that has the file open must not open it by other means, not even to read it: closing any
descriptor of a file drops all POSIX locks that the process holds on it. Copies are made with `VACUUM INTO`.

Processes with a renamed or removed file keep it open, while a process that starts later creates another one: two
stores, each of which would acknowledge changes that the other lacks. So each change compares the file names with the
open files before and after, and is not acknowledged if they differ. A region that used the store before a restart
creates no new one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from emulator.errors import StorageError, StorageFull
from emulator.model.values import Change
from emulator.storage.configuration.contract import (
    ABSENT,
    CHANGES_KEPT,
    ConfigurationMedium,
    ConfigurationRead,
    ConfigurationRows,
    T,
)

FORMAT_VERSION = "2"
FILES = ("", "-wal", "-shm")
"""Suffixes of SQLite's files: the database, its log and its locks. All three exist while any process has it open."""
POLL_SECONDS = 0.02
BUSY_MS = 2_000
"""Timeout of a write that waits for writes of other regions."""
OPEN_SECONDS = 5.0
"""Timeout of opening while other regions open the file, too."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS kv (path TEXT PRIMARY KEY, value BLOB, version INTEGER, revision INTEGER);
CREATE TABLE IF NOT EXISTS changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT, value BLOB, version INTEGER
);
"""


async def open_sqlite_configuration(
    path: Path, cluster: str, *, known: str | None = None, changes_kept: int = CHANGES_KEPT
) -> SqliteConfiguration:
    """Open the store. Raises StorageError if its file is unusable, of another format or of another cluster.

    `known`: identity of the store that this region used before; a missing file or another identity is then a
    StorageError. None: the region used none, and a missing file is created.
    """
    writer = ThreadPoolExecutor(1, thread_name_prefix=f"writer of {path}")
    try:
        opened = await asyncio.get_running_loop().run_in_executor(writer, _open, path, cluster, known)
    except (OSError, sqlite3.Error) as error:
        writer.shutdown(wait=False)
        raise StorageError(
            f"the configuration store {path} cannot be opened: {error}", definite=True
        ) from error
    except BaseException:
        writer.shutdown(wait=False)
        raise
    return SqliteConfiguration(path, opened, writer, changes_kept)


Files = tuple[tuple[int, int], ...]
"""Identity of the files with the suffixes FILES: (device, inode) of each."""


class Opened(NamedTuple):
    files: Files
    identity: str
    """Random identity, generated when the store was created."""
    connection: sqlite3.Connection
    """Connection for writes."""
    reader: sqlite3.Connection
    watcher: sqlite3.Connection


class SqliteConfiguration(ConfigurationMedium):
    """One region's access to the file, created by `open_sqlite_configuration`."""

    def __init__(self, path: Path, opened: Opened, writer: ThreadPoolExecutor, changes_kept: int) -> None:
        self._path = path
        self._files = opened.files
        self.identity = opened.identity
        """Unique identity of the store, which a region passes as `known` when it opens the file again."""
        self._connection = opened.connection
        self._writer = writer
        self._reader = opened.reader
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix=f"reader of {path}")
        self._watcher = opened.watcher
        self._changes_kept = changes_kept
        self._seen: object = None
        """Data version at the last poll, and whether the files were in place."""
        self._on_commit: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def listen(self, on_commit: Callable[[], None]) -> None:
        self._on_commit = on_commit
        self._poll()

    def _poll(self) -> None:
        try:
            (version,) = self._watcher.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            version = None  # unavailable; reads and writes raise
        try:
            seen = (version, self._files_are_in_place())
            if seen != self._seen:
                self._seen = seen
                self._on_commit()
        finally:
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    async def read(self, after: int) -> ConfigurationRead:
        def work() -> ConfigurationRead:
            self._check_files(definite=True)
            return _read(self._reader, after)

        return await self._run(self._read_thread, work, "read")

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        def execute() -> tuple[int, T]:
            self._check_files(definite=True)
            with _Transaction(self._connection):
                outcome = work(SqliteRows(self._connection))
                revision = _revision(self._connection)
                self._connection.execute(
                    "DELETE FROM changes WHERE revision <= ?", (revision - self._changes_kept,)
                )
            self._check_files(definite=False)
            return revision, outcome

        return await self._run(self._writer, execute, "written")

    def _files_are_in_place(self) -> bool:
        """Return whether the file names still refer to the open files. Takes 3 µs per file."""
        return _files(self._path) == self._files

    def _check_files(self, *, definite: bool) -> None:
        """Raise StorageError if the file names do not refer to the open files: other regions may not see writes."""
        if not self._files_are_in_place():
            raise StorageError(
                f"{self._path} is no longer the file that this region opened: it was renamed, removed or replaced; "
                "restore it with its -wal and -shm files",
                definite=definite,
            )

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[[], T], what: str) -> T:
        if self._closed:
            raise StorageError("the configuration store is closed", definite=True)
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise StorageFull(f"{self._path}: no room left on the disk") from error
            # A busy timeout occurs before any change; the outcome of every other error is unknown.
            definite = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            raise StorageError(f"{self._path} could not be {what}: {error}", definite=definite) from error

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for thread in (self._writer, self._read_thread):
            await asyncio.get_running_loop().run_in_executor(None, thread.shutdown)
        for connection in (self._watcher, self._reader, self._connection):
            connection.close()


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


def _files(path: Path) -> Files:
    """Return the identity of the files; empty if one does not exist."""
    try:
        found = [os.stat(f"{path}{ending}") for ending in FILES]
    except OSError:
        return ()
    return tuple((one.st_dev, one.st_ino) for one in found)


def _open(path: Path, cluster: str, known: str | None) -> Opened:
    with ExitStack() as undo:
        connection, identity = _open_first(path, cluster, known)
        undo.callback(connection.close)
        files = _files(path)
        others = []
        for _ in range(2):
            others.append(_connect(path))
            undo.callback(others[-1].close)
            others[-1].execute("SELECT count(*) FROM meta")  # this opens its files
        if not files or _files(path) != files:
            raise StorageError(f"{path} was replaced while it was being opened", definite=True)
        undo.pop_all()
    return Opened(files, identity, connection, *others)


def _open_first(path: Path, cluster: str, known: str | None) -> tuple[sqlite3.Connection, str]:
    """Open the first connection, with retries: SQLite does not wait when several regions enable the WAL."""
    if known is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        raise StorageError(
            f"the configuration store {path} is missing: this region used it before, and its changes would be lost; "
            "restore it, or start a new run",
            definite=True,
        )
    deadline = time.monotonic() + OPEN_SECONDS
    connection = _connect(path, "rwc" if known is None else "rw")
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection, _create(connection, path, cluster, known)
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                connection.close()
                raise
            time.sleep(0.01)
        except BaseException:
            connection.close()
            raise


def _create(connection: sqlite3.Connection, path: Path, cluster: str, known: str | None) -> str:
    """Create missing tables; return the identity. Raises StorageError if it is not the expected store."""
    with _Transaction(connection):
        for statement in TABLES.split(";")[:-1]:
            connection.execute(statement)
        meta = {"format_version": FORMAT_VERSION, "cluster": cluster}
        if not connection.execute("SELECT count(*) FROM meta").fetchone()[0]:
            meta["identity"] = secrets.token_hex(8)
        connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", meta.items())
        found = dict(connection.execute("SELECT key, value FROM meta"))
    if found["format_version"] != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format version {found['format_version']} and this geoemu reads {FORMAT_VERSION}; "
            "use the geoemu that wrote it, or start a new run",
            definite=True,
        )
    if found["cluster"] != cluster:
        raise StorageError(f"{path} belongs to cluster {found['cluster']}, not {cluster}", definite=True)
    identity = str(found["identity"])
    if known is not None and identity != known:
        raise StorageError(
            f"{path} is another configuration store than the one that this region used before, and lacks its "
            "changes; restore the former one, or start a new run",
            definite=True,
        )
    return identity


class _Transaction:
    """An immediate transaction, rolled back when its block raises."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _read(connection: sqlite3.Connection, after: int) -> ConfigurationRead:
    connection.execute("BEGIN")  # one snapshot for all statements
    try:
        revision = _revision(connection)
        (first,) = connection.execute("SELECT min(revision) FROM changes").fetchone()
        if after < (revision if first is None else first - 1) or after > revision:
            rows = connection.execute("SELECT revision, path, value, version FROM kv ORDER BY revision")
            return ConfigurationRead(revision, [Change(*row) for row in rows], whole=True)
        rows = connection.execute(
            "SELECT revision, path, value, version FROM changes WHERE revision > ? ORDER BY revision",
            (after,),
        )
        return ConfigurationRead(revision, [Change(*row) for row in rows], whole=False)
    finally:
        connection.execute("COMMIT")


def _revision(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return 0 if found is None else int(found[0])


class SqliteRows:
    """Implements `ConfigurationRows` inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, path: str) -> Change | None:
        row = self._connection.execute(
            "SELECT revision, path, value, version FROM kv WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else Change(*row)

    def put(self, path: str, value: bytes | None) -> None:
        current = self.get(path)
        if value is None and current is None:
            return
        version = ABSENT if value is None else (ABSENT if current is None else current.version) + 1
        change = self._connection.execute(
            "INSERT INTO changes (path, value, version) VALUES (?, ?, ?)", (path, value, version)
        )
        if value is None:
            self._connection.execute("DELETE FROM kv WHERE path = ?", (path,))
        else:
            self._connection.execute(
                "INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?)", (path, value, version, change.lastrowid)
            )

    def count(self, prefix: str) -> int:
        assert prefix
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        (found,) = self._connection.execute(
            "SELECT count(*) FROM kv WHERE path >= ? AND path < ?", (prefix, after)
        ).fetchone()
        return int(found)
