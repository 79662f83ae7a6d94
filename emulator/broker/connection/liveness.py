"""Detects whether the client of a connection is still alive.

Both sides send a PING per interval; a side from which no bytes arrive before the next PING is considered dead. A client
that the region does not read for one of `REGION_REASONS` is not checked (FC3). A client that leaves responses unread is
checked by the bytes that it receives. The handshake has its own time limit.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from emulator.broker.connection.dispatch import CommandingConnection
from emulator.errors import ProtocolError, ServerError
from emulator.net.slow_senders import LAST_READ_SECONDS
from emulator.wire.frames import PING_FRAME

logger = logging.getLogger(__name__)

LIVENESS_SECONDS: Final = 2.0
"""Seconds in which the holder of a producer name or an exclusive subscription must respond before another client
replaces it."""
HANDSHAKE_SECONDS: Final = 10.0
"""Time limit of the handshake: CONNECT of a client, and the authentication of a region."""


class MonitoredProducers(Protocol):
    """The producers of a connection, whose topics' policies may set shorter intervals."""

    def keep_alive_interval_ms(self) -> int | None:
        """Return the shortest interval in the policies of the client's topics; None when none sets it."""
        ...


class MonitoredConnection(CommandingConnection, Protocol):
    """A client's connection, as its liveness sees it."""

    @property
    def producers(self) -> MonitoredProducers: ...
    @property
    def unread_bytes(self) -> int: ...

    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...
    def read_at_once(self) -> bool: ...


class Liveness:
    """The liveness check of one connection."""

    def __init__(self, connection: MonitoredConnection, interval_ms: int) -> None:
        self._connection = connection
        self._interval_seconds = interval_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._handshake_timer: asyncio.TimerHandle | None = None
        """Timer of the handshake's time limit."""
        self._heard: asyncio.Event | None = None
        """Set when bytes arrive; None unless `is_alive` waits for them."""
        self._pinged = False
        """True when no bytes have arrived since the last PING was sent."""
        self.written_bytes = 0
        """Bytes passed to the transport so far."""
        self._received_bytes = 0
        """Number of bytes that had left the transport at the last check."""

    def start(self) -> None:
        self._schedule()
        self._handshake_timer = asyncio.get_running_loop().call_later(
            HANDSHAKE_SECONDS, self._handshake_timed_out
        )

    def stop(self) -> None:
        self.end_handshake()
        if self._timer is not None:
            self._timer.cancel()

    def end_handshake(self) -> None:
        """Cancel the time limit of the handshake: it is complete, or the connection ended."""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()

    def _handshake_timed_out(self) -> None:
        """Close the connection, after a last read if it is paused: the rest of CONNECT may have arrived."""
        if self._connection.read_at_once():
            self._handshake_timer = asyncio.get_running_loop().call_later(
                LAST_READ_SECONDS, self._refuse_handshake
            )
        else:
            self._refuse_handshake()

    def _refuse_handshake(self) -> None:
        sentence = f"the handshake was not completed within {HANDSHAKE_SECONDS:g} s"
        self._connection.close_with_error(
            ProtocolError(ServerError.UnknownError, sentence, closes_connection=True)
        )

    def heard(self) -> None:
        """Record that bytes arrived."""
        self._pinged = False
        if self._heard is not None:
            self._heard.set()
            self._heard = None

    def hurry(self, interval_ms: int) -> None:
        """Send the next PING within this interval, even if it was due later. 0: no effect."""
        if not interval_ms:
            return
        due = asyncio.get_running_loop().time() + interval_ms / 1_000
        if self._timer is not None and self._timer.when() > due:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(due, self._check)

    def _schedule(self) -> None:
        wanted_ms = self._connection.producers.keep_alive_interval_ms()
        seconds = self._interval_seconds
        if wanted_ms is not None:
            seconds = min(seconds, wanted_ms / 1_000)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        if (
            self._pinged
            and not self._connection.flow_control.is_paused_by_region
            and not self._receives_bytes()
        ):
            logger.info("%s does not respond; the connection is closed", self._connection.address)
            self._connection.abort()
            return
        self._pinged = True
        self._connection.write(PING_FRAME)
        self._received_bytes = self._count_received()
        self._schedule()

    def _count_received(self) -> int:
        return self.written_bytes - self._connection.unread_bytes

    def _receives_bytes(self) -> bool:
        """Whether a client that the region does not read has received bytes since the last check."""
        return (
            self._connection.flow_control.is_reading_paused and self._count_received() > self._received_bytes
        )

    async def is_alive(self) -> bool:
        """Send a PING; return whether any bytes arrive within `LIVENESS_SECONDS`, or the client receives bytes while
        the region does not read it. If the region does not read it for one of `REGION_REASONS`, return whether the
        client's end is still open. False if the connection is closed."""
        connection = self._connection
        if not connection.is_open:
            return False
        if connection.flow_control.is_paused_by_region:
            return await self._is_open_at_the_client()
        if self._heard is None:
            self._heard = asyncio.Event()
        heard = self._heard
        connection.write(PING_FRAME)
        received = self._count_received()
        try:
            async with asyncio.timeout(LIVENESS_SECONDS):
                await heard.wait()
        except TimeoutError:
            return (
                connection.is_open
                and connection.flow_control.is_reading_paused
                and self._count_received() > received
            )
        return connection.is_open

    async def _is_open_at_the_client(self) -> bool:
        """Send two PINGs to a client that the region does not read, within `LIVENESS_SECONDS`. If the client has closed
        the connection, its system resets it after the first one, and the second one detects the reset."""
        for _ in range(2):
            self._connection.write(PING_FRAME)
            await asyncio.sleep(LIVENESS_SECONDS / 2)
            if not self._connection.is_open:
                return False
        return True
