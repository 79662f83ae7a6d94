"""The SQLite store alone: latency of one append at a time, throughput of groups, and reading.

    python -m benchmarks.storage [FOLDER]

FOLDER says which disk is measured. The first line is the floor: what the disk needs for 8 KiB and an fdatasync.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from emulator.storage.sqlite import writer as sqlite_writer
from emulator.storage.sqlite.store import SqliteLog, open_sqlite

ENTRY = b"x" * 100
ENTRIES_PER_GROUP = 500
GROUPS_IN_FLIGHT = 8


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    quantiles = (ordered[int(len(ordered) * part)] * 1e6 for part in (0.5, 0.9, 0.99))
    return "p50 {:.0f}  p90 {:.0f}  p99 {:.0f} µs".format(*quantiles)


def measure_disk(folder: Path, count: int) -> None:
    """Writing over what is there: what a commit into a filled WAL does."""
    taken: list[float] = []
    with open(folder / "disk", "wb", buffering=0) as file:
        file.write(bytes(8192 * count))
        os.fsync(file.fileno())
        for number in range(count):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), ENTRY * 80, 8192 * number)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begin)
    print(f"disk: write 8 KiB, fdatasync     {spread(taken)}")


async def measure_latency(log: SqliteLog, count: int, where: str) -> None:
    taken: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        await log.append([ENTRY])
        taken.append(time.perf_counter() - begin)
    print(f"append, one in flight, {where:9} {spread(taken)}")


async def measure_throughput(log: SqliteLog, groups: int) -> None:
    group = [ENTRY] * ENTRIES_PER_GROUP
    begin = time.perf_counter()
    in_flight: set[asyncio.Future[int]] = set()
    for _ in range(groups):
        if len(in_flight) == GROUPS_IN_FLIGHT:
            _, in_flight = await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        in_flight.add(log.append(group))
    await asyncio.gather(*in_flight)
    rate = groups * ENTRIES_PER_GROUP / (time.perf_counter() - begin)
    print(
        f"append, groups of {ENTRIES_PER_GROUP}, {GROUPS_IN_FLIGHT} in flight  {rate / 1e3:.0f} k entries/s"
    )


async def measure_reading(log: SqliteLog) -> None:
    begin = time.perf_counter()
    start = count = 0
    while page := await log.read(start, 1000, 1 << 20):
        count += len(page)
        start = page[-1].entry_id + 1
    print(f"read from the beginning          {count / (time.perf_counter() - begin) / 1e3:.0f} k entries/s")


async def main(folder: Path) -> None:
    measure_disk(folder, 2000)
    store = await open_sqlite(folder / "log.sqlite", "bench")
    log = await store.open_log("t")
    assert log is not None
    here = sqlite_writer.HERE_BYTES_MAX
    for _ in range(2):
        await measure_latency(log, 2000, "on loop")
        sqlite_writer.HERE_BYTES_MAX = -1
        await measure_latency(log, 2000, "by thread")
        sqlite_writer.HERE_BYTES_MAX = here
    await measure_throughput(log, 4000)
    await measure_reading(log)
    await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        asyncio.run(main(Path(name)))
