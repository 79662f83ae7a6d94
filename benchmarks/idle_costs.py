"""Memory of idle objects: bytes that a topic, subscription, producer, consumer or connection costs a region.

    python -m benchmarks.idle_costs

Each value is the growth of the region's memory over many objects, divided by their number. Topics that are not loaded
are measured in a restarted region, before any client uses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable

from benchmarks.brokers import RunningBroker, geoemu, processor_seconds, resident_bytes
from emulator.client import Client, ConsumerType

TOPICS = 10_000
SOME = 2_000
CONNECTIONS = 400
AT_ONCE = 100

Make = Callable[[int], Awaitable[object]]


async def _make(numbers: int, make: Make) -> None:
    for first in range(0, numbers, AT_ONCE):
        await asyncio.gather(*(make(number) for number in range(first, min(first + AT_ONCE, numbers))))


async def _each(broker: RunningBroker, numbers: int, make: Make) -> float:
    """Bytes."""
    await make(numbers)  # What the first one costs is not the others'
    before = resident_bytes(broker.pid)
    await _make(numbers, make)
    return (resident_bytes(broker.pid) - before) / numbers


async def _topic(client: Client, number: int) -> None:
    await (await client.producer(f"idle-topic-{number}")).close()


async def _subscription(client: Client, number: int) -> None:
    await (await client.subscribe("idle-subscriptions", f"s-{number}")).close()


async def _producer(client: Client, _: int) -> None:
    await client.producer("idle-producers")


async def _consumer(client: Client, _: int) -> None:
    await client.subscribe("idle-consumers", "s", type_=ConsumerType.SHARED)


PARTS: dict[str, Callable[[Client, int], Awaitable[object]]] = {
    "a loaded topic without users": _topic,
    "a subscription without consumers": _subscription,
    "a producer": _producer,
    "a consumer of a Shared subscription": _consumer,
}


async def _part(broker: RunningBroker, make: Callable[[Client, int], Awaitable[object]]) -> float:
    async with Client(broker.service_url) as client:
        return await _each(broker, SOME, lambda number: make(client, number))


async def _connections(broker: RunningBroker) -> float:
    """Each with a producer, so that it has one at all."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(_: int) -> None:
            client = await stack.enter_async_context(Client(broker.service_url))
            await client.producer("idle-connections")

        return await _each(broker, CONNECTIONS, make)


async def _fill(broker: RunningBroker) -> None:
    async with Client(broker.service_url) as client:

        async def topic(number: int) -> None:
            await (await client.subscribe(f"many-{number}", "s")).close()

        await _make(TOPICS, topic)


def _started(folder: str) -> tuple[float, float, float]:
    """(seconds until it takes connections, of them processor time, bytes)."""
    began = time.perf_counter()
    with geoemu(folder=folder) as broker:
        return time.perf_counter() - began, processor_seconds(broker.pid), resident_bytes(broker.pid)


def table() -> str:
    """As Markdown."""
    parts = {}
    for what, make in PARTS.items():
        with geoemu() as broker:
            parts[what] = asyncio.run(_part(broker, make))
    with geoemu() as broker:
        parts["a connection, with a producer"] = asyncio.run(_connections(broker))
    with tempfile.TemporaryDirectory() as none, tempfile.TemporaryDirectory() as many:
        empty = _started(none)
        with geoemu(folder=many) as broker:
            asyncio.run(_fill(broker))
            loaded = resident_bytes(broker.pid)
        filled = _started(many)
    rows = ["| what | KB each |", "|---|---|"]
    rows += [f"| {what} | {size / 1000:.1f} |" for what, size in parts.items()]
    rows.append(f"| a topic with a subscription, not loaded | {(filled[2] - empty[2]) / TOPICS / 1000:.1f} |")
    rows += ["", "| a region with | ready (s) | of it processor (s) | memory (MB) |", "|---|---|---|---|"]
    for what, (ready, used, size) in (("no topic", empty), (f"{TOPICS:,} topics, started again", filled)):
        rows.append(f"| {what} | {ready:.2f} | {used:.2f} | {size / 1e6:.0f} |")
    rows.append(f"| {TOPICS:,} topics, all of them just used | | | {loaded / 1e6:.0f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
