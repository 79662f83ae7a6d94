"""Run mixed clients for minutes while the region and their programs are killed: no acknowledged message may be missing,
and the region's memory and disk must not grow.

    python -m benchmarks.soak [--minutes N] [--clients python,java,go,rust]

One region over SQLite, without retention of acknowledged messages. Each client publishes to a topic of its own, and
reads that of the client before it; a killed program is restarted and continues. In the first half the region is killed
as well (`kill -9`); in the second it keeps running, and its memory and disk are compared.
Exit code 0: nothing is missing, and it did not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.brokers import free_port, resident_bytes
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
from tests.clients.driving import CLIENTS, Driver, Failed, driver

READY_SECONDS_MAX = 20.0
SAMPLE_SECONDS = 2.0
UNDER_WAY = 8
"""Messages of one program that are sent or awaited at a time."""
CALL_TIMEOUT_MS = 5_000
QUIET_SECONDS = 8.0
"""Without a new message for this time everything was read."""
GROWTH_MAX = 1.15
"""What it holds at the end against the beginning of the second half. The samples themselves differ by less."""


@dataclass
class Sample:
    at_seconds: float
    memory_bytes: int
    disk_bytes: int


@dataclass
class Books:
    """What was promised, and what came."""

    acknowledged: set[str] = field(default_factory=set)
    received: dict[str, int] = field(default_factory=dict)
    kills_of_programs: int = 0
    kills_of_the_region: int = 0
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What happened, for who looks for what is missing."""
    began: float = field(default_factory=time.monotonic)
    newest: float = 0.0
    """When the latest new message arrived."""

    def note(self, text: str) -> None:
        self.notes.append(f"{time.monotonic() - self.began:7.2f} s  {text}")

    def record_delivery(self, payload: str) -> None:
        times = self.received.get(payload, 0)
        self.received[payload] = times + 1
        if not times:
            self.newest = time.monotonic()

    @property
    def missing(self) -> set[str]:
        return self.acknowledged - self.received.keys()


