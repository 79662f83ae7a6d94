"""Outgoing messages, and pending entries: sent or not, without a receipt."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypedDict

from emulator.client.config import Batching
from emulator.client.transactions import Transaction
from emulator.client.types import ClientError, MessageId


class MessageOptions(TypedDict, total=False):
    """Attributes of a message besides its payload."""

    key: str | None
    """Message key. Messages with equal keys go to the same partition, as with other clients."""
    properties: Mapping[str, str]
    event_time_ms: int | None
    deliver_at_ms: int | None
    """Time of delivery by Shared and Key_Shared subscriptions, by the wall clock of their region."""
    replicate_to: Sequence[str]
    """Regions that the message is replicated to; empty: all."""
    transaction: Transaction | None
    """Transaction whose commit makes the message visible."""


@dataclass(slots=True)
class OutgoingMessage:
    """One message that the application publishes."""

    payload: bytes
    future: asyncio.Future[MessageId]
    """Future of the message id, resolved by the receipt."""
    requested_sequence_id: int | None = None
    """Sequence id requested by the application; None: the next one."""
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    replicate_to: Sequence[str] = ()
    transaction: Transaction | None = None
    sequence_id: int = -1
    """Sequence id, assigned at publishing."""

    @property
    def is_never_batched(self) -> bool:
        return bool(self.replicate_to) or self.deliver_at_ms is not None or self.transaction is not None

    def fail(self, error: ClientError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # Mark as retrieved: the caller may have stopped waiting.


@dataclass(slots=True)
class PendingEntry:
    """One entry without a receipt, sent or to be sent."""

    messages: list[OutgoingMessage]
    data: bytes
    is_batch: bool
    give_up_at: float
    """Loop time at which the send times out, not before that of the preceding entry."""
    chunk: int = 0
    """Index of the chunk in its message; 0 for a message that is not chunked."""
    chunks: int = 1
    entry_bytes_max: int = 0
    """Maximum entry size by which the message was divided into chunks."""
    times_sent: int = 0
    """Number of sends; above 1, a rejection leaves open whether an earlier send was stored."""

    @property
    def is_last_chunk(self) -> bool:
        """Whether this is the last chunk, whose receipt confirms the whole message."""
        return self.chunk == self.chunks - 1

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
    """Pending entries in the order of their sequence ids; a receipt removes the head.

    `messages_max`: maximum number of messages in the pending entries and the open batch."""

    def __init__(self, messages_max: int, timeout_seconds: float | None) -> None:
        self.messages_max = messages_max
        self.messages = 0
        """Number of messages in the pending entries and the open batch."""
        self._timeout_seconds = timeout_seconds
        self._entries: deque[PendingEntry] = deque()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._timer: asyncio.TimerHandle | None = None
        """Timer that is due when the head times out, or before."""

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

    async def wait_for_room(self, is_ended: Callable[[], bool]) -> None:
        """Wait until the queue is not full, or `is_ended` returns true."""
        while self.is_full and not is_ended():
            self._has_room.clear()
            await self._has_room.wait()

    def refuse(self, message: OutgoingMessage, error: ClientError) -> None:
        """Fail a message that was counted in `messages` and is not sent."""
        self.messages -= 1
        self._has_room.set()
        message.fail(error)

    def add(
        self, messages: list[OutgoingMessage], data: bytes, *, is_batch: bool, chunk: int = 0, chunks: int = 1
    ) -> PendingEntry:
        loop, timeout = asyncio.get_running_loop(), self._timeout_seconds
        give_up_at = inf if timeout is None else loop.time() + timeout
        pending = PendingEntry(messages, data, is_batch, give_up_at, chunk, chunks)
        self._entries.append(pending)
        if timeout is not None and self._timer is None:
            self._timer = loop.call_at(give_up_at, self._fail_timed_out)
        return pending

    def pop(self) -> PendingEntry:
        pending = self._entries.popleft()
        if pending.is_last_chunk:
            self.messages -= len(pending.messages)
            self._has_room.set()
        return pending

    def fail_all(self, error: ClientError) -> None:
        """Fail all entries; no more will be added."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._entries:
            self.pop().fail(error)

    def _fail_timed_out(self) -> None:
        """Fail the entries that have timed out; they may be stored, and are not sent again. One timer serves all
        entries: most receipts arrive long before it is due."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._entries and self.head.give_up_at <= loop.time():
            self.pop().fail(ClientError("no receipt in time", definite=False, code=None))
        if self._entries:
            self._timer = loop.call_at(self.head.give_up_at, self._fail_timed_out)


class OpenBatch:
    """The messages of the next batch, passed to `issue` in order when a limit is reached."""

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
