"""Common part of the actors with the real Pulsar client: the client's settings, moving to another region, and
closing."""

from __future__ import annotations

import contextlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.run.history import HistoryWriter
from emulator.scenarios.actors.client_security import NO_SECURITY, ClientSecurity
from emulator.scenarios.actors.specs import Counts

OPERATION_TIMEOUT_SECONDS = 2
"""The only setting that bounds how late the client detects that a region is back. The client repeats a lookup
after 0.1, 0.2, 0.4, 0.8 … s until this time has passed, and then starts again with 0.1 s. Measured for a region that
was down for 3 s: detected up to 3 s late with the default of 30 s, after less than 1 s with 2 s."""
CONNECTION_TIMEOUT_MS = 1_000
RETRY_SECONDS = 0.1
"""Pause before the actor requests a rejected producer or subscription again."""
CLOSE_SECONDS = 1.0
"""Time that closing a client may take; then the client is shut down without waiting for its region."""

Pause = Callable[[float], None]
"""Sleeps for the given seconds. Raises Leaving if the actor receives the command `leave` meanwhile."""


class PulsarActor(ABC):
    """An actor that works in one region at a time, with a new client after each move."""

    def __init__(
        self,
        region: str,
        history: HistoryWriter,
        log: Path,
        pause: Pause,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self._region = region
        self._security = security
        self._history = history
        self._log = log
        self._pause = pause
        self._client: pulsar.Client | None = None

    @property
    @abstractmethod
    def counts(self) -> Counts: ...

    @abstractmethod
    def begin(self, service_url: str) -> None:
        """Open the producers or the consumer with a new client, retrying until the region accepts them. Raises Leaving
        if the actor has to leave meanwhile."""

    @abstractmethod
    def finish(self) -> None:
        """Stop publishing and wait until every publish has an outcome, or close the consumer. Raises Leaving if the
        actor has to leave meanwhile."""

    @abstractmethod
    def _release_handles(self) -> None:
        """Drop the references to the client's producers or consumer."""

    @abstractmethod
    def act(self) -> None:
        """Publish or receive the messages that are due."""

    @abstractmethod
    def idle_seconds(self) -> float:
        """Return the time in seconds that the actor may wait for a command before the next `act`."""

    def move(self, region: str, service_url: str) -> None:
        self.close()
        self._region = region
        self.begin(service_url)

    def close(self) -> None:
        """Close the client if it is connected, then shut it down: otherwise it would reconnect to its region."""
        orderly = self.counts.connected
        client, self._client = self._client, None
        self._release_handles()
        if client is None:
            return
        if orderly:
            closing = threading.Thread(target=_close_quietly, args=(client,), daemon=True)
            closing.start()
            closing.join(CLOSE_SECONDS)
        client.shutdown()

    def _connect(self, service_url: str) -> pulsar.Client:
        self._client = pulsar.Client(
            service_url,
            operation_timeout_seconds=OPERATION_TIMEOUT_SECONDS,
            connection_timeout_ms=CONNECTION_TIMEOUT_MS,
            **client_options(self._security.tls, self._security.credentials),
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(self._log)),
        )
        return self._client


def client_options(tls: Certificates | None, credentials: Credentials) -> dict[str, Any]:
    """Return the arguments of the Python client for a region; none for one without TLS and authentication."""
    authentication = authentication_of(credentials, tls)
    return {
        **({} if tls is None else tls_options(tls)),
        **({} if authentication is None else {"authentication": authentication}),
    }


def authentication_of(credentials: Credentials, tls: Certificates | None) -> pulsar.Authentication | None:
    """Return the argument of the Python client for these credentials; files are read when the client needs them."""
    if credentials.token:
        return pulsar.AuthenticationToken(lambda: credentials.login()[1].decode())
    if credentials.basic:
        name, _, password = credentials.login()[1].decode().partition(":")
        return pulsar.AuthenticationBasic(name, password)
    if credentials.tls and tls is not None:
        return pulsar.AuthenticationTLS(tls.certificate, tls.key)
    return None


def tls_options(tls: Certificates) -> dict[str, Any]:
    """Return the arguments of the Python client for a connection with TLS."""
    own = {"tls_certificate_file_path": tls.certificate, "tls_private_key_file_path": tls.key}
    return {
        "tls_trust_certs_file_path": tls.authority,
        "tls_validate_hostname": True,
        **(own if tls.certificate else {}),
    }


def _close_quietly(client: pulsar.Client) -> None:
    # The connection ends even if the region rejects or does not receive the close.
    with contextlib.suppress(pulsar.PulsarException):
        client.close()


def read_identity(payload: bytes) -> dict[str, Any] | None:
    """Return the origin of a message from its payload; None if no producer of a scenario wrote it."""
    try:
        written = json.loads(payload)
        return {
            "origin_region": str(written["origin_region"]),
            "producer": str(written["producer"]),
            "sequence_id": int(written["sequence_id"]),
        }
    except (ValueError, TypeError, KeyError):
        return None
