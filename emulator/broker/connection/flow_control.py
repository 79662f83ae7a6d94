"""Limits the memory that the region holds for one client, by pausing reads from its connection.

Counted are the bytes of publishes that are not durable yet, responses that the client has not read, and waiting
requests. Over a limit, reading pauses for this client alone; it resumes when the set of pause reasons is empty (FC2).
An incomplete frame is counted too but never pauses reading for its size, because only more bytes complete it; many
small parts do, briefly. Frames have a maximum size, which is smaller before authentication. Over the limit for
producers, further ones are rejected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Flag, auto
from typing import Final

from emulator.broker.connection.client_memory import SHARE_BYTES, ClientMemory
from emulator.broker.memory_budgets import MemoryBudget

UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 65_536
"""Maximum size of a frame before the connection is authenticated."""
PUBLISHES_BYTES_MAX: Final = 33_554_432
ANSWERS_BYTES_MAX: Final = 1_048_576
REQUESTS_BYTES_MAX: Final = 1_048_576
PRODUCERS_BYTES_MAX: Final = 134_217_728
"""Limit for the producers of one client, waiting ones included. Further producers are rejected: pausing reads would not
reduce their number."""


class PauseReason(Flag):
    """Why reading from a client is paused."""

    NOTHING = 0
    PUBLISHES = auto()
    """The client's publishes are not durable yet: the store is slower than the client."""
    ANSWERS = auto()
    """The client does not read its responses."""
    REQUESTS = auto()
    """The client's requests wait for the region."""
    RATE = auto()
    """The client publishes faster than the policies of its topics allow."""
    MEMORY = auto()
    """All clients together hold more memory than the region permits, and this one more than a share."""
    SMALL_READS = auto()
    """The client sends a command in many small parts (`net.slow_senders`)."""


REGION_REASONS: Final = (
    PauseReason.PUBLISHES
    | PauseReason.REQUESTS
    | PauseReason.RATE
    | PauseReason.MEMORY
    | PauseReason.SMALL_READS
)
"""Pause reasons that the region causes: a client whose bytes it does not read for them may be alive (FC3)."""


