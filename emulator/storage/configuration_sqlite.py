"""The configuration store of a cluster in one SQLite file that all its regions have open.

    meta(key, value)                                  format_version, cluster
    kv(path, value, version, revision)                what is so
    changes(revision, path, value, version)           how it came to be; the oldest are forgotten (M5)

A write is one immediate transaction: one that reads first and writes then would fail when somebody else committed in
between, however long it is willing to wait. `synchronous = NORMAL`: a commit survives the kill of every process, and
costs no fsync; the last ones may be lost when the machine loses power.

That somebody committed is seen by `PRAGMA data_version`, asked of a connection that never writes, every `POLL_SECONDS`.
Nobody may open the file by other means in a process that has it open, not even to read it: closing any descriptor of a
file drops all POSIX locks that the process holds on it. Copies are made with `VACUUM INTO`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from emulator.errors import StorageError, StorageFull
from emulator.model import Change
from emulator.storage.configuration import ABSENT, CHANGES_KEPT, Reading, check_expected

FORMAT_VERSION = "1"
POLL_SECONDS = 0.02
BUSY_MS = 2_000
"""How long a write waits for those of other regions."""
OPEN_SECONDS = 5.0
"""How long opening goes on trying while other regions open the file too."""

T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS kv (path TEXT PRIMARY KEY, value BLOB, version INTEGER, revision INTEGER);
CREATE TABLE IF NOT EXISTS changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT, value BLOB, version INTEGER
);
"""


async def open_sqlite_configuration(
    path: Path, cluster: str, *, changes_kept: int = CHANGES_KEPT
) -> SqliteConfiguration:
    """Open the file, making it if need be. StorageError when it cannot be had or is another cluster's."""
    writer = ThreadPoolExecutor(1, thread_name_prefix=f"writer of {path}")
    try:
        connection = await asyncio.get_running_loop().run_in_executor(writer, _open, path, cluster)
        watcher, reader = _connect(path), _connect(path)
    except (OSError, sqlite3.Error) as error:
        writer.shutdown(wait=False)
        raise StorageError(
            f"the configuration store {path} cannot be opened: {error}", definite=True
        ) from error
    except BaseException:
        writer.shutdown(wait=False)
        raise
    return SqliteConfiguration(path, connection, writer, reader, watcher, changes_kept)


class SqliteConfiguration:
    """Implements `ConfigurationMedium`. Made by `open_sqlite_configuration`."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        writer: ThreadPoolExecutor,
        reader: sqlite3.Connection,
        watcher: sqlite3.Connection,
        changes_kept: int,
    ) -> None:
        self._path = path
        self._connection = connection
        self._writer = writer
        self._reader = reader
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix=f"reader of {path}")
        self._watcher = watcher
        self._changes_kept = changes_kept
        self._seen = -1
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
            version = self._seen  # it is away; whoever reads or writes is told so
        if version != self._seen:
            self._seen = version
            self._on_commit()
        self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    async def read(self, after: int) -> Reading:
        return await self._run(self._read_thread, lambda: _read(self._reader, after), "read")

    async def write(self, path: str, value: bytes | None, expected: int | None) -> int:
        def work() -> int:
            return _write(self._connection, path, value, expected, self._changes_kept)

        return await self._run(self._writer, work, "written")

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[[], T], what: str) -> T:
        if self._closed:
            raise StorageError("the configuration store is closed", definite=True)
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise StorageFull(f"{self._path}: no room left on the disk") from error
            # Waiting for others in vain comes before anything was changed; of everything else nobody knows.
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


def _open(path: Path, cluster: str) -> sqlite3.Connection:
    """Several regions may do this at the same time; turning on the WAL does not wait for others by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + OPEN_SECONDS
    connection = _connect(path, "rwc")
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            _create(connection, path, cluster)
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                connection.close()
                raise
            time.sleep(0.01)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _create(connection: sqlite3.Connection, path: Path, cluster: str) -> None:
    with _Transaction(connection):
        for statement in TABLES.split(";")[:-1]:
            connection.execute(statement)
        meta = {"format_version": FORMAT_VERSION, "cluster": cluster}
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


class _Transaction:
    """Immediate; rolled back when anything is raised in it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _read(connection: sqlite3.Connection, after: int) -> Reading:
    connection.execute("BEGIN")  # one state of the file, however many statements
    try:
        revision = _revision(connection)
        (first,) = connection.execute("SELECT min(revision) FROM changes").fetchone()
        if after < (revision if first is None else first - 1) or after > revision:
            rows = connection.execute("SELECT revision, path, value, version FROM kv ORDER BY revision")
            return Reading(revision, [Change(*row) for row in rows], whole=True)
        rows = connection.execute(
            "SELECT revision, path, value, version FROM changes WHERE revision > ? ORDER BY revision",
            (after,),
        )
        return Reading(revision, [Change(*row) for row in rows], whole=False)
    finally:
        connection.execute("COMMIT")


def _revision(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return 0 if found is None else int(found[0])


def _write(
    connection: sqlite3.Connection, path: str, value: bytes | None, expected: int | None, kept: int
) -> int:
    with _Transaction(connection):
        row = connection.execute(
            "SELECT revision, path, value, version FROM kv WHERE path = ?", (path,)
        ).fetchone()
        current = None if row is None else Change(*row)
        check_expected(path, expected, current)
        if value is None and current is None:
            return _revision(connection)
        version = ABSENT if value is None else (ABSENT if current is None else current.version) + 1
        change = connection.execute(
            "INSERT INTO changes (path, value, version) VALUES (?, ?, ?)", (path, value, version)
        )
        revision = change.lastrowid
        assert revision is not None, "an insert gives its row id"
        if value is None:
            connection.execute("DELETE FROM kv WHERE path = ?", (path,))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?)", (path, value, version, revision)
            )
        connection.execute("DELETE FROM changes WHERE revision <= ?", (revision - kept,))
    return revision
