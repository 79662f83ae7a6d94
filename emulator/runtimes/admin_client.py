"""The few HTTP calls that a runtime makes to its regions.

Over h11, which every region needs anyway: general HTTP clients cost a noticeable part of a start in imports.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import h11

ANSWER_SECONDS = 2.0
_CHUNK_BYTES = 65_536


class NoAnswer(Exception):
    """Nobody listens, or whoever does gave no complete answer in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON. ValueError when it is none."""
        return json.loads(self.body)


class Exchange:
    """One request on a connection of its own: `send`, then `receive`. Two steps, because a frozen region can
    be sent a request that it finds when it thaws."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._protocol = h11.Connection(h11.CLIENT)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, method: str, target: str, body: Any = None) -> None:
        """Connect and send the request with `body` as JSON. NoAnswer when nobody listens."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = [
            ("host", f"{self._host}:{self._port}"),
            ("connection", "close"),
            ("content-type", "application/json"),
            ("content-length", str(len(content))),
        ]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        except OSError as failure:  # TimeoutError is one
            raise NoAnswer(f"{self._host}:{self._port}: {failure or 'no answer'}") from failure
        for event in (
            h11.Request(method=method, target=target, headers=headers),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._protocol.send(event) or b"")

    async def receive(self, *, seconds: float = ANSWER_SECONDS) -> Answer:
        """The answer. NoAnswer when it is not complete in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._receive()
        except (OSError, h11.RemoteProtocolError) as failure:
            raise NoAnswer(f"{self._host}:{self._port}: {failure or 'no answer'}") from failure

    async def _receive(self) -> Answer:
        assert self._reader is not None, "send comes first"
        status, body = 0, b""
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                self._protocol.receive_data(await self._reader.read(_CHUNK_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return Answer(status, body)
            elif isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("closed without an answer")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


async def call(
    host: str, port: int, method: str, target: str, body: Any = None, *, seconds: float = ANSWER_SECONDS
) -> Answer:
    """One request and its answer. NoAnswer when there is none."""
    exchange = Exchange(host, port)
    try:
        await exchange.send(method, target, body)
        return await exchange.receive(seconds=seconds)
    finally:
        exchange.close()
