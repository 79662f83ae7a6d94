"""`kill -9` at random moments: everything acknowledged is there, and nothing is there without all before it.

A real process writes, reports what was acknowledged, and is killed after a seeded number of acknowledgements,
which is at a random moment of its work. The test checks the remains, then the next process continues with them:
as they are, or after a proper close. `GEOEMU_KILL_MOMENTS` is the number of moments (default 20; more find more).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emulator.storage.sqlite.store import SqliteStore, open_sqlite

from .harness import DEADLINE_SECONDS, open_log, read_all
from .killed_writer import KEYS, LOGS, entry, live, value
from .sqlite_harness import copy_files

pytestmark = pytest.mark.long

KILLS_PER_FILE = 10
MOMENTS = int(os.environ.get("GEOEMU_KILL_MOMENTS", "20"))

# Children come from a fork server that has everything imported: each starts in milliseconds.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["emulator.storage.sqlite.store"])


@dataclass
class Known:
    """The required contents of the file: what was acknowledged in any run."""

    entries: dict[str, dict[int, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    """log -> id -> (run, number)."""
    last_ids: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    """Largest id ever seen in a log, acknowledged or found."""
    values: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """key -> (version, run, number): the last acknowledged."""
    trimmed: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def record(self, incarnation: int, reported: str) -> None:
        match reported.split():
            case ["e", log, first, number, count]:
                for i in range(int(count)):
                    self.entries[log][int(first) + i] = (incarnation, int(number) + i)
            case ["k", key, version, number]:
                self.values[key] = (int(version), incarnation, int(number))
            case ["t", log, before]:
                self.trimmed[log] = max(self.trimmed[log], int(before))
            case _:
                pytest.fail(f"not understood: {reported!r}")


def live_and_be_killed(
    path: Path,
    incarnation: int,
    seed: int,
    acknowledgements: int,
    *,
    by: signal.Signals = signal.SIGKILL,
    synced: bool = True,
) -> list[str]:
    """Run and kill one process; record what was acknowledged."""
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=live, args=(str(path), incarnation, seed, theirs, seed % 2 == 1, synced))
    child.start()
    theirs.close()
    reported = b""
    try:
        while reported.count(b"\n") < acknowledgements:
            assert ours.poll(DEADLINE_SECONDS), "the process prints nothing"
            data = os.read(ours.fileno(), 4096)
            assert data, "the process ended by itself"
            reported += data
        assert child.pid is not None
        os.kill(child.pid, by)
        # It reports until it handles the signal, and a full pipe would keep it from that.
        while ours.poll(DEADLINE_SECONDS) and (data := os.read(ours.fileno(), 65536)):
            reported += data
        child.join(DEADLINE_SECONDS)
        assert child.exitcode == -signal.SIGKILL
    finally:
        child.kill()
        ours.close()
    return reported.decode().splitlines()


async def examine(path: Path, incarnation: int, known: Known) -> None:
    """Check that the file has what was acknowledged and perhaps a little more, all of it valid."""
    store = await open_sqlite(path, "eu")  # at once: the operating system has released the lock
    try:
        for name in LOGS:
            await examine_log(store, name, incarnation, known)
        for key in KEYS:
            examine_key(store, key, incarnation, known)
    finally:
        await store.close()


async def examine_log(store: SqliteStore, name: str, incarnation: int, known: Known) -> None:
    log = await open_log(store, name)
    found = await read_all(log)
    expected_of = known.entries[name]
    assert log.first_entry_id >= known.trimmed[name]
    assert log.next_entry_id > max((known.last_ids[name], *expected_of))
    assert log.size_bytes == sum(len(data) for _, data in found)
    missing = {i for i in expected_of if i >= log.first_entry_id} - {entry_id for entry_id, _ in found}
    assert not missing, f"acknowledged and lost: {sorted(missing)} of {name}"

    # The next entry of this run, if none of it was trimmed
    next_number = 0 if log.first_entry_id <= known.last_ids[name] + 1 else None
    for entry_id, data in found:
        whose, number = (int(word) for word in data.split(b" ", 3)[1:3])
        assert data == entry(name, whose, number), "not what was written"
        if entry_id in expected_of:
            assert expected_of[entry_id] == (whose, number)
        elif whose == incarnation:
            assert entry_id > known.last_ids[name], "an id of an earlier run"
        if whose == incarnation:
            assert next_number in (None, number), "a hole in the writes of this run"
            next_number = number + 1
        expected_of[entry_id] = (whose, number)  # from now on it must stay
    known.last_ids[name] = log.next_entry_id - 1


def examine_key(store: SqliteStore, key: str, incarnation: int, known: Known) -> None:
    found = store.get(key)
    if found is None:
        assert key not in known.values
        return
    whose, number = (int(word) for word in found.value.split(b" ", 3)[1:3])
    assert found.value == value(key, whose, number)
    acknowledged = known.values.get(key, (-1, -1, -1))
    assert (found.version, whose, number) >= acknowledged, "an acknowledged put was lost"
    assert (found.version == acknowledged[0]) == ((whose, number) == acknowledged[1:])
    known.values[key] = (found.version, whose, number)


@pytest.mark.real
@pytest.mark.parametrize("seed", range((MOMENTS + KILLS_PER_FILE - 1) // KILLS_PER_FILE))
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_at_any_moment(seed: int, tmp_path: Path):
    """Ten processes on one file, one after the other, each ended by SIGKILL."""
    chance = random.Random(seed)
    path = tmp_path / "log.sqlite"
    known = Known()
    for incarnation in range(KILLS_PER_FILE):
        acknowledgements = int(10 ** chance.uniform(0, 2.7))
        for reported in live_and_be_killed(path, incarnation, chance.randrange(2**32), acknowledgements):
            known.record(incarnation, reported)
        examined = path
        if chance.random() < 0.5:
            examined = copy_files(path, tmp_path / f"remains-{incarnation}")
        asyncio.run(examine(examined, incarnation, known))


@pytest.mark.real
@pytest.mark.parametrize("seed", range((MOMENTS + KILLS_PER_FILE - 1) // KILLS_PER_FILE))
def test_nothing_acknowledged_is_lost_when_the_process_loses_power(seed: int, tmp_path: Path):
    """As above, but everything that no completed sync covers is dropped."""
    chance = random.Random(seed)
    path = tmp_path / "log.sqlite"
    known = Known()
    for incarnation in range(KILLS_PER_FILE):
        acknowledgements = int(10 ** chance.uniform(0, 2.7))
        draw = chance.randrange(2**32)
        for reported in live_and_be_killed(path, incarnation, draw, acknowledgements, by=signal.SIGUSR1):
            known.record(incarnation, reported)
        asyncio.run(examine(path, incarnation, known))


@pytest.mark.real
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGUSR1])
def test_only_a_power_loss_shows_that_a_store_acknowledges_before_the_sync(
    by: signal.Signals, tmp_path: Path
):
    """The mutant: with `synchronous = OFF`, the page cache survives a kill and hides the error."""
    path = tmp_path / "log.sqlite"
    known = Known()
    for reported in live_and_be_killed(path, 0, 2, 200, by=by, synced=False):
        known.record(0, reported)
    if by is signal.SIGKILL:
        asyncio.run(examine(path, 0, known))
    else:
        with pytest.raises(AssertionError):
            asyncio.run(examine(path, 0, known))
