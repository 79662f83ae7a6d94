"""A table of the newest message of each key, kept up to date. Not consistent in time: each key by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from emulator.client.messages import Message
from emulator.client.types import ClientError, MessageId

if TYPE_CHECKING:
    from emulator.client.reader import Reader

Listener = Callable[[str, bytes | None], None]
"""Told of a key and its new value; None: the key is gone."""


class TableView(Mapping[str, bytes]):
    """Made by `Client.table_view`. Messages without a key are passed over; an empty one takes its key out."""

    def __init__(self, reader: Reader) -> None:
        self.topic = reader.topic
        self._reader = reader
        self._values: dict[str, bytes] = {}
        self._read_upto: dict[str, MessageId] = {}
        """By topic or partition."""
        self._listeners: list[Listener] = []
        self._failure: ClientError | None = None
        self._read_more = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when everything that was stored before is in the table. ClientError."""
        self._following = asyncio.get_running_loop().create_task(self._follow())
        await self.refresh()

    async def _follow(self) -> None:
        try:
            while True:
                self._take(await self._reader.receive())
        except ClientError as failure:
            self._failure = failure
        finally:
            self._read_more.set()

    def _take(self, message: Message) -> None:
        self._read_upto[message.topic] = message.id
        self._read_more.set()
        if message.key is None:
            return
        if message.payload:
            self._values[message.key] = message.payload
        elif self._values.pop(message.key, None) is None:
            return
        for listener in list(self._listeners):
            self._tell(listener, message.key, message.payload or None)

    def _tell(self, listener: Listener, key: str, value: bytes | None) -> None:
        """A listener that fails is the application's affair, which hears of it as of any callback that fails; the table
        and the other listeners go on."""
        try:
            listener(key, value)
        except Exception as problem:
            sentence = f"a listener of the table view of {self.topic} failed at key {key!r}"
            asyncio.get_running_loop().call_exception_handler({"message": sentence, "exception": problem})

    async def refresh(self) -> None:
        """Wait until everything that is stored by now is in the table. ClientError when that cannot be told, or the
        view has ended."""
        wanted = await self._reader.last_message_ids()
        while not all(self._has_read(topic, last) for topic, last in wanted.items()):
            self._check()
            if not await self._reader.has_message():
                return  # The last ones are no messages for readers: markers, or of an aborted transaction.
            self._read_more.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._reader.client.settings.request_timeout_seconds):
                    await self._read_more.wait()
        self._check()

    def _has_read(self, topic: str, last: MessageId | None) -> bool:
        read = self._read_upto.get(topic)
        return last is None or (read is not None and read[:3] >= last[:3])

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def listen(self, listener: Listener, *, existing: bool = False) -> None:
        """Tell of each change from now on; `existing`: first of everything that is in the table."""
        self._listeners.append(listener)
        if existing:
            for key, value in list(self._values.items()):
                listener(key, value)

    # Looking.

    def __getitem__(self, key: str) -> bytes:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    async def close(self) -> None:
        """What is in the table stays there, and grows old."""
        await self._reader.close()
        if self._following is not None:
            await asyncio.wait([self._following])
