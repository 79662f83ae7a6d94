"""A link of the simulated network, and the pipes over the link: each pipe is one direction of a TCP connection.

link up     segments arrive in order after latency and jitter, no faster than the bandwidth
link held   segments wait at the far end of the link, without a time-out, until it is healed
link cut    segments are lost. The sender retransmits them some time after the link heals, or gives up after
            the time-out. A lost acknowledgement looks the same to the sender, so a one-way cut finally breaks
            the connection, although the other direction delivers segments until then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Protocol

from emulator.config.link_shape import LinkShape
from emulator.simulation.trace import ARRIVAL, HOST_STEP
from emulator.simulation.virtual_time import VirtualTime

SLOW_SEGMENT_BYTES = 1_460
SLOW_SEGMENT_SECONDS = 0.05
"""Maximum transmission time of a segment on a link with limited bandwidth, unless it has at most SLOW_SEGMENT_BYTES.
With longer segments no bytes would arrive for seconds, and each side would assume that the other one is dead."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The settings that all links share."""

    between_locations: LinkShape = LinkShape(latency_ms=20.0, jitter_ms=1.0)
    """Default shape of links between two locations."""
    within_location: LinkShape = LinkShape(latency_ms=0.1, jitter_ms=0.1)
    tcp_timeout_seconds: float = 30.0
    """A sender breaks the connection when its bytes are not acknowledged within this time."""
    connect_timeout_seconds: float = 10.0
    """Limit for connection requests, in addition to the callers' own deadlines."""
    resend_seconds: float = 0.2
    """Pause before the first retransmission; it doubles with each further one, up to `resend_seconds_max`."""
    resend_seconds_max: float = 5.0
    segment_bytes_max: int = 65_536
    odd_cut_probability: float = 0.05
    """Probability that a segment ends at a byte drawn from the seed, instead of at the end of the written data."""
    receive_buffer_bytes: int = 262_144
    """Window of a connection: the maximum of its bytes that are in flight or unread. Further bytes wait at the
    sender."""


class SimulatedLink:
    """The directed path from one location to another, or within a location."""

    def __init__(
        self, source: str, target: str, shape: LinkShape, settings: NetworkSettings, random: Random
    ) -> None:
        self.source = source
        self.target = target
        self.settings = settings
        self.waiting: dict[Pipe, None] = {}
        """Pipes that wait, with segments or acknowledgements, until this link and the machine at its far end are up."""
        self._draw = random.random
        self._free_at = 0.0
        """Virtual time at which the link has sent all bytes so far, at its bandwidth."""
        self.shape = shape

    @property
    def shape(self) -> LinkShape:
        return self._shape

    @shape.setter
    def shape(self, shape: LinkShape) -> None:
        self._shape = shape
        self.state = shape.state
        self._latency = shape.latency_ms / 1000
        self._jitter = shape.jitter_ms / 1000
        bandwidth = shape.bandwidth_bytes_per_second
        self.seconds_per_byte = 1 / bandwidth if bandwidth else 0.0
        self.changed()

    def set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.changed()

    def changed(self) -> None:
        for pipe in list(self.waiting):
            pipe.link_changed()

    def draw_arrival(self, now: float, size_bytes: int) -> float:
        """Draw the time at which a segment that is sent now arrives, if the link is up then."""
        if self.seconds_per_byte and size_bytes:
            now = self._free_at = max(self._free_at, now) + size_bytes * self.seconds_per_byte
        if self._jitter:
            return now + self._latency + self._jitter * self._draw()
        return now + self._latency

    def draw_segment_bytes(self, size_bytes: int) -> int:
        """Draw how many of `size_bytes` bytes go into one segment."""
        if size_bytes > self.settings.segment_bytes_max:
            size_bytes = self.settings.segment_bytes_max
        if self.seconds_per_byte:
            slow = max(SLOW_SEGMENT_BYTES, int(SLOW_SEGMENT_SECONDS / self.seconds_per_byte))
            size_bytes = min(size_bytes, slow)
        if size_bytes > 1 and self._draw() < self.settings.odd_cut_probability:
            return 1 + int(self._draw() * (size_bytes - 1))
        return size_bytes

    def draw_int(self, choices: int) -> int:
        """Draw an integer from 0 to `choices - 1`."""
        return int(self._draw() * choices)


