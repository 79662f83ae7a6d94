"""Commit groups on the event loop or in the writer's thread; read in another thread.

The writes issued in one tick of the loop are a group, and those issued while a group is being committed are the
next one (S4). A small group on a fast disk is committed on the loop itself: it takes about 150 µs, and two thread
switches would add another 80. A large group, or any group on a slow disk, is passed to the writer's thread, so that
the loop is not blocked for long.

    event loop     issues writes; commits small groups; resolves futures
        │ queue of writes            ▲ one callback per group
        ▼                            │
    writer         commits large groups, and those issued while it is busy; sweeps, keeps the WAL short
    reader         reads entries that are not in memory any more; sees only committed rows (S7)

A process whose loop is never idle must release the interpreter lock quickly, or the thread starves: see
`broker.main.SWITCH_INTERVAL_SECONDS`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from emulator.storage.contract import Entry, Versioned
from emulator.storage.sqlite import file, rows
from emulator.storage.sqlite.commit import Committer, SqliteAppend, SqliteChange, SqlitePut, SqliteWrite

HERE_BYTES_MAX = 64 * 1024
"""Maximum size of a group that is committed on the loop."""
HERE_SECONDS_MAX = 0.001
"""Duration of a commit on the loop after which the next ones are passed to the thread for a while."""
HERE_PAUSE_FACTOR = 20
"""Factor of that commit's duration for which the thread commits: a slow disk blocks the loop for at most a twentieth of
the time."""


class SqliteWriter:
    """Commits issued writes and resolves their futures. Methods run on the event loop unless documented otherwise."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        committer: Committer,
        resolve: Callable[[list[SqliteWrite]], None],
    ) -> None:
        self._loop = loop
        self._committer = committer
        self.reader = SqliteReader(committer.path)
        self._resolve = resolve
        """Called on the loop with each group, in order."""
        self._committer_lock = threading.Lock()
        """Held by the thread that uses the committer."""
        self._tick: list[SqliteWrite] = []
        """Writes issued in this tick. Invariant: empty while the thread has writes."""
        self._in_thread = 0
        """Number of writes passed to the thread and not resolved yet."""
        self._thread_until = 0.0
        self._queue: SimpleQueue[SqliteWrite | None] = SimpleQueue()
        """Writes for the thread; None: only sweep or checkpoint."""
        self._last: SqliteWrite | None = None
        threading.Thread(target=self._run, name=f"writer of {committer.path}", daemon=True).start()

    def issue(self, write: SqliteWrite) -> None:
        if self._in_thread:
            self._enqueue([write])
            return
        if not self._tick:
            self._loop.call_soon(self._end_tick)
        self._tick.append(write)

    def close(self, last: SqliteWrite) -> None:
        """Commit the issued writes and close the file in the thread, which then resolves `last`. No write may be issued
        afterwards."""
        self._last = last
        self._enqueue([*self._tick, last])
        self._tick = []

    def lose_power(self) -> None:
        """Commit no more, also not in the thread, and drop what is not synced."""
        self._committer_lock.acquire()  # never released: the process ends
        self._committer.lose_power()

    def _end_tick(self) -> None:
        group, self._tick = self._tick, []
        if not group:
            return  # closed meanwhile
        on_loop = _is_small(group) and time.perf_counter() >= self._thread_until
        if on_loop and self._committer_lock.acquire(blocking=False):
            self._commit_on_loop(group)
        else:
            self._enqueue(group)

    def _commit_on_loop(self, group: list[SqliteWrite]) -> None:
        begin = time.perf_counter()
        try:
            self._committer.commit(group)
            thread_is_needed = self._committer.garbage or self._committer.wal.is_due
        finally:
            self._committer_lock.release()
        end = time.perf_counter()
        if end - begin > HERE_SECONDS_MAX:
            self._thread_until = end + HERE_PAUSE_FACTOR * (end - begin)
        if thread_is_needed:
            self._queue.put(None)
        self._resolve(group)

    def _enqueue(self, group: list[SqliteWrite]) -> None:
        self._in_thread += len(group)
        for write in group:
            self._queue.put(write)

    def _resolve_from_thread(self, group: list[SqliteWrite]) -> None:
        self._in_thread -= len(group)
        self._resolve(group)

    # The writer's thread

    def _run(self) -> None:
        closing = False
        while not closing:
            self._maintain()
            group = self._next_group()
            closing = bool(group) and group[-1] is self._last
            with self._committer_lock:
                self._committer.commit(group)
                if closing:
                    self._close_file()
            try:
                self._loop.call_soon_threadsafe(self._resolve_from_thread, group)
            except RuntimeError:  # the loop was closed, and the store was not
                self._close_file()
                return

    def _maintain(self) -> None:
        """Checkpoint if due, and sweep until a write is queued."""
        with self._committer_lock:
            self._committer.wal.checkpoint_if_due()
        while self._committer.garbage:
            with self._committer_lock:
                self._committer.sweep()
            if not self._queue.empty():
                break

    def _next_group(self) -> list[SqliteWrite]:
        """Wait for the queue; return its writes, maybe none."""
        first = self._queue.get()
        rest = (self._queue.get_nowait() for _ in range(self._queue.qsize()))
        return [write for write in (first, *rest) if write is not None]

    def _close_file(self) -> None:
        self.reader.close()
        self._committer.close()


def _is_small(group: list[SqliteWrite]) -> bool:
    size = 0
    for write in group:
        match write:
            case SqliteAppend():
                size += write.size_bytes
            case SqlitePut(value=Versioned(value)):
                size += len(value)
            case SqliteChange():  # may read much of the file
                return False
    return size <= HERE_BYTES_MAX


class SqliteReader:
    """One thread with its own connection, both created by the first read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"reader of {path}")
        self._connection: sqlite3.Connection | None = None

    async def read(self, log_id: int, start: int, end: int, max_entries: int, max_bytes: int) -> list[Entry]:
        loop = asyncio.get_running_loop()
        arguments = (log_id, start, end, max_entries, max_bytes)
        return await loop.run_in_executor(self._thread, self._read, *arguments)

    def _read(self, log_id: int, start: int, end: int, max_entries: int, max_bytes: int) -> list[Entry]:
        if self._connection is None:
            self._connection = file.open_for_reading(self._path)
        return rows.read_entries(self._connection, log_id, start, end, max_entries, max_bytes)

    def close(self) -> None:
        """Wait for running reads, then close the connection."""
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()