class FlowControl:
    """The flow control of one connection."""

    def __init__(
        self,
        clients: ClientMemory,
        stop: Callable[[], None],
        resume: Callable[[], object],
        disconnect: Callable[[], None],
    ) -> None:
        self._stop = stop
        self._resume = resume
        self.disconnect = disconnect
        """Ends the connection, because its client does not release its memory."""
        self._clients = clients
        self.is_exempt = False
        """True for another region: it is read whatever memory clients hold."""
        self.reasons = PauseReason.NOTHING
        self.is_reading_paused = False
        """Invariant: True iff `reasons` is not empty. A plain bool, because every command reads it."""
        self.is_writing_paused = False
        """True while the transport's write buffer is full. Set by the connection."""
        self.account = MemoryBudget("connection", clients)
        self.pending_bytes = 0
        """Bytes of admitted entries without an outcome. SEND adds to it directly; they are charged once per read."""
        self._incomplete = self.account.charge(0)
        self._publishes = self.account.charge(0)
        self._answers = self.account.charge(0)
        self._requests = self.account.charge(0)
        self._producers = self.account.charge(0)
        self._rate_timer: asyncio.TimerHandle | None = None
        """Timer that ends the pause of a client that publishes faster than a topic allows."""
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
            self._resume()

    @property
    def is_paused_by_region(self) -> bool:
        """Whether reading is paused for a reason in REGION_REASONS: then a client that sends nothing may be alive."""
        return bool(self.reasons & REGION_REASONS)

    def slow_down(self, seconds: float) -> None:
        """Pause reading for `seconds`, or longer if a pause is running: the client publishes to a topic faster than the
        topic's policies allow."""
        if self._released:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._rate_timer is not None:
            until = max(until, self._rate_timer.when())
            self._rate_timer.cancel()
        self._rate_timer = loop.call_at(until, self.speed_up)
        self.pause(PauseReason.RATE)

    def speed_up(self) -> None:
        """End the pause for the rate: its time is over, or the topic's policies changed. A client that is still too
        fast is paused again."""
        if self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None
            self.resume(PauseReason.RATE)

    # The memory of the region.

    def _check_region(self) -> None:
        """Pause reading if the clients of the region hold too much memory, and this one more than its share."""
        if self.account.held_bytes <= SHARE_BYTES or self.is_exempt or not self._clients.is_over:
            return
        if not self.is_paused_for_memory:
            self._clients.pause(self)
            self.pause(PauseReason.MEMORY)

    @property
    def is_paused_for_memory(self) -> bool:
        return PauseReason.MEMORY in self.reasons

    @property
    def client_bytes(self) -> int:
        """Held bytes that only the client can release: by the rest of a frame, or by reading."""
        return self._incomplete.size_bytes + self._answers.size_bytes

    def resume_memory(self) -> None:
        """End the pause for the memory of the region."""
        self.resume(PauseReason.MEMORY)

    # Frames.

    def count_incomplete(self, size_bytes: int) -> None:
        """Count the bytes of a frame that is not complete."""
        if size_bytes != self._incomplete.size_bytes:
            self._incomplete.resize(size_bytes)
            self._check_region()

    # Publishes.

    def admitted(self) -> None:
        """Charge the entries that were added to `pending_bytes` in one read."""
        if self.pending_bytes == self._publishes.size_bytes:
            return
        self._publishes.resize(self.pending_bytes)
        if self.pending_bytes > PUBLISHES_BYTES_MAX:
            self.pause(PauseReason.PUBLISHES)
        if self.account.held_bytes > SHARE_BYTES:
            self._check_region()

    def answered(self, size_bytes: int) -> None:
        """Release the bytes of admitted entries that have their outcome."""
        self.pending_bytes -= size_bytes
        self._publishes.resize(self.pending_bytes)
        if self.is_reading_paused and self.pending_bytes < PUBLISHES_BYTES_MAX // 2:
            self.resume(PauseReason.PUBLISHES)

    # Unsent bytes.

    def unsent(self, size_bytes: int) -> None:
        """Set the number of bytes in the transport, messages included; 0 when its buffer is no longer full."""
        self._answers.resize(size_bytes)
        self._check_region()

    def unread(self, size_bytes: int) -> None:
        """Set the number of bytes in the transport when a response was added to them."""
        self.unsent(size_bytes)
        if size_bytes > ANSWERS_BYTES_MAX:
            self.pause(PauseReason.ANSWERS)
        elif size_bytes == 0:
            self.resume(PauseReason.ANSWERS)

    # Requests.

    def charge_request(self, estimate_bytes: int) -> None:
        """Charge a request that waits, until `release_request` with the same number."""
        self._requests.resize(self._requests.size_bytes + estimate_bytes)
        if self._clients.is_over:
            self._check_region()
        if self._requests.size_bytes > REQUESTS_BYTES_MAX:
            self.pause(PauseReason.REQUESTS)

    def release_request(self, estimate_bytes: int) -> None:
        self._requests.resize(self._requests.size_bytes - estimate_bytes)
        if self.is_reading_paused and self._requests.size_bytes < REQUESTS_BYTES_MAX // 2:
            self.resume(PauseReason.REQUESTS)

    # Producers.

    def has_room_for_producer(self, size_bytes: int) -> bool:
        return self._producers.size_bytes + size_bytes <= PRODUCERS_BYTES_MAX

    def charge_producer(self, size_bytes: int) -> None:
        self._producers.resize(self._producers.size_bytes + size_bytes)

    def release_producer(self, size_bytes: int) -> None:
        self._producers.resize(self._producers.size_bytes - size_bytes)

    def release(self) -> None:
        """Release the memory of a client that is disconnected. That of its requests is released as they end, that of
        its producers as they are removed."""
        self._released = True
        self._clients.forget(self)
        if self._rate_timer is not None:
            self._rate_timer.cancel()  # a pause may last for years, and would keep the connection's memory
        self.pending_bytes = 0
        self._incomplete.release()
        self._publishes.release()
        self._answers.release()
