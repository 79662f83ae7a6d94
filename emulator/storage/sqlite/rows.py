"""The layout of entries in the table `entry_groups`, and the queries on a log's tables.

All functions run on a connection, or return statements for one; the callers choose the thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from emulator.errors import StorageError
from emulator.storage.contract import Entry, Versioned
from emulator.storage.group import (
    ENTRY_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    encode_group,
    entry_lengths,
    slice_group,
)

ROW_BYTES = 256 * 1024
"""Approximate size of the rows of a group, so that reading a few entries of it costs little."""
ROWS_PER_STATEMENT = 64

Row = tuple[int, int, int, bytes | bytearray]
"""log_id, first_entry_id, entry_count, data."""
Statement = tuple[str, Sequence[Any]]


class LogFacts(NamedTuple):
    """The state of a log in the tables."""

    log_id: int
    first_entry_id: int
    next_entry_id: int
    size_bytes: int


def describe_row(log_id: int, first: int) -> str:
    return f"row (log_id {log_id}, first_entry_id {first}) of entry_groups"


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────


def group_rows(log_id: int, first: int, entries: Iterable[bytes]) -> Iterator[Row]:
    """Encode entries of one log, with consecutive ids from `first` on, as rows of about ROW_BYTES. Each row is encoded
    when it is taken."""
    row: list[bytes] = []
    size = 0
    for entry in entries:
        if size >= ROW_BYTES:
            yield log_id, first, len(row), encode_group(row)
            first, row, size = first + len(row), [], 0
        row.append(entry)
        size += len(entry)
    yield log_id, first, len(row), encode_group(row)


def insert_groups(rows: Iterable[Row]) -> Iterator[Statement]:
    """Return statements with up to ROWS_PER_STATEMENT rows each; one of ROW_BYTES or more ends with the row that makes
    it so large. A statement is built when it is taken: SQLite copies the rows of a statement twice before it writes
    them, which costs a tenth of the processor time of large entries less while they are in the processor's cache."""
    part: list[Row] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row[3])
        if size >= ROW_BYTES or len(part) == ROWS_PER_STATEMENT:
            yield _insert(part)
            part, size = [], 0
    if part:
        yield _insert(part)


def _insert(rows: Sequence[Row]) -> Statement:
    return _statement("INSERT INTO entry_groups VALUES {}", "(?, ?, ?, ?)", rows)


def write_keys(values: dict[str, Versioned | None]) -> list[Statement]:
    """Return the statements that set keys, and delete those without a value."""
    # An update in place changes one page; a replaced row would change the index too.
    upsert = (
        "INSERT INTO key_values VALUES {} "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version"
    )
    puts = [(key, *value) for key, value in values.items() if value is not None]
    deletions = [(key,) for key, value in values.items() if value is None]
    return [
        *_many(upsert, "(?, ?, ?)", puts),
        *_many("DELETE FROM key_values WHERE key IN ({})", "?", deletions),
    ]


def _many(statement: str, row: str, rows: Sequence[tuple[Any, ...]]) -> list[Statement]:
    """Return statements with up to ROWS_PER_STATEMENT rows each: every statement competes for the interpreter lock."""
    parts = [rows[i : i + ROWS_PER_STATEMENT] for i in range(0, len(rows), ROWS_PER_STATEMENT)]
    return [_statement(statement, row, part) for part in parts]


def _statement(statement: str, row: str, rows: Sequence[tuple[Any, ...]]) -> Statement:
    return _sql(statement, row, len(rows)), [value for row in rows for value in row]


@cache
def _sql(statement: str, row: str, count: int) -> str:
    return statement.format(", ".join([row] * count))


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────


def read_entries(
    connection: sqlite3.Connection, log_id: int, start: int, end: int, max_entries: int, max_bytes: int
) -> list[Entry]:
    """Return the entries with start <= id < end until a limit is reached, without swept rows. Raises StorageError for a
    damaged row or a gap between rows."""
    found: list[Entry] = []
    rows = connection.execute(
        "SELECT first_entry_id, data FROM entry_groups"
        " WHERE log_id = ? AND first_entry_id < ? AND first_entry_id >= ("
        "  SELECT max(first_entry_id) FROM entry_groups WHERE log_id = ? AND first_entry_id <= ?)"
        " ORDER BY first_entry_id",
        (log_id, end, log_id, start),
    )
    try:
        for first, data in rows:
            row = describe_row(log_id, first)
            if found and first != found[-1].entry_id + 1:
                raise StorageError(f"{row} should begin at entry {found[-1].entry_id + 1}", definite=True)
            entries = slice_group(data, max(start - first, 0), max_entries - len(found), max_bytes, row)
            found.extend(Entry(entry_id, entry) for entry_id, entry in enumerate(entries, max(start, first)))
            max_bytes -= sum(map(len, entries))
            if len(found) == max_entries or max_bytes <= 0:
                break
    finally:
        rows.close()  # an open read would prevent a restart of the WAL
    return found


