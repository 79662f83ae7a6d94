"""How long a region takes to start that has 5,000 topics with a durable subscription each.

    python -m benchmarks.many_topics [ROUNDS]

From the start of its process until it takes connections, beside a region that has none: topics are loaded when they are
first used, so the difference is what the region must know of all of them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time

from benchmarks.brokers import geoemu, processor_seconds
from emulator.client import Client

TOPICS = 5_000
AT_ONCE = 100


async def _subscribe_to_all(service_url: str) -> None:
    async with Client(service_url) as client:
        for first in range(0, TOPICS, AT_ONCE):
            subscribing = (
                client.subscribe(f"many-{number}", "s") for number in range(first, first + AT_ONCE)
            )
            await asyncio.gather(*subscribing)


def _start(folder: str) -> tuple[float, float]:
    """(seconds until it takes connections, of them processor time)."""
    began = time.perf_counter()
    with geoemu(deduplication=True, folder=folder) as broker:
        return time.perf_counter() - began, processor_seconds(broker.pid)


def table(rounds: int = 5) -> str:
    """Both as a Markdown table."""
    rows = ["| start of a region with | ready (s) | of it processor (s) | goal |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as none, tempfile.TemporaryDirectory() as many:
        with geoemu(deduplication=True, folder=many) as broker:
            asyncio.run(_subscribe_to_all(broker.service_url))
        results = [(_start(none), _start(many)) for _ in range(rounds)]
    for what, goal, of_kind in zip(
        ("no topic", f"{TOPICS:,} topics, a subscription each"),
        ("", "at most 0.6 s"),
        zip(*results, strict=True),
        strict=True,
    ):
        ready, used = (statistics.median(column) for column in zip(*of_kind, strict=True))
        rows.append(f"| {what} | {ready:.2f} | {used:.2f} | {goal} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
