"""The port of a tap in front of one region. It is closed while the region does not accept connections.

Clients with automatic failover only probe whether they can connect: they would never leave a dead region whose tap
accepts connections. The tap detects a dead region when a connection ends or fails.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

REGION_POLL_SECONDS = 0.02
"""Interval at which a tap checks whether a region that is down listens again."""

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TapListener:
    """Listens in front of one region; passes each accepted connection to `handle`."""

    def __init__(
        self, host: str, region_address: tuple[str, int], handle: ConnectionHandler, *, limit_bytes: int
    ) -> None:
        self._host = host
        self._region_address = region_address
        self._handle = handle
        self._limit_bytes = limit_bytes
        # This socket never listens. It reserves the port while the listener is closed.
        self._reserved_socket = _bind(host, 0)
        self.port: int = self._reserved_socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._check_requested = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._listen()
        self._watching = asyncio.create_task(self._watch())

    def check_region(self) -> None:
        """Check soon whether the region still listens. Called after a connection with it ended or failed."""
        self._check_requested.set()

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        if self._server is not None:
            self._server.close()
        self._reserved_socket.close()

    async def _watch(self) -> None:
        while await self._check_requested.wait():
            self._check_requested.clear()
            if await self._region_listens():
                continue
            if self._server is not None:
                self._server.close()
            while not await self._region_listens():
                await asyncio.sleep(REGION_POLL_SECONDS)
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._handle, sock=_bind(self._host, self.port), limit=self._limit_bytes
        )

    async def _region_listens(self) -> bool:
        """Return whether the region accepts connections; a paused region does."""
        try:
            _, writer = await asyncio.open_connection(*self._region_address)
        except OSError:
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True


def _bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that may share its port with other sockets of this process."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
