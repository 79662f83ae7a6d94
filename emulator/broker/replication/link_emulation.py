"""Emulated links between regions in real time: latency, jitter, bandwidth, hold and cut.

The connecting side emulates both directions of its connection, so that neither the kernel nor a proxy is needed. Bytes
it sends wait before they reach the socket; bytes it receives wait before the protocol receives them. A cut or a hold of
one direction must therefore be set in both regions.

    up     bytes arrive after `latency` and up to `jitter`, in order, no faster than the bandwidth
    held   bytes wait, in order; so do connection attempts
    cut    bytes wait as in a sender's kernel; connection attempts fail. Open connections end by their keep-alive,
           or never if the link heals before that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random

from emulator.config.region import LinkShape
from emulator.net.network import Listener, Network

TIMER_GRAIN_SECONDS = 0.0005
"""The system waits in whole milliseconds, so a timer is late by half a millisecond on average. Timers are set that much
earlier, so that the mean delay is the declared one."""
LINE_BYTES_MAX = 16_777_216
"""Number of outbound bytes in flight above which the protocol is paused. Inbound bytes have no limit."""


class DelayLine:
    """One direction of one connection: delays the bytes that it receives."""

    def __init__(self, shape: LinkShape, random: Random, deliver: Callable[[bytes], None]) -> None:
        self.shape = shape
        self._random = random
        self._deliver = deliver
        self._waiting: deque[tuple[float, bytes]] = deque()
        """(earliest loop time of arrival, bytes); times never decrease."""
        self._free_at = 0.0
        """Loop time at which the last byte has left the sender at the set bandwidth."""
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_bytes = 0
        self._closed = False

    @property
    def _is_transparent(self) -> bool:
        shape = self.shape
        unlimited = shape.bandwidth_bytes_per_second is None
        return shape.state == "up" and unlimited and not shape.latency_ms and not shape.jitter_ms

    def put(self, data: bytes) -> None:
        if self._closed:
            return
        if self._is_transparent and not self._waiting:
            self._deliver(data)
            return
        self._waiting.append((self._arrival_time(len(data)), data))
        self.waiting_bytes += len(data)
        self._schedule()

    def _arrival_time(self, size_bytes: int) -> float:
        shape, now = self.shape, asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now)
        if shape.bandwidth_bytes_per_second:
            self._free_at += size_bytes / shape.bandwidth_bytes_per_second
        delay_ms = shape.latency_ms + (self._random.uniform(0, shape.jitter_ms) if shape.jitter_ms else 0)
        arrival = self._free_at + delay_ms / 1000
        return max(arrival, self._waiting[-1][0]) if self._waiting else arrival

    def _schedule(self) -> None:
        if self._timer is None and self._waiting and self.shape.state == "up" and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._waiting[0][0] - TIMER_GRAIN_SECONDS, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time() + TIMER_GRAIN_SECONDS
        arrived: list[bytes] = []
        while self._waiting and self.shape.state == "up" and self._waiting[0][0] <= now:
            arrived.append(self._waiting.popleft()[1])
        if arrived:
            data = b"".join(arrived)
            self.waiting_bytes -= len(data)
            self._deliver(data)
        self._schedule()

    def set_shape(self, shape: LinkShape) -> None:
        """Change the shape. Waiting bytes keep their time of arrival; once it has passed they arrive as soon as the
        line is up."""
        self.shape = shape
        if shape.state != "up" and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule()

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class EmulatedTransport(asyncio.Transport):
    """The transport of the connecting protocol: its writes pass through the emulated link."""

    def __init__(self, transport: asyncio.Transport, emulated: EmulatedProtocol) -> None:
        super().__init__()
        self._transport = transport
        self._emulated = emulated

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._emulated.send(bytes(data))

    def close(self) -> None:
        self._emulated.close()
        self._transport.close()

    def abort(self) -> None:
        self._emulated.close()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._emulated.outbound.waiting_bytes


class EmulatedProtocol(asyncio.Protocol):
    """Connects a real transport to the connecting protocol through an emulated link."""

    def __init__(self, protocol: asyncio.Protocol, link: EmulatedLink) -> None:
        self._protocol = protocol
        self._link = link
        self.inbound = DelayLine(link.inbound, link.random, self._deliver)
        self.outbound = DelayLine(link.outbound, link.random, self._send)
        self._transport: asyncio.Transport | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._link.connections[self] = None
        self._protocol.connection_made(EmulatedTransport(transport, self))

    def data_received(self, data: bytes) -> None:
        self.inbound.put(data)

    def _deliver(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def send(self, data: bytes) -> None:
        """Pass bytes to the outbound line; pause the protocol when more than `LINE_BYTES_MAX` are in flight."""
        self.outbound.put(data)
        if not self._paused and self.outbound.waiting_bytes > LINE_BYTES_MAX:
            self.pause_writing()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        if self._paused and self.outbound.waiting_bytes < LINE_BYTES_MAX // 2:
            self.resume_writing()

    def pause_writing(self) -> None:
        self._paused = True
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._paused = False
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()
        self._protocol.connection_lost(exc)

    def close(self) -> None:
        self._link.connections.pop(self, None)
        self.inbound.close()
        self.outbound.close()


class EmulatedLink:
    """Both directions between this region and one peer, for all their connections."""

    def __init__(self, outbound: LinkShape, inbound: LinkShape, random: Random) -> None:
        self.outbound = outbound
        self.inbound = inbound
        self.random = random
        self.connections: dict[EmulatedProtocol, None] = {}
        self._changed = asyncio.Event()

    def set(self, *, outbound: bool, **changes: object) -> LinkShape:
        """Change fields of one direction at once, also for open connections; return the new shape."""
        current = self.outbound if outbound else self.inbound
        shape = replace(current, **changes)  # type: ignore[arg-type]
        if outbound:
            self.outbound = shape
        else:
            self.inbound = shape
        for connection in list(self.connections):
            (connection.outbound if outbound else connection.inbound).set_shape(shape)
        self._changed.set()
        self._changed = asyncio.Event()
        return shape

    async def admit(self) -> None:
        """Wait until neither direction is held, and then for one round trip without jitter. LinkCut when a direction is
        cut."""
        while "held" in (self.outbound.state, self.inbound.state):
            await self._changed.wait()
        if "cut" in (self.outbound.state, self.inbound.state):
            raise LinkCut("the link is cut")
        round_trip_ms = self.outbound.latency_ms + self.inbound.latency_ms
        if round_trip_ms:
            await asyncio.sleep(round_trip_ms / 1000)


class LinkCut(OSError):
    """Error of a connection attempt while the link is cut."""


class EmulatedNetwork:
    """A Network whose connections to peers are emulated."""

    def __init__(self, network: Network, links: dict[tuple[str, int], EmulatedLink]) -> None:
        self._network = network
        self._links = links
        """(host, port) of a peer -> the link to it."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        return await self._network.listen(protocol_factory, host, port)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        link = self._links[host, port]
        await link.admit()
        return await self._network.connect(lambda: EmulatedProtocol(protocol_factory(), link), host, port)