class SegmentKind(Enum):
    """Kinds of TCP segments."""

    SYN = "connection request"
    SYN_ACK = "connection answer"
    ACK = "connection confirmation"
    DATA = "data"
    FIN = "end of data"
    RST = "reset"


class Segment:
    """One TCP segment that was sent."""

    __slots__ = ("chunks", "dropped", "kind", "sent_at", "size_bytes")

    def __init__(self, kind: SegmentKind, sent_at: float, data: bytes = b"") -> None:
        self.kind = kind
        self.sent_at = sent_at
        self.chunks = [data] if data else []
        self.size_bytes = len(data)
        self.dropped = False
        """The segment will not arrive: the sender died before it was really sent."""

    def cut(self, keep_bytes: int) -> None:
        """Keep only the first `keep_bytes` bytes; the rest was not sent."""
        data = b"".join(self.chunks)[:keep_bytes]
        self.chunks, self.size_bytes = [data], len(data)


class Machine(Protocol):
    """The host at the far end of a pipe."""

    name: str
    index: int
    machine_is_up: bool

    def handle_syn(self, pipe: Pipe) -> None:
        """Handle a connection request."""
        ...


class PipeEnd(Protocol):
    """One side of a connection, as its pipes see it."""

    unsent: deque[bytes]
    """Written bytes that do not fit into the window yet."""
    incoming_bytes: int
    """Bytes received and not read yet: the peer's window is smaller by this amount."""
    give_up_seconds: float
    """Time after which the connection breaks if sent bytes are not acknowledged."""
    pipe: Pipe

    def flush(self) -> None:
        """Send as many bytes as fit into the window."""
        ...

    def segment_arrived(self, segment: Segment) -> None: ...

    def time_out(self) -> None: ...


