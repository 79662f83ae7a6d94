"""One direction of an emulated connection: a queue that delivers bytes as the shape of the link allows.

A shape blocks the line while it is held or cut, in each stall, and in the down part of each flapping period. Bytes wait
meanwhile, in order. Stalls and flapping follow the machine's monotonic clock, so that they coincide in all connections
of a link without any message between its ends.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from emulator.config.link_shape import LinkShape

TIMER_GRAIN_SECONDS = 0.0005
"""The system waits in whole milliseconds, so a timer is late by half a millisecond on average. Timers are set that much
earlier, so that the mean delay is the declared one."""
ROUNDING_SECONDS = 1e-6
"""More than the rounding error of a loop time: a timer that is early by less finds its line open."""
LINE_BYTES_MAX = 16_777_216
"""Maximum of waiting bytes after which the sender is paused, without a bandwidth limit."""
SLOW_LINE_BYTES_MIN = 65_536
"""Least such maximum with a bandwidth limit; otherwise it is what the line transmits in one second."""


SEGMENT_BYTES_MIN = 1_460
SEGMENT_SECONDS = 0.05


def is_transparent(shape: LinkShape) -> bool:
    """Whether bytes pass a link of this shape at once and unchanged."""
    return shape == LinkShape()


def delays_nothing(shape: LinkShape) -> bool:
    """Whether bytes pass a line of this shape at once; faults of frames are not the line's."""
    return is_transparent(replace(shape, frame_faults=()))


def is_flapped_down(shape: LinkShape, now_s: float) -> bool:
    """Whether `now_s`, a time of the event loop, lies in the down part of a flapping period."""
    period_s = shape.flap_period_ms / 1000
    return bool(period_s) and now_s % period_s >= period_s * shape.flap_up


