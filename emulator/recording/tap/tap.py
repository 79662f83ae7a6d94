"""The tap of a run: a proxy port in front of each region's port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from emulator.errors import Refused
from emulator.recording.tap.connection import TappedConnection
from emulator.recording.tap.listener import TapListener
from emulator.recording.tap.recorder import Recorder
from emulator.run.history import HistoryWriter

CHUNK_BYTES = 256 * 1024
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class TappedRegion:
    """A region with its service URL through the tap."""

    name: str
    service_url: str


class Tap:
    """Forwards the traffic between clients and regions, and records it."""

    def __init__(self, history: HistoryWriter, host: str = HOST) -> None:
        self.history = history
        self._host = host
        self._listeners: list[TapListener] = []
        self._talks: set[asyncio.Task[None]] = set()
        self._numbers = count(1)

    async def open(self, regions: Iterable[tuple[str, str]]) -> list[TappedRegion]:
        """Listen in front of these regions, given as (name, service URL). Return them with the URLs of the tap."""
        return [await self._open_one(name, service_url) for name, service_url in regions]

    async def _open_one(self, name: str, service_url: str) -> TappedRegion:
        url = urlsplit(service_url)
        there = (url.hostname or "", url.port or 0)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._talks.add(task)
            try:
                # Only `close` cancels the task.
                with suppress(asyncio.CancelledError):
                    await self._talk(name, here, there, reader, writer)
            finally:
                self._talks.discard(task)
                listener.check_region()

        listener = TapListener(self._host, there, talk, limit_bytes=CHUNK_BYTES)
        here = f"pulsar://{self._host}:{listener.port}"
        self._listeners.append(listener)
        await listener.open()
        return TappedRegion(name, here)

    async def close(self) -> None:
        """Close all listeners and end all connections. The history stays open."""
        for listener in self._listeners:
            await listener.close()
        for task in list(self._talks):
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _talk(
        self,
        region: str,
        here: str,
        there: tuple[str, int],
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
    ) -> None:
        try:
            from_region, to_region = await asyncio.open_connection(*there)
        except OSError:
            to_client.close()
            return
        connection = TappedConnection(Recorder(self.history, region, next(self._numbers)), here)
        ways = [
            asyncio.create_task(_carry(from_client, to_region, connection.to_region)),
            asyncio.create_task(_carry(from_region, to_client, connection.to_client)),
        ]
        try:
            # Pulsar has no half-closed connections: when one direction ends, the other is closed, too.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            connection.ended()
            for writer in (to_client, to_region):
                with suppress(OSError):
                    writer.close()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, through: Callable[[bytes], bytes]
) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            data = through(chunk)
            if data:
                writer.write(data)
                await writer.drain()


def open_tap_history(run_dir: Path, name: str) -> HistoryWriter:
    """Open the history file of a tap in a run directory. Raises Refused if another process writes it."""
    try:
        return HistoryWriter.in_run(run_dir, name, program="geoemu tap")
    except BlockingIOError as busy:
        raise Refused(f"{busy} (--name)") from None
