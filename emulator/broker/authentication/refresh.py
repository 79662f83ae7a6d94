"""Requests new credentials from clients whose credentials have expired, as Pulsar does (AUTH_CHALLENGE).

A connection is checked at an interval. If its credential has expired, it gets one interval to respond with a newer one
of the same role; its commands are executed meanwhile. Then the connection is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from emulator.broker.authentication.credentials import Refused
from emulator.broker.authentication.gate import ClientGate, Session
from emulator.errors import ProtocolError, ServerError
from emulator.wire.commands import AuthChallenge

REFRESH_DATA: Final = b"PulsarAuthRefresh"
"""Data of a challenge that requests a new credential, by which the Java client recognises it."""


class RefreshedConnection(Protocol):
    """A client's connection, as the refresh of its credentials sees it."""

    @property
    def certificate(self) -> Any: ...

    @property
    def host(self) -> str: ...

    def answer(self, data: bytes) -> None: ...

    def close_with_error(self, problem: ProtocolError) -> None: ...


class CredentialRefresh:
    """The expiry of the credentials of one connection."""

    def __init__(self, connection: RefreshedConnection, gate: ClientGate, session: Session) -> None:
        self._connection = connection
        self._gate = gate
        self.session = session
        self._is_challenged = False
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def respond(self, method: str, data: bytes) -> None:
        """Accept a new credential. ProtocolError, which ends the connection, if none was requested or it is refused."""
        if not self._is_challenged:
            raise unsolicited()
        connection = self._connection
        self.session = self._gate.renew(self.session, method, data, connection.certificate, connection.host)
        self._is_challenged = False

    def _schedule(self) -> None:
        self.stop()
        if self.session.expires:
            self._timer = asyncio.get_running_loop().call_later(self._gate.refresh_seconds, self.check)

    def check(self) -> None:
        """Request a newer credential, or close the connection, if the present one has expired. Called at each
        interval."""
        session, now_ms = self.session, self._gate.wall_clock_ms()
        refused = None
        if session.original is not None and session.original.is_expired(now_ms):
            refused = Refused("expired", "the credential of the client of this proxy has expired")
        elif session.credential.is_expired(now_ms):
            if session.region:
                refused = Refused("expired", "the token has expired")
            elif self._is_challenged:
                refused = Refused(
                    "no-response", "the credential has expired, and the client sent no newer one"
                )
            elif not session.can_refresh:
                refused = Refused("expired", "the credential has expired, and the client cannot refresh it")
            else:
                self._is_challenged = True
                self._connection.answer(AuthChallenge(session.method, REFRESH_DATA).encode())
        if refused is not None:
            self._connection.close_with_error(self._error(refused))
        else:
            self._schedule()

    def _error(self, refused: Refused) -> ProtocolError:
        if self.session.region:
            return self._gate.refusals.region_error(self.session.region, refused)
        return self._gate.refusals.error(self.session.label, refused)


def unsolicited() -> ProtocolError:
    """Return the error of an AUTH_RESPONSE that no challenge precedes."""
    return ProtocolError(
        ServerError.UnknownError, "AUTH_RESPONSE without a challenge", closes_connection=True
    )
