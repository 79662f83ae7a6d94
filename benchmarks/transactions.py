"""What a transaction costs, in publishes that are on disk.

    python -m benchmarks.transactions [ROUNDS]

One region over SQLite, our own client, one thing at a time. By turns with it the benchmark itself writes a page into a
file beside the region's and syncs it: what the disk alone takes. A publish that waits for its receipt is one commit of
the disk, so it is the measure of what waits for the disk, too. Then many transactions are open at once, a message each.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.brokers import RunningBroker, geoemu, resident_bytes
from emulator.client import Client, Producer, Transaction

ROUNDS = 200
OPEN = 10_000
AT_ONCE = 100
TIMEOUT_SECONDS = 600
PAGE = b"x" * 4096
FSYNC = "fsync of a page, no region"
PUBLISH = "publish"


async def _seconds(deed: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await deed()
    return time.perf_counter() - began


def _synced(file: int) -> float:
    """Seconds of one page: what a commit of SQLite asks of the disk."""
    began = time.perf_counter()
    os.write(file, PAGE)
    os.fsync(file)
    return time.perf_counter() - began


async def _rounds(url: str, file: int, rounds: int) -> dict[str, list[float]]:
    """Seconds by what was done."""
    took: dict[str, list[float]] = {what: [] for what in (FSYNC, PUBLISH, "begin", "publish in it", "commit")}
    async with Client([url]) as client:
        producer = await client.producer("transactions-one")
        for _ in range(rounds):
            took[FSYNC].append(_synced(file))
            took[PUBLISH].append(await _seconds(lambda: producer.send(b"x" * 100)))
            began: list[Transaction] = []

            async def begin(into: list[Transaction] = began) -> None:
                into.append(await client.new_transaction(timeout_seconds=TIMEOUT_SECONDS))

            took["begin"].append(await _seconds(begin))
            transaction = began[0]
            took["publish in it"].append(
                await _seconds(lambda of=transaction: producer.send(b"x" * 100, transaction=of))
            )
            took["commit"].append(await _seconds(transaction.commit))
    return took


async def _opened(client: Client, producer: Producer) -> None:
    transaction = await client.new_transaction(timeout_seconds=TIMEOUT_SECONDS)
    await producer.send(b"x", transaction=transaction)


async def _open_ones(broker: RunningBroker) -> float:
    """MB that they cost."""
    async with Client([broker.service_url]) as client:
        producer = await client.producer("transactions-open", pending_messages_max=AT_ONCE)
        await _opened(client, producer)
        before = resident_bytes(broker.pid)
        for _ in range(OPEN // AT_ONCE):
            await asyncio.gather(*(_opened(client, producer) for _ in range(AT_ONCE)))
        return (resident_bytes(broker.pid) - before) / 1_000_000


def _measured(rounds: int) -> tuple[dict[str, list[float]], float]:
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder, geoemu(folder=folder) as broker:
        file = os.open(Path(folder, "synced"), os.O_WRONLY | os.O_CREAT)
        try:
            took = asyncio.run(_rounds(broker.service_url, file, rounds))
        finally:
            os.close(file)
        return took, asyncio.run(_open_ones(broker))


def table(rounds: int = ROUNDS) -> str:
    """As Markdown."""
    took, megabytes = _measured(rounds)
    medians = {what: statistics.median(seconds) for what, seconds in took.items()}
    rows = ["| | median, ms | in fsyncs | in publishes | goal |", "|---|---|---|---|---|"]
    goals = {"commit": "at most 4 fsyncs"}
    for what, median in medians.items():
        in_fsyncs, in_publishes = median / medians[FSYNC], median / medians[PUBLISH]
        rows.append(
            f"| {what} | {1000 * median:.2f} | {in_fsyncs:.1f} | {in_publishes:.1f} | {goals.get(what, '')} |"
        )
    rows.append(f"| {OPEN:,} open ones, a message each | {megabytes:.0f} MB | | | under 100 MB |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
