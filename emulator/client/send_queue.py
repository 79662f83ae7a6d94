"""Messages to be sent, and sent entries that have no receipt yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from emulator.client.config import Batching
from emulator.client.transactions import Transaction
from emulator.client.types import ClientError, MessageId


@dataclass(slots=True)
class OutgoingMessage:
    """One message that the application publishes."""

    payload: bytes
    key: str | None
    properties: Mapping[str, str]
    wanted_sequence_id: int | None
    """None: the next one."""
    event_time_ms: int | None
    deliver_at_ms: int | None
    replicate_to: Sequence[str]
    transaction: Transaction | None
    future: asyncio.Future[MessageId]
    """Its receipt."""
    sequence_id: int = -1
    """The one that it was given."""

    @property
    def goes_by_itself(self) -> bool:
        """Not in a batch."""
        return bool(self.replicate_to) or self.deliver_at_ms is not None or self.transaction is not None

    def fail(self, error: ClientError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # Mark as retrieved: the caller may have stopped waiting.


@dataclass(slots=True)
class PendingEntry:
    """One entry that is sent or to be sent, without a receipt."""

    messages: list[OutgoingMessage]
    data: bytes
    is_batch: bool
    give_up_at: float
    """Loop time at which the send times out. Not less than that of the message before it."""
    piece: int = 0
    pieces: int = 1
    """More than one: it is a chunk of a message."""
    entry_bytes_max: int = 0
    """By which the message was cut."""
    times_sent: int = 0
    """More than once: what is answered now says nothing of the earlier ones."""

    @property
    def is_last_piece(self) -> bool:
        """With its receipt the message is stored."""
        return self.piece == self.pieces - 1

    @property
    def first(self) -> int:
        return self.messages[0].sequence_id

    @property
    def last(self) -> int:
        return self.messages[-1].sequence_id

    def fail(self, error: ClientError) -> None:
        for message in self.messages:
            message.fail(error)


class SendQueue:
    """Sent or to be sent, no receipt yet; in order of their sequence ids. A receipt takes the head.

    `messages_max`: of those in them and those that are gathered for one."""

    def __init__(self, messages_max: int, timeout_seconds: float | None) -> None:
        self.messages_max = messages_max
        self.messages = 0
        """How many there are."""
        self._timeout_seconds = timeout_seconds
        self._entries: deque[PendingEntry] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self._timer: asyncio.TimerHandle | None = None
        """Due when the head is to be given up, or before."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PendingEntry]:
        return iter(self._entries)

    @property
    def head(self) -> PendingEntry:
        return self._entries[0]

    @property
    def is_full(self) -> bool:
        return self.messages >= self.messages_max

    async def room(self, is_over: Callable[[], bool]) -> None:
        """Wait until it is not full, or there is nothing to wait for."""
        while self.is_full and not is_over():
            self._room.clear()
            await self._room.wait()

    def refuse(self, message: OutgoingMessage, error: ClientError) -> None:
        """One that was counted is not sent after all."""
        self.messages -= 1
        self._room.set()
        message.fail(error)

    def add(
        self, messages: list[OutgoingMessage], data: bytes, *, is_batch: bool, piece: int = 0, pieces: int = 1
    ) -> PendingEntry:
        loop, timeout = asyncio.get_running_loop(), self._timeout_seconds
        give_up_at = inf if timeout is None else loop.time() + timeout
        pending = PendingEntry(messages, data, is_batch, give_up_at, piece, pieces)
        self._entries.append(pending)
        if timeout is not None and self._timer is None:
            self._timer = loop.call_at(give_up_at, self._timer_due)
        return pending

    def pop(self) -> PendingEntry:
        pending = self._entries.popleft()
        if pending.is_last_piece:
            self.messages -= len(pending.messages)
            self._room.set()
        return pending

    def fail_all(self, error: ClientError) -> None:
        """Nothing more comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._entries:
            self.pop().fail(error)

    def _timer_due(self) -> None:
        """What should have its receipt by now may be stored or not, and is not sent again. One timer for all of them:
        most receipts come long before, and then a timer of its own is only work for the loop."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._entries and self.head.give_up_at <= loop.time():
            self.pop().fail(ClientError("no receipt in time", definite=False, code=None))
        if self._entries:
            self._timer = loop.call_at(self.head.give_up_at, self._timer_due)


class OpenBatch:
    """What was gathered so far. `issue` is given all of it, in order."""

    def __init__(self, batching: Batching, issue: Callable[[list[OutgoingMessage]], None]) -> None:
        self._batching = batching
        self._issue = issue
        self._messages: list[OutgoingMessage] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: OutgoingMessage) -> None:
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