def opens_at(shape: LinkShape, now_s: float) -> float:
    """Return the earliest loop time from `now_s` on at which bytes may arrive; infinity: not before a change of the
    shape."""
    if shape.state != "up":
        return math.inf
    opening_s = now_s
    if is_flapped_down(shape, now_s):
        period_s = shape.flap_period_ms / 1000
        opening_s = (now_s // period_s + 1) * period_s
    if shape.stall_ms:
        every_s = shape.stall_every_ms / 1000
        opening_s = max(opening_s, opening_s // every_s * every_s + shape.stall_ms / 1000)
    return opening_s


def waiting_bytes_max(shape: LinkShape) -> int:
    """Return the number of waiting bytes above which the sender is paused, as by the buffers of a real connection."""
    if shape.bandwidth_bytes_per_second is None:
        return LINE_BYTES_MAX
    return min(LINE_BYTES_MAX, max(SLOW_LINE_BYTES_MIN, shape.bandwidth_bytes_per_second))


def _segments(data: bytes, shape: LinkShape) -> Iterable[bytes]:
    """Split bytes so that none takes longer than SEGMENT_SECONDS on a slow link, unless it has SEGMENT_BYTES_MIN.
    Otherwise no bytes would arrive for seconds, and each side would assume that the other one is dead."""
    if shape.bandwidth_bytes_per_second is None:
        return (data,)
    size = max(SEGMENT_BYTES_MIN, int(shape.bandwidth_bytes_per_second * SEGMENT_SECONDS))
    return (data[start : start + size] for start in range(0, len(data), size))


class DelayLine:
    """One direction of one connection: delays the bytes that it receives."""

    def __init__(
        self,
        shape: LinkShape,
        random: Random,
        deliver: Callable[[bytes], None],
        deliver_end: Callable[[Exception | None], None],
    ) -> None:
        self._random = random
        self._deliver = deliver
        self._deliver_end = deliver_end
        self._waiting: deque[tuple[float, bytes]] = deque()
        """(earliest loop time of arrival, bytes); times never decrease."""
        self._end: tuple[float, Exception | None] | None = None
        """(earliest loop time, error) of the connection's end, which arrives after all bytes; None: it is open."""
        self._free_at = 0.0
        """Loop time at which the last byte has left the sender at the set bandwidth."""
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_bytes = 0
        self._paused = False
        """The receiver does not read."""
        self._closed = False
        self.shape = shape
        self._transparent = delays_nothing(shape)
        self._bytes_max = waiting_bytes_max(shape)

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether bytes would arrive at once."""
        return self._transparent and not self._waiting

    @property
    def is_full(self) -> bool:
        """Whether the sender must be paused."""
        return self.waiting_bytes > self._bytes_max

    def put(self, data: bytes) -> None:
        """Deliver bytes after all earlier ones, at once on a transparent line."""
        if self._closed:
            return
        if self._transparent and not self._waiting and not self._paused:
            self._deliver(data)
            return
        for segment in _segments(data, self.shape):
            self._waiting.append((self._arrival_time(len(segment)), segment))
        self.waiting_bytes += len(data)
        self._schedule()

    def put_end(self, failure: Exception | None) -> None:
        """Deliver the end of the connection after all bytes."""
        if self._closed:
            return
        if self._transparent and not self._waiting and not self._paused:
            self._deliver_end(failure)
            return
        self._end = (self._arrival_time(0), failure)
        self._schedule()

    def _arrival_time(self, size_bytes: int) -> float:
        shape, now = self.shape, asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now)
        if shape.bandwidth_bytes_per_second:
            self._free_at += size_bytes / shape.bandwidth_bytes_per_second
        delay_ms = shape.latency_ms + (self._random.uniform(0, shape.jitter_ms) if shape.jitter_ms else 0)
        arrival = self._free_at + delay_ms / 1000
        return max(arrival, self._waiting[-1][0]) if self._waiting else arrival

    def _next_arrival(self) -> float | None:
        """Return the earliest loop time of the next arrival; None: nothing waits."""
        if self._waiting:
            return self._waiting[0][0]
        return None if self._end is None else self._end[0]

    def _schedule(self) -> None:
        due = self._next_arrival()
        if due is None or self._timer is not None or self._paused or self._closed:
            return
        due = opens_at(self.shape, max(due, self._now()))
        if due != math.inf:
            self._timer = asyncio.get_running_loop().call_at(due - TIMER_GRAIN_SECONDS, self._arrive)

    @staticmethod
    def _now() -> float:
        """Return the loop time up to which a timer that fires now delivers."""
        return asyncio.get_running_loop().time() + TIMER_GRAIN_SECONDS + ROUNDING_SECONDS

    def _arrive(self) -> None:
        self._timer = None
        now = self._now()
        if opens_at(self.shape, now) <= now:
            self._deliver_until(now)
        self._schedule()

    def _deliver_until(self, now: float) -> None:
        arrived: list[bytes] = []
        while self._waiting and self._waiting[0][0] <= now:
            arrived.append(self._waiting.popleft()[1])
        if arrived:
            data = b"".join(arrived)
            self.waiting_bytes -= len(data)
            self._deliver(data)
        if self._end is not None and not self._waiting and not self._paused and self._end[0] <= now:
            (_, failure), self._end = self._end, None
            self._deliver_end(failure)

    def set_shape(self, shape: LinkShape) -> None:
        """Change the shape. Waiting bytes keep their time of arrival, or arrive earlier if the bandwidth has grown.
        Once it has passed they arrive as soon as the line is open."""
        bandwidth_changed = shape.bandwidth_bytes_per_second != self.shape.bandwidth_bytes_per_second
        self.shape = shape
        self._transparent = delays_nothing(shape)
        self._bytes_max = waiting_bytes_max(shape)
        if bandwidth_changed:
            self._hasten()
        self._reschedule()

    def _hasten(self) -> None:
        """Let waiting bytes arrive as if they were sent now, unless they arrive earlier."""
        waiting, self._waiting = self._waiting, deque()
        self._free_at = 0.0
        for due, segment in waiting:
            self._waiting.append((min(due, self._arrival_time(len(segment))), segment))
        if self._end is not None:
            self._end = (min(self._end[0], self._arrival_time(0)), self._end[1])

    def pause(self) -> None:
        """Deliver nothing until `resume`: the receiver does not read."""
        self._paused = True
        self._cancel()

    def resume(self) -> None:
        self._paused = False
        self._schedule()

    def clear(self) -> None:
        """Drop all waiting bytes."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def close(self) -> None:
        """Drop all waiting bytes, and all that follow."""
        self._closed = True
        self.clear()
        self._cancel()

    def _reschedule(self) -> None:
        self._cancel()
        if not self._closed:
            self._schedule()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
