"""The tap of a run: a proxy port in front of each region's port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from emulator.errors import Refused
from emulator.net.tls import Certificates, client_context
from emulator.recording.tap.connection import TappedConnection
from emulator.recording.tap.listener import TapListener
from emulator.recording.tap.recorder import Recorder
from emulator.run.history import HistoryWriter

CHUNK_BYTES = 256 * 1024
HOST = "127.0.0.1"


class ReachableRegion(Protocol):
    """A region to which a tap connects."""

    @property
    def name(self) -> str: ...

    @property
    def service_url(self) -> str: ...

    @property
    def tls(self) -> Certificates | None: ...


@dataclass(frozen=True, slots=True)
class TappedRegion:
    """A region with its service URL through the tap."""

    name: str
    service_url: str
    tls: Certificates | None = None
    """Always None: clients connect to the tap without TLS."""


class Tap:
    """Forwards the traffic between clients and regions, and records it."""

    def __init__(self, history: HistoryWriter, host: str = HOST) -> None:
        self.history = history
        self._host = host
        self._listeners: list[TapListener] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._numbers = count(1)

    async def open(self, regions: Iterable[ReachableRegion]) -> list[TappedRegion]:
        """Listen in front of these regions. Return them with the URLs of the tap, which are without TLS: the tap reads
        the commands, and connects to the region with TLS itself."""
        return [await self._open_one(region) for region in regions]

    async def _open_one(self, region: ReachableRegion) -> TappedRegion:
        name, url = region.name, urlsplit(region.service_url)
        region_address = (url.hostname or "", url.port or 0)
        tls = region.tls if url.scheme == "pulsar+ssl" else None

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                # Only `close` cancels the task.
                with suppress(asyncio.CancelledError):
                    await self._handle(name, tap_url, region_address, tls, reader, writer)
            finally:
                self._connections.discard(task)
                listener.check_region()

        listener = TapListener(self._host, region_address, handle, limit_bytes=CHUNK_BYTES)
        tap_url = f"pulsar://{self._host}:{listener.port}"
        self._listeners.append(listener)
        await listener.open()
        return TappedRegion(name, tap_url)

    async def close(self) -> None:
        """Close all listeners and end all connections. The history stays open."""
        for listener in self._listeners:
            await listener.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _handle(
        self,
        region: str,
        tap_url: str,
        region_address: tuple[str, int],
        tls: Certificates | None,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
    ) -> None:
        try:
            context = None if tls is None else client_context(tls)
            from_region, to_region = await asyncio.open_connection(*region_address, ssl=context)
        except OSError:
            to_client.close()
            return
        connection = TappedConnection(Recorder(self.history, region, next(self._numbers)), tap_url)
        directions = [
            asyncio.create_task(_forward(from_client, to_region, connection.to_region)),
            asyncio.create_task(_forward(from_region, to_client, connection.to_client)),
        ]
        try:
            # Pulsar has no half-closed connections: when one direction ends, the other is closed, too.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            connection.on_connection_lost()
            for writer in (to_client, to_region):
                with suppress(OSError):
                    writer.close()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: Callable[[bytes], bytes]
) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            data = process(chunk)
            if data:
                writer.write(data)
                await writer.drain()


def open_tap_history(run_dir: Path, name: str) -> HistoryWriter:
    """Open the history file of a tap in a run directory. Raises Refused if another process writes it."""
    try:
        return HistoryWriter.in_run(run_dir, name, program="geoemu tap")
    except BlockingIOError as busy:
        raise Refused(f"{busy} (--name)") from None
