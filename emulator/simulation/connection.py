"""One simulated TCP connection: two endpoints, and a pipe from each to the other.

    program ──write──▶ buffer ──window──▶ pipe (segments on the link) ──▶ incoming ──read──▶ program
    └────────── Endpoint ──────────┘                                      └────── Endpoint ──────┘

It guarantees what TCP guarantees: the bytes in order, or a broken connection. Everything else is drawn from the seed:
how bytes are cut into segments, how they are joined again for the reader, how many of the last ones were sent before a
crash.

The kernel half of an endpoint (bytes that left the buffer, bytes not read yet, connections not accepted yet) keeps
working while the program is paused. It dies with the machine, not with the program: the kernel of a killed program
resets the connection, a machine without power sends nothing.

    link up     segments arrive `latency + jitter` later, no faster than the bandwidth, never overtaking
    link held   segments wait at the far end of the link until it is healed
    link cut    segments are lost. The sender repeats them some time after the link heals, or gives up after the
                time-out. A lost acknowledgement looks the same to the sender, so a link cut one way breaks both
                directions in the end, although one of them delivers until then.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from emulator.simulation.loop import LoopHandle
from emulator.simulation.trace import ARRIVAL, HOST_STEP

if TYPE_CHECKING:
    from emulator.simulation.network import HostNetwork, NetworkSettings, SimulatedLink, SimulatedNetwork

READ_BYTES_MAX = 262_144
"""What asyncio reads at once."""


class SegmentKind(Enum):
    """What a segment is."""

    SYN = "connection request"
    SYN_ACK = "connection answer"
    ACK = "connection confirmation"
    DATA = "data"
    FIN = "end of data"
    RST = "reset"


class Segment:
    """Something on its way."""

    __slots__ = ("chunks", "dropped", "kind", "sent_at", "size_bytes")

    def __init__(self, kind: SegmentKind, sent_at: float, data: bytes = b"") -> None:
        self.kind = kind
        self.sent_at = sent_at
        self.chunks = [data] if data else []
        self.size_bytes = len(data)
        self.dropped = False
        """Will not arrive: its sender died before it got out."""

    def cut(self, keep_bytes: int) -> None:
        """Only the first bytes of it got out."""
        data = b"".join(self.chunks)[:keep_bytes]
        self.chunks, self.size_bytes = [data], len(data)


class Pipe:
    """One direction of a connection."""

    def __init__(
        self, network: SimulatedNetwork, sender: Endpoint, link: SimulatedLink, back: SimulatedLink
    ) -> None:
        self.sender = sender
        self.receiver: Endpoint | None = None
        """None until the connection request has arrived."""
        self.link = link
        self.back = back
        """The link that acknowledgements take."""
        self._network = network
        self.far_host = network.host(sender.peer_name[0])
        self._time = network.time
        self._trace = network.time.trace
        self._arrival_step = ARRIVAL + self.far_host.index * HOST_STEP
        self.in_flight: deque[Segment] = deque()
        """Sent and not yet arrived, oldest first."""
        self.in_flight_bytes = 0
        self.unacknowledged_bytes = 0
        """Arrived, but no acknowledgement could come back."""
        self._acknowledgement_missing = False
        self._overdue = 0
        """So many of `in_flight`, from the oldest on, should have arrived already."""
        self._last_arrival = 0.0
        self._trouble_since: float | None = None
        """Since when a lost segment is unacknowledged. None: there is none."""
        self._sends_again = True
        """Whether the sender still retransmits lost segments."""
        self._broken = False
        """Nothing arrives any more."""

    # Sending.

    def send(self, kind: SegmentKind) -> None:
        self._depart(Segment(kind, self._time.now))

    def send_data(self, data: bytes) -> None:
        """What is sent at one moment travels together, as far as it goes into one segment."""
        now = self._time.now
        if self.in_flight:
            last, size_bytes = self.in_flight[-1], len(data)
            if (
                last.sent_at == now
                and last.kind is SegmentKind.DATA
                and last.size_bytes + size_bytes <= self._network.settings.segment_bytes_max
                and not self.link.seconds_per_byte
            ):
                last.chunks.append(data)
                last.size_bytes += size_bytes
                self.in_flight_bytes += size_bytes
                return
        while data:
            size = self._network.draw_segment_bytes(len(data), self.link)
            self._depart(Segment(SegmentKind.DATA, now, data[:size]))
            data = data[size:]

    def _depart(self, segment: Segment) -> None:
        self.in_flight.append(segment)
        self.in_flight_bytes += segment.size_bytes
        arrival = self.link.draw_arrival(segment.sent_at, segment.size_bytes)
        if arrival > self._last_arrival:
            self._last_arrival = arrival
        self._time.at(self._last_arrival, self._arrive, segment)

    # Arriving.

    def _arrive(self, segment: Segment) -> None:
        if segment.dropped or self._broken:
            return
        if self._overdue or self.link.state != "up" or not self.far_host.machine_is_up:
            self._overdue += 1
            self._wait()
        else:
            self.in_flight.popleft()
            self._deliver(segment)

    def _deliver(self, segment: Segment) -> None:
        size_bytes = segment.size_bytes
        self.in_flight_bytes -= size_bytes
        now, trace = self._time.now, self._trace
        trace.steps += (now, self._arrival_step + size_bytes)
        if trace.detail:
            trace.arrival(now, self.far_host.name, segment.kind.value, segment.chunks)
        if self.receiver is None:
            self.far_host.requested(self)
        else:
            self.receiver.segment_arrived(segment)
        if self.back.state != "up":
            self.unacknowledged_bytes += size_bytes
            self._miss_acknowledgement()
        elif self.sender.unsent:
            self.window_opened()
        if self._trouble_since is not None:
            self._settle()

    def window_opened(self) -> None:
        """There is room again; the sender learns of it with the next acknowledgement."""
        if self.back.state != "up":
            self._miss_acknowledgement()
        else:
            self._time.at(self.back.draw_arrival(self._time.now, 0), self.sender.flush)

    # While a link is not up.

    @property
    def _is_blocked(self) -> bool:
        return self.link.state != "up" or not self.far_host.machine_is_up

    @property
    def _is_lossy(self) -> bool:
        return self.link.state == "cut" or not self.far_host.machine_is_up

    def _wait(self) -> None:
        if self._is_lossy and not self._sends_again:
            self._break()
            return
        self.link.waiting[self] = None
        self._settle()

    def _miss_acknowledgement(self) -> None:
        self._acknowledgement_missing = True
        self.back.waiting[self] = None
        self._settle()

    def _settle(self) -> None:
        """Begin or end the trouble according to the link. Lost segments are trouble until they have arrived; segments
        that only wait for a held link are not."""
        lost = self._overdue and (self._is_lossy or not self._is_blocked)
        unheard = self._acknowledgement_missing and self.back.state != "held"
        if not lost and not unheard:
            self._trouble_since = None
        elif self._trouble_since is None and (self._is_lossy or self.back.state == "cut"):
            self._trouble_since = self._time.now
            self._time.after(self.sender.patience_seconds, self._give_up, self._trouble_since)

    def _give_up(self, trouble_since: float) -> None:
        if self._trouble_since == trouble_since:
            self._break()
            self.sender.time_out()

    def link_changed(self) -> None:
        """A link that this pipe waits for has another state, or the machine at its end."""
        if self._overdue and not self._is_blocked:
            self._time.at(self._next_attempt(), self._try_again)
        if self._acknowledgement_missing and self.back.state == "up":
            self._time.at(self._next_attempt(), self._acknowledge)
        if self._overdue and self._is_lossy:
            self._wait()
        self._settle()

    def _next_attempt(self) -> float:
        """TCP repeats what it misses after pauses that double. Nothing was lost: at once."""
        if self._trouble_since is None:
            return self._time.now
        settings = self._network.settings
        attempt, pause = self._trouble_since, settings.resend_seconds
        while attempt <= self._time.now:
            attempt += pause
            pause = min(2 * pause, settings.resend_seconds_max)
        return attempt

    def _try_again(self) -> None:
        if self._is_blocked or self._broken:
            return
        self.link.waiting.pop(self, None)
        overdue, self._overdue = self._overdue, 0
        for _ in range(overdue):
            self._deliver(self.in_flight.popleft())

    def _acknowledge(self) -> None:
        if self.back.state != "up" or self._broken:
            return
        self.back.waiting.pop(self, None)
        self._acknowledgement_missing = False
        self.unacknowledged_bytes = 0
        self._settle()
        self.sender.flush()

    # The end.

    def abandon(self) -> None:
        """Stop retransmission: the sender is gone."""
        self._sends_again = False
        if self._overdue and self._is_lossy:
            self._break()

    def answer_with_reset(self) -> None:
        """Reset the connection once: the sender's kernel does not know it any more."""
        self.abandon()
        answer = Pipe(self._network, self.sender, self.link, self.back)
        answer.receiver = self.receiver
        answer._last_arrival = self._last_arrival
        answer.send(SegmentKind.RST)
        answer.abandon()

    def truncate(self) -> None:
        """The sender died: of what is on its way, a part drawn from the seed never got out."""
        keep = self._network.draw_int(self.in_flight_bytes + 1)
        got_out: deque[Segment] = deque()
        self.in_flight_bytes = 0
        for segment in self.in_flight:
            if segment.size_bytes > keep:
                segment.cut(keep)
                segment.dropped = keep == 0
            keep -= segment.size_bytes
            if not segment.dropped:
                got_out.append(segment)
                self.in_flight_bytes += segment.size_bytes
        self.in_flight = got_out
        self._overdue = min(self._overdue, len(got_out))

    def _break(self) -> None:
        self._broken = True
        self._trouble_since = None
        self.in_flight.clear()
        self.in_flight_bytes = self._overdue = 0
        self.link.waiting.pop(self, None)
        self.back.waiting.pop(self, None)


