"""A client for the HTTP ports of regions, on any Network: real sockets or simulated ones.

    response = await call(network, "us-east", 8080, "GET", "/geoemu/v1/status")

It uses h11, which every region imports anyway: importing a general HTTP client would slow the start noticeably.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import h11

from emulator.net.network import Network
from emulator.net.tls import described

RESPONSE_SECONDS = 2.0


class NoHttpResponse(Exception):
    """No program listens on the port, or it sent no complete response in time."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a region."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body, parsed as JSON. Raises ValueError if it is not JSON."""
        return json.loads(self.body)


class HttpExchange(asyncio.Protocol):
    """One request on its own connection: `send`, then `receive`. They are separate so that a request can be sent to a
    paused region, which handles it when it is resumed."""

    def __init__(self, network: Network, host: str, port: int, authorization: str = "") -> None:
        """`authorization`: value of the header Authorization; empty: none."""
        self._network = network
        self._authorization = authorization
        self._host = host
        self._port = port
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._status = 0
        self._body = b""
        self._response: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()

    async def send(
        self, method: str, target: str, body: Any = None, *, seconds: float = RESPONSE_SECONDS
    ) -> None:
        """Connect and send the request with `body` as JSON. Raises NoHttpResponse if no connection, with TLS if the
        network has it, is established within `seconds`."""
        content = b"" if body is None else json.dumps(body).encode()
        host = f"[{self._host}]" if ":" in self._host else self._host
        headers = [
            ("host", f"{host}:{self._port}"),
            ("connection", "close"),
            ("content-type", "application/json"),
            ("content-length", str(len(content))),
        ]
        if self._authorization:
            headers.append(("authorization", self._authorization))
        try:
            async with asyncio.timeout(seconds):
                transport, _ = await self._network.connect(lambda: self, self._host, self._port)
        except OSError as failure:  # TimeoutError is one
            raise NoHttpResponse(
                f"{self._host}:{self._port}: {described(failure) or 'no response'}"
            ) from failure
        for event in (
            h11.Request(method=method, target=target, headers=headers),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            transport.write(self._http.send(event) or b"")

    async def receive(self, *, seconds: float = RESPONSE_SECONDS) -> HttpResponse:
        """Return the response. Raises NoHttpResponse if it is not complete within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._response
        except (OSError, h11.RemoteProtocolError) as failure:
            raise NoHttpResponse(
                f"{self._host}:{self._port}: {described(failure) or 'no response'}"
            ) from failure

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._response.cancel()

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def eof_received(self) -> None:
        self._receive(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or h11.RemoteProtocolError("closed without a response"))

    def _receive(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while not self._response.done():
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    self._response.set_result(HttpResponse(self._status, self._body))
                elif not isinstance(event, h11.InformationalResponse):
                    return
        except h11.RemoteProtocolError as problem:
            self._fail(problem)

    def _fail(self, failure: Exception) -> None:
        if not self._response.done():
            self._response.set_exception(failure)
            self._response.exception()  # mark as retrieved: the caller may not wait for it


async def call(
    network: Network,
    host: str,
    port: int,
    method: str,
    target: str,
    body: Any = None,
    *,
    seconds: float = RESPONSE_SECONDS,
    authorization: str = "",
) -> HttpResponse:
    """Send one request and return its response. Raises NoHttpResponse if connecting, or the response after it, takes
    longer than `seconds`. `authorization`: value of the header Authorization; empty: none."""
    exchange = HttpExchange(network, host, port, authorization)
    try:
        await exchange.send(method, target, body, seconds=seconds)
        return await exchange.receive(seconds=seconds)
    finally:
        exchange.close()
