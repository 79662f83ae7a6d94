"""Limits what one client makes the region hold in memory, by pausing reads from it.

Counted are publishes that are not durable yet, responses that the client does not read, and requests that wait. Over a
limit, reading pauses for this client alone; it resumes when no reason is left (FC2: reasons are a set). The
beginning of a frame is counted too and pauses nothing: only more bytes can complete it, and a frame has a limit of
its own, a small one before CONNECT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Flag, auto
from typing import Final

from emulator.broker.memory_budgets import MemoryBudget, Reservation

STRANGER_FRAME_BYTES_MAX: Final = 65_536
"""The largest frame of a client before CONNECT."""
PUBLISHES_BYTES_MAX: Final = 33_554_432
ANSWERS_BYTES_MAX: Final = 1_048_576
REQUESTS_BYTES_MAX: Final = 1_048_576
PRODUCERS_BYTES_MAX: Final = 134_217_728
"""Limit for the producers of one client, those that wait included. More are rejected: pausing reads would not make them
fewer."""


class PauseReason(Flag):
    """Why reading from a client is paused."""

    NOTHING = 0
    PUBLISHES = auto()
    """Its publishes are not durable yet: our store is slower than the client."""
    ANSWERS = auto()
    """It does not read its responses."""
    REQUESTS = auto()
    """Its requests wait for the region."""
    RATE = auto()
    """It publishes more than its topics' policies allow."""


OURS: Final = PauseReason.PUBLISHES | PauseReason.REQUESTS | PauseReason.RATE
"""Reasons that are not the client's fault."""


class FlowControl:
    """Owned by one connection."""

    def __init__(self, clients: MemoryBudget, stop: Callable[[], None], go_on: Callable[[], object]) -> None:
        self._stop = stop
        self._go_on = go_on
        self.reasons = PauseReason.NOTHING
        self.is_reading_paused = False
        """Invariant: True iff there are reasons. A plain bool, because every command reads it."""
        self.is_writing_paused = False
        """The transport's buffer is full."""
        self.account = MemoryBudget("connection", clients)
        self.pending_bytes = 0
        """Bytes of entries admitted and not answered. SEND adds to it directly; it is charged once per chunk."""
        self._unfinished = self.account.charge(0)
        self._publishes = MemoryBudget("publishes", self.account, PUBLISHES_BYTES_MAX).charge(0)
        self._answers = MemoryBudget("answers", self.account, ANSWERS_BYTES_MAX).charge(0)
        self._requests = MemoryBudget("requests", self.account, REQUESTS_BYTES_MAX)
        self._producers = MemoryBudget("producers", self.account, PRODUCERS_BYTES_MAX).charge(0)
        self._slowed: asyncio.TimerHandle | None = None
        """Set while reading is paused because the client publishes faster than a topic allows."""
        self._released = False

    # Reasons.

    def pause(self, reason: PauseReason) -> None:
        self.reasons |= reason
        if not self.is_reading_paused:
            self.is_reading_paused = True
            self._stop()

    def resume(self, reason: PauseReason) -> None:
        self.reasons &= ~reason
        if self.is_reading_paused and not self.reasons:
            self.is_reading_paused = False
            self._go_on()

    @property
    def is_ours(self) -> bool:
        """Whether reading is paused for a reason of ours, so that the client's silence means nothing."""
        return bool(self.reasons & OURS)

    def slow_down(self, seconds: float) -> None:
        """Pause reading: the client publishes to a topic faster than its policies allow."""
        if self._released:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._slowed is not None:
            until = max(until, self._slowed.when())
            self._slowed.cancel()
        self._slowed = loop.call_at(until, self.speed_up)
        self.pause(PauseReason.RATE)

    def speed_up(self) -> None:
        """The wait is over, or the topic's policies changed: a client that is still too fast is paused again."""
        if self._slowed is not None:
            self._slowed.cancel()
            self._slowed = None
            self.resume(PauseReason.RATE)

    # Frames.

    def unfinished(self, size_bytes: int) -> None:
        """Count the bytes of a frame that is not complete."""
        self._unfinished.resize(size_bytes)

    # Publishes.

    def admitted(self) -> None:
        """Charge the entries of a chunk, which are counted in `pending_bytes`."""
        self._publishes.resize(self.pending_bytes)
        if self.pending_bytes > PUBLISHES_BYTES_MAX:
            self.pause(PauseReason.PUBLISHES)

    def answered(self, size_bytes: int) -> None:
        """Release the bytes of admitted entries that have their outcome."""
        self.pending_bytes -= size_bytes
        self._publishes.resize(self.pending_bytes)
        if self.is_reading_paused and self.pending_bytes < PUBLISHES_BYTES_MAX // 2:
            self.resume(PauseReason.PUBLISHES)

    # Responses.

    def unread(self, size_bytes: int) -> None:
        """Count the bytes that wait in the transport; 0 when its buffer is not full any more."""
        self._answers.resize(size_bytes)
        if size_bytes > ANSWERS_BYTES_MAX:
            self.pause(PauseReason.ANSWERS)
        elif size_bytes == 0:
            self.resume(PauseReason.ANSWERS)

    # Requests.

    def request_began(self, estimate_bytes: int) -> Reservation:
        charge = self._requests.charge(estimate_bytes)
        if self._requests.is_over:
            self.pause(PauseReason.REQUESTS)
        return charge

    def request_over(self, charge: Reservation) -> None:
        charge.release()
        if self.is_reading_paused and self._requests.held_bytes < REQUESTS_BYTES_MAX // 2:
            self.resume(PauseReason.REQUESTS)

    # Producers.

    def has_room_for_producer(self, size_bytes: int) -> bool:
        return self._producers.size_bytes + size_bytes <= PRODUCERS_BYTES_MAX

    def producer_came(self, size_bytes: int) -> None:
        self._producers.resize(self._producers.size_bytes + size_bytes)

    def producer_left(self, size_bytes: int) -> None:
        self._producers.resize(self._producers.size_bytes - size_bytes)

    def release(self) -> None:
        """Release everything: the client is gone. Its requests are released as they end."""
        self._released = True
        if self._slowed is not None:
            self._slowed.cancel()  # a pause may last for years, and would keep the connection's memory
        self.pending_bytes = 0
        self._unfinished.release()
        self._publishes.release()
        self._answers.release()
