"""One simulated TCP connection: at each end a program's transport and its kernel's endpoint, and a pipe each way.

    program ──write──▶ unsent ──window──▶ pipe (segments on the link) ──▶ incoming ──read──▶ program
    └─ SimulatedTransport ─┴── Endpoint ──┘                          └── Endpoint ─┴─ SimulatedTransport ─┘

It guarantees what TCP guarantees: bytes arrive in order, or the connection breaks. The seed decides the rest: how
bytes are cut into segments, how the reader receives them joined, and how many of the last bytes were sent before a
crash.

The endpoint (bytes not sent yet, bytes not read yet, connections not accepted yet) keeps working while the program is
paused. When the program is killed, the kernel closes or resets the connection; a machine without power sends nothing.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from emulator.broker.links.emulation import SINGLE_FRAMES
from emulator.simulation.link import NetworkSettings, Pipe, Segment, SegmentKind
from emulator.simulation.scheduler import LoopHandle, ProgramScheduler

READ_BYTES_MAX = 262_144  # asyncio's limit for one read
RESET = (errno.ECONNRESET, "Connection reset by peer")


class Kernel(Protocol):
    """The host of an endpoint."""

    settings: NetworkSettings
    endpoints: dict[Endpoint, None]

    @property
    def loop(self) -> ProgramScheduler: ...

    def accept(self, endpoint: Endpoint) -> None: ...


class StreamMark(Enum):
    END = "the peer sends no more"
    RESET = "the connection is broken"


class Endpoint:
    """The kernel's half of one side of a connection."""

    def __init__(self, host: Kernel, socket_name: tuple[str, int], peer_name: tuple[str, int]) -> None:
        self.socket_name, self.peer_name = socket_name, peer_name
        self.give_up_seconds = host.settings.connect_timeout_seconds
        self.dropped = False
        """The kernel has dropped this connection. It responds with a reset to further segments except FIN and RST."""
        self.connecting: asyncio.Future[None] | None = None
        """The future on which the connecting program waits until the connection is established."""
        self.pipe: Pipe
        """The pipe to the peer. The network sets it when both endpoints of the connection are known."""
        self.unsent: deque[bytes] = deque()
        """Bytes that the program wrote and that do not fit into the window yet."""
        self.unsent_bytes = 0
        self.incoming: deque[bytes | StreamMark] = deque()
        self.incoming_bytes = 0
        """Bytes received and not read yet: the peer's window is smaller by this amount."""
        self.is_reset = False
        """The kernel received a reset; the program may not have been notified yet."""
        self.transport = SimulatedTransport(self, host.loop)
        self._peer = f"{peer_name[0]}:{peer_name[1]}"
        self._host = host
        self._wake = self.transport.wake
        self._window_bytes = host.settings.receive_buffer_bytes
        self._confirmed = False
        """The handshake is complete at this end."""
        self._end_sent = False
        host.endpoints[self] = None

    # Called by the program's side.

    def room(self) -> int:
        """Return how many bytes fit into the window."""
        pipe = self.pipe
        receiver = pipe.receiver
        assert receiver is not None, "data is written only after the connection is established"
        occupied_bytes = pipe.in_flight_bytes + pipe.unacknowledged_bytes + receiver.incoming_bytes
        return self._window_bytes - occupied_bytes

    def flush(self) -> None:
        """Send as much of `unsent` as fits into the window. The pipe also calls it when an acknowledgement arrives."""
        if self.dropped:
            return
        room = self.room() if self.unsent else 0
        while self.unsent and room > 0:
            data = self.unsent.popleft()
            if len(data) > room:
                self.unsent.appendleft(data[room:])
                data = data[:room]
            room -= len(data)
            self.unsent_bytes -= len(data)
            self.pipe.send_data(data)
        self.transport.flushed()

    def take_incoming(self) -> bytes:
        """Return received bytes up to the next StreamMark: at most READ_BYTES_MAX and the rest of the last segment."""
        incoming = self.incoming
        data = incoming.popleft()
        assert not isinstance(data, StreamMark)
        if incoming:
            chunks, size = [data], len(data)
            while incoming and size < READ_BYTES_MAX:
                data = incoming[0]
                if isinstance(data, StreamMark):
                    break
                chunks.append(data)
                size += len(data)
                incoming.popleft()
            data = b"".join(chunks)
        self.incoming_bytes -= len(data)
        sender = self.pipe.receiver
        if sender is not None and sender.unsent:
            sender.pipe.window_opened()
        return data

    def send_end(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self.pipe.send(SegmentKind.FIN)

    def close_socket(self) -> None:
        """Close the socket as a kernel does: send FIN, or RST if the program has not read all that was received."""
        if self.dropped:
            return
        if self.incoming:
            self.pipe.send(SegmentKind.RST)
            self.pipe.abandon()
        else:
            self.send_end()
        self._drop()

    def abandon_connect(self) -> None:
        """Abandon the connection attempt, because it failed or the program no longer waits for it."""
        self.transport.end()
        if self._confirmed:
            self.close_socket()
        elif not self.dropped:
            self.pipe.abandon()
            self._drop()

    # Called by the network.

    def refuse(self) -> None:
        """Reset the connection: no program listens on the port."""
        self.transport.end()
        self.pipe.send(SegmentKind.RST)
        self.pipe.abandon()
        self._drop()

    def segment_arrived(self, segment: Segment) -> None:
        kind = segment.kind
        if kind is SegmentKind.DATA and not self.is_reset and not self.dropped:
            chunks = segment.chunks
            self.incoming.append(chunks[0] if len(chunks) == 1 else b"".join(chunks))
            self.incoming_bytes += segment.size_bytes
            self._wake()
        elif kind is SegmentKind.RST:
            self.reset()
        elif self.is_reset:
            return
        elif self.dropped:
            if kind is not SegmentKind.FIN:
                self.pipe.send_reset()
        elif kind is SegmentKind.FIN:
            self.incoming.append(StreamMark.END)
            self._wake()
        elif kind is SegmentKind.SYN_ACK:
            self._confirm()
            self.pipe.send(SegmentKind.ACK)
            if self.connecting is not None and not self.connecting.done():
                self.connecting.set_result(None)
        else:
            assert kind is SegmentKind.ACK, "a connection request never reaches an endpoint"
            self._confirm()
            self._host.accept(self)

    def reset(self) -> None:
        """Handle a reset that the peer's kernel or the network sent."""
        if self.dropped or self.is_reset:
            return
        self.is_reset = True
        self.pipe.abandon()
        refusal = ConnectionRefusedError(errno.ECONNREFUSED, f"{self._peer} refused the connection")
        if self._fail_connect(refusal):
            return
        if not self._confirmed:  # not accepted by the program yet
            self._drop()
        elif self.unsent:  # a writer gets the error at once
            self.transport.fail(ConnectionResetError(*RESET))
        else:
            self.incoming.append(StreamMark.RESET)
            self._wake()

    def time_out(self) -> None:
        """Break the connection: sent bytes were not acknowledged within `give_up_seconds`."""
        if self.dropped:
            return
        error = TimeoutError(errno.ETIMEDOUT, f"{self._peer} does not answer")
        if not self._fail_connect(error):
            self._drop()
            self.transport.fail(error)

    def die(self, *, silently: bool) -> None:
        """Handle the kill of the program, or the power-off of the machine (`silently`)."""
        if silently:
            self.pipe.truncate()
            self.pipe.abandon()
        elif self.incoming or self.pipe.link.draw_int(2):
            self.pipe.truncate()
            self.pipe.send(SegmentKind.RST)
            self.pipe.abandon()
        else:
            self.send_end()
        self.transport.end()
        self.unsent.clear()
        self._drop()

    def _confirm(self) -> None:
        self._confirmed = True
        self.give_up_seconds = self._host.settings.tcp_timeout_seconds

    def _fail_connect(self, error: OSError) -> bool:
        """Fail the connection attempt with `error`. Return False if no attempt is pending."""
        if self.connecting is None or self.connecting.done():
            return False
        self.transport.end()
        self._drop()
        self.connecting.set_exception(error)
        return True

    def _drop(self) -> None:
        self.dropped = True
        self.incoming.clear()
        self.incoming_bytes = 0
        self._host.endpoints.pop(self, None)


class SimulatedTransport(asyncio.Transport):
    """The program's half of one side of a connection."""

    def __init__(self, endpoint: Endpoint, loop: ProgramScheduler) -> None:
        super().__init__({"peername": endpoint.peer_name, "sockname": endpoint.socket_name})
        self._endpoint = endpoint
        self._loop = loop
        self._protocol = asyncio.Protocol()
        """The program's protocol; before `begin`, one that ignores all events."""
        self._high_water, self._low_water = 65_536, 16_384
        self._writing_paused = False
        self._eof_requested = False
        """The program called `write_eof`; FIN is sent when `unsent` is empty."""
        self._reading_paused = True
        self._read_scheduled = False
        self._read_handle = LoopHandle(self._read, (), loop, None)
        """The reused handle of `_read`, the most frequent callback of a kernel."""
        self._closing = False
        self._lost = False
        """`connection_lost` was called or scheduled, or must not be called any more."""

    def begin(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """Create the protocol of an established connection and start reading. Runs on the program's loop."""
        self._protocol = protocol = factory()
        assert isinstance(protocol, asyncio.Protocol), "the simulated network has no BufferedProtocol"
        protocol.connection_made(self)
        if not self._closing:
            self.resume_reading()
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol  # type: ignore[assignment]

    def end(self) -> None:
        """Stop notifying the program of events of the connection."""
        self._closing = self._lost = True

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._eof_requested:
            raise RuntimeError("Cannot call write() after write_eof()")
        endpoint = self._endpoint
        if not data or self._closing or endpoint.dropped:
            return
        if endpoint.is_reset:  # while reading is paused, the program learns of the reset by writing
            self.fail(ConnectionResetError(*RESET))
            return
        if not endpoint.unsent and len(data) <= endpoint.room():
            endpoint.pipe.send_data(bytes(data))
            return
        endpoint.unsent.append(bytes(data))
        endpoint.unsent_bytes += len(data)
        endpoint.flush()
        if endpoint.unsent_bytes > self._high_water and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._eof_requested and not self._closing:
            self._eof_requested = True
            self._endpoint.flush()

    def flushed(self) -> None:
        """Resume the writer, or send FIN or close if requested, after the kernel has sent what fits into the window."""
        endpoint = self._endpoint
        if self._writing_paused and endpoint.unsent_bytes <= self._low_water:
            self._writing_paused = False
            self._loop.call_soon(self._resume_writing)
        if not endpoint.unsent:
            if self._closing:
                self._lose(None)
            elif self._eof_requested:
                endpoint.send_end()

    def _resume_writing(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 65_536 if low is None else 4 * low
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == SINGLE_FRAMES:
            return self._endpoint.pipe.link.shape.bandwidth_bytes_per_second is not None
        return super().get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._endpoint.unsent_bytes

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if not self._closing:
            self._reading_paused = False
            if self._endpoint.incoming:
                self.wake()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def wake(self) -> None:
        """Schedule a read, unless reading is paused."""
        if not self._read_scheduled and not self._reading_paused:
            self._read_scheduled = True
            self._loop.ready(self._read_handle)

    def _read(self) -> None:
        self._read_scheduled = False
        incoming = self._endpoint.incoming
        if self._closing or self._reading_paused or not incoming:
            return
        first = incoming[0]
        if first is StreamMark.RESET:
            self.fail(ConnectionResetError(*RESET))
        elif first is StreamMark.END:
            incoming.popleft()
            if not self._protocol.eof_received():
                self.close()
        else:
            self._protocol.data_received(self._endpoint.take_incoming())
        if incoming:
            self.wake()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._endpoint.unsent:
                self._lose(None)

    def abort(self) -> None:
        self.fail(None)

    def is_closing(self) -> bool:
        return self._closing

    def fail(self, error: Exception | None) -> None:
        """End the connection at once and discard unsent bytes."""
        if not self._lost:
            self._closing = True
            self._endpoint.unsent.clear()
            self._endpoint.unsent_bytes = 0
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._connection_lost, error)

    def _connection_lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._endpoint.close_socket()
