"""What a transaction costs, in publishes that are on disk.

    python -m benchmarks.transactions [ROUNDS]

One region over SQLite, our own client, one thing at a time. A publish that waits for its receipt is one commit of the
disk, so it is the measure of what waits for the disk, too. Then many transactions are open at once, a message each.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from benchmarks.brokers import RunningBroker, geoemu, resident_bytes
from emulator.client import Client, Producer, Transaction

ROUNDS = 200
OPEN = 10_000
AT_ONCE = 100
TIMEOUT_SECONDS = 600


async def _seconds(deed: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await deed()
    return time.perf_counter() - began


async def _rounds(url: str, rounds: int) -> dict[str, list[float]]:
    """Seconds by what was done."""
    took: dict[str, list[float]] = {"publish": [], "begin": [], "publish in it": [], "commit": []}
    async with Client([url]) as client:
        producer = await client.producer("transactions-one")
        for _ in range(rounds):
            took["publish"].append(await _seconds(lambda: producer.send(b"x" * 100)))
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


def table(rounds: int = ROUNDS) -> str:
    """As Markdown."""
    with geoemu() as broker:
        took = asyncio.run(_rounds(broker.service_url, rounds))
        megabytes = asyncio.run(_open_ones(broker))
    publish = statistics.median(took["publish"])
    rows = ["| | median, ms | in publishes | goal |", "|---|---|---|---|"]
    goals = {"commit": "at most 4"}
    for what, seconds in took.items():
        median = statistics.median(seconds)
        rows.append(f"| {what} | {1000 * median:.2f} | {median / publish:.1f} | {goals.get(what, '')} |")
    rows.append(f"| {OPEN:,} open ones, a message each | {megabytes:.0f} MB | | under 100 MB |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
