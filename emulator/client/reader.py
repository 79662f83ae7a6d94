"""Readers: consumers that remember themselves where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.client.consumer import Consumer
from emulator.client.messages import Message
from emulator.client.vocabulary import (
    EARLIEST,
    LATEST,
    ClientError,
    ConsumerType,
    InitialPosition,
    MessageId,
)
from emulator.wire import requests

if TYPE_CHECKING:
    from emulator.client.client import Client


class Reader(Consumer):
    """Made by `Client.reader`. Its place is its own: nothing is kept at the broker."""

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str,
        start: MessageId,
        *,
        inclusive: bool,
        receiver_queue_size: int,
        read_compacted: bool = False,
    ) -> None:
        super().__init__(
            client,
            topic,
            name,
            type_=ConsumerType.EXCLUSIVE,
            initial_position=InitialPosition.LATEST,
            replicated=False,
            name=name,
            priority_level=0,
            receiver_queue_size=receiver_queue_size,
            read_compacted=read_compacted,
        )
        self._start = start
        self._inclusive = inclusive

    def _start_place(self) -> requests.Place | None:
        return self._start[:3]

    def _wants(self, message_id: MessageId) -> bool:
        """The broker begins at the start id itself; what was not asked for is dropped here."""
        place = (message_id.ledger, message_id.entry, message_id.batch_index)
        start = (self._start.ledger, self._start.entry, self._start.batch_index)
        if self._start == LATEST or self._start.ledger < 0:
            return True
        return place >= start if self._inclusive else place > start

    def _take(self, message: Message) -> Message:
        self._start, self._inclusive = message.id, False
        return super()._take(message)

    async def seek(self, target: MessageId | int) -> None:
        """The broker keeps the place sought until the reader is back; what lies before the place left is wanted
        again."""
        start, inclusive = self._start, self._inclusive
        self._start, self._inclusive = (EARLIEST if isinstance(target, int) else target), True
        try:
            await super().seek(target)
        except ClientError:
            self._start, self._inclusive = start, inclusive
            raise

    async def has_message(self) -> bool:
        """Whether `receive` would return something that is stored by now."""
        if self._queue:
            return True
        last = await self.last_message_id()
        if last is None or self._start == LATEST:
            return False
        return self._wants(last)
