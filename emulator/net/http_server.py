"""A small HTTP/1.1 server on h11: one request at a time per connection, JSON or text responses.

It runs on any Network, so that the simulation can run it, too.

The application is called twice: with the head of a request, which it may reject before the body is read, and with the
body. A connection holds up to BODY_BYTES_MAX of a request and one response. It is closed after IDLE_SECONDS without a
complete request, also if its client does not read the response.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import h11

from emulator.net.http_connections import HttpConnections
from emulator.net.network import own_address, peer_host
from emulator.net.slow_senders import LAST_READ_SECONDS, SmallReads

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = 1_048_576
REJECTED_BODY_BYTES_MAX = 4 * BODY_BYTES_MAX
"""Maximum size of a rejected body that is read and dropped, so that the client can read the response before the
connection is closed."""
IDLE_SECONDS = 60.0
"""Seconds after the connection was opened or a response was sent, in which a complete request must arrive."""
UNREPEATABLE_HEADERS = ("host", "origin", "content-type", "authorization", "x-original-principal")
"""Headers that decide whether a request is allowed. A repeated one is rejected, because a proxy may have checked the
other copy."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The method, target and headers of a request."""

    method: str
    target: str
    """Path and query, as the client sent them."""
    headers: dict[str, str]
    """Header name in lower case -> value of its first occurrence."""
    repeated: frozenset[str] = frozenset()
    """Names of headers that occur more than once."""
    local_address: str = ""
    """The address of the region that the client connected to."""
    client_host: str = ""
    """The address of the client, without its port."""
    certificate: Any = None
    """The client's verified certificate, as `ssl.SSLSocket.getpeercert` describes it; None or empty: it has none."""

    @property
    def host(self) -> str:
        """The client's Host header: a name or address, with an optional port."""
        return self.headers.get("host", "")

    @property
    def has_body(self) -> bool:
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `content`: JSON, text or bytes; None for a response without a body."""

    content: Any = None
    status: int = 200
    text: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        if self.content is None:
            return b""
        if isinstance(self.content, bytes):
            return self.content
        return str(self.content).encode() if self.text else json.dumps(self.content).encode()


class HttpError(Exception):
    """An error response with the body `{"reason": …}`, as in Pulsar's admin API."""

    def __init__(self, status: int, reason: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        super().__init__(reason)

    def response(self) -> Response:
        return Response({"reason": self.reason}, self.status, headers=self.headers)


PreparedCall = Callable[[bytes], Awaitable[Response]]
"""Executes a request whose head was accepted; called with the body."""


class Application(Protocol):
    """The application that the server calls."""

    def begin(self, head: RequestHead) -> PreparedCall:
        """Check a request before its body is read. HttpError for a rejected request."""
        ...


class HttpConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self,
        application: Application,
        spawn: Callable[[Any], None],
        connections: HttpConnections,
    ) -> None:
        """`connections`: those of the server, with their limits."""
        self._connections = connections
        self._slow_senders = connections.slow_senders
        self._small_reads = SmallReads()
        self._application = application
        self._spawn = spawn
        self._http = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._local_address = ""
        self._client_host = ""
        self._certificate: Any = None
        self._method = ""
        self._call: PreparedCall | None = None
        """The call to make with the body; None if the request was rejected and its body is dropped."""
        self._body = bytearray()
        self._is_executing = False
        """Whether a request is executed; meanwhile reading is paused, and further requests wait."""
        self._rejected_bytes = 0
        """Number of bytes of a rejected body that were read so far."""
        self._write_paused = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def handshakes(self) -> HttpConnections:
        """The limits in which a handshake of TLS counts, too: it is a wait for a request."""
        return self._connections

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._local_address = own_address(transport)
        self._client_host = peer_host(transport)
        self._certificate = transport.get_extra_info("peercert")
        if self._connections.admit(self, self._client_host):
            self._start_deadline()
        else:
            self._reject(HttpError(503, "too many connections execute requests", (("retry-after", "1"),)))
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.release(self)
        self._slow_senders.end_pause(self)
        self._transport = None
        self._cancel_deadline()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._hold_unsent()
        self._advance()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._advance()
        if self._is_executing or not self._is_open:
            self._small_reads.reset()
        elif self._small_reads.is_slow_after(len(data)):
            assert self._transport is not None
            self._transport.pause_reading()
            self._slow_senders.pause(self)

    def read_again(self) -> None:
        if self._is_open and not self._is_executing:
            assert self._transport is not None
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Handle the end of the client's bytes. Return True to stay open while a request is executed; connections with
        TLS end in both directions."""
        self._http.receive_data(b"")
        self._advance()
        secured = self._transport is not None and self._transport.get_extra_info("ssl_object") is not None
        return self._is_executing and not secured

    def _start_deadline(self) -> None:
        self._cancel_deadline()
        self._deadline = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._time_out)

    def _time_out(self) -> None:
        """End the connection, after a last read if it is paused: the rest of its request may have arrived."""
        if self._slow_senders.end_pause(self):
            self.read_again()
            self._deadline = asyncio.get_running_loop().call_later(LAST_READ_SECONDS, self.abort)
        else:
            self.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abort(self) -> None:
        """End the connection at once, without the rest of a response."""
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        """Close the connection when its client has received the response, for which it has IDLE_SECONDS."""
        if self._transport is not None:
            self._transport.close()
            self._start_deadline()

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # Requests.

    def _advance(self) -> None:
        """Process received bytes. After invalid HTTP, send an error response and close the connection."""
        try:
            self._process_events()
        except h11.RemoteProtocolError as problem:
            self._reject(HttpError(problem.error_status_hint or 400, str(problem)))
            self._close()

    def _process_events(self) -> None:
        while not self._is_executing and not self._write_paused and self._is_open:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._receive_body(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._execute()
            else:
                if isinstance(event, h11.ConnectionClosed):
                    self._close()
                return

    def _begin(self, request: h11.Request) -> None:
        self._body.clear()
        self._method = request.method.decode("ascii")
        head = _head_of(request, self._local_address, self._client_host, self._certificate)
        try:
            self._call = self._prepare(head)
        except HttpError as problem:
            if head.has_body:
                self._call = None
                self._rejected_bytes = 0
                self._reject(problem)
            else:
                self._call = _rejecting_call(problem)
            return
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def _prepare(self, head: RequestHead) -> PreparedCall:
        length = head.headers.get("content-length", "0")
        for name in UNREPEATABLE_HEADERS:
            if name in head.repeated:
                raise HttpError(400, f"the header {name.title()} may be sent once")
        call = self._application.begin(head)
        if len(length) > 18 or int(length) > BODY_BYTES_MAX:
            raise _body_too_large()
        return call

    def _receive_body(self, data: bytes) -> None:
        if self._call is None:
            self._rejected_bytes += len(data)
            if self._rejected_bytes > REJECTED_BODY_BYTES_MAX:
                self._close()
            return
        self._body += data
        self._connections.hold(self, len(self._body))
        if len(self._body) > BODY_BYTES_MAX:
            self._call = None
            self._rejected_bytes = len(self._body)
            self._body.clear()
            self._reject(_body_too_large())

    def _execute(self) -> None:
        """Execute a request that was received completely."""
        if self._call is None:
            self._close()
            return
        self._is_executing = True
        self._connections.executes(self)
        self._cancel_deadline()
        assert self._transport is not None, "_process_events handles events of open connections"
        self._transport.pause_reading()
        self._spawn(self._serve(self._call, bytes(self._body)))

    async def _serve(self, call: PreparedCall, body: bytes) -> None:
        try:
            response = await call(body)
        except HttpError as problem:
            response = problem.response()
        except Exception as bug:
            response = self._internal_error(bug)
        try:
            self._send_response(response)
        except Exception as bug:  # the result cannot be encoded as JSON; nothing was sent yet
            self._send_response(self._internal_error(bug))
        self._finish_request()

    def _hold_unsent(self) -> None:
        assert self._transport is not None
        self._connections.hold(self, self._transport.get_write_buffer_size())

    def _internal_error(self, bug: Exception) -> Response:
        logger.error("%s failed", self._method, exc_info=bug)
        return Response({"reason": f"internal error: {type(bug).__name__}: {bug}"}, status=500)

    def _finish_request(self) -> None:
        """Prepare for the next request on this connection, or close it."""
        self._is_executing = False
        self._connections.waits(self)
        if self._transport is None:
            return
        self._hold_unsent()
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._method = ""  # the response to invalid bytes after a HEAD request has a body
            self._start_deadline()
            self._transport.resume_reading()
            self._advance()
        else:
            self._close()

    # Responses.

    def _reject(self, problem: HttpError) -> None:
        """Reject a request before it is complete, and announce the end of the connection: where the next request
        begins is unknown."""
        response = problem.response()
        headers_with_close = (*response.headers, ("connection", "close"))
        self._send_response(Response(response.content, response.status, headers=headers_with_close))

    def _send_response(self, response: Response) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = response.body()
        headers = [(name.encode(), value.encode()) for name, value in response.headers]
        if response.status != HTTPStatus.NO_CONTENT:
            plain = "application/octet-stream" if isinstance(response.content, bytes) else "text/plain"
            kind = plain if response.text or isinstance(response.content, bytes) else "application/json"
            if all(name != b"content-type" for name, _ in headers):
                headers.append((b"content-type", kind.encode()))
            headers += [(b"content-length", b"%d" % len(body))]
        phrase = HTTPStatus(response.status).phrase
        self._send(h11.Response(status_code=response.status, headers=headers, reason=phrase))
        if body and self._method != "HEAD":
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None and self._is_open:
            self._transport.write(data)


def _head_of(request: h11.Request, local_address: str, client_host: str, certificate: Any) -> RequestHead:
    headers: dict[str, str] = {}
    repeated: set[str] = set()
    for raw_name, value in request.headers:
        name = raw_name.decode("ascii")
        if name in headers:
            repeated.add(name)
        headers.setdefault(name, value.decode("latin-1"))
    method, target = request.method.decode("ascii"), request.target.decode("ascii", "replace")
    return RequestHead(method, target, headers, frozenset(repeated), local_address, client_host, certificate)


def _body_too_large() -> HttpError:
    return HttpError(413, f"a body may have {BODY_BYTES_MAX} bytes at most")


def _rejecting_call(problem: HttpError) -> PreparedCall:
    """Return a call that rejects a request without a body; the connection stays open."""

    async def reject(body: bytes) -> Response:
        raise problem

    return reject
