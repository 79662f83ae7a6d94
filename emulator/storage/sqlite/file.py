"""Open the file of a SQLite store: its tables, its lock, its connections and its errors.

The tables are described in docs/ARCHITECTURE.md, "What is on disk". Two remarks:

* `entry_groups` keeps its rowid. Without it the rows would be in the index, and SQLite would read a whole row
  with its blob for every comparison of a search.
* `logs.next_entry_id` is a lower bound, written by a trim and when the store is closed. The end of a log is the
  larger one of it and the end of the last group: no id is reused after all entries are trimmed (S3).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import IO
from urllib.parse import quote

from emulator.errors import StorageError, StorageFull
from emulator.storage.contract import ledger_id_base

FORMAT_VERSION = "1"
PAGE_BYTES = 8192
"""Page size of a new file; an existing file keeps its own. Each page of a commit costs two writes into the WAL and
one out of it, so a group of large entries takes a quarter less processor time than with SQLite's 4,096 bytes; above
8,192 a commit of one small entry, three pages, would begin to take longer (docs/decisions/0015)."""
WAL_BYTES = 4 * 1024 * 1024
"""Size of the WAL at the beginning, and approximately afterwards."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE logs (
    log_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    first_entry_id INTEGER,
    next_entry_id INTEGER
);
CREATE TABLE entry_groups (
    log_id INTEGER,
    first_entry_id INTEGER,
    entry_count INTEGER,
    data BLOB,
    PRIMARY KEY (log_id, first_entry_id)
);
CREATE TABLE key_values (key TEXT PRIMARY KEY, value BLOB, version INTEGER);
"""


def take_ownership(path: Path, region: str) -> IO[str]:
    """Lock `<path>.lock`. Raises StorageError, which names the holder, if another process or store holds the lock. It
    is released when the returned file is closed or the process ends, also by a kill."""
    lock = open(f"{path}.lock", "a+", encoding="utf-8")  # noqa: SIM115 (closed by the owner)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise StorageError(f"{path} is in use by {holder}; stop it first", definite=True) from error
    lock.truncate(0)
    lock.write(f"process {os.getpid()} (region {region})\n")
    lock.flush()
    return lock


def open_for_writing(path: Path, region: str) -> sqlite3.Connection:
    """Open the owner's connection; the file is created if missing. Raises StorageError for another format or region."""
    connection = _connect(path, "rwc")
    try:
        # The first statement that reads the file: it fails if the file is no database.
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables:
            _check(connection, path, region)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # effective only without tables
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # S2; one fsync of the WAL per commit
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see commit.Wal
        connection.execute("PRAGMA secure_delete = OFF")
        if not tables:
            _create(connection, region)
    except BaseException:
        connection.close()
        raise
    return connection


def fill_wal(path: Path) -> int:
    """Extend the WAL to `WAL_BYTES` before it is written to; return its former length.

    A commit that overwrites a part of a file takes half the time of one that extends it (86 µs against 183 µs),
    because it needs no journal of the file system. Zeros are no frames: SQLite overwrites them, and recovery
    ends where they begin.
    """
    with open(f"{path}-wal", "ab") as wal:
        length = wal.tell()
        with contextlib.suppress(OSError):  # disk full: commits are slower
            wal.write(bytes(max(0, WAL_BYTES - length)))
            wal.flush()
    return length


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a connection that reads committed data and blocks no writer."""
    return _connect(path, "ro")


def open_for_checkpoints(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "rw")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def storage_error(error: Exception, what: str, *, definite: bool) -> StorageError:
    """Convert an error of SQLite into a StorageError; StorageFull if the disk is full."""
    if isinstance(error, StorageError):
        return error
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StorageFull(f"{what}: no room left on the disk")
    return StorageError(f"{what}: {error}", definite=definite)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Each connection is used by one thread at a time, but not always by the one that opened it.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )


def _create(connection: sqlite3.Connection, region: str) -> None:
    meta = [("format_version", FORMAT_VERSION), ("region", region)]
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES.split(";")[:-1]:
        connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta)
    connection.execute("INSERT INTO sqlite_sequence VALUES ('logs', ?)", (ledger_id_base(region),))
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path, region: str) -> None:
    meta: dict[str, str] = {}
    with contextlib.suppress(sqlite3.OperationalError):  # no such table: another program's database
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    version = meta.get("format_version")
    if version is None:
        raise StorageError(
            f"{path} is a database, but not a log of geoemu; choose another path", definite=True
        )
    if version != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format version {version} and this geoemu reads {FORMAT_VERSION};"
            " use the geoemu that wrote it, or start with a new folder",
            definite=True,
        )
    if meta.get("region") != region:
        raise StorageError(
            f"{path} belongs to region {meta.get('region')}, not {region}; give each region its own file",
            definite=True,
        )
