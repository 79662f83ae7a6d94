"""Batches: several messages that go out as one entry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from emulator.client.send_queue import Outgoing


@dataclass(frozen=True, slots=True)
class Batching:
    """Gather messages into one entry until any of these is reached."""

    messages_max: int = 1000
    bytes_max: int = 131_072
    delay_ms_max: float = 1.0


class OpenBatch:
    """What was gathered so far. `issue` is given all of it, in order."""

    def __init__(self, batching: Batching, issue: Callable[[list[Outgoing]], None]) -> None:
        self._batching = batching
        self._issue = issue
        self._messages: list[Outgoing] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: Outgoing) -> None:
        self._messages.append(message)
        self._bytes += len(message.payload)
        if len(self._messages) >= self._batching.messages_max or self._bytes >= self._batching.bytes_max:
            self.flush()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._batching.delay_ms_max / 1000, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._messages:
            messages, self._messages, self._bytes = self._messages, [], 0
            self._issue(messages)
