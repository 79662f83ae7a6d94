"""Logs of real stores: running, stopped, killed, trimmed, damaged."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from emulator.storage.group import decode_group
from emulator.storage.sqlite.store import open_sqlite
from spark_jobs.sources import sqlite
from spark_jobs.sources.contract import Group, LogDamaged, LogHead, RowRange
from spark_jobs.sources.run_folder import RegionLog
from tests.spark_jobs.sample_run import TOPIC, place, store_entries

ENTRIES = [b"entry %d" % number for number in range(10)]


def log_at(path: Path) -> RegionLog:
    return RegionLog("us-east", "sqlite", str(path))


def read(path: Path) -> list[Group]:
    return [group for rows in sqlite.plan(log_at(path)) for group in sqlite.read_groups(log_at(path), rows)]


def entries_in(path: Path) -> list[bytes]:
    return [entry for group in read(path) for entry in decode_group(group.data)]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    path = tmp_path / "log.sqlite"
    asyncio.run(store_entries(path, "us-east", ENTRIES, group=3))
    return path


def test_a_stopped_region(stopped: Path) -> None:
    assert entries_in(stopped) == ENTRIES
    assert [group.first_entry_id for group in read(stopped)] == [0, 3, 6, 9]
    assert {group.topic for group in read(stopped)} == {TOPIC}
    assert sqlite.read_heads(log_at(stopped)) == [LogHead(TOPIC, place("us-east", 0).ledger, 0)]


def test_the_end_of_a_log_is_that_of_its_newest_entry_or_higher(stopped: Path) -> None:
    assert sqlite.read_ends(log_at(stopped)) == {}
    with contextlib.closing(sqlite3.connect(stopped)) as database, database:
        database.execute("DELETE FROM entry_groups WHERE first_entry_id = 9")
    assert sqlite.read_ends(log_at(stopped)) == {TOPIC: 9}


def test_reading_leaves_no_trace(stopped: Path) -> None:
    before = {file.name: file.read_bytes() for file in stopped.parent.iterdir()}
    entries_in(stopped)
    assert {file.name: file.read_bytes() for file in stopped.parent.iterdir()} == before


async def test_a_running_region_and_what_its_kill_leaves(tmp_path: Path) -> None:
    path, corpse = tmp_path / "live" / "log.sqlite", tmp_path / "killed" / "log.sqlite"

    store = await open_sqlite(path, "us-east")
    log = await store.open_log(TOPIC)
    assert log is not None
    for entry in ENTRIES:
        await log.append([entry])
    assert entries_in(path) == ENTRIES
    corpse.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{corpse}{suffix}")
    await log.append([b"one more"])
    assert entries_in(path) == [*ENTRIES, b"one more"]
    await store.close()
    assert entries_in(corpse) == ENTRIES


def test_a_read_only_folder_with_a_write_ahead_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archived, read-only folder can still be read. (A superuser may write anyway: refuse for it.)"""
    path = tmp_path / "log.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    asyncio.run(store_entries(tmp_path / "other" / "log.sqlite", "us-east", ENTRIES))
    connect = sqlite3.connect

    def refuse_read_only(name: str, **options: object) -> sqlite3.Connection:
        if name.endswith("?mode=ro"):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(name, **options)  # type: ignore[call-overload, no-any-return]

    for table in ("meta", "logs", "entry_groups"):
        connection.execute(f"ATTACH '{tmp_path}/other/log.sqlite' AS other")
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM other.{table}")
        connection.commit()
        connection.execute("DETACH other")
    monkeypatch.setattr(sqlite3, "connect", refuse_read_only)
    assert entries_in(path) == ENTRIES
    connection.close()


async def test_trimmed_entries_are_known_from_the_head(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"

    store = await open_sqlite(path, "us-east")
    log = await store.open_log(TOPIC)
    assert log is not None
    await log.append(ENTRIES[:5])
    await log.append(ENTRIES[5:])
    await log.trim(7)
    await store.close()
    assert sqlite.read_heads(log_at(path)) == [LogHead(TOPIC, place("us-east", 0).ledger, 7)]
    assert {group.trimmed_below for group in read(path)} == {7}


def test_a_large_log_is_shared_out_without_loss_or_overlap(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SLICE_BYTES", stopped.stat().st_size // 2)
    assert len(sqlite.plan(log_at(stopped))) > 1
    assert entries_in(stopped) == ENTRIES


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    asyncio.run(store_entries(tmp_path / "log.sqlite", "us-east", []))
    assert sqlite.plan(log_at(tmp_path / "log.sqlite")) == []


class TestDamage:
    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(LogDamaged, match=r"regions/us-east/log\.sqlite is missing"):
            sqlite.plan(log_at(tmp_path / "log.sqlite"))

    def test_another_region(self, stopped: Path) -> None:
        with pytest.raises(LogDamaged, match="belongs to region us-east"):
            sqlite.plan(RegionLog("us-west", "sqlite", str(stopped)))

    def test_another_version(self, stopped: Path) -> None:
        with sqlite3.connect(stopped) as database:
            database.execute("UPDATE meta SET value = '9' WHERE key = 'format_version'")
        with pytest.raises(LogDamaged, match="format version 9, not 1"):
            sqlite.plan(log_at(stopped))

    @pytest.mark.parametrize(
        "content", [b"", b"SQLite format 3\x00" + b"\xff" * 5000, b"not a database at all"]
    )
    def test_not_a_database(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "log.sqlite").write_bytes(content)
        with pytest.raises(LogDamaged, match="cannot be read"):
            sqlite.plan(log_at(tmp_path / "log.sqlite"))

    def test_cut_off_in_the_middle(self, tmp_path: Path) -> None:
        path = tmp_path / "log.sqlite"
        asyncio.run(store_entries(path, "us-east", [b"x" * 5000] * 100, group=10))
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
        with pytest.raises(LogDamaged, match="cannot be read"):
            list(sqlite.read_groups(log_at(path), RowRange(0, 1000)))

    def test_the_newest_commits_are_gone(self, stopped: Path) -> None:
        Path(f"{stopped}-shm").touch()
        with pytest.raises(LogDamaged, match="newest commits"):
            sqlite.plan(log_at(stopped))

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ("UPDATE logs SET name = CAST(x'70ff' AS TEXT)", "Could not decode to UTF-8"),
            ("UPDATE logs SET name = CAST(name AS BLOB)", "columns of the types bytes, int"),
        ],
    )
    def test_a_name_that_is_no_text(self, stopped: Path, change: str, problem: str) -> None:
        with contextlib.closing(sqlite3.connect(stopped)) as connection, connection:
            connection.execute(change)
        with pytest.raises(LogDamaged, match=problem):
            read(stopped)
        with pytest.raises(LogDamaged, match=problem):
            sqlite.read_heads(log_at(stopped))

    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            ("CAST(x'6772616e742fff' AS TEXT)", "x'00'", "Could not decode to UTF-8"),
            ("'grant/a/0'", "'text'", "columns of the types str, str"),
            ("'grant/a/0'", "NULL", "columns of the types str, NoneType"),
        ],
    )
    def test_a_stored_value_of_another_type(self, stopped: Path, key: str, value: str, problem: str) -> None:
        with contextlib.closing(sqlite3.connect(stopped)) as connection, connection:
            connection.execute(f"INSERT INTO key_values VALUES ({key}, {value}, 0)")
        with pytest.raises(LogDamaged, match=problem):
            sqlite.read_values(log_at(stopped))