class StreamMark(Enum):
    """Markers among the received bytes."""

    END = "the peer sends no more"
    RESET = "the connection is broken"


class Endpoint(asyncio.Transport):
    """One side of a connection: what a program holds as its transport, and its kernel's half."""

    def __init__(
        self,
        network: SimulatedNetwork,
        host: HostNetwork,
        socket_name: tuple[str, int],
        peer_name: tuple[str, int],
    ) -> None:
        super().__init__()
        self.socket_name = socket_name
        self.peer_name = peer_name
        self.host = host
        self.loop = host.loop
        self.patience_seconds = network.settings.connect_timeout_seconds
        self.gone = False
        """The kernel knows this connection no more: whatever arrives is answered with a reset."""
        self.connecting: asyncio.Future[None] | None = None
        """The dialling program's wait for an answer."""
        self.confirmed = False
        """The handshake is complete at both ends."""
        self.pipe: Pipe
        """To the peer. Set by the network as soon as both ends of the path are known."""
        self._network = network
        self._settings: NetworkSettings = network.settings
        self._protocol: asyncio.Protocol | None = None
        # Outgoing.
        self.unsent: deque[bytes] = deque()
        """What the program wrote and the window does not take yet."""
        self._unsent_bytes = 0
        self._high_water, self._low_water = 65_536, 16_384
        self._writing_paused = False
        self._end_wanted = False
        """The program writes no more; the end is sent when the buffer is empty."""
        self._end_sent = False
        # Incoming.
        self._incoming: deque[bytes | StreamMark] = deque()
        self.incoming_bytes = 0
        """Received and not read yet: the peer's window is smaller by this amount."""
        self._reading_paused = True
        self._read_scheduled = False
        self._read_handle = LoopHandle(self._read, (), self.loop, None)
        """Made once: `_read` is called more often than anything else of a kernel."""
        # The end.
        self._is_reset = False
        """The kernel received a reset; the program may not know it yet."""
        self._closing = False
        self._lost = False
        """connection_lost was or will be called."""
        host.endpoints[self] = None

    def __repr__(self) -> str:
        return f"<Endpoint {_spell(self.socket_name)} - {_spell(self.peer_name)}>"

    # Being connected.

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """The program takes over. Runs on its loop."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if not self._closing:
            self.resume_reading()

    def accept(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """As `begin`, for the accepting side."""
        self.begin(factory())

    def forget_dialling(self) -> None:
        """The program does not wait for the connection any more."""
        self._closing = self._lost = True
        if self.confirmed:
            self._close_socket()
        elif not self.gone:
            self.pipe.abandon()
            self._leave()

    def refuse(self) -> None:
        """Reset the connection: no program listens on the port."""
        self._closing = self._lost = True
        self.pipe.send(SegmentKind.RST)
        self.pipe.abandon()
        self._leave()

    # Asked by the program: writing.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._end_wanted:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._closing or self.gone:
            return
        if self._is_reset:  # while reading is paused, only writing tells
            self._fail(_reset())
            return
        if not self.unsent and len(data) <= self._room():
            self.pipe.send_data(bytes(data))
            return
        self.unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self.flush()
        if self._unsent_bytes > self._high_water and not self._writing_paused:
            self._writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._end_wanted and not self._closing:
            self._end_wanted = True
            self.flush()

    def can_write_eof(self) -> bool:
        return True

    def flush(self) -> None:
        """Send as much of the buffer as the window takes. Also called when an acknowledgement came back."""
        if self.gone:
            return
        room = self._room() if self.unsent else 0
        while self.unsent and room > 0:
            data = self.unsent.popleft()
            if len(data) > room:
                self.unsent.appendleft(data[room:])
                data = data[:room]
            room -= len(data)
            self._unsent_bytes -= len(data)
            self.pipe.send_data(data)
        if self._writing_paused and self._unsent_bytes <= self._low_water:
            self._writing_paused = False
            self.loop.call_soon(self._resume_writing)
        if not self.unsent:
            if self._closing:
                self._lose(None)
            elif self._end_wanted:
                self._send_end()

    def _room(self) -> int:
        """So many bytes fit into the window."""
        pipe = self.pipe
        receiver = pipe.receiver
        assert receiver is not None, "data is only written once the connection is established"
        taken = pipe.in_flight_bytes + pipe.unacknowledged_bytes + receiver.incoming_bytes
        return self._settings.receive_buffer_bytes - taken

    def _send_end(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self.pipe.send(SegmentKind.FIN)

    def _resume_writing(self) -> None:
        if not self._lost and self._protocol is not None:
            self._protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 65_536 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    # Asked by the program: reading.

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if not self._closing:
            self._reading_paused = False
            self._schedule_read()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def _schedule_read(self) -> None:
        if self._incoming and not self._read_scheduled and not self._reading_paused:
            self._read_scheduled = True
            self.loop.ready(self._read_handle)

    def _read(self) -> None:
        self._read_scheduled = False
        if self._closing or self._reading_paused or not self._incoming:
            return
        assert self._protocol is not None
        first = self._incoming[0]
        if first is StreamMark.RESET:
            self._fail(_reset())
        elif first is StreamMark.END:
            self._incoming.popleft()
            if not self._protocol.eof_received():
                self.close()
        else:
            self._protocol.data_received(self._take_incoming())
        if self._incoming:
            self._schedule_read()

    def _take_incoming(self) -> bytes:
        incoming = self._incoming
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

    # Asked by the program: ending.

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.unsent:
                self._lose(None)

    def abort(self) -> None:
        self._fail(None)

    def is_closing(self) -> bool:
        return self._closing

    def _fail(self, error: Exception | None) -> None:
        if not self._lost:
            self._closing = True
            self.unsent.clear()
            self._unsent_bytes = 0
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.loop.call_soon(self._connection_lost, error)

    def _connection_lost(self, error: Exception | None) -> None:
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            self._close_socket()

    def _close_socket(self) -> None:
        """Close like a kernel: with an end of the stream, or a reset if received data was not read."""
        if self.gone:
            return
        if self._incoming:
            self.pipe.send(SegmentKind.RST)
            self.pipe.abandon()
        else:
            self._send_end()
        self._leave()

    def _leave(self) -> None:
        self.gone = True
        self._incoming.clear()
        self.incoming_bytes = 0
        self.host.endpoints.pop(self, None)

    # What the network tells.

    def segment_arrived(self, segment: Segment) -> None:
        kind = segment.kind
        if kind is SegmentKind.DATA and not self._is_reset and not self.gone:
            chunks = segment.chunks
            self._incoming.append(chunks[0] if len(chunks) == 1 else b"".join(chunks))
            self.incoming_bytes += segment.size_bytes
            if not self._read_scheduled and not self._reading_paused:
                self._read_scheduled = True
                self.loop.ready(self._read_handle)
        elif kind is SegmentKind.RST:
            self.reset()
        elif self._is_reset:
            return
        elif self.gone:
            if kind is not SegmentKind.FIN:
                self.pipe.answer_with_reset()
        elif kind is SegmentKind.FIN:
            self._incoming.append(StreamMark.END)
            self._schedule_read()
        elif kind is SegmentKind.SYN_ACK:
            self._confirm()
            self.pipe.send(SegmentKind.ACK)
            if self.connecting is not None and not self.connecting.done():
                self.connecting.set_result(None)
        else:
            assert kind is SegmentKind.ACK, "a connection request never reaches an endpoint"
            self._confirm()
            self.host.confirmed(self)

    def _confirm(self) -> None:
        self.confirmed = True
        self.patience_seconds = self._settings.tcp_timeout_seconds

    def reset(self) -> None:
        """Handle a reset from the peer's kernel or from the network between."""
        if self.gone or self._is_reset:
            return
        self._is_reset = True
        self.pipe.abandon()
        if self.connecting is not None and not self.connecting.done():
            refusal = f"{_spell(self.peer_name)} refused the connection"
            self._dialling_failed(ConnectionRefusedError(errno.ECONNREFUSED, refusal))
        elif not self.confirmed:  # not accepted by the program yet
            self._leave()
        elif self.unsent:  # a writer gets the error at once
            self._fail(_reset())
        else:
            self._incoming.append(StreamMark.RESET)
            self._schedule_read()

    def time_out(self) -> None:
        """What was sent was not acknowledged for too long."""
        if self.gone:
            return
        error = TimeoutError(errno.ETIMEDOUT, f"{_spell(self.peer_name)} does not answer")
        if self.connecting is not None and not self.connecting.done():
            self._dialling_failed(error)
        else:
            self._leave()
            self._fail(error)

    def _dialling_failed(self, error: OSError) -> None:
        assert self.connecting is not None
        self._closing = self._lost = True
        self._leave()
        self.connecting.set_exception(error)

    def die(self, *, silently: bool) -> None:
        """The program was killed, or with it the machine (`silently`)."""
        if silently:
            self.pipe.truncate()
            self.pipe.abandon()
        elif self._incoming or self._network.draw_int(2):
            self.pipe.truncate()
            self.pipe.send(SegmentKind.RST)
            self.pipe.abandon()
        else:
            self._send_end()
        self._closing = self._lost = True
        self.unsent.clear()
        self._leave()

    # What transports are asked besides.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer_name, "sockname": self.socket_name}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol), "the simulated network has no BufferedProtocol"
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def _spell(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
