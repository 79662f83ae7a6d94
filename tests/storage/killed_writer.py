"""Writes to a store in a process that ends with `kill -9`. Run by test_kill.py; not a test.

It writes what the seed decides, many writes in flight, and reports every acknowledgement through the pipe at once, one
line each:

    e <log> <first id> <number of the first entry> <count>     an append
    k <key> <version> <number>                                 a put
    t <log> <id>                                               a trim
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from emulator.storage.contract import Log, Store
from emulator.storage.sqlite import commit as sqlite_commit
from emulator.storage.sqlite import file as sqlite_file
from emulator.storage.sqlite import writer as sqlite_writer
from emulator.storage.sqlite.store import SqliteStore, open_sqlite

LOGS = ("a", "b", "c")
KEYS = ("k", "l", "m")


def entry(log: str, incarnation: int, number: int) -> bytes:
    """Return the entry of the log with this number in this run. Sizes differ widely."""
    name = f"{log} {incarnation} {number} "
    return name.encode() + random.Random(name).randbytes(random.Random(name).choice((0, 10, 100, 100, 9000)))


def value(key: str, incarnation: int, number: int) -> bytes:
    return f"{key} {incarnation} {number} ".encode() * (number % 50 + 1)


def live(path: str, incarnation: int, seed: int, pipe: Connection, often: bool, synced: bool = True) -> None:
    """Write until killed, or until SIGUSR1, a power loss. `often`: checkpoints and sweeps all the time, so that
    the kill may fall within one; most commits in the writer's thread. Not `synced`: a faulty store that acknowledges
    commits before they are synced."""
    if often:
        sqlite_commit.CHECKPOINT_BYTES = 30_000
        sqlite_commit.SWEEP_ROWS = 1
        sqlite_writer.HERE_BYTES_MAX = 1000
    if not synced:
        sqlite_file.SYNCHRONOUS = "OFF"
        # The power loss keeps the file and cuts the WAL off: a checkpoint between the last commit and the power loss
        # would hide the error.
        sqlite_commit.CHECKPOINT_BYTES = sqlite_commit.WAL_BYTES_MAX = 1 << 40
    asyncio.run(_live(path, incarnation, random.Random(seed), pipe.fileno()))


def _lose_power(store: SqliteStore) -> None:
    store.lose_power()
    os.kill(os.getpid(), signal.SIGKILL)


async def _live(path: str, incarnation: int, chance: random.Random, pipe: int) -> None:
    store = await open_sqlite(Path(path), "eu")
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _lose_power, store)
    logs = [log for name in LOGS if (log := await store.open_log(name)) is not None]
    numbers: dict[str, Iterator[int]] = {name: count() for name in (*LOGS, *KEYS)}
    window = asyncio.Semaphore(chance.choice((1, 4, 30)))

    def report(line: str, issued: asyncio.Future[int]) -> None:
        os.write(pipe, line.format(issued.result()).encode())
        window.release()

    while True:
        await window.acquire()
        line, issued = _write(store, chance.choice(logs), chance, incarnation, numbers)
        issued.add_done_callback(partial(report, line))
        if chance.random() < 0.02:
            log = chance.choice(logs)
            await log.trim(log.next_entry_id - chance.randrange(100))
            os.write(pipe, f"t {log.name} {log.first_entry_id}\n".encode())


def _write(
    store: Store, log: Log, chance: random.Random, incarnation: int, numbers: dict[str, Iterator[int]]
) -> tuple[str, asyncio.Future[int]]:
    if chance.random() < 0.3:
        key = chance.choice(KEYS)
        number = next(numbers[key])
        return f"k {key} {{}} {number}\n", store.put(key, value(key, incarnation, number))
    first, *others = (next(numbers[log.name]) for _ in range(chance.choice((1, 1, 1, 2, 20))))
    entries = [entry(log.name, incarnation, number) for number in (first, *others)]
    return f"e {log.name} {{}} {first} {len(entries)}\n", log.append(entries)
