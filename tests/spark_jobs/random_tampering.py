"""Random manipulations of a run directory, for comparisons of engines: each changes one file of the evidence."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random

from emulator.storage.group import decode_group, encode_group


def tamper(run: Path, random: Random) -> str:
    """Apply one random manipulation, and return its description. A manipulation for which the run has no evidence is
    replaced by another one."""
    for change in random.sample(CHANGES, len(CHANGES)):
        found = change(run, random)
        if found is not None:
            return found
    raise AssertionError(f"{run} has nothing to change")


def _log(run: Path, random: Random) -> Path:
    return random.choice(sorted((run / "regions").glob("*/log.sqlite")))


def _group(database: sqlite3.Connection, random: Random) -> tuple[int, list[bytes]] | None:
    """Return the row id and the entries of a random group of a topic's log."""
    rows = database.execute(
        "SELECT entry_groups.rowid FROM entry_groups JOIN logs USING (log_id) WHERE name LIKE 'persistent://%'"
        " ORDER BY 1"
    ).fetchall()
    if not rows:
        return None
    (rowid,) = random.choice(rows)
    ((data,),) = database.execute("SELECT data FROM entry_groups WHERE rowid = ?", (rowid,)).fetchall()
    return rowid, decode_group(data)


def change_entry(run: Path, random: Random) -> str | None:
    """Change one byte of a stored entry; the checksum of the group is valid afterwards."""
    path = _log(run, random)
    with closing(sqlite3.connect(path)) as database, database:
        if (group := _group(database, random)) is None:
            return None
        rowid, entries = group
        number = random.randrange(len(entries))
        data = bytearray(entries[number])
        at = random.randrange(len(data))
        data[at] ^= 1 << random.randrange(8)
        entries[number] = bytes(data)
        database.execute("UPDATE entry_groups SET data = ? WHERE rowid = ?", (encode_group(entries), rowid))
    return f"byte {at} of an entry of {path.parent.name} changed"


def change_group(run: Path, random: Random) -> str | None:
    """Change one byte of a group of entries, which invalidates its checksum."""
    path = _log(run, random)
    with closing(sqlite3.connect(path)) as database, database:
        if (group := _group(database, random)) is None:
            return None
        rowid, entries = group
        data = encode_group(entries)
        data[random.randrange(len(data))] ^= 1
        database.execute("UPDATE entry_groups SET data = ? WHERE rowid = ?", (data, rowid))
    return f"a group of {path.parent.name} damaged"


def replace_entry(run: Path, random: Random) -> str | None:
    """Store one entry at the place of another one of the same log."""
    path = _log(run, random)
    with closing(sqlite3.connect(path)) as database, database:
        one, other = _group(database, random), _group(database, random)
        if one is None or other is None or one[0] == other[0]:
            return None
        entries = [*one[1][:-1], random.choice(other[1])]
        database.execute("UPDATE entry_groups SET data = ? WHERE rowid = ?", (encode_group(entries), one[0]))
    return f"an entry of {path.parent.name} replaced by another one"


def remove_group(run: Path, random: Random) -> str | None:
    path = _log(run, random)
    with closing(sqlite3.connect(path)) as database, database:
        if (group := _group(database, random)) is None:
            return None
        database.execute("DELETE FROM entry_groups WHERE rowid = ?", (group[0],))
    return f"a group of {path.parent.name} removed"


def move_cursor(run: Path, random: Random) -> str | None:
    """Change the mark-delete position of a stored cursor."""
    path = _log(run, random)
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute(
            "SELECT rowid, value FROM key_values WHERE key LIKE 'cursor/%' ORDER BY key"
        ).fetchall()
        if not rows:
            return None
        rowid, value = random.choice(rows)
        cursor = json.loads(value)
        if not isinstance(cursor, dict) or "mark_delete" not in cursor:
            return None
        cursor["mark_delete"] = max(-1, cursor["mark_delete"] + random.choice((-5, -1, 1, 2, 50)))
        database.execute(
            "UPDATE key_values SET value = ? WHERE rowid = ?", (json.dumps(cursor).encode(), rowid)
        )
    return f"a cursor of {path.parent.name} moved to entry {cursor['mark_delete']}"


