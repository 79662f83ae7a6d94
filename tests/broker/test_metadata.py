"""The media of the configuration store keep the contract."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import StorageError
from emulator.simulation.configuration import SimulatedConfiguration
from emulator.simulation.simulation import DRIVER, Simulation
from emulator.storage.configuration import ConfigurationMedium
from emulator.storage.configuration_memory import ConfigurationMemory, MemoryConfiguration
from emulator.storage.configuration_sqlite import open_sqlite_configuration
from tests.broker.metadata_contract import MetadataContract, Place, until, value_of


class MemoryPlace(Place):
    def __init__(self) -> None:
        self.memory = ConfigurationMemory(changes_kept=self.changes_kept)
        self.opened: list[MemoryConfiguration] = []

    async def open(self) -> ConfigurationMedium:
        self.opened.append(MemoryConfiguration(self.memory))
        return self.opened[-1]

    def go_away(self) -> None:
        for one in self.opened:
            one.away = StorageError("away", definite=True)

    def come_back(self) -> None:
        for one in self.opened:
            one.away = None


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
        """Somebody does not let go of it."""
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

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        with self.simulation:
            self.simulation.run(story)

    def go_away(self) -> None:
        self.shared.faults.is_away = True

    def come_back(self) -> None:
        self.shared.faults.is_away = False


class TestSimulated(MetadataContract):
    @pytest.fixture
    def place(self) -> Place:
        return SimulatedPlace()


def test_a_file_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "configuration.sqlite"
        await (await open_sqlite_configuration(path, "europe")).close()
        with pytest.raises(StorageError, match="belongs to cluster europe, not asia"):
            await open_sqlite_configuration(path, "asia")

    asyncio.run(story())


def _write_for_ever(path: Path, ready: Any) -> None:
    async def story() -> None:
        async with SqlitePlace(path).region() as region:
            number = 0
            while True:
                await region.put("n", b"%d" % number)
                ready.value = number
                number += 1

    asyncio.run(story())


def test_the_kill_of_a_region_that_writes_disturbs_no_other_and_loses_nothing(tmp_path: Path) -> None:
    """M1 over processes: `kill -9` in the middle of writing."""
    path = tmp_path / "configuration.sqlite"

    async def story() -> None:
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

    asyncio.run(story())
