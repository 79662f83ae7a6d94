"""Emulated links in real time: latency, bandwidth, stalls, flapping, hold, cut, resets and half-open connections.

Between two regions the connecting side emulates both directions of its connection; between clients and their region
the region does. So neither the kernel nor a proxy is needed. Bytes that this side sends wait before they reach the
socket; bytes that it receives wait before the protocol receives them. A change of one direction between two regions
must therefore be set in both.

    up         bytes arrive after `latency` and up to `jitter`, in order, no faster than the bandwidth
    stall      bytes wait, in order, for the length of each stall
    held       bytes wait, in order; so do connection attempts
    cut        bytes wait as in a sender's kernel, and so does the end of a connection; connection attempts fail.
               Open connections end by their keep-alive, or never if the link heals before that.
    flapping   the link is cut for a part of each period
    reset      open connections end at once on both sides
    frames     single commands, receipts or markers are dropped, delayed, repeated or swapped (`frame_faults`)
    half-open  open connections carry nothing any more, in either direction, and neither side learns of the other's end
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

from emulator.broker.links.delay_line import (
    ROUNDING_SECONDS,
    DelayLine,
    is_flapped_down,
    is_transparent,
    opens_at,
)
from emulator.broker.links.frame_faults import ArmedFaults
from emulator.broker.links.frame_gate import FrameGate, FrameReader, no_partial_frame
from emulator.config.link_shape import LinkShape
from emulator.model.frame_faults import BETWEEN_REGIONS, FrameFault, Sender
from emulator.net.network import Listener, Network, abort_with_reset

REQUEST_SECONDS = 1.5
"""Maximum time for the network's response to a connection request, without its round trip. A kernel repeats a lost
request after one second, then after two, four and so on. An attempt that ends after its first repetition, and is
followed by another one, repeats the request about every second. So a healed network connects within that time."""

__all__ = ["EmulatedLink", "EmulatedNetwork", "EmulatedProtocol", "LinkCut"]


SINGLE_FRAMES = "link_needs_single_frames"
"""Extra information of a transport: whether each message needs a frame of its own on the emulated or simulated link to
the other end, as between regions of Pulsar: its bandwidth is limited, or faults of single frames are armed."""


class EmulatedTransport(asyncio.Transport):
    """The transport of an emulated protocol: its writes pass through the emulated link."""

    def __init__(self, transport: asyncio.Transport, emulated: EmulatedProtocol) -> None:
        super().__init__()
        self._transport = transport
        self._emulated = emulated

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._emulated.send(bytes(data))

    def close(self) -> None:
        self._emulated.close()

    def abort(self) -> None:
        self._emulated.abort()

    def is_closing(self) -> bool:
        return self._emulated.is_detached or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._emulated.set_reading(paused=True)

    def resume_reading(self) -> None:
        self._emulated.set_reading(paused=False)

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == SINGLE_FRAMES and self._emulated.needs_single_frames:
            return True
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._emulated.outbound.waiting_bytes


class EmulatedProtocol(asyncio.Protocol):
    """Connects a real transport to a protocol through an emulated link.

    After the protocol closed or aborted the connection it is *detached*: `connection_lost` was called, and bytes that
    it sent before may still be on the way, as in the kernel of a real machine.
    """

    def __init__(self, protocol: asyncio.Protocol, link: EmulatedLink) -> None:
        self._protocol: asyncio.Protocol | None = protocol
        """None: detached."""
        self._link = link
        partial_frame = protocol.partial_frame if isinstance(protocol, FrameReader) else no_partial_frame
        self.inbound_gate = FrameGate(link.inbound_faults, self._deliver, partial_frame)
        self.outbound_gate = FrameGate(link.outbound_faults, self._put)
        self.inbound = DelayLine(link.inbound, link.random, self.inbound_gate.put, self._lose)
        self.outbound = DelayLine(link.outbound, link.random, self._send, self._end)
        self._transport: asyncio.Transport | None = None
        self._transport_paused = False
        """The socket's write buffer is full."""
        self._writing_paused = False
        """The protocol has paused writing."""
        self._reading_paused = False
        """The protocol does not read."""
        self.is_half_open = False
        self._ending = False
        """The protocol has closed or aborted the connection."""
        self._aborted = False

    @property
    def is_detached(self) -> bool:
        return self._protocol is None

    @property
    def needs_single_frames(self) -> bool:
        bandwidth = self.outbound.shape.bandwidth_bytes_per_second
        return bandwidth is not None or self._link.outbound_faults.is_active

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert self._protocol is not None
        self._protocol.connection_made(self._attach(transport))

    def adopt(
        self, transport: asyncio.Transport, *, reading_paused: bool, writing_paused: bool
    ) -> EmulatedTransport:
        """Emulate the link on a connection that is already open; return the transport for the protocol.
        `reading_paused`: the protocol has paused reading; `writing_paused`: the transport has paused the protocol."""
        transport.set_protocol(self)
        self._transport_paused = self._writing_paused = writing_paused
        if reading_paused:
            self._reading_paused = True
            self.inbound.pause()
        return self._attach(transport)

    def _attach(self, transport: asyncio.Transport) -> EmulatedTransport:
        self._transport = transport
        self._link.connections[self] = None
        return EmulatedTransport(transport, self)

    # Bytes.

    def data_received(self, data: bytes) -> None:
        self.inbound.put(data)
        if self.inbound.waiting_bytes and not self._reading_paused and self.inbound.is_full:
            self._update_reading()

    def _deliver(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.data_received(data)
        if not self.inbound.is_empty:
            self._update_reading()

    def send(self, data: bytes) -> None:
        """Send one or more whole frames."""
        self.outbound_gate.put(data)

    def _put(self, data: bytes) -> None:
        """Pass bytes to the outbound line; pause the protocol while the line is full."""
        self.outbound.put(data)
        if self.outbound.waiting_bytes and not self._writing_paused and self.outbound.is_full:
            self._update_writing()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        if self._writing_paused:
            self._update_writing()

    # Flow control.

    def pause_writing(self) -> None:
        self._transport_paused = True
        self._update_writing()

    def resume_writing(self) -> None:
        self._transport_paused = False
        self._update_writing()

    def _update_writing(self) -> None:
        paused = self._transport_paused or self.outbound.is_full
        if paused == self._writing_paused:
            return
        self._writing_paused = paused
        if self._protocol is not None:
            (self._protocol.pause_writing if paused else self._protocol.resume_writing)()

    def set_reading(self, *, paused: bool) -> None:
        """Pause or resume the delivery of bytes to the protocol."""
        self._reading_paused = paused
        (self.inbound.pause if paused else self.inbound.resume)()
        self._update_reading()

    def _update_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._reading_paused or self.inbound.is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # The end.

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._link.connections.pop(self, None)
        self.outbound.close()
        self.outbound_gate.close()
        if self._ending:
            self._lose(exc)
        else:
            self.inbound.put_end(exc)

    def _lose(self, failure: Exception | None) -> None:
        self.inbound_gate.close()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(failure)

    def close(self) -> None:
        """Close the connection in an orderly way: bytes on the way still arrive, before the end."""
        self._ending = True
        self._close_gates()
        self.inbound.close()
        if self._transport is None or self.is_half_open:
            self._detach()
        elif self._aborted or self.outbound.is_idle:
            self._end(None)
        else:
            self.outbound.put_end(None)
            self._detach()

    def abort(self) -> None:
        """End the connection at once on both sides, also over a cut link: the region that connected gives it up by its
        keep-alive, and the other one would notice by its own, longer one."""
        self.outbound.clear()
        self._aborted = True
        self.close()

    def _end(self, _: Exception | None) -> None:
        if self._transport is not None:
            (self._transport.abort if self._aborted else self._transport.close)()

    def _detach(self) -> None:
        if self._protocol is not None:
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
            self._protocol = None

    # Faults.

    def _close_gates(self) -> None:
        self.inbound_gate.close()
        self.outbound_gate.close()

    def set_shape(self, shape: LinkShape, *, outbound: bool) -> None:
        (self.outbound_gate if outbound else self.inbound_gate).faults_changed()
        (self.outbound if outbound else self.inbound).set_shape(shape)
        if outbound:
            self._update_writing()

    def reset(self) -> None:
        """End the connection at once on both sides, by a reset."""
        self._close_gates()
        self.inbound.close()
        self.outbound.close()
        if self._transport is not None:
            abort_with_reset(self._transport)
        if self._protocol is not None:
            asyncio.get_running_loop().call_soon(self._lose, ConnectionResetError("the link was reset"))

    def make_half_open(self) -> None:
        """Let the connection carry nothing any more, and neither side learn of the other's end."""
        self.is_half_open = True
        self._close_gates()
        self.inbound.close()
        self.outbound.close()


class EmulatedLink:
    """Both directions between this region and one peer, or all clients, for all their connections."""

    def __init__(
        self, outbound: LinkShape, inbound: LinkShape, random: Random, *, clients: bool = False
    ) -> None:
        """`clients`: the link is between a region and its clients."""
        self.outbound = outbound
        self.inbound = inbound
        self.random = random
        self._clients = clients
        self.outbound_faults = ArmedFaults(self._counted(outbound, Sender.CONNECTING))
        self.inbound_faults = ArmedFaults(self._counted(inbound, Sender.ACCEPTING))
        """The armed faults of frames that this side counts, in each direction."""
        self.connections: dict[EmulatedProtocol, None] = {}
        self.adopt_connections: Callable[[], None] = lambda: None
        """Called before each fault: lets open connections that are not emulated yet pass through the link."""
        self._changed = asyncio.Event()

    @property
    def is_transparent(self) -> bool:
        return is_transparent(self.outbound) and is_transparent(self.inbound)

    def set(self, *, outbound: bool, **changes: object) -> LinkShape:
        """Change fields of one direction at once, also for open connections; return the new shape."""
        shape = replace(self.outbound if outbound else self.inbound, **changes)  # type: ignore[arg-type]
        self.set_shape(shape, outbound=outbound)
        return shape

    def set_shape(self, shape: LinkShape, *, outbound: bool) -> None:
        """Set the shape of one direction at once, also for open connections."""
        self.adopt_connections()
        if outbound:
            self.outbound = shape
            self.outbound_faults.arm(self._counted(shape, Sender.CONNECTING))
        else:
            self.inbound = shape
            self.inbound_faults.arm(self._counted(shape, Sender.ACCEPTING))
        for connection in list(self.connections):
            connection.set_shape(shape, outbound=outbound)
        self._changed.set()
        self._changed = asyncio.Event()

    def note_frame_faults(self, note: Callable[[], object]) -> None:
        """Call `note` after each frame on which a fault acted."""
        self.outbound_faults.note_action = self.inbound_faults.note_action = note

    def _counted(self, shape: LinkShape, sender: Sender) -> list[FrameFault]:
        """Return the faults of frames that this side counts. Between regions each side has its own connections, and a
        command counts on those on which its sender has this role."""
        return [
            fault for fault in shape.frame_faults if self._clients or BETWEEN_REGIONS[fault.what] is sender
        ]

    def reset(self) -> None:
        """Reset all open connections."""
        self.adopt_connections()
        for connection in list(self.connections):
            connection.reset()

    def make_half_open(self) -> None:
        """Make all open connections half-open. `end_half_open` resets them."""
        self.adopt_connections()
        for connection in list(self.connections):
            connection.make_half_open()

    def end_half_open(self) -> None:
        """Reset the half-open connections, as a machine does that knows nothing of them."""
        for connection in list(self.connections):
            if connection.is_half_open:
                connection.reset()

    async def admit(self) -> None:
        """Wait until neither direction is held or stalled, and then for one round trip without jitter. LinkCut when a
        direction is cut."""
        loop = asyncio.get_running_loop()
        while True:
            shapes, now = (self.outbound, self.inbound), loop.time()
            if any(shape.state == "cut" or is_flapped_down(shape, now) for shape in shapes):
                raise LinkCut("the link is cut")
            if any(shape.state == "held" for shape in shapes):
                await self._changed.wait()
                continue
            opening = max(opens_at(shape, now) for shape in shapes)
            if opening <= now + ROUNDING_SECONDS:
                break
            await asyncio.sleep(opening - now)
        round_trip_ms = self.outbound.latency_ms + self.inbound.latency_ms
        if round_trip_ms:
            await asyncio.sleep(round_trip_ms / 1000)


class LinkCut(OSError):
    """Error of a connection attempt while the link is cut."""


def _negligible(host: str) -> float:
    """Return the round trip of a network that is fast compared with REQUEST_SECONDS, as every real one is."""
    return 0.0


class EmulatedNetwork:
    """A Network whose connections to peers are emulated."""

    def __init__(
        self,
        network: Network,
        links: dict[tuple[str, int], EmulatedLink],
        round_trip_seconds: Callable[[str], float] = _negligible,
    ) -> None:
        """`round_trip_seconds` returns the round trip to a host over `network`, without the emulated latency."""
        self._network = network
        self._links = links
        """(host, port) of a peer -> the link to it."""
        self._round_trip_seconds = round_trip_seconds

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        return await self._network.listen(protocol_factory, host, port)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        link = self._links[host, port]
        await link.admit()
        async with asyncio.timeout(REQUEST_SECONDS + self._round_trip_seconds(host)):
            return await self._network.connect(lambda: EmulatedProtocol(protocol_factory(), link), host, port)
