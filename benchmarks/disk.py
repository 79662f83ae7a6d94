"""Latency of the disk alone: what a commit of a region's log waits for."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMIT_BYTES = 16_384
"""Two pages: what the commit of one small message adds to SQLite's WAL."""
FILE_COMMITS = 64


class SyncedFile:
    """A file whose bytes are replaced and synced, as those of the WAL. Its size does not change, so that the file
    system has no metadata to write."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._data = os.urandom(COMMIT_BYTES)
        self._syncs = 0
        os.write(file, self._data * FILE_COMMITS)
        os.fsync(file)

    def sync_ms(self, syncs: int) -> float:
        """Return the median time of writing and syncing the bytes of a commit, in ms."""
        took = []
        for _ in range(syncs):
            began = time.perf_counter()
            self.sync()
            took.append((time.perf_counter() - began) * 1000)
        return statistics.median(took)

    def sync(self) -> None:
        """Write and sync the bytes of a commit."""
        os.pwrite(self._file, self._data, self._syncs % FILE_COMMITS * COMMIT_BYTES)
        os.fdatasync(self._file)
        self._syncs += 1


@contextmanager
def synced_file(folder: str) -> Iterator[SyncedFile]:
    file = os.open(Path(folder, "syncs"), os.O_CREAT | os.O_RDWR)
    try:
        yield SyncedFile(file)
    finally:
        os.close(file)
