"""The SQLite store keeps the contract; and properties of its file."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import StorageError, StorageFull
from emulator.storage.contract import Entry, Versioned
from emulator.storage.group import decode_group
from emulator.storage.sqlite import commit as sqlite_commit
from emulator.storage.sqlite import file as sqlite_file
from emulator.storage.sqlite import rows as sqlite_rows
from emulator.storage.sqlite import store as sqlite
from emulator.storage.sqlite import writer as sqlite_writer
from emulator.storage.sqlite.commit import Committer, SqliteWrite
from emulator.storage.sqlite.store import open_sqlite

from .harness import DEADLINE_SECONDS, Harness, data_of, open_log, opened, read_all
from .log_store_contract import LogStoreContract
from .sqlite_harness import SqliteHarness, copy_files, folder_in_memory, writer_connection

pytestmark = pytest.mark.within(DEADLINE_SECONDS)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits: reads go to the file, groups to the thread and into several rows; checkpoints and sweeps run all
    the time."""
    monkeypatch.setattr(sqlite_writer, "HERE_BYTES_MAX", -1)
    monkeypatch.setattr(sqlite, "RECENT_BYTES", 500)
    monkeypatch.setattr(sqlite_rows, "ROW_BYTES", 100)
    monkeypatch.setattr(sqlite_rows, "ROWS_PER_STATEMENT", 3)
    monkeypatch.setattr(sqlite_commit, "CHECKPOINT_BYTES", 50_000)
    monkeypatch.setattr(sqlite_commit, "SWEEP_ROWS", 1)


class TestSqliteStore(LogStoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return SqliteHarness(tmp_path)


@pytest.mark.usefixtures("small_limits")
class TestSqliteStoreWithSmallLimits(LogStoreContract):
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        with folder_in_memory() as folder:
            yield SqliteHarness(Path(folder))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "regions" / "eu" / "log.sqlite"


def read_only(path: Path) -> closing[sqlite3.Connection]:
    """Open the file as any other program does."""
    return closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True))


def stored_entries(path: Path) -> list[bytes]:
    with read_only(path) as connection:
        rows = connection.execute(
            "SELECT data FROM entry_groups JOIN logs USING (log_id) "
            " ORDER BY log_id, entry_groups.first_entry_id"
        ).fetchall()
    return [entry for (data,) in rows for entry in decode_group(data)]


# ── The file, seen from outside ───────────────────────────────────────────────────────────────────────


async def test_a_closed_store_is_one_file_with_all_data(path: Path):
    """No WAL is left, and the ends of the logs are in the table."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"a", b"b"])
    await log.trim(1)
    await log.append([b"c"])
    await store.put("k", b"v")
    await store.close()
    assert {file.name for file in path.parent.iterdir()} == {"log.sqlite", "log.sqlite.lock"}
    with read_only(path) as connection:
        assert dict(connection.execute("SELECT * FROM meta")) == {"format_version": "1", "region": "eu"}
        assert connection.execute("SELECT * FROM logs").fetchall() == [(log.ledger_id, "t", 1, 3)]
        assert connection.execute("SELECT * FROM key_values").fetchall() == [("k", b"v", 0)]
    assert stored_entries(path) == [b"a", b"b", b"c"]


async def test_a_closed_store_can_be_read_where_nothing_may_be_written(path: Path):
    """A file in WAL mode needs companions that the reader creates; ours is not marked so (bytes 18 and 19)."""
    await (await open_sqlite(path, "eu")).close()
    assert path.read_bytes()[18:20] == b"\1\1"


async def test_another_program_reads_what_is_durable_while_the_store_is_in_use(path: Path):
    """With a plain connection, and without blocking the owner."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"1"])
    with read_only(path) as connection:
        assert connection.execute("SELECT sum(entry_count) FROM entry_groups").fetchone() == (1,)
        cursor = connection.execute("SELECT data FROM entry_groups")  # an open read
        await log.append([b"2"])
        cursor.close()
        assert connection.execute("SELECT sum(entry_count) FROM entry_groups").fetchone() == (2,)
        await store.close()
    assert stored_entries(path) == [b"1", b"2"]


