"""Pauses reading from connections that send a request in many small parts, so that one read returns several of them.

A read costs the event loop the same whether it returns one byte or thousands. Without pauses, hundreds of clients that
send single bytes at the same moment delay all others. A connection is paused for PAUSE_SECONDS if its last
SMALL_READS_MAX reads had less than SMALL_READ_BYTES each, completed no request, and took SLOW_SECONDS or longer.
Connections are read again in the order in which they were paused, up to RESUMED_PER_TURN every TURN_SECONDS: their
reads are spread over time, and with very many such connections each waits longer. A client that is merely slow receives
its response up to a pause later. One that writes a request in many parts without waiting is never paused.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final, Protocol

SMALL_READ_BYTES: Final = 256
SMALL_READS_MAX: Final = 4
SLOW_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 2.0
RESUMED_PER_TURN: Final = 8
TURN_SECONDS: Final = 0.005
LAST_READ_SECONDS: Final = 0.1
"""Time for the last read of a paused connection whose time limit has ended: its request may be complete."""


class SlowSender(Protocol):
    """A connection that pauses reading while it waits here."""

    def read_again(self) -> None: ...


class SmallReads:
    """Counts the consecutive reads of one connection that are small and complete no request."""

    __slots__ = ("_began", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._began = 0.0
        """Loop time of the first of them."""

    def is_slow_after(self, size_bytes: int) -> bool:
        """Count a read that completed no request. Return whether its connection is a slow sender now."""
        if size_bytes >= SMALL_READ_BYTES:
            self._count = 0
            return False
        now = asyncio.get_running_loop().time()
        if not self._count:
            self._began = now
        self._count += 1
        return self._count >= SMALL_READS_MAX and now - self._began >= SLOW_SECONDS

    def reset(self) -> None:
        """Begin again after a complete request."""
        self._count = 0


class SlowSenders:
    """The paused connections of one region."""

    def __init__(self) -> None:
        self._due: dict[SlowSender, float] = {}
        """Connection -> loop time from which it may be read, in ascending order."""
        self._timer: asyncio.TimerHandle | None = None

    def pause(self, sender: SlowSender) -> None:
        """Call `read_again` of a connection that has paused reading, later. No effect for one that waits already."""
        if sender not in self._due:
            loop = asyncio.get_running_loop()
            self._due[sender] = loop.time() + PAUSE_SECONDS
            if self._timer is None:
                self._timer = loop.call_later(PAUSE_SECONDS, self._resume_next)

    def end_pause(self, sender: SlowSender) -> bool:
        """End the wait of a connection without calling it. Return whether it waited."""
        return self._due.pop(sender, None) is not None

    def _resume_next(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for sender in [one for one, due in islice(self._due.items(), RESUMED_PER_TURN) if due <= now]:
            del self._due[sender]
            sender.read_again()
        due = next(iter(self._due.values()), None)
        self._timer = None if due is None else loop.call_at(max(due, now + TURN_SECONDS), self._resume_next)

    def __len__(self) -> int:
        return len(self._due)
