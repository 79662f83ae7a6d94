"""A small HTTP/1.1 server on h11: one request at a time per connection, JSON or text answers.

Runs on whatever Network it is given, so that it can be simulated like everything else.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = 1_048_576


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    method: str
    path: tuple[str, ...]
    """Segments, unquoted after splitting, so that a quoted slash stays inside its segment."""
    query: dict[str, str]
    body: bytes
    host: str = ""
    """What the client called us: a name or address and perhaps a port."""

    def json(self) -> Any:
        """The body as JSON. HttpError 400 when it is none."""
        try:
            return json.loads(self.body)
        except ValueError as problem:
            raise HttpError(400, f"body is not JSON: {problem}") from None


@dataclass(frozen=True, slots=True)
class Response:
    """What to answer. `content` None: no body."""

    content: Any = None
    status: int = 200
    text: bool = False

    def body(self) -> bytes:
        if self.content is None:
            return b""
        return str(self.content).encode() if self.text else json.dumps(self.content).encode()


class HttpError(Exception):
    """Answered as `{"reason": …}`, the way Pulsar's admin API does."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


Handler = Callable[[Request], Awaitable[Response]]


class HttpConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, handler: Handler, spawn: Callable[[Any], None]) -> None:
        self._handler = handler
        self._spawn = spawn
        self._http = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._head: h11.Request | None = None
        self._body = b""
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._advance()
        except h11.RemoteProtocolError as problem:
            self._answer(Response({"reason": str(problem)}, status=problem.error_status_hint or 400))
            self._close()

    def _advance(self) -> None:
        while not self._busy:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._head, self._body = event, b""
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                self._busy = True
                self._spawn(self._serve())
            else:
                if isinstance(event, h11.ConnectionClosed):
                    self._close()
                return

    async def _serve(self) -> None:
        assert self._head is not None
        url = urlsplit(self._head.target.decode("ascii", "replace"))
        request = Request(
            method=self._head.method.decode(),
            path=tuple(unquote(part) for part in url.path.strip("/").split("/")),
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            body=self._body,
            host=dict(self._head.headers).get(b"host", b"").decode("ascii", "replace"),
        )
        try:
            response = await self._handler(request)
        except HttpError as problem:
            response = Response({"reason": problem.reason}, status=problem.status)
        except Exception as bug:
            logger.exception("%s %s failed", request.method, url.path)
            response = Response({"reason": f"internal error: {type(bug).__name__}: {bug}"}, status=500)
        self._answer(response)
        self._next()

    def _answer(self, response: Response) -> None:
        body = response.body()
        kind = "text/plain" if response.text else "application/json"
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        if response.status == HTTPStatus.NO_CONTENT:
            headers = []
        head = h11.Response(
            status_code=response.status, headers=headers, reason=HTTPStatus(response.status).phrase
        )
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            if isinstance(event, h11.Data) and not body:
                continue
            data = self._http.send(event)
            if data and self._transport is not None:
                self._transport.write(data)

    def _next(self) -> None:
        """Be ready for the next request on this connection, or end it."""
        self._busy = False
        if self._http.our_state is h11.MUST_CLOSE:
            self._close()
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            try:
                self._advance()
            except h11.RemoteProtocolError:
                self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
