"""Messages that wait for the application, and receivers that wait for messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from emulator.client.messages import Message
from emulator.client.types import ClientError


class Source(Protocol):
    """A consumer of one topic. Several may share an inbox."""

    def taken(self, message: Message) -> None:
        """The application has it: there is room for another one."""
        ...


Arrived = tuple[Source, Message]


class Inbox:
    """In the order in which messages came. Whoever puts something in keeps to the permits that its source gave."""

    def __init__(self) -> None:
        self._queue: deque[Arrived] = deque()
        self._wanted: deque[asyncio.Future[Arrived]] = deque()
        self.on_wanted: Callable[[], None] | None = None
        """Told when somebody begins to wait."""

    @property
    def messages(self) -> list[Message]:
        return [message for _, message in self._queue]

    @property
    def is_empty(self) -> bool:
        return not self._queue

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for a message."""
        return any(not future.done() for future in self._wanted)

    def has_of(self, source: Source) -> bool:
        return any(one is source for one, _ in self._queue)

    def put(self, source: Source, message: Message) -> None:
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_result((source, message))
                return
        self._queue.append((source, message))

    async def take(self) -> Message:
        """The next one. ClientError when none will come (`fail`)."""
        source, message = self._queue.popleft() if self._queue else await self._next()
        source.taken(message)
        return message

    async def _next(self) -> Arrived:
        future: asyncio.Future[Arrived] = asyncio.get_running_loop().create_future()
        self._wanted.append(future)
        if self.on_wanted is not None:
            self.on_wanted()
        try:
            return await future
        except asyncio.CancelledError:
            # A deadline that passes in the breath in which a message came must not cost the message.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._queue.appendleft(future.result())
            raise

    def drop(self, source: Source) -> int:
        """Throw away what came from it: it comes again. Gives how many they were."""
        before = len(self._queue)
        self._queue = deque(each for each in self._queue if each[0] is not source)
        return before - len(self._queue)

    def fail(self, error: ClientError) -> None:
        """Nothing more will come: whoever waits is told."""
        for future in self._wanted:
            if not future.done():
                future.set_exception(error)
        self._wanted.clear()
