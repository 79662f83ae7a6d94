"""Each medium of the configuration store keeps the contract."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import StorageError
from emulator.simulation.configuration import SimulatedConfiguration
from emulator.simulation.host import DRIVER
from emulator.simulation.simulation import Simulation
from emulator.storage.configuration.contract import ConfigurationMedium, ConfigurationRows, T
from emulator.storage.configuration.memory import ConfigurationMemory, MemoryConfiguration
from emulator.storage.configuration.sqlite import open_sqlite_configuration
from tests.broker.metadata.store_contract import MetadataContract, Place, value_of
from tests.broker.regions import until


class MemoryPlace(Place):
    def __init__(self) -> None:
        self.memory = ConfigurationMemory(changes_kept=self.changes_kept)
        self.opened: list[MemoryConfiguration] = []

    async def open(self) -> ConfigurationMedium:
        self.opened.append(MemoryConfiguration(self.memory))
        return self.opened[-1]

    def go_away(self) -> None:
        for one in self.opened:
            one.failure = StorageError("away", definite=True)

    def come_back(self) -> None:
        for one in self.opened:
            one.failure = None


class TestMemory(MetadataContract):
    @pytest.fixture
    def place(self) -> Place:
        return MemoryPlace()


class SqlitePlace(Place):
    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> ConfigurationMedium:
        return await open_sqlite_configuration(self.path, "europe", changes_kept=self.changes_kept)

    def go_away(self) -> None:
        """Lock the file from another connection."""
        self.holder = sqlite3.connect(self.path, isolation_level=None)
        self.holder.execute("BEGIN IMMEDIATE")

    def come_back(self) -> None:
        self.holder.execute("ROLLBACK")


class TestSqlite(MetadataContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return SqlitePlace(tmp_path / "made" / "configuration.sqlite")


class SimulatedPlace(Place):
    def __init__(self) -> None:
        self.simulation = Simulation(seed=3)
        self.shared = SimulatedConfiguration(
            self.simulation.random("configuration"),
            lambda seconds, action: self.simulation.at(self.simulation.now + seconds, action),
        )
        self.shared.memory.changes_kept = self.changes_kept

    async def open(self) -> ConfigurationMedium:
        return self.shared.open_on(self.simulation.host(DRIVER))

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        with self.simulation:
            self.simulation.run(scenario)

    def go_away(self) -> None:
        self.shared.faults.is_unreachable = True

    def come_back(self) -> None:
        self.shared.faults.is_unreachable = False


class TestSimulated(MetadataContract):
    @pytest.fixture
    def place(self) -> Place:
        return SimulatedPlace()


async def test_a_file_of_another_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "configuration.sqlite"
    await (await open_sqlite_configuration(path, "europe")).close()
    with pytest.raises(StorageError, match="belongs to cluster europe, not asia"):
        await open_sqlite_configuration(path, "asia")


def _write_for_ever(path: Path, ready: Any) -> None:
    async def scenario() -> None:
        async with SqlitePlace(path).region() as region:
            number = 0
            while True:
                await region.put("n", b"%d" % number)
                ready.value = number
                number += 1

    asyncio.run(scenario())


async def test_killing_a_writing_region_loses_nothing_and_blocks_no_other(tmp_path: Path) -> None:
    """M1 over processes: `kill -9` in the middle of writing."""
    path = tmp_path / "configuration.sqlite"

    async with SqlitePlace(path).region() as eu:
        context = multiprocessing.get_context("spawn")
        acknowledged = context.Value("i", -1)
        writer = context.Process(target=_write_for_ever, args=(path, acknowledged))
        writer.start()
        await until(lambda: acknowledged.value >= 20)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        last = acknowledged.value
        await until(lambda: int(value_of(eu, "n") or b"-1") >= last)
        await eu.put("mine", b"x")


def _rename(path: Path) -> None:
    path.rename(path.with_suffix(".away"))


def _remove_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def _replace(path: Path) -> None:
    _rename(path)
    path.write_bytes(b"")


@pytest.mark.parametrize("hurt", [_rename, Path.unlink, _remove_log, _replace])
async def test_a_change_in_a_removed_file_is_not_acknowledged(
    hurt: Callable[[Path], object], tmp_path: Path
) -> None:
    """The next process that opens the store would not find the change. The regions go on with their copy and log an
    error."""
    path = tmp_path / "configuration.sqlite"

    async with SqlitePlace(path).region() as us, SqlitePlace(path).region() as eu:
        await us.put("a", b"1")
        await until(lambda: value_of(eu, "a") == b"1")
        hurt(path)
        for region in (us, eu):
            with pytest.raises(StorageError, match="renamed, removed or replaced"):
                await region.put("a", b"2")
        await until(lambda: us.read_failure is not None and eu.read_failure is not None)
        assert value_of(us, "a") == value_of(eu, "a") == b"1"


async def test_a_restored_file_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "configuration.sqlite"

    async with SqlitePlace(path).region() as us, SqlitePlace(path).region() as eu:
        _rename(path)
        await until(lambda: us.read_failure is not None)
        path.with_suffix(".away").rename(path)
        await us.put("a", b"1")
        await until(lambda: value_of(eu, "a") == b"1" and eu.read_failure is None)


async def test_an_outage_of_the_store_and_its_end_are_reported_once_each(tmp_path: Path) -> None:
    path = tmp_path / "configuration.sqlite"

    told: list[str | None] = []
    async with SqlitePlace(path).region() as us:
        us.watch_availability(lambda failure: told.append(None if failure is None else str(failure)))
        _rename(path)
        await until(lambda: us.read_failure is not None)
        with pytest.raises(StorageError):
            await us.put("a", b"1")
        path.with_suffix(".away").rename(path)
        await until(lambda: us.read_failure is None)
    why, again = told
    assert why is not None
    assert "renamed, removed or replaced" in why
    assert again is None


@pytest.mark.parametrize(
    ("hurt", "said"), [(Path.unlink, "is missing"), (_replace, "is another configuration store")]
)
async def test_a_region_that_knew_a_store_creates_no_new_one(
    hurt: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "configuration.sqlite"

    first = await open_sqlite_configuration(path, "europe")
    await first.close()
    hurt(path)
    with pytest.raises(StorageError, match=said):
        await open_sqlite_configuration(path, "europe", known=first.identity)


async def test_a_region_finds_the_store_that_it_knows_again(tmp_path: Path) -> None:
    path = tmp_path / "configuration.sqlite"

    first = await open_sqlite_configuration(path, "europe")
    await first.transact(lambda rows: rows.put("a", b"1"))
    await first.close()
    again = await open_sqlite_configuration(path, "europe", known=first.identity)
    assert [change.value for change in (await again.read(-1)).changes] == [b"1"]
    await again.close()


async def test_a_change_that_cannot_be_confirmed_is_not_waited_for_for_ever() -> None:
    """The change was made, and then the store became unavailable: the outcome is unknown, and the caller gets an
    error."""

    class GoesAway(MemoryConfiguration):
        async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
            changed = await super().transact(work)
            self.failure = StorageError("away", definite=True)
            return changed

    class OnePlace(Place):
        async def open(self) -> ConfigurationMedium:
            return GoesAway()

    async with OnePlace().region() as us:
        with pytest.raises(StorageError) as failure:
            await us.put("a", b"1")
        assert not failure.value.definite