async def test_another_program_reads_what_a_killed_store_left(path: Path, tmp_path: Path):
    """The WAL next to the file belongs to it."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"1", b"2"])
    copy_files(path, tmp_path / "killed")
    await store.close()
    assert stored_entries(tmp_path / "killed" / "log.sqlite") == [b"1", b"2"]


async def test_a_file_with_pages_of_another_size_is_used_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as earlier:
        earlier.setattr(sqlite_file, "PAGE_BYTES", 4096)
        store = await open_sqlite(path, "eu")
        await (await open_log(store, "t")).append([b"old"])
        await store.close()
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"new"])
    assert writer_connection(store).execute("PRAGMA page_size").fetchone() == (4096,)
    assert [entry.data for entry in await log.read(0, 10, 100)] == [b"old", b"new"]
    await store.close()


async def test_an_empty_file_is_a_new_store(path: Path):
    """It may have been created in advance."""
    path.parent.mkdir(parents=True)
    path.touch()
    store = await open_sqlite(path, "eu")
    await (await open_log(store, "t")).append([b"x"])
    await store.close()
    assert stored_entries(path) == [b"x"]


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────────


async def refusal(path: Path, region: str = "eu") -> str:
    with pytest.raises(StorageError) as refused:
        await open_sqlite(path, region)
    assert refused.value.definite
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_the_error_for_a_second_owner_names_the_first(path: Path):
    """It may open the store once the first has closed it."""
    store = await open_sqlite(path, "eu")
    expected = f"{path} is in use by process {os.getpid()} (region eu); stop it first"
    assert await refusal(path) == expected
    assert await refusal(path, "us") == expected
    await store.close()
    await (await open_sqlite(path, "eu")).close()


async def test_a_second_process_is_refused_too(path: Path):
    """The lock is the operating system's."""
    store = await open_sqlite(path, "eu")
    program = (
        "import asyncio, sys; from emulator.storage.sqlite.store import open_sqlite\n"
        "asyncio.run(open_sqlite(sys.argv[1], 'eu'))"
    )
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"is in use by process {os.getpid()} (region eu)" in second.stderr
    await store.close()


async def test_a_file_that_is_no_database_is_refused(path: Path):
    """With one message, and it is left unchanged."""
    path.parent.mkdir(parents=True)
    path.write_bytes(b"once upon a time " * 1000)
    assert await refusal(path) == f"{path} cannot be opened: file is not a database"
    assert path.read_bytes() == b"once upon a time " * 1000


async def test_a_database_of_another_program_is_refused(path: Path):
    """The store does not add its tables to another program's."""
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    assert await refusal(path) == f"{path} is a database, but not a log of geoemu; choose another path"


async def test_a_file_of_another_format_version_is_refused(path: Path):
    await (await open_sqlite(path, "eu")).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = '2' WHERE key = 'format_version'")
    assert await refusal(path) == (
        f"{path} has format version 2 and this geoemu reads 1;"
        " use the geoemu that wrote it, or start with a new folder"
    )


async def test_a_file_of_another_region_is_refused(path: Path):
    """Two regions with one path are a mistake in the topology, not a merge."""
    await (await open_sqlite(path, "eu")).close()
    assert await refusal(path, "us") == f"{path} belongs to region eu, not us; give each region its own file"


async def test_an_impossible_path_is_refused(tmp_path: Path):
    """A folder where the file should be, a file where the folder should be."""
    assert await refusal(tmp_path) == f"{tmp_path} cannot be opened: unable to open database file"
    (tmp_path / "file").touch()
    assert await refusal(tmp_path / "file" / "log.sqlite") == (
        f"{tmp_path}/file/log.sqlite cannot be opened: File exists: {tmp_path}/file"
    )


