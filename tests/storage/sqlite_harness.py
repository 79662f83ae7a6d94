"""A place for SQLite stores, and ways to damage one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from emulator.storage.contract import Store
from emulator.storage.sqlite.store import SqliteStore, open_sqlite

from .harness import Harness


class SqliteHarness(Harness):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "life-0" / "log.sqlite"
        self.lives = 0

    async def _open(self) -> Store:
        return await open_sqlite(self.path, "eu")

    async def crash(self, store: Store) -> Store:
        """Copy the files as they are at this moment: what a killed process leaves behind."""
        self.lives += 1
        destination = self.path.parent.parent / f"life-{self.lives}"
        self.path = copy_files(self.path, destination)
        return await self.open()

    def fill_disk(self, store: Store) -> None:
        writer_connection(store).execute("PRAGMA max_page_count = 1")  # as many as there are

    def empty_disk(self, store: Store) -> None:
        writer_connection(store).execute("PRAGMA max_page_count = 1000000")

    def commits(self, store: Store) -> int:
        assert isinstance(store, SqliteStore)
        return store.commits


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder where fsync costs nothing, if the machine has one: for tests that do not depend on the disk."""
    place = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=place if os.access(place, os.W_OK) else None)


def copy_files(path: Path, to: Path) -> Path:
    """Copy what a kill leaves. The file first, then the WAL: what is missing in one is still in the other."""
    to.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", to / f"{path.name}{suffix}")
    return to / path.name


def writer_connection(store: Store) -> sqlite3.Connection:
    assert isinstance(store, SqliteStore)
    return store._committer.connection
