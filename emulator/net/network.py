"""The network interface of a broker or client: `listen` and `connect`.

A broker or client receives its Network when it is started. `SocketNetwork` uses sockets. The simulated one transfers
bytes over the topology's links in virtual time. `broker.links.emulation` wraps either with a link's latency and state.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Protocol


class Listener(Protocol):
    """A port that accepts connections."""

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Accept no more connections. Open connections stay open."""
        ...


class Network(Protocol):
    """A source of byte streams with the guarantees of TCP: all bytes arrive in order, or the connection breaks."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        """Accept connections on `host:port` (0 picks a free port). Raises OSError if the address is not available."""
        ...

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. Raises OSError when it is refused or the host is unreachable. Callers set a deadline."""
        ...


def own_address(transport: asyncio.BaseTransport) -> str:
    """Return the local address of a connection; empty: it has none."""
    own = transport.get_extra_info("sockname")
    return str(own[0]) if isinstance(own, tuple) else ""


def peer_host(transport: asyncio.BaseTransport) -> str:
    """Return the address of the other side of a connection, without its port; empty: it has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def abort_with_reset(transport: asyncio.Transport) -> None:
    """End a connection at once by a TCP reset, with which the other side loses it, too."""
    own = transport.get_extra_info("socket")
    if own is not None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class SocketListener:
    """A listening socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]
        """Number of the port; also valid after `close`."""

    def close(self) -> None:
        self._server.close()


class SocketNetwork:
    """Real TCP sockets of the running event loop."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        loop = asyncio.get_running_loop()
        return SocketListener(await loop.create_server(protocol_factory, host, port, backlog=512))

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await asyncio.get_running_loop().create_connection(protocol_factory, host, port)