async def test_a_refused_open_does_not_keep_others_out(path: Path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 1000)
    await refusal(path)
    path.unlink()
    await (await open_sqlite(path, "eu")).close()


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────────


class Commits:
    """Holds the writer just before it commits a group, so that later writes are in the next one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held, self._go_on = threading.Event(), threading.Event()
        self._go_on.set()
        commit = Committer.commit

        def held_commit(committer: Committer, group: list[SqliteWrite]) -> None:
            self._held.set()
            self._go_on.wait(DEADLINE_SECONDS)
            commit(committer, group)

        monkeypatch.setattr(Committer, "commit", held_commit)
        monkeypatch.setattr(sqlite_writer, "HERE_BYTES_MAX", -1)  # the loop must not be blocked

    def hold(self) -> None:
        self._go_on.clear()
        self._held.clear()

    async def one_is_held(self) -> None:
        await asyncio.to_thread(self._held.wait, DEADLINE_SECONDS)

    def release(self) -> None:
        self._go_on.set()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


@contextmanager
def files_end_at(size_bytes: int) -> Iterator[None]:
    """Let writes beyond this size fail, in this process, with an error that is not "disk full"."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_an_input_output_error_fails_the_group_with_an_unknown_outcome(path: Path):
    """When the log is opened again, it shows what is stored."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"kept"])
    with files_end_at(100_000):
        issued = [log.append([bytes(1_000_000)]), log.append([b"behind"])]
        errors = await asyncio.gather(*issued, return_exceptions=True)
    assert isinstance(errors[0], StorageError)
    assert not isinstance(errors[0], StorageFull)
    assert str(errors[0]) == f"{path} could not be written: disk I/O error"
    assert not errors[0].definite
    assert isinstance(errors[1], StorageError)
    log = await open_log(store, "t")
    await log.append([b"after"])
    assert data_of(await read_all(log)) == [b"kept", b"after"]
    await store.close()
    assert stored_entries(path) == [b"kept", b"after"]


async def test_a_group_fails_as_a_whole_whatever_the_reason(path: Path, commits: Commits):
    """What was written before the failure is rolled back, and the store continues."""
    store, log = await opened(open_sqlite(path, "eu"))
    writer_connection(store).setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)
    commits.hold()
    before = store.put("before", b"")
    await commits.one_is_held()
    issued = [log.append([b"fine by itself"]), store.put("k", bytes(6000))]
    commits.release()
    assert await before == 0
    errors = await asyncio.gather(*issued, return_exceptions=True)
    assert [str(error) for error in errors] == [f"{path} could not be written: string or blob too big"] * 2
    assert all(isinstance(error, StorageError) and error.definite for error in errors)
    log = await open_log(store, "t")
    assert await read_all(log) == []
    await asyncio.gather(log.append([b"after"]), store.put("l", b"v"))
    await store.close()
    assert stored_entries(path) == [b"after"]


async def test_a_group_fails_as_a_whole_when_sqlite_took_everything_back_by_itself(
    path: Path, commits: Commits
):
    """Some errors end the transaction, as on a full disk; then no write may be reported as committed."""
    store, log = await opened(open_sqlite(path, "eu"))

    def work(committer: Committer) -> None:
        committer.connection.execute("ROLLBACK")
        committer.connection.execute("a mistake")

    commits.hold()
    before = store.put("before", b"")
    await commits.one_is_held()
    issued = [log.append([b"x"]), asyncio.ensure_future(store.change(work, lambda _: None))]
    await asyncio.sleep(0)
    commits.release()
    assert await before == 0
    errors = await asyncio.gather(*issued, return_exceptions=True)
    assert [str(error) for error in errors] == [f'{path} could not be written: near "a": syntax error'] * 2
    await store.close()
    assert stored_entries(path) == []


async def test_what_is_with_the_thread_is_not_overtaken_on_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A small append behind a large one waits for it, even before the thread has begun (S1)."""
    given, go_on = threading.Event(), threading.Event()
    next_group = sqlite_writer.SqliteWriter._next_group

    def slow_next_group(writer: sqlite_writer.SqliteWriter) -> list[SqliteWrite]:
        group = next_group(writer)
        given.set()
        go_on.wait(DEADLINE_SECONDS)
        return group

    monkeypatch.setattr(sqlite_writer, "HERE_SECONDS_MAX", DEADLINE_SECONDS)
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"first"])
    monkeypatch.setattr(sqlite_writer.SqliteWriter, "_next_group", slow_next_group)
    go_on.set()
    await store.open_log("other")  # from now on the thread uses the patched wait
    go_on.clear()
    given.clear()
    large = log.append([bytes(sqlite_writer.HERE_BYTES_MAX + 1)])
    await asyncio.to_thread(given.wait, DEADLINE_SECONDS)
    small = log.append([b"small"])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not small.done()
    go_on.set()
    assert await asyncio.gather(large, small) == [1, 2]
    assert [len(data) for data in data_of(await read_all(log))] == [5, sqlite_writer.HERE_BYTES_MAX + 1, 5]
    await store.close()