def log_facts(connection: sqlite3.Connection, name: str) -> LogFacts | None:
    """Return the state of a log; None: there is no such log."""
    found = connection.execute(
        "SELECT log_id, first_entry_id, next_entry_id FROM logs WHERE name = ?", (name,)
    ).fetchone()
    if found is None:
        return None
    log_id, first, floor = found
    last = connection.execute(
        "SELECT first_entry_id + entry_count FROM entry_groups WHERE log_id = ?"
        " ORDER BY first_entry_id DESC LIMIT 1",
        (log_id,),
    ).fetchone()
    end = floor if last is None else max(floor, last[0])
    return LogFacts(log_id, first, end, bytes_between(connection, log_id, first, end))


def bytes_between(connection: sqlite3.Connection, log_id: int, start: int, end: int) -> int:
    """Return the bytes of the entries with start <= id < end."""
    (whole,) = connection.execute(
        "SELECT total(length(data) - ? * entry_count - ?) FROM entry_groups WHERE log_id = ?"
        " AND first_entry_id >= ? AND first_entry_id < ? AND first_entry_id + entry_count <= ?",
        (ENTRY_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, log_id, start, end, end),
    ).fetchone()
    cut: dict[
        int, tuple[int, ...]
    ] = {}  # first id and lengths of rows in whose middle the range begins or ends
    for edge in (start, end):
        row = connection.execute(
            "SELECT first_entry_id, entry_count, data FROM entry_groups"
            " WHERE log_id = ? AND first_entry_id < ? ORDER BY first_entry_id DESC LIMIT 1",
            (log_id, edge),
        ).fetchone()
        if row is not None and row[0] + row[1] > edge:
            cut[row[0]] = entry_lengths(row[2], describe_row(log_id, row[0]))
    return int(whole) + sum(
        sum(lengths[max(start - first, 0) : max(end - first, 0)]) for first, lengths in cut.items()
    )


# ── Changing the table of logs ────────────────────────────────────────────────────────────────────────


def create_log(connection: sqlite3.Connection, name: str) -> LogFacts:
    """Create a log, unless there is one, and return its state."""
    created = connection.execute(
        "INSERT INTO logs VALUES (NULL, ?, 0, 0) ON CONFLICT (name) DO NOTHING", (name,)
    )
    log_id = created.lastrowid
    found = LogFacts(log_id, 0, 0, 0) if created.rowcount and log_id else log_facts(connection, name)
    assert found is not None, "the log exists"
    return found


def delete_log(connection: sqlite3.Connection, name: str) -> int | None:
    """Delete a log; return its id, whose rows `sweep` deletes later. None: there was no such log."""
    found = connection.execute("SELECT log_id FROM logs WHERE name = ?", (name,)).fetchone()
    if found is None:
        return None
    connection.execute("DELETE FROM logs WHERE log_id = ?", found)
    log_id: int = found[0]
    return log_id


def trim_log(connection: sqlite3.Connection, log_id: int, before: int, floor: int) -> int:
    """Raise the first id to `before`, and the lower bound of the log's end to `floor`; return the bytes trimmed."""
    (first,) = connection.execute("SELECT first_entry_id FROM logs WHERE log_id = ?", (log_id,)).fetchone()
    trimmed_bytes = bytes_between(connection, log_id, first, before)
    connection.execute(
        "UPDATE logs SET first_entry_id = max(first_entry_id, ?), next_entry_id = max(next_entry_id, ?)"
        " WHERE log_id = ?",
        (before, floor, log_id),
    )
    return trimmed_bytes


def write_ends(connection: sqlite3.Connection) -> None:
    """Raise `logs.next_entry_id` of all logs to their ends."""
    connection.execute(
        "UPDATE logs SET next_entry_id = max(next_entry_id, coalesce(("
        "  SELECT first_entry_id + entry_count FROM entry_groups"
        "  WHERE entry_groups.log_id = logs.log_id ORDER BY first_entry_id DESC LIMIT 1), 0))"
    )


def logs_with_rows(connection: sqlite3.Connection) -> set[int]:
    """Return the ids of all logs with rows, also deleted logs, by one index lookup for each."""
    found: set[int] = set()
    log_id: int | None = 0
    while log_id is not None:
        found.add(log_id)
        (log_id,) = connection.execute(
            "SELECT min(log_id) FROM entry_groups WHERE log_id > ?", (log_id,)
        ).fetchone()
    return found - {0}


def sweep(connection: sqlite3.Connection, log_id: int, max_rows: int) -> int:
    """Delete up to `max_rows` rows that are trimmed or whose log is deleted; return their number."""
    found = connection.execute("SELECT first_entry_id FROM logs WHERE log_id = ?", (log_id,)).fetchone()
    end = found[0] if found else 2**62
    return connection.execute(
        "DELETE FROM entry_groups WHERE rowid IN ("
        " SELECT rowid FROM entry_groups"
        " WHERE log_id = ? AND first_entry_id < ? AND first_entry_id + entry_count <= ? LIMIT ?)",
        (log_id, end, end, max_rows),
    ).rowcount
