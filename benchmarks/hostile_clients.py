"""Hostile clients beside a client that publishes at a constant rate: by how much its receipts are delayed.

    python -m benchmarks.hostile_clients

One region. Each attack runs for a while in a process of its own, after a quiet period of the same length, in several
rounds; the figure is the median of the ratios of both p99.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.load_generator import new_topic
from benchmarks.replicated_load import SOURCE, without_latency
from benchmarks.returning_region import LiveLoad, p99
from emulator.client import Client
from emulator.runtimes.process import ProcessRuntime
from emulator.wire import commands as wire
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry
from emulator.wire.frames import SIZES
from emulator.wire.payloads import Compression

ROUNDS: Final = 3
PERIOD_SECONDS: Final = 5.0
CONNECT_FRAME: Final = wire.Connect("hostile", wire.PROTOCOL_VERSION, "", b"").encode()
GOAL: Final = 2.0

Ports = tuple[int, int]
"""(binary port, HTTP port) of the region."""


async def half_open(ports: Ports) -> None:
    """Open 1,000 connections to each port that send nothing."""
    await _hold(1_000, ports, _nothing)


async def slow_senders(ports: Ports) -> None:
    """Open 500 connections to each port that send one byte of a request at a time."""
    await _hold(500, ports, lambda writer, port: _byte_by_byte(writer, port, ports))


async def _hold(
    count: int, ports: Ports, behave: Callable[[asyncio.StreamWriter, int], Awaitable[None]]
) -> None:
    async with asyncio.TaskGroup() as group:
        for port in ports:
            for _ in range(count):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                group.create_task(behave(writer, port))


_SLOW_REQUESTS: Final = (
    (CONNECT_FRAME, SIZES.pack(10_004, 10_000) + b"\x08" * 10_000),
    (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X: " + b"x" * 10_000),
)
"""Of each port, what a slow sender sends at once and what byte by byte: a connected client that does not complete its
next command, and a header that does not end."""


async def _nothing(writer: asyncio.StreamWriter, port: int) -> None:
    await asyncio.Event().wait()


async def _byte_by_byte(writer: asyncio.StreamWriter, port: int, ports: Ports) -> None:
    begin, rest = _SLOW_REQUESTS[port == ports[1]]
    with suppress(ConnectionError):
        writer.write(begin)
        for byte in rest:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.2)


async def garbage(ports: Ports) -> None:
    """Send 200 times per second bytes that are no frame, each on a new connection."""
    await _repeat(200, lambda: _send(ports[0], b"\xff" * 64))


async def huge_counts(ports: Ports) -> None:
    """Send 200 times per second a SEND that claims 2^31 - 1 messages in 6 bytes."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=2**31 - 1
    )
    send = send_frame(1, 0, data=build_entry(metadata, b"\0" * 6))
    await _repeat(200, lambda: _publish(ports[0], send))


async def decompression_bombs(ports: Ports) -> None:
    """Publish 20 times per second a batch of 1 GiB of zeros in 1 MiB."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=1)
    metadata.compression, metadata.uncompressed_size = int(Compression.ZLIB), 1 << 30  # type: ignore[assignment]
    compressor = zlib.compressobj(9)
    bomb = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(1 << 10)) + compressor.flush()
    send = send_frame(1, 0, data=build_entry(metadata, bomb))
    await _repeat(20, lambda: _publish(ports[0], send))


async def _repeat(per_second: int, act: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(_ignoring_ends(act()))
            await asyncio.sleep(1 / per_second)


async def _ignoring_ends(act: Awaitable[None]) -> None:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PERIOD_SECONDS):
            await act


async def _send(port: int, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await reader.read()
    writer.close()


async def _publish(port: int, send: bytes) -> None:
    producer = wire.create_producer(1, "persistent://public/default/attacked", 1, "").encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CONNECT_FRAME + producer + send)
    await reader.read(4_096)
    writer.close()


ATTACKS: Final = (half_open, slow_senders, garbage, huge_counts, decompression_bombs)


def _attack(attack: Callable[[Ports], Awaitable[None]], ports: Ports) -> None:
    asyncio.run(attack(ports))  # type: ignore[arg-type]


async def measure() -> dict[str, tuple[float, float, float]]:
    """Return for each attack the median of (p99 before, p99 during, their ratio)."""
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        runtime = ProcessRuntime.create(without_latency(), Path(folder, "run"))
        await runtime.up()
        try:
            source = next(one for one in (await runtime.status()).regions if one.name == SOURCE)
            ports = _port(source.service_url), _port(source.admin_url)
            async with Client(source.service_url) as client:
                live = LiveLoad(await client.producer(new_topic()))
                running = asyncio.create_task(live.run())
                rounds = [[await _compare(live, attack, ports) for attack in ATTACKS] for _ in range(ROUNDS)]
                live.stop()
                await running
        finally:
            await runtime.down()
    return {
        attack.__name__.replace("_", " "): _medians([one[number] for one in rounds])
        for number, attack in enumerate(ATTACKS)
    }


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def _medians(figures: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    before, during, ratio = (statistics.median(column) for column in zip(*figures, strict=True))
    return before, during, ratio


async def _compare(
    live: LiveLoad, attack: Callable[[Ports], Awaitable[None]], ports: Ports
) -> tuple[float, float, float]:
    before = await _p99_of_period(live)
    process = multiprocessing.get_context("spawn").Process(target=_attack, args=(attack, ports), daemon=True)
    process.start()
    await asyncio.sleep(2)  # until it has opened its connections
    during = await _p99_of_period(live)
    process.kill()
    await asyncio.to_thread(process.join)
    await asyncio.sleep(1)  # until the region has noticed
    return before, during, during / before


async def _p99_of_period(live: LiveLoad) -> float:
    begin = len(live.latencies_ms)
    await asyncio.sleep(PERIOD_SECONDS)
    return p99(live.latencies_ms[begin:])


def table() -> str:
    """All figures as a Markdown table."""
    rows = [
        f"| {name} | {before:.1f} | {during:.1f} | {ratio:.2f} | {GOAL:g} |"
        for name, (before, during, ratio) in asyncio.run(measure()).items()
    ]
    return "\n".join(
        [
            "| beside hostile clients | p99 before (ms) | p99 during (ms) | ratio | at most |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


if __name__ == "__main__":
    print(table())