async def test_a_full_disk_is_called_so(path: Path):
    """StorageFull is definite: nothing of the group was stored."""
    store, log = await opened(open_sqlite(path, "eu"))
    writer_connection(store).execute("PRAGMA max_page_count = 1")
    with pytest.raises(StorageFull, match=f"^{path} could not be written: no room left on the disk$"):
        await log.append([bytes(1_000_000)])
    await store.close()
    assert stored_entries(path) == []


@pytest.mark.parametrize("lane", ["log", "key"])
async def test_what_was_issued_while_the_failing_group_was_written_fails_too(
    path: Path, commits: Commits, lane: str
):
    """It is in the next group, although that one would fit (S5)."""
    store, log = await opened(open_sqlite(path, "eu"))
    writer_connection(store).execute("PRAGMA max_page_count = 1")
    commits.hold()
    failing = log.append([bytes(1_000_000)]) if lane == "log" else store.put("k", bytes(1_000_000))
    await commits.one_is_held()
    behind = log.append([b"behind"]) if lane == "log" else store.put("k", b"behind")
    beside = store.put("other", b"beside")
    commits.release()
    errors = await asyncio.gather(failing, behind, return_exceptions=True)
    assert [type(error) for error in errors] == [StorageFull, StorageError]
    assert "a write before it failed" in str(errors[1])
    assert await beside == 0
    await store.close()
    assert stored_entries(path) == []
    store = await open_sqlite(path, "eu")
    assert store.scan("") == [("other", Versioned(b"beside", 0))]
    await store.close()


async def test_the_id_of_a_ledger_in_one_region_is_none_in_another(tmp_path: Path):
    """Like clusters that are independent of each other: an id that a client received from one names nothing in
    another."""
    ids = {}
    for region in ("us-east", "us-west", "eu-central"):
        store = await open_sqlite(tmp_path / region / "log.sqlite", region)
        ids[region] = {(await open_log(store, name)).ledger_id for name in ("a", "b", "c")}
        await store.close()
    assert len(set.union(*ids.values())) == 9


async def test_a_damaged_row_is_named_and_not_served(path: Path):
    """The rest of the log is served; other logs and new appends are not affected."""
    store, log = await opened(open_sqlite(path, "eu"))
    for n in range(5):
        await log.append([b"entry %d" % n])
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        (data,) = connection.execute("SELECT data FROM entry_groups WHERE first_entry_id = 3").fetchone()
        damaged = data.replace(b"entry", b"enter")
        connection.execute("UPDATE entry_groups SET data = ? WHERE first_entry_id = 3", (damaged,))
    store, log = await opened(open_sqlite(path, "eu"))
    assert data_of(await log.read(0, 3, 1000)) == [b"entry 0", b"entry 1", b"entry 2"]
    assert data_of(await log.read(4, 3, 1000)) == [b"entry 4"]
    with pytest.raises(
        StorageError, match=r"^row \(log_id \d+, first_entry_id 3\) of entry_groups is damaged"
    ):
        await log.read(0, 10, 1000)
    await log.append([b"entry 5"])
    assert data_of(await log.read(4, 3, 1000)) == [b"entry 4", b"entry 5"]
    await store.close()