def remove_value(run: Path, random: Random) -> str | None:
    path = _log(run, random)
    with closing(sqlite3.connect(path)) as database, database:
        keys = [key for (key,) in database.execute("SELECT key FROM key_values ORDER BY key")]
        if not keys:
            return None
        key = random.choice(keys)
        database.execute("DELETE FROM key_values WHERE key = ?", (key,))
    return f"{key} of {path.parent.name} removed"


def _history(run: Path, random: Random) -> tuple[Path, list[str]]:
    path = random.choice(sorted((run / "history").glob("*.jsonl")))
    return path, path.read_text().splitlines(keepends=True)


def remove_line(run: Path, random: Random) -> str:
    path, lines = _history(run, random)
    number = random.randrange(len(lines))
    path.write_text("".join(lines[:number] + lines[number + 1 :]))
    return f"line {number + 1} of {path.name} removed"


def cut_history(run: Path, random: Random) -> str:
    path, _ = _history(run, random)
    data = path.read_bytes()
    size = random.randrange(len(data))
    path.write_bytes(data[:size])
    return f"{path.name} cut to {size} bytes"


def exchange_field(run: Path, random: Random) -> str | None:
    """Give a field of one line the value that another line of the file has, and write a matching end."""
    path, lines = _history(run, random)
    one, other = (random.randrange(1, len(lines)) for _ in range(2))
    fields, others = json.loads(lines[one]), json.loads(lines[other])
    names = [name for name in fields if name in others and fields[name] != others[name]]
    names = [name for name in names if name not in ("digest", "lines")]
    if not names:
        return None
    name = random.choice(names)
    fields[name] = others[name]
    lines[one] = json.dumps(fields) + "\n"
    path.write_text(with_matching_end(lines))
    return f"{name} of line {one + 1} of {path.name} is {fields[name]!r}"


def with_matching_end(lines: list[str]) -> str:
    """Return the text of a history file whose last line is its end, with the digest of the lines before it."""
    import hashlib

    body = "".join(lines[:-1])
    end: Mapping[str, object] = json.loads(lines[-1])
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"{body}{json.dumps({**end, 'digest': digest, 'lines': len(lines) - 1})}\n"


def remove_file(run: Path, random: Random) -> str:
    files = sorted(path for path in run.rglob("*") if path.is_file() and "report" not in path.parts)
    path = random.choice(files)
    path.unlink()
    return f"{path.relative_to(run)} removed"


def change_document(run: Path, random: Random) -> str | None:
    """Replace a document of a configuration store by another one of the same store."""
    stores = sorted((run / "configuration").glob("*/configuration.sqlite"))
    if not stores:
        return None
    path = random.choice(stores)
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute("SELECT path, value FROM kv ORDER BY path").fetchall()
        if len(rows) < 2:
            return None
        (one, _), (_, value) = random.sample(rows, 2)
        database.execute("UPDATE kv SET value = ? WHERE path = ?", (value, one))
    return f"{one} of {path.parent.name} changed"


def change_policies(run: Path, random: Random) -> str | None:
    """Remove a region's record of one received policy change."""
    files = [file for file in sorted((run / "regions").glob("*/metadata.jsonl")) if file.read_text()]
    if not files:
        return None
    path = random.choice(files)
    lines = path.read_text().splitlines(keepends=True)
    number = random.randrange(len(lines))
    path.write_text("".join(lines[:number] + lines[number + 1 :]))
    return f"line {number + 1} of regions/{path.parent.name}/metadata.jsonl removed"


CHANGES: tuple[Callable[[Path, Random], str | None], ...] = (
    change_entry,
    change_entry,
    change_group,
    replace_entry,
    remove_group,
    move_cursor,
    remove_value,
    remove_line,
    cut_history,
    exchange_field,
    exchange_field,
    remove_file,
    change_document,
    change_policies,
)