class KillableRegion:
    """One that comes back at the same address, with what is on its disk."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._port = free_port()
        namespace = NamespaceConfig("public/default", ("soak",), retention_minutes=0, retention_megabytes=0)
        config = RegionConfig(
            region="soak",
            cluster="soak",
            service_port=self._port,
            log=LogConfig("sqlite", str(self.folder / "log.sqlite"), ""),
            namespaces=(namespace,),
        )
        (self.folder / "region.json").write_text(config.to_json())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self._port}"

    async def start(self) -> None:
        with (self.folder / "region.out").open("ab") as output:
            command = [sys.executable, "-m", "emulator.broker", str(self.folder / "region.json")]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        async with asyncio.timeout(READY_SECONDS_MAX):
            while not await self._answers():
                await asyncio.sleep(0.05)

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.close()
            return True
        return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def sample(self, began: float) -> Sample:
        assert self._process is not None
        disk = sum(each.stat().st_size for each in self.folder.glob("log.sqlite*"))
        return Sample(time.monotonic() - began, resident_bytes(self._process.pid), disk)


class Pair:
    """One program: it publishes to its own topic, and reads that of another client."""

    def __init__(self, client: str, reads: str, region: KillableRegion, books: Books) -> None:
        self.client = client
        self._reads = reads
        self._region = region
        self._books = books
        self._numbers = itertools.count()
        self._program: Driver | None = None
        self._is_publishing = True
        self.has_subscribed = asyncio.Event()
        """Once; from then on nothing that is published may be missed."""
        self.read_by = self
        """Who reads what this one publishes."""

    async def live(self) -> None:
        """One program after the other; each ends by being killed."""
        while True:
            try:
                async with driver(self.client) as program:
                    await self._work(program)
            except* (Failed, TimeoutError) as failures:
                self._books.note(f"{self.client}'s program ended: {failures.exceptions[0]!r}")
            self._program = None

    async def _work(self, program: Driver) -> None:
        url = self._region.service_url
        await program.ask("client", key="c", url=url, timeout_ms=30_000)
        await program.ask(
            "producer", key="p", client="c", topic=f"soak-{self.client}", send_timeout_ms=10_000
        )
        topic = f"soak-{self._reads}"
        await program.ask("subscribe", key="s", client="c", topic=topic, subscription="soak", type="Shared")
        self._program = program
        self.has_subscribed.set()
        sending = [self._publish(program) for _ in range(UNDER_WAY)]
        async with asyncio.TaskGroup() as group:
            for work in [*sending, *[self._receive(program) for _ in range(UNDER_WAY)]]:
                group.create_task(work)

    async def _publish(self, program: Driver) -> None:
        """A failed send may have happened or not: it is neither promised nor missed."""
        await self.read_by.has_subscribed.wait()
        while self._is_publishing:
            payload = f"{self.client}-{next(self._numbers)}"
            if await self._said(program, "send", key="p", payload=payload) is not None:
                self._books.acknowledged.add(payload)

    async def _receive(self, program: Driver) -> None:
        while True:
            message = await self._said(program, "receive", key="s", timeout_ms=CALL_TIMEOUT_MS)
            if message is not None:
                self._books.record_delivery(message["payload"])

    async def _said(self, program: Driver, verb: str, **arguments: object) -> dict[str, str] | None:
        """None: it failed, and the program goes on."""
        try:
            return await program.ask(verb, **arguments)
        except Failed as problem:
            if problem.name == "Gone":
                raise
            await asyncio.sleep(0.05)
            return None

    def kill(self) -> bool:
        """Whether there was a program at work."""
        program, self._program = self._program, None
        if program is None:
            return False
        program.kill()
        return True

    def stop_publishing(self) -> None:
        self._is_publishing = False


async def soak(clients: list[str], minutes: float, chance: random.Random, folder: str) -> Books:
    books = Books()
    region = KillableRegion(folder)
    await region.start()
    pairs = [Pair(client, clients[at - 1], region, books) for at, client in enumerate(clients)]
    for at, pair in enumerate(pairs):
        pairs[at - 1].read_by = pair
    living = [asyncio.ensure_future(pair.live()) for pair in pairs]
    try:
        async with _sampled(region, books):
            await _disturb(region, pairs, books, minutes * 60, chance)
            for pair in pairs:
                pair.stop_publishing()
            await _drained(books)
    finally:
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        region.kill()
    return books


@contextlib.asynccontextmanager
async def _sampled(region: KillableRegion, books: Books) -> AsyncIterator[None]:
    began = time.monotonic()

    async def sample() -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            with contextlib.suppress(OSError, StopIteration):  # it is dead at this moment
                books.samples.append(region.sample(began))

    sampling = asyncio.ensure_future(sample())
    try:
        yield
    finally:
        sampling.cancel()


async def _disturb(
    region: KillableRegion, pairs: list[Pair], books: Books, seconds: float, chance: random.Random
) -> None:
    """Programs are killed all the time, the region in the first half."""
    loop = asyncio.get_running_loop()
    began, kills_of_the_region = loop.time(), 0
    while loop.time() < began + seconds:
        await asyncio.sleep(chance.uniform(0.02, 0.06) * seconds)
        passed = (loop.time() - began) / seconds
        if passed < 0.5 and kills_of_the_region < passed * 10:
            kills_of_the_region += 1
            region.kill()
            await asyncio.sleep(chance.uniform(0, 1))
            await region.start()
            books.note("the region was killed, and is back")
        elif passed < 0.9:
            books.kills_of_programs += chance.choice(pairs).kill()
    books.kills_of_the_region = kills_of_the_region


async def _drained(books: Books) -> None:
    books.newest = time.monotonic()
    while time.monotonic() < books.newest + QUIET_SECONDS:
        await asyncio.sleep(0.2)


def growth(books: Books, what: str) -> tuple[float, float]:
    """Medians at the beginning and at the end of the second half, in megabytes. Nothing was killed at its end, and the
    first fifth of it is left for the region to warm up again."""
    end = books.samples[-1].at_seconds
    values = [(each.at_seconds / end, getattr(each, what) / 1e6) for each in books.samples]
    first = statistics.median(value for at, value in values if 0.55 <= at < 0.7)
    last = statistics.median(value for at, value in values if at >= 0.85)
    return first, last


def report(books: Books, minutes: float) -> tuple[str, bool]:
    """A table, and whether it is as it should be."""
    again = sum(times - 1 for times in books.received.values())
    memory, disk = growth(books, "memory_bytes"), growth(books, "disk_bytes")
    grew = any(last > first * GROWTH_MAX for first, last in (memory, disk))
    rows = [
        ("minutes", f"{minutes:g}"),
        ("messages acknowledged to their publishers", f"{len(books.acknowledged):,}"),
        ("of these missing", f"{len(books.missing):,}"),
        ("received again", f"{again:,}"),
        ("programs killed", f"{books.kills_of_programs}"),
        ("the region killed", f"{books.kills_of_the_region}"),
        (
            "memory of the region, after the last kill and at the end (MB)",
            f"{memory[0]:.1f}, {memory[1]:.1f}",
        ),
        ("its disk, likewise (MB)", f"{disk[0]:.1f}, {disk[1]:.1f}"),
    ]
    table = "\n".join(["| what | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    return table, not books.missing and not grew and bool(books.acknowledged)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each program that is killed
    folder = tempfile.mkdtemp(prefix="geoemu-soak-")
    books = asyncio.run(soak(given.clients.split(","), given.minutes, random.Random(given.seed), folder))
    table, is_well = report(books, given.minutes)
    print(table)
    if is_well:
        shutil.rmtree(folder)
        return 0
    print("\n".join(["", *books.notes, "", f"missing: {', '.join(sorted(books.missing)[:20])}"]))
    print(f"seed {given.seed}; the region's store is in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
