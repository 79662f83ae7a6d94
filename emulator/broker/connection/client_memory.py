"""Bounds the memory that all clients of a region use together.

Counted is what flow control counts per connection: publishes that are not durable, incomplete frames, unsent bytes,
waiting requests, producers. Over the limit the region stops reading from the connections that hold more than
SHARE_BYTES, and reads them again when half of the limit is free. It continues to read those that hold less, and other
regions, whose bytes the replication windows bound.

Publishes and requests end by themselves. Incomplete frames and unsent bytes need the client: if the region is over its
limit for RELIEF_SECONDS, the paused connections with the most of them are closed. If it is not over the limit, although
less than half is free, all are read again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from emulator.broker.memory_budgets import MemoryBudget

logger = logging.getLogger(__name__)

SHARE_BYTES: Final = 65_536
"""A connection that holds no more than this is never paused for the region's memory."""
CHECK_SECONDS: Final = 0.05
RELIEF_SECONDS: Final = 5.0
REPORT_SECONDS: Final = 60.0


class MemoryUser(Protocol):
    """The flow control of a connection that is paused for the region's memory."""

    @property
    def client_bytes(self) -> int:
        """Held bytes that only the client can release."""
        ...

    def resume_memory(self) -> None: ...

    def disconnect(self) -> None: ...


class ClientMemory(MemoryBudget):
    """The budget of all clients of one region."""

    __slots__ = ("_next_report", "_since", "_timer", "disconnected", "paused")

    def __init__(self, parent: MemoryBudget | None = None, limit_bytes: int | None = None) -> None:
        super().__init__("clients", parent, limit_bytes)
        self.paused: dict[MemoryUser, None] = {}
        """Users that are not read, in the order in which they were paused."""
        self.disconnected = 0
        """Number of clients that were disconnected to free their memory."""
        self._since = 0.0
        """Loop time at which the present pause began, or clients were last disconnected."""
        self._next_report = 0.0
        """Loop time from which on the next pause is a warning in the log."""
        self._timer: asyncio.TimerHandle | None = None

    def pause(self, user: MemoryUser) -> None:
        """Record that a user is paused until half of the limit is free."""
        if not self.paused:
            self._since = asyncio.get_running_loop().time()
            self._report(self._since)
        self.paused[user] = None
        if self._timer is None:
            self._schedule()

    def _report(self, now: float) -> None:
        """Log the begin of a pause, as a warning at most once per REPORT_SECONDS: clients may cause many."""
        is_repeated = now < self._next_report
        if not is_repeated:
            self._next_report = now + REPORT_SECONDS
        logger.log(
            logging.DEBUG if is_repeated else logging.WARNING,
            "clients hold %d bytes, more than %d: those with the most are not read until half is free",
            self.held_bytes,
            self.limit_bytes,
        )

    def forget(self, user: MemoryUser) -> None:
        """Forget a user whose connection ended."""
        self.paused.pop(user, None)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Resume all users when half of the limit is free; otherwise check again later."""
        assert self.limit_bytes is not None
        self._timer = None
        is_late = asyncio.get_running_loop().time() - self._since >= RELIEF_SECONDS
        if not self.paused:
            return
        if self.held_bytes <= self.limit_bytes // 2 or (is_late and not self.is_over):
            paused, self.paused = self.paused, {}
            for user in paused:
                user.resume_memory()
            return
        if is_late:
            self._relieve()
            self._since = asyncio.get_running_loop().time()
        self._schedule()

    def _relieve(self) -> None:
        """Disconnect the users with the most bytes that only their clients can release, until half of the limit is free
        without them."""
        assert self.limit_bytes is not None
        excess = self.held_bytes - self.limit_bytes // 2
        for user in sorted(self.paused, key=lambda one: one.client_bytes, reverse=True):
            if excess <= 0 or not user.client_bytes:
                break
            excess -= user.client_bytes
            self.disconnected += 1
            user.disconnect()
