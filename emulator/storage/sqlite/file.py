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
import struct
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

SYNCHRONOUS = "FULL"
"""One fsync of the WAL for each commit (S2)."""
SYNCHRONOUS_FULL = 2
"""Value of `PRAGMA synchronous` from which on SQLite syncs the WAL with every commit."""
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
"""Bytes before each page in the WAL (https://sqlite.org/walformat.html). Byte 16 of the -shm file is `mxFrame`, the
number of the last frame of the last commit."""

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
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
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


def cut_wal(path: Path, *, keeps_commits: bool) -> None:
    """Truncate the WAL after its last commit, or to nothing without `keeps_commits`; SQLite then continues with the
    commits of earlier checkpoints. Only for a process that ends at once: closing a file drops SQLite's locks on it."""
    try:
        wal_header = _first_bytes(f"{path}-wal", 12)
        (frames,) = struct.unpack_from("=I", _first_bytes(f"{path}-shm", 20), 16)
        (page_bytes,) = struct.unpack_from(">I", wal_header, 8)
    except (OSError, struct.error):
        return  # no WAL yet
    if page_bytes == 1:
        page_bytes = 65_536
    length = _WAL_HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + page_bytes)
    os.truncate(f"{path}-wal", length if keeps_commits and frames else 0)


def _first_bytes(path: str, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)


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