async def test_a_log_that_cannot_be_opened_for_damage_does_not_hurt_the_others(path: Path):
    """Its size is unknown, because it begins inside a damaged row; other logs in the same commit must not fail for
    it."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"1", b"2", b"3"])
    await log.trim(1)
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entry_groups SET data = zeroblob(27)")
    store = await open_sqlite(path, "eu")
    other = await open_log(store, "other")
    with pytest.raises(StorageError, match=r"first_entry_id 0\) of entry_groups is damaged"):
        await asyncio.gather(other.append([b"x"]), store.open_log("t"))
    assert data_of(await read_all(other)) == [b"x"]
    await other.append([b"y"])
    await store.close()


async def test_a_log_of_a_write_with_an_unknown_outcome_is_opened_and_not_created_again(path: Path):
    """The store does not know the log, because its commit was reported as failed."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"1"])
    store._names.discard("t")
    del store._logs["t"]
    again = await open_log(store, "t")
    assert (again.ledger_id, again.next_entry_id) == (log.ledger_id, 1)
    assert data_of(await read_all(again)) == [b"1"]
    await store.close()


async def test_a_missing_row_is_an_error_and_not_a_silent_hole(path: Path):
    store, log = await opened(open_sqlite(path, "eu"))
    for n in range(5):
        await log.append([b"entry %d" % n])
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM entry_groups WHERE first_entry_id = 3")
    store, log = await opened(open_sqlite(path, "eu"))
    for start in (0, 3):
        with pytest.raises(StorageError, match="entry 3"):
            await log.read(start, 10, 1000)
    await store.close()


