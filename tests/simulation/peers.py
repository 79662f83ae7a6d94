"""Programs for tests of the network: they record every callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator.config.link_shape import LinkShape
from emulator.simulation.connection import SimulatedTransport
from emulator.simulation.host import Host
from emulator.simulation.link import NetworkSettings
from emulator.simulation.simulation import Simulation

EXACT = NetworkSettings(
    between_locations=LinkShape(latency_ms=50.0),
    within_location=LinkShape(),
    odd_cut_probability=0.0,
    tcp_timeout_seconds=20.0,
    connect_timeout_seconds=5.0,
)
"""A link without randomness: bytes arrive 50 ms later."""


class Peer(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, on_data: Callable[[Peer, bytes], None] | None = None) -> None:
        self.transport: SimulatedTransport
        self.received = b""
        self.times: list[float] = []
        """The times at which bytes were received."""
        self.callbacks: list[str] = []
        """Every callback but data, in order, with the names of exceptions."""
        self.lost_at: float | None = None
        self._on_data = on_data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport
        self.callbacks.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.times.append(asyncio.get_running_loop().time())
        if self._on_data is not None:
            self._on_data(self, data)

    def eof_received(self) -> None:
        self.callbacks.append("eof")

    def pause_writing(self) -> None:
        self.callbacks.append("pause")

    def resume_writing(self) -> None:
        self.callbacks.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.callbacks.append("lost" if exc is None else type(exc).__name__)
        self.lost_at = asyncio.get_running_loop().time()


class Server:
    """Listens on a port of a host, and keeps the connections it accepted."""

    def __init__(self, host: Host, port: int = 6650) -> None:
        self.accepted: list[Peer] = []
        self.on_data: Callable[[Peer, bytes], None] | None = None
        self._host = host
        self._port = port

    async def listen(self) -> None:
        self.listener = await self._host.network.listen(self._accept, "", self._port)

    def _accept(self) -> Peer:
        peer = Peer(lambda peer, data: self.on_data(peer, data) if self.on_data else None)
        self.accepted.append(peer)
        return peer


async def connected(
    simulation: Simulation, client: str = "us", server: str = "eu"
) -> tuple[Peer, Peer, Server]:
    """Connect one host to another; return the client's end, the server's end, and the server."""
    listening = Server(simulation.host(server))
    await simulation.host(server).ask(listening.listen())
    mine = await dial(simulation, client, server)
    await simulation.until(lambda: bool(listening.accepted))
    return mine, listening.accepted[-1], listening


async def dial(simulation: Simulation, client: str, server: str, port: int = 6650) -> Peer:
    host = simulation.host(client)
    _, peer = await host.ask(host.network.connect(Peer, server, port))
    assert isinstance(peer, Peer)
    return peer
