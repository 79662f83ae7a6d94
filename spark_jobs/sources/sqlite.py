"""Read the log of a region whose backend is SQLite (docs/ARCHITECTURE.md, "What is on disk").

The reader never writes, and sends no requests to the region, which may be running, stopped or killed. A killed region
leaves its newest commits in the write-ahead log next to the file; SQLite reads both together.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from emulator.model.stored_keys import CursorKey, CursorPartKey, GrantKey
from spark_jobs.sources.contract import Group, LogDamaged, LogHead, RowRange, StoredValue
from spark_jobs.sources.run_folder import RegionLog

FORMAT_VERSION = "1"
SLICE_BYTES = 16 * 1024 * 1024
"""Approximate size of the slice that one task reads."""
SLICES_MAX = 64


def plan(log: RegionLog) -> list[RowRange]:
    """Return ranges of rows of about equal size that together cover all stored entries."""
    with _opened(log) as connection:
        first, last = connection.execute("SELECT min(rowid), max(rowid) FROM entry_groups").fetchone()
    if first is None:
        return []
    slices = min(SLICES_MAX, 1 + _size_bytes(Path(log.path)) // SLICE_BYTES)
    step = -(-(last + 1 - first) // slices)
    return [RowRange(start, min(start + step, last + 1)) for start in range(first, last + 1, step)]


def read_groups(log: RegionLog, rows: RowRange) -> Iterator[Group]:
    """Yield group commits in the order in which they were written."""
    with _opened(log) as connection:
        for row in connection.execute(
            "SELECT name, log_id, entry_groups.first_entry_id, logs.first_entry_id, data"
            " FROM entry_groups JOIN logs USING (log_id) WHERE entry_groups.rowid >= ? AND entry_groups.rowid < ?"
            " ORDER BY entry_groups.rowid",
            (rows.start, rows.stop),
        ):
            yield Group(*_typed(row, _GROUP))


def read_topic(log: RegionLog, topic: str) -> Iterator[Group]:
    """Yield all group commits of one topic."""
    with _opened(log) as connection:
        for row in connection.execute(
            "SELECT name, log_id, entry_groups.first_entry_id, logs.first_entry_id, data"
            " FROM logs JOIN entry_groups USING (log_id) WHERE name = ? ORDER BY entry_groups.first_entry_id",
            (topic,),
        ):
            yield Group(*_typed(row, _GROUP))


def next_entries(log: RegionLog) -> dict[str, int]:
    """Return the id after the newest durable entry of each topic that stores one."""
    with _opened(log) as connection:
        rows = connection.execute(
            "SELECT name, (SELECT first_entry_id + entry_count FROM entry_groups"
            " WHERE entry_groups.log_id = logs.log_id ORDER BY first_entry_id DESC LIMIT 1) AS next FROM logs"
            " WHERE next IS NOT NULL"
        )
        return dict(_typed(row, _NEXT) for row in rows)


def read_between(log: RegionLog, ranges: Mapping[str, tuple[int, int]]) -> Iterator[Group]:
    """Yield the group commits whose first entry is in the range of its topic."""
    with _opened(log) as connection:
        for topic, (start, stop) in ranges.items():
            for row in connection.execute(
                "SELECT name, log_id, entry_groups.first_entry_id, logs.first_entry_id, data"
                " FROM logs JOIN entry_groups USING (log_id) WHERE name = ?"
                " AND entry_groups.first_entry_id >= ? AND entry_groups.first_entry_id < ?"
                " ORDER BY entry_groups.first_entry_id",
                (topic, start, stop),
            ):
                yield Group(*_typed(row, _GROUP))


def read_heads(log: RegionLog) -> list[LogHead]:
    """Return the head of each topic's log."""
    with _opened(log) as connection:
        rows = connection.execute("SELECT name, log_id, first_entry_id FROM logs")
        return [LogHead(*_typed(row, _HEAD)) for row in rows]