@pytest.mark.parametrize("seed", range(40))
def test_a_torn_or_garbled_tail_is_cut_off_or_refused_and_never_served(seed: int, tmp_path: Path):
    """A WAL whose end is missing, zero or noise gives a prefix of what was written, or a clear error."""
    chance = random.Random(seed)
    written = [b"%d:" % n + chance.randbytes(chance.choice([10, 100, 5000])) for n in range(30)]
    killed = tmp_path / "killed"

    async def write() -> None:
        store = await open_sqlite(tmp_path / "log.sqlite", "eu")
        log = await open_log(store, "t")
        for n, entry in enumerate(written):
            await log.append([entry])
            await store.put("k", b"%d" % n)
        copy_files(tmp_path / "log.sqlite", killed)
        await store.close()

    async def read() -> list[bytes]:
        store = await open_sqlite(killed / "log.sqlite", "eu")
        try:
            log = await store.open_log("t")
            assert log is not None
            found = data_of(await read_all(log))
            value = store.get("k")
            assert (int(value.value) if value else -1) in (len(found) - 1, len(found) - 2)
            assert await log.append([b"after"]) == len(found)
            return found
        finally:
            await store.close()

    asyncio.run(write())
    wal = killed / "log.sqlite-wal"
    data = wal.read_bytes().rstrip(b"\0")
    cut = chance.randrange(len(data) // 4, len(data))  # the tables and the log are in the first frames
    tail = chance.choice([b"", bytes(5000), chance.randbytes(5000), chance.randbytes(len(data) - cut)])
    garbled = bytes([data[cut] ^ chance.randrange(1, 256)]) + data[cut + 1 :]
    wal.write_bytes(data[:cut] + chance.choice([tail, garbled]))
    found = asyncio.run(read())
    assert found == written[: len(found)]


async def test_a_read_that_is_overtaken_by_a_trim_begins_where_the_log_begins_now(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its rows are gone when it reads them, which is not a hole."""
    looking, go_on = threading.Event(), threading.Event()
    read = sqlite_writer.SqliteReader._read

    def slow_read(*arguments: Any) -> list[Entry]:
        looking.set()
        go_on.wait(DEADLINE_SECONDS)
        return read(*arguments)

    monkeypatch.setattr(sqlite, "RECENT_BYTES", 0)
    monkeypatch.setattr(sqlite_writer.SqliteReader, "_read", slow_read)
    store, log = await opened(open_sqlite(path, "eu"))
    for n in range(5):
        await log.append([b"%d" % n])
    reading = asyncio.ensure_future(log.read(0, 10, 100))
    await asyncio.to_thread(looking.wait, DEADLINE_SECONDS)
    await log.trim(3)
    await store.put("k", b"a commit")  # the rows are swept before it
    go_on.set()
    assert await reading == [(3, b"3"), (4, b"4")]
    await store.close()


# ── Size and speed ────────────────────────────────────────────────────────────────────────────────────────


async def test_trimmed_and_deleted_entries_leave_the_file(path: Path, monkeypatch: pytest.MonkeyPatch):
    """A few rows with every commit, so that no commit waits for it."""
    monkeypatch.setattr(sqlite_commit, "SWEEP_ROWS", 2)
    store = await open_sqlite(path, "eu")
    log, deleted = await open_log(store, "t"), await open_log(store, "deleted")
    for n in range(30):
        await asyncio.gather(log.append([b"%d" % n, b"x"]), deleted.append([b"y"]))
    await log.trim(51)
    await store.delete_log("deleted")
    with read_only(path) as connection:
        for _ in range(100):
            await store.put("k", b"a commit")
            (rows,) = connection.execute("SELECT count(*) FROM entry_groups").fetchone()
            if rows == 5:
                break
        assert connection.execute("SELECT min(first_entry_id) FROM entry_groups").fetchone() == (50,)
    assert data_of(await log.read(0, 2, 100)) == [b"x", b"26"]
    await store.close()


async def test_the_next_owner_sweeps_what_the_last_one_did_not(path: Path, tmp_path: Path):
    store = await open_sqlite(path, "eu")
    log, deleted = await open_log(store, "t"), await open_log(store, "deleted")
    for n in range(30):
        await asyncio.gather(log.append([b"%d" % n]), deleted.append([b"y"]))
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE logs SET first_entry_id = 28 WHERE name = 't'")
        connection.execute("DELETE FROM logs WHERE name = 'deleted'")
    store = await open_sqlite(path, "eu")
    with read_only(path) as connection:
        for _ in range(100):
            await store.put("k", b"a commit")
            if connection.execute("SELECT count(*) FROM entry_groups").fetchone() == (2,):
                break
        else:
            pytest.fail("the garbage is still there")
    assert data_of(await read_all(await open_log(store, "t"))) == [b"28", b"29"]
    await store.close()


async def test_the_wal_stays_short_while_much_is_written(path: Path):
    """60 MB pass through it, and no commit waits for it to be emptied."""
    store, log = await opened(open_sqlite(path, "eu"))
    for _ in range(60):
        await asyncio.gather(*(log.append([bytes(100_000)]) for _ in range(10)))
        assert os.path.getsize(f"{path}-wal") < sqlite_commit.WAL_BYTES_MAX + 4_000_000
    await store.close()


def test_the_rows_of_a_large_group_are_encoded_one_statement_at_a_time(monkeypatch: pytest.MonkeyPatch):
    """While a row is in the processor's cache, SQLite's copies of it cost little; and all rows of a group together may
    take as much memory as the entries of all clients."""
    encode, encoded = sqlite_rows.encode_group, 0

    def counted(entries: Sequence[bytes]) -> bytearray:
        nonlocal encoded
        encoded += 1
        return encode(entries)

    monkeypatch.setattr(sqlite_rows, "encode_group", counted)
    large = sqlite_rows.group_rows(1, 0, [bytes(110_592)] * 30)
    for statements, (_, row) in enumerate(sqlite_rows.insert_groups(large), start=1):
        assert encoded == statements
        assert len(row) == 4
    assert encoded == 10
    many_logs = ((log_id, 0, 1, b"small") for log_id in range(100))
    per_statement = [len(values) // 4 for _, values in sqlite_rows.insert_groups(many_logs)]
    assert per_statement == [sqlite_rows.ROWS_PER_STATEMENT, 100 - sqlite_rows.ROWS_PER_STATEMENT]


async def test_a_large_group_is_divided_into_rows_that_become_durable_together(path: Path):
    """Reading ten entries of a megabyte does not read the megabyte."""
    store, log = await opened(open_sqlite(path, "eu"))
    await log.append([b"%04d" % n + bytes(1000) for n in range(1000)])
    await log.append([b"small"])
    with read_only(path) as connection:
        sizes = [size for (size,) in connection.execute("SELECT length(data) FROM entry_groups")]
    assert len(sizes) == 5
    assert max(sizes) < 1.1 * sqlite_rows.ROW_BYTES
    await store.close()


async def test_recent_entries_are_read_without_the_file(path: Path):
    """Readers at the end of the log do not wait for a thread; the memory for them is bounded."""
    store, log = await opened(open_sqlite(path, "eu"))
    for _ in range(30):
        await log.append([bytes(1_000_000)])
    reading = log.read(log.next_entry_id - 2, 10, 10**9)
    with pytest.raises(StopIteration) as read:
        reading.send(None)  # done at the first step: it waited for nothing
    assert len(read.value.value) == 2
    assert sum(len(data) for _, entries in log.recent for data in entries) <= sqlite.RECENT_BYTES
    assert len(await log.read(0, 100, 10**9)) == 30
    await store.close()


async def test_small_groups_are_committed_on_the_loop_and_large_ones_in_the_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also the small ones, for a while, after one that took long."""
    on_loop: list[bool] = []
    commit = Committer.commit

    def seen_commit(committer: Committer, group: list[SqliteWrite]) -> None:
        on_loop.append(threading.current_thread() is threading.main_thread())
        commit(committer, group)

    monkeypatch.setattr(Committer, "commit", seen_commit)
    monkeypatch.setattr(sqlite_writer, "HERE_SECONDS_MAX", DEADLINE_SECONDS)
    store, log = await opened(open_sqlite(path, "eu"))
    await store.put("k", bytes(sqlite_writer.HERE_BYTES_MAX))
    await log.append([bytes(sqlite_writer.HERE_BYTES_MAX + 1)])
    await log.append([b"small"])
    assert on_loop == [False, True, False, True]
    on_loop.clear()
    monkeypatch.setattr(sqlite_writer, "HERE_SECONDS_MAX", 0)
    monkeypatch.setattr(sqlite_writer, "HERE_PAUSE_FACTOR", 10**6)
    await log.append([b"slow"])
    await log.append([b"after the slow one"])
    assert on_loop == [True, False]
    await store.close()


async def test_a_loop_that_is_never_idle_does_not_starve_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An append takes a few iterations of the loop (about 5), not tens of thousands. An iteration is measured in
    processor time of the loop, so that other programs on the machine do not count."""
    monkeypatch.setattr(sqlite_writer, "HERE_BYTES_MAX", -1)
    store, log = await opened(open_sqlite(path, "eu"))
    issued = log.append([b"x"])
    ticks = 0
    while not issued.done():
        busy_until = time.thread_time() + 0.0002
        while time.thread_time() < busy_until:
            pass
        ticks += 1
        await asyncio.sleep(0)
    assert ticks < 2000
    await store.close()
