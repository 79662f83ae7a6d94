"""Messages that are to be delivered again when their time has come, unless something is said of them before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from emulator.client.messages import Message
from emulator.client.types import MessageId


class Overdue:
    """All wait for the same time, so whoever came first is due first. `due` is told of all whose time has come."""

    def __init__(self, seconds: float, due: Callable[[Sequence[Message]], None]) -> None:
        self._seconds = seconds
        self._due = due
        self._waiting: dict[MessageId, tuple[float, Message]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: Message) -> None:
        """From now on; one that waits goes on waiting."""
        loop = asyncio.get_running_loop()
        self._waiting.setdefault(message.id, (loop.time() + self._seconds, message))
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    def remove(self, id_: MessageId) -> None:
        self._waiting.pop(id_, None)

    def remove_upto(self, id_: MessageId) -> None:
        for one in [one for one in self._waiting if one[:3] <= id_[:3]]:
            del self._waiting[one]

    def clear(self) -> None:
        """All come again by themselves, or nobody wants them."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """One timer for all: most are settled long before it is due."""
        self._timer = None
        loop, came = asyncio.get_running_loop(), []
        while self._waiting:
            id_, (at, message) = next(iter(self._waiting.items()))
            if at > loop.time():
                self._timer = loop.call_at(at, self._look)
                break
            del self._waiting[id_]
            came.append(message)
        if came:
            self._due(came)
