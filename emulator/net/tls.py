"""TLS as a Network: ports with a server certificate, and connections that verify the certificate of the other side.

It is used like any other Network, so emulated links and HTTP work over TLS, too. Files of certificates are read when
they change: new connections use the new ones, open connections keep theirs.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from emulator.net.network import Listener, Network, SocketNetwork, peer_host

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
"""Time limit of a handshake; then the connection is closed."""
SHUTDOWN_SECONDS = 2.0
"""Time for which the end of a TLS connection waits for the other side's end."""

ClientCertificates = Literal["none", "optional", "required"]
"""none: not requested. optional: verified if the client has one. required: connections without one fail."""
_VERIFICATION = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files of one side of TLS connections, by their paths."""

    authority: str
    """Certificates of the trusted authorities."""
    certificate: str = ""
    """This side's certificate, with its chain. Empty: a client without a certificate."""
    key: str = ""


class TlsRefusal(StrEnum):
    """Why the handshake of an accepted connection failed; the values are labels of a metric."""

    NO_CERTIFICATE = "no_certificate"
    """The client has no certificate, and one is required."""
    CERTIFICATE = "certificate"
    """The client's certificate is not valid here."""
    REJECTED = "rejected"
    """The client did not accept the region's certificate."""
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    """The client did not send TLS, or none of the supported versions."""
    CLOSED = "closed"
    """The client ended the connection."""
    DISPLACED = "displaced"
    """The port had too many connections, and the handshake made room for a newer one."""


NoteRefusal = Callable[[TlsRefusal, str], None]
"""Called for each failed handshake of an accepted connection, with one sentence about it."""


def _ignore(refusal: TlsRefusal, sentence: str) -> None: ...


class HandshakeLimits(Protocol):
    """The limits of the connections of a port."""

    def admit(self, connection: AcceptedConnection, host: str) -> bool:
        """Count a handshake. Return False if it is refused. Any of those that are counted may be aborted."""
        ...

    def release(self, connection: AcceptedConnection) -> None: ...


@runtime_checkable
class LimitedConnection(Protocol):
    """A protocol with limits in which the handshakes of its connections count, too."""

    @property
    def handshakes(self) -> HandshakeLimits: ...


class TlsNetwork:
    """TLS over TCP. Connections verify that the certificate was issued by the authority, for the host."""

    def __init__(
        self,
        files: Certificates,
        client_certificates: ClientCertificates = "none",
        inner: Network | None = None,
    ) -> None:
        self.note_refusal: NoteRefusal = _ignore
        self._files = files
        self._server = _CurrentContext(files, lambda: server_context(files, client_certificates))
        self._client = _CurrentContext(files, lambda: client_context(files))
        self._inner = inner or SocketNetwork()
        self._handshakes: set[asyncio.Task[None]] = set()

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        """Accept TLS connections. Also raises OSError, which names the file, if the certificate cannot be used."""
        self._server.load()
        return await self._inner.listen(lambda: AcceptedConnection(self, protocol_factory()), host, port)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. Raises ssl.SSLError, which is an OSError, if the certificate of the other side is not
        valid for `host`."""
        return await asyncio.get_running_loop().create_connection(
            protocol_factory,
            host,
            port,
            ssl=self._client.current(),
            server_hostname=host,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    def accept(self, transport: asyncio.Transport, handshake: AcceptedConnection) -> None:
        """Begin the handshake of an accepted connection."""
        task = asyncio.get_running_loop().create_task(self._handshake(transport, handshake))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, transport: asyncio.Transport, handshake: AcceptedConnection) -> None:
        peer = transport.get_extra_info("peername")
        secured = None
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                handshake,
                self._server.current(),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError as failure:
            if not handshake.is_displaced:
                refusal = refusal_of(failure)
                sentence = f"TLS handshake with {_address(peer)} failed: {described(failure) or refusal}"
                self.note_refusal(refusal, sentence)
        finally:
            handshake.release()
        if handshake.is_displaced:
            self.note_refusal(
                TlsRefusal.DISPLACED,
                f"TLS handshake with {_address(peer)} ended: the port has too many connections",
            )
        elif secured is not None:  # asyncio returns None when the connection is aborted meanwhile
            handshake.establish(secured)


class AcceptedConnection(asyncio.Protocol):
    """An accepted connection until its handshake is complete; keeps the bytes that arrive together with its end."""

    def __init__(self, network: TlsNetwork, protocol: asyncio.Protocol) -> None:
        self._network = network
        self._protocol = protocol
        self._limits = protocol.handshakes if isinstance(protocol, LimitedConnection) else None
        self._transport: asyncio.Transport | None = None
        self.is_displaced = False
        """Whether the handshake was ended by the limits of the port."""
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()  # until the TLS protocol reads
        if self._limits is not None and not self._limits.admit(self, peer_host(transport)):
            self.abort()
        self._network.accept(transport, self)

    def abort(self) -> None:
        """End the handshake, to make room for another connection."""
        assert self._transport is not None
        self.is_displaced = True
        self._transport.abort()

    def release(self) -> None:
        """Count no longer as a handshake."""
        if self._limits is not None:
            self._limits.release(self)

    def data_received(self, data: bytes) -> None:
        self._early += data

    def establish(self, transport: asyncio.Transport) -> None:
        """Hand the connection to its protocol."""
        if transport.is_closing():
            return
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)
        if self._early:
            self._protocol.data_received(bytes(self._early))


class _CurrentContext:
    """The context of the present files. Files that cannot be used are reported once, and the last valid context stays
    in use: a certificate and its key are rarely replaced at the same moment."""

    def __init__(self, files: Certificates, create: Callable[[], ssl.SSLContext]) -> None:
        self._paths = [Path(path) for path in (files.authority, files.certificate, files.key) if path]
        self._create = create
        self._signature: object = None
        self._context: ssl.SSLContext | None = None

    def load(self) -> ssl.SSLContext:
        """Read the files. Raises OSError, also ssl.SSLError, if they cannot be used."""
        signature = self._read_signature()
        self._context = self._create()
        self._signature = signature
        return self._context

    def current(self) -> ssl.SSLContext:
        """Return the context of the present files, or the last valid one. Raises OSError if there is none yet."""
        if self._context is None:
            return self.load()
        signature = self._read_signature()
        if signature != self._signature:
            self._signature = signature
            try:
                self._context = self._create()
                logger.info("TLS: the changed certificates are used for new connections")
            except OSError as failure:
                logger.warning("TLS: the former certificates stay in use: %s", failure)
        return self._context

    def _read_signature(self) -> object:
        try:
            return [(found.st_mtime_ns, found.st_size, found.st_ino) for found in map(Path.stat, self._paths)]
        except OSError:
            return None


def server_context(files: Certificates, client_certificates: ClientCertificates) -> ssl.SSLContext:
    """Return the context of a port. Raises OSError, which names the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = _VERIFICATION[client_certificates]
    _load(context, files)
    return context