def read_ends(log: RegionLog) -> dict[str, int]:
    """Return the highest id that each topic gave to an entry, where it is larger than that of the newest entry: that of
    an entry that was trimmed or never completed."""
    with _opened(log) as connection:
        rows = connection.execute(
            "SELECT name, next_entry_id - 1 FROM logs WHERE next_entry_id > coalesce((SELECT"
            " max(first_entry_id + entry_count) FROM entry_groups WHERE entry_groups.log_id = logs.log_id), 0)"
        )
        return dict(_typed(row, _NEXT) for row in rows)


def read_values(log: RegionLog) -> list[tuple[str, StoredValue]]:
    """Return stored cursors and grants, by key."""
    with _opened(log) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "key_values" not in tables:
            return []
        query = "SELECT key, value FROM key_values WHERE key LIKE ? OR key LIKE ? OR key LIKE ? ORDER BY key"
        kinds = [kind.prefix() + "%" for kind in (CursorKey, CursorPartKey, GrantKey)]
        rows = connection.execute(query, kinds)
        return [(key, value) for key, value in (_typed(row, _VALUE) for row in rows)]


_GROUP, _HEAD, _VALUE, _NEXT = (str, int, int, int, bytes), (str, int, int), (str, bytes), (str, int)
"""Types of the columns that the queries select. In SQLite a damaged row may have others."""


def _typed(row: tuple[Any, ...], types: tuple[type, ...]) -> tuple[Any, ...]:
    """Return a row whose columns have these types. Raises sqlite3.DataError for another one."""
    found = tuple(map(type, row))
    if found != types:
        names = ", ".join(one.__name__ for one in found)
        raise sqlite3.DataError(f"a row has columns of the types {names}")
    return row


@contextlib.contextmanager
def _opened(log: RegionLog) -> Iterator[sqlite3.Connection]:
    """Open a validated connection. Raises LogDamaged for every error of the file, also while it is being read."""
    path = Path(log.path)
    place = f"regions/{log.region}/{path.name}"
    try:
        with contextlib.ExitStack() as resources:
            connection = connect_read_only(path, resources)
            meta = dict(connection.execute("SELECT key, value FROM meta"))
            if meta.get("format_version") != FORMAT_VERSION:
                raise LogDamaged(
                    f"{place} has format version {meta.get('format_version')}, not {FORMAT_VERSION}"
                )
            if meta.get("region") != log.region:
                raise LogDamaged(f"{place} belongs to region {meta.get('region')}")
            yield connection
    except FileNotFoundError as problem:
        raise LogDamaged(f"{place} is missing") from problem
    except (sqlite3.Error, OSError) as problem:
        raise LogDamaged(f"{place} cannot be read: {problem}") from problem


def connect_read_only(path: Path, resources: contextlib.ExitStack) -> sqlite3.Connection:
    """Open a database of a running, stopped or killed region; `resources` closes it. Raises OSError, sqlite3.Error."""
    if not path.is_file():
        raise FileNotFoundError(path)
    wal, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    if not wal.exists():
        if index.exists():
            raise OSError(f"{wal.name} is missing, and with it the newest commits")
        # No process has the database open: SQLite need not create files next to it, which a read-only folder forbids.
        return _connect_to(path, "immutable=1", resources)
    try:
        return _connect_to(path, "mode=ro", resources)
    except sqlite3.OperationalError:
        # SQLite cannot create the index of the write-ahead log, as in a read-only folder: read a copy.
        copies = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="geoemu-log-")))
        shutil.copy(path, copies / path.name)
        shutil.copy(wal, copies / wal.name)
        return _connect_to(copies / path.name, "mode=rw", resources)


def _connect_to(path: Path, how: str, resources: contextlib.ExitStack) -> sqlite3.Connection:
    # Several threads read the batches of a long log, one after the other.
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{how}", uri=True, isolation_level=None, check_same_thread=False
    )
    resources.enter_context(contextlib.closing(connection))
    connection.execute("SELECT 1 FROM sqlite_master")  # the first statement that opens the file
    return connection


def _size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists())