class Pipe:
    """One direction of a connection."""

    def __init__(
        self, time: VirtualTime, sender: PipeEnd, far_host: Machine, link: SimulatedLink, back: SimulatedLink
    ) -> None:
        self.sender = sender
        self.receiver: PipeEnd | None = None
        """None until the connection request has arrived."""
        self.link = link
        self.back = back
        """The reverse link, which carries acknowledgements."""
        self.far_host = far_host
        self._time = time
        self._trace = time.trace
        self._arrival_step = ARRIVAL + self.far_host.index * HOST_STEP
        self.in_flight: deque[Segment] = deque()
        """Segments that were sent and have not arrived, oldest first."""
        self.in_flight_bytes = 0
        self.unacknowledged_bytes = 0
        """Bytes that arrived, but whose acknowledgement was not delivered because the reverse link is not up."""
        self._acknowledgement_missing = False
        self._overdue = 0
        """Number of the oldest segments of `in_flight` whose arrival time has passed."""
        self._last_arrival = 0.0
        self._loss_since: float | None = None
        """Virtual time since which lost segments or acknowledgements are missing. None: none is missing."""
        self._retransmits = True
        """Whether the sender still retransmits lost segments; False once its kernel has dropped the connection."""
        self._broken = False
        """No further segment is delivered."""

    # Sending.

    def send(self, kind: SegmentKind) -> None:
        self._depart(Segment(kind, self._time.now))

    def send_data(self, data: bytes) -> None:
        """Send bytes. Without a bandwidth limit, bytes sent at the same virtual time share a segment if they fit."""
        now = self._time.now
        if self.in_flight:
            last, size_bytes = self.in_flight[-1], len(data)
            if (
                last.sent_at == now
                and last.kind is SegmentKind.DATA
                and last.size_bytes + size_bytes <= self.link.settings.segment_bytes_max
                and not self.link.seconds_per_byte
            ):
                last.chunks.append(data)
                last.size_bytes += size_bytes
                self.in_flight_bytes += size_bytes
                return
        size_bytes = len(data)
        while (size := self.link.draw_segment_bytes(size_bytes)) < size_bytes:
            self._depart(Segment(SegmentKind.DATA, now, data[:size]))
            data = data[size:]
            size_bytes -= size
        self._depart(Segment(SegmentKind.DATA, now, data))

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
            self.far_host.handle_syn(self)
        else:
            self.receiver.segment_arrived(segment)
        if self.back.state != "up":
            self.unacknowledged_bytes += size_bytes
            self._lose_acknowledgement()
        elif self.sender.unsent:
            self.window_opened()
        if self._loss_since is not None:
            self._update_give_up_timer()

    def window_opened(self) -> None:
        """Notify the sender, by an acknowledgement, that the receiver's window has room again."""
        if self.back.state != "up":
            self._lose_acknowledgement()
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
        if self._is_lossy and not self._retransmits:
            self._break()
            return
        self.link.waiting[self] = None
        self._update_give_up_timer()

    def _lose_acknowledgement(self) -> None:
        self._acknowledgement_missing = True
        self.back.waiting[self] = None
        self._update_give_up_timer()

    def _update_give_up_timer(self) -> None:
        """Start or clear the give-up timer, which runs while segments or acknowledgements are lost or not yet
        retransmitted. Segments that only wait for a held link do not count."""
        lost = self._overdue and (self._is_lossy or not self._is_blocked)
        unheard = self._acknowledgement_missing and self.back.state != "held"
        if not lost and not unheard:
            self._loss_since = None
        elif self._loss_since is None and (self._is_lossy or self.back.state == "cut"):
            self._loss_since = self._time.now
            self._time.after(self.sender.give_up_seconds, self._give_up, self._loss_since)

    def _give_up(self, loss_since: float) -> None:
        if self._loss_since == loss_since:
            self._break()
            self.sender.time_out()

    def link_changed(self) -> None:
        """Schedule retransmissions, or break, after a link of this pipe or the machine at its far end changed state."""
        if self._overdue and not self._is_blocked:
            self._time.at(self._next_attempt(), self._retransmit)
        if self._acknowledgement_missing and self.back.state == "up":
            self._time.at(self._next_attempt(), self._acknowledge)
        if self._overdue and self._is_lossy:
            self._wait()
        self._update_give_up_timer()

    def _next_attempt(self) -> float:
        """Return the time of the next retransmission, after pauses that double; now if no segment was lost."""
        if self._loss_since is None:
            return self._time.now
        settings = self.link.settings
        attempt, pause = self._loss_since, settings.resend_seconds
        while attempt <= self._time.now:
            attempt += pause
            pause = min(2 * pause, settings.resend_seconds_max)
        return attempt

    def _retransmit(self) -> None:
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
        self._update_give_up_timer()
        self.sender.flush()

    # The end.

    def abandon(self) -> None:
        """Stop retransmission, because the sender's kernel drops the connection."""
        self._retransmits = False
        if self._overdue and self._is_lossy:
            self._break()

    def send_reset(self) -> None:
        """Send one reset on a new pipe, because the sender's kernel has dropped the connection."""
        self.abandon()
        reset_pipe = Pipe(self._time, self.sender, self.far_host, self.link, self.back)
        reset_pipe.receiver = self.receiver
        reset_pipe._last_arrival = self._last_arrival
        reset_pipe.send(SegmentKind.RST)
        reset_pipe.abandon()

    def truncate(self) -> None:
        """Drop a tail of the bytes in flight, of a length drawn from the seed: the sender died before it sent them."""
        keep = self.link.draw_int(self.in_flight_bytes + 1)
        sent: deque[Segment] = deque()
        self.in_flight_bytes = 0
        for segment in self.in_flight:
            if segment.size_bytes > keep:
                segment.cut(keep)
                segment.dropped = keep == 0
            keep -= segment.size_bytes
            if not segment.dropped:
                sent.append(segment)
                self.in_flight_bytes += segment.size_bytes
        self.in_flight = sent
        self._overdue = min(self._overdue, len(sent))

    def _break(self) -> None:
        self._broken = True
        self._loss_since = None
        self.in_flight.clear()
        self.in_flight_bytes = self._overdue = 0
        self.link.waiting.pop(self, None)
        self.back.waiting.pop(self, None)