def client_context(files: Certificates) -> ssl.SSLContext:
    """Return the context of connections, which verify the authority and the host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: Certificates) -> None:
    try:
        context.load_verify_locations(files.authority)
    except OSError as failure:
        raise OSError(f"authority {files.authority}: {_file_problem(failure)}") from None
    if not files.certificate:
        return
    try:
        # The empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except OSError as failure:
        raise OSError(f"certificate {files.certificate}, key {files.key}: {_file_problem(failure)}") from None


def _file_problem(failure: OSError) -> str:
    return described(failure) if isinstance(failure, ssl.SSLError) else failure.strerror or str(failure)


@lru_cache(maxsize=16)
def network_with(files: Certificates | None) -> Network:
    """Return the network of connections that trust these files; None: without TLS."""
    return SocketNetwork() if files is None else TlsNetwork(files)


_NO_CERTIFICATE = ("PEER_DID_NOT_RETURN_A_CERTIFICATE",)
_BAD_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED",)


def refusal_of(failure: OSError) -> TlsRefusal:
    """Return why a handshake failed."""
    if isinstance(failure, ConnectionAbortedError | TimeoutError):
        return TlsRefusal.TIMEOUT  # asyncio's error for the time limit
    if not isinstance(failure, ssl.SSLError) or isinstance(failure, ssl.SSLEOFError):
        return TlsRefusal.CLOSED
    reason = _reason_of(failure)
    if reason in _NO_CERTIFICATE:
        return TlsRefusal.NO_CERTIFICATE
    if reason in _BAD_CERTIFICATE:
        return TlsRefusal.CERTIFICATE
    return TlsRefusal.REJECTED if "ALERT" in reason else TlsRefusal.PROTOCOL


def is_tls_failure(failure: BaseException | None) -> bool:
    """Whether a connection ended because of TLS, and not because of the network."""
    return isinstance(failure, ssl.SSLError) and not isinstance(failure, ssl.SSLEOFError)


def described(failure: BaseException) -> str:
    """Describe a failure of a connection: of TLS in the words of OpenSSL, without its error codes."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {failure.verify_message}"
    if isinstance(failure, ssl.SSLError) and (reason := _reason_of(failure)):
        return reason.lower().replace("_", " ")
    return str(failure)


def _reason_of(failure: ssl.SSLError) -> str:
    """Return OpenSSL's name of a failure; errors that asyncio creates itself have none."""
    return getattr(failure, "reason", None) or ""


def _address(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else "a client"
