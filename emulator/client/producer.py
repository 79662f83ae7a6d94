"""A producer: sends in order, receipts in order, everything without a receipt again after a reconnect.

pending   sent or to be sent, no receipt yet; in order of their sequence ids. A receipt takes the head.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from emulator.client.connection import answered_otherwise, refusal, refused
from emulator.client.priority import checked_priority, return_delay_seconds
from emulator.client.vocabulary import ClientError, MessageId, Standing
from emulator.errors import ServerError
from emulator.model import AccessMode, Schema
from emulator.wire import requests
from emulator.wire.codec import Receipt, send_frame
from emulator.wire.outgoing import batch_entry, single_entry
from emulator.wire.replies import ProducerOpened, Refused, Reply

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.connection import Connection
    from emulator.client.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Batching:
    """Gather messages into one entry until any of these is reached."""

    messages_max: int = 1000
    bytes_max: int = 131_072
    delay_ms_max: float = 1.0


@dataclass(slots=True)
class _Message:
    sequence_id: int
    payload: bytes
    key: str | None
    properties: Mapping[str, str]
    event_time_ms: int | None
    deliver_at_ms: int | None
    replicate_to: Sequence[str]
    future: asyncio.Future[MessageId]
    transaction: Transaction | None = None


@dataclass(slots=True)
class _Pending:
    """One entry on its way."""

    messages: list[_Message]
    data: bytes
    is_batch: bool
    give_up_at: float
    """Loop time at which there should have been a receipt. Not less than that of who is before it."""
    times_sent: int = 0
    """More than once: what is answered now says nothing of the earlier ones."""

    @property
    def first(self) -> int:
        return self.messages[0].sequence_id

    @property
    def last(self) -> int:
        return self.messages[-1].sequence_id


class Producer:
    """Made by `Client.producer`."""

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str | None,
        access_mode: AccessMode,
        priority: int,
        initial_sequence_id: int | None,
        batching: Batching | None,
        pending_messages_max: int,
        schema: Schema | None = None,
    ) -> None:
        self.client = client
        self.topic = topic
        self.name = name or ""
        """Given by the broker when none was asked for."""
        self.access_mode = access_mode
        self.topic_epoch: int | None = None
        """Granted by the broker to an exclusive producer; sent with every reconnect (PIP-68)."""
        self.last_sequence_id = -1 if initial_sequence_id is None else initial_sequence_id
        self.schema = schema
        self.schema_version = b""
        """Told by the region; each message says it. Empty: it has no schema."""
        self.closed = False
        self.on_standing: Callable[[Producer, Standing], None] | None = None
        self._name_is_given = name is not None
        self._sequence_is_given = initial_sequence_id is not None
        self._priority = checked_priority(priority)
        self._batching = batching
        self._pending_max = pending_messages_max
        self._id = client.new_id()
        self._connection: Connection | None = None
        self._epoch = 0
        self._pending: deque[_Pending] = deque()
        self._pending_messages = 0
        self._room = asyncio.Event()
        self._room.set()
        self._batch: list[_Message] = []
        self._batch_bytes = 0
        self._batch_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        """Due when the first of `_pending` is to be given up, or before."""
        self._reconnecting: asyncio.Task[None] | None = None
        self._fatal: ClientError | None = None

    @property
    def priority(self) -> int:
        """Where it stands in line. Fixed when the producer is made (PIP-440): setting it raises AttributeError."""
        return self._priority

    @property
    def is_connected(self) -> bool:
        """A region serves it; otherwise it is on its way back to one, closed or fenced."""
        return self._connection is not None

    # Opening.

    async def start(self) -> None:
        """Called by the client."""
        waits = self.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
        deadline = None if waits else self.client.settings.operation_timeout_seconds
        await self.client.persist(self._open, deadline_seconds=deadline)

    async def _open(self) -> None:
        connection = await self.client.connection_for(self.topic)
        await self._let_others_pass()
        request_id = self.client.new_id()
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Reply] = loop.create_future()
        connection.producers[self._id] = self
        self._connection = None
        self._stands(Standing.ASKS)
        try:
            opened = await connection.request(request_id, self._create_request(request_id), _resolve(ready))
            self._still_wanted_by(connection)
            if isinstance(opened, ProducerOpened) and not opened.is_ready:
                opened = await self._wait_in_line(ready)
                self._still_wanted_by(connection)
            if not isinstance(opened, ProducerOpened):
                raise answered_otherwise("a request for a producer", opened)
        except BaseException as reason:
            connection.producers.pop(self._id, None)
            if isinstance(reason, asyncio.CancelledError):  # In line or not yet: out of it at once.
                self._send_close(connection)
            raise
        finally:
            connection.forget_request(request_id)
        self._opened(connection, opened)

    def _still_wanted_by(self, connection: Connection) -> None:
        """ClientError when it ended in the same breath in which it was answered: before this task heard of either."""
        if connection.producers.get(self._id) is not self or not connection.is_open:
            raise ClientError("closed again at once", definite=True)

    async def _wait_in_line(self, ready: asyncio.Future[Reply]) -> Reply:
        """Queued for exclusive access: the second answer comes when it is our turn."""
        self._line_lost = ready
        self._stands(Standing.WAITS)
        return await ready

    def _stands(self, standing: Standing) -> None:
        if self.on_standing is not None:
            self.on_standing(self, standing)

    async def _let_others_pass(self) -> None:
        """Whoever asks again gives those with a higher priority time to be first (PIP-440)."""
        longest_seconds = self.client.settings.priority_delay_seconds
        asks_again = self._epoch > 0
        if asks_again and longest_seconds and self.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            await asyncio.sleep(return_delay_seconds(self._priority, longest_seconds))

    _line_lost: asyncio.Future[Reply] | None = None

    def _create_request(self, request_id: int) -> bytes:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return requests.create_producer(
            request_id,
            self._id,
            self.topic,
            self.name,
            name_is_given=self._name_is_given,
            epoch=epoch,
            access_mode=self.access_mode.value,
            topic_epoch=self.topic_epoch,
            priority=self._priority,
            schema=self.schema,
        )

    def _opened(self, connection: Connection, opened: ProducerOpened) -> None:
        self.name = opened.name
        if opened.topic_epoch is not None:
            self.topic_epoch = opened.topic_epoch
        if self.last_sequence_id < 0 and not self._sequence_is_given:
            # Nothing was sent yet, however often opening it was tried: go on where the region says.
            self.last_sequence_id = opened.last_sequence_id
        if opened.schema_version != self.schema_version:
            # Another cluster, maybe: what waits is to say what its schema is called there.
            self.schema_version = opened.schema_version
            for pending in self._pending:
                pending.data = self._entry(pending.messages, is_batch=pending.is_batch)
        self._connection = connection
        self._stands(Standing.OPEN)
        if self._pending:
            connection.write(b"".join([self._frame(pending) for pending in self._pending]))

    # Sending.

    async def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        sequence_id: int | None = None,
        event_time_ms: int | None = None,
        deliver_at_ms: int | None = None,
        replicate_to: Sequence[str] = (),
        transaction: Transaction | None = None,
    ) -> MessageId:
        """Publish and wait for the receipt. ClientError.definite tells whether a failed send certainly left nothing.
        `deliver_at_ms`: Shared and Key_Shared subscriptions deliver it then, by the wall clock of their region.
        In a transaction the message counts once that commits; ExpiredTransaction when it was fenced."""
        if transaction is not None:
            await transaction.will_publish_to(self.topic)
        while self._pending_messages >= self._pending_max and self._fatal is None and not self.closed:
            self._room.clear()
            await self._room.wait()
        return await self.send_nowait(
            payload,
            key=key,
            properties=properties,
            sequence_id=sequence_id,
            event_time_ms=event_time_ms,
            deliver_at_ms=deliver_at_ms,
            replicate_to=replicate_to,
            transaction=transaction,
        )

    def send_nowait(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        sequence_id: int | None = None,
        event_time_ms: int | None = None,
        deliver_at_ms: int | None = None,
        replicate_to: Sequence[str] = (),
        transaction: Transaction | None = None,
    ) -> asyncio.Future[MessageId]:
        """Publish without waiting; the future is the receipt. ClientError at once when closed, fenced or full, or when
        the transaction was not told of the topic (`Transaction.will_publish_to`). In a transaction nothing is
        batched."""
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ClientError("the producer is closed", definite=True)
        if self._pending_messages >= self._pending_max:
            raise ClientError(f"{self._pending_max} messages are waiting for receipts", definite=True)
        if transaction is not None and not transaction.publishes_to(self.topic):
            raise ClientError(f"{transaction} was not told of {self.topic}", definite=True)
        self.last_sequence_id = self.last_sequence_id + 1 if sequence_id is None else sequence_id
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        message = _Message(
            self.last_sequence_id,
            payload,
            key,
            properties or {},
            event_time_ms,
            deliver_at_ms,
            replicate_to,
            future,
            transaction,
        )
        self._pending_messages += 1
        by_itself = replicate_to or deliver_at_ms is not None or transaction is not None
        if self._batching is None or by_itself:
            self._flush_batch()
            self._issue([message], is_batch=False)
        else:
            self._add_to_batch(message, self._batching)
        return future

    def _add_to_batch(self, message: _Message, batching: Batching) -> None:
        self._batch.append(message)
        self._batch_bytes += len(message.payload)
        if len(self._batch) >= batching.messages_max or self._batch_bytes >= batching.bytes_max:
            self._flush_batch()
        elif self._batch_timer is None:
            loop = asyncio.get_running_loop()
            self._batch_timer = loop.call_later(batching.delay_ms_max / 1000, self._flush_batch)

    def _flush_batch(self) -> None:
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if self._batch:
            messages, self._batch, self._batch_bytes = self._batch, [], 0
            self._issue(messages, is_batch=True)

    def _issue(self, messages: list[_Message], *, is_batch: bool) -> None:
        loop, timeout = asyncio.get_running_loop(), self.client.settings.send_timeout_seconds
        give_up_at = inf if timeout is None else loop.time() + timeout
        pending = _Pending(messages, self._entry(messages, is_batch=is_batch), is_batch, give_up_at)
        self._pending.append(pending)
        if timeout is not None and self._send_timer is None:
            self._send_timer = loop.call_at(give_up_at, self._send_timer_due)
        if self._connection is not None:
            self._connection.write(self._frame(pending))

    def _entry(self, messages: list[_Message], *, is_batch: bool) -> bytes:
        now_ms = self.client.wall_clock_ms()
        if is_batch:
            return batch_entry(self.name, now_ms, messages, self.schema_version)
        transaction = messages[0].transaction
        txn = None if transaction is None else transaction.id
        return single_entry(self.name, now_ms, messages[0], self.schema_version, txn=txn)

    def _frame(self, pending: _Pending) -> bytes:
        """For sending it once (more)."""
        pending.times_sent += 1
        highest = pending.last if pending.is_batch else 0
        transaction = pending.messages[0].transaction
        most, least = (None, None) if transaction is None else transaction.id
        return send_frame(
            self._id,
            pending.first,
            len(pending.messages),
            highest,
            data=pending.data,
            txn_least=least,
            txn_most=most,
        )

    async def flush(self) -> None:
        """Wait until everything sent so far has its outcome."""
        self._flush_batch()
        waiting = [message.future for pending in self._pending for message in pending.messages]
        if waiting:
            await asyncio.wait(waiting)

    # What comes back.

    def receipt(self, receipt: Receipt) -> None:
        if not self._pending or receipt.sequence_id < self._pending[0].first:
            return  # Late: it was answered before a reconnect.
        if receipt.sequence_id > self._pending[0].last:
            # Receipts come in order, so one was lost: only sending again can tell.
            if self._connection is not None:
                self._connection.abort()
            return
        pending = self._pop_head()
        size = len(pending.messages)
        for index, message in enumerate(pending.messages):
            if not message.future.done():
                place = (index, size) if pending.is_batch else (-1, 0)
                message.future.set_result(MessageId(receipt.ledger_id, receipt.entry_id, *place))

    def send_error(self, sequence_id: int, code: ServerError, message: str) -> None:
        lasting = (ServerError.NotAllowedError, ServerError.ChecksumError)
        if code in lasting and self._pending and self._pending[0].first == sequence_id:
            pending = self._pop_head()
            self._fail(pending, refused(code, message, definite=pending.times_sent == 1))
        elif code is ServerError.TopicTerminatedError:
            self._die(ClientError(message, definite=False, code=code))
        else:
            self._reconnect()

    def _pop_head(self) -> _Pending:
        pending = self._pending.popleft()
        self._done(pending)
        return pending

    def _done(self, pending: _Pending) -> None:
        self._pending_messages -= len(pending.messages)
        self._room.set()

    def _fail(self, pending: _Pending, error: ClientError) -> None:
        for message in pending.messages:
            if not message.future.done():
                message.future.set_exception(error)
                message.future.exception()

    def _send_timer_due(self) -> None:
        """What should have its receipt by now may be stored or not, and is not sent again. One timer for all of them:
        most receipts come long before, and then a timer of its own is only work for the loop."""
        self._send_timer = None
        loop = asyncio.get_running_loop()
        while self._pending and self._pending[0].give_up_at <= loop.time():
            self._fail(self._pop_head(), ClientError("no receipt in time", definite=False, code=None))
        if self._pending:
            self._send_timer = loop.call_at(self._pending[0].give_up_at, self._send_timer_due)

    # Losing and finding the connection.

    def connection_lost(self) -> None:
        self._reconnect()

    def closed_by_broker(self) -> None:
        self._reconnect()

    def _reconnect(self) -> None:
        if self._connection is not None:
            self._connection.producers.pop(self._id, None)
        was_open, self._connection = self._connection is not None, None
        if self._line_lost is not None and not self._line_lost.done():
            self._line_lost.set_exception(ClientError("lost the place in the line", definite=True))
        if self.closed or not was_open or self._reconnecting is not None:
            return
        self._reconnecting = asyncio.get_running_loop().create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            await self.client.persist(self._open, deadline_seconds=None)
        except ClientError as error:
            self._die(error)
        finally:
            self._reconnecting = None

    def _die(self, error: ClientError) -> None:
        """Nothing can be sent any more. Whatever is pending may or may not have been stored."""
        self._fatal = error
        if self._send_timer is not None:
            self._send_timer.cancel()
        unknown = ClientError(str(error), definite=False, code=error.code)
        while self._pending:
            self._fail(self._pop_head(), unknown)

    def _send_close(self, connection: Connection) -> None:
        connection.producers.pop(self._id, None)
        connection.write(requests.close_producer(self.client.new_id(), self._id))

    async def close(self) -> None:
        """Wait for receipts of what was sent if there is a connection, then close. Harmless when called twice."""
        if self.closed:
            return
        self._flush_batch()
        if self._connection is not None and self._pending:
            await self.flush()
        self.closed = True
        self.client.gone(self)
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.producers.pop(self._id, None)
            request_id = self.client.new_id()
            with contextlib.suppress(ClientError):  # Gone is as good as closed.
                await connection.request(request_id, requests.close_producer(request_id, self._id))
        self._die(ClientError("the producer is closed", definite=False))


def _resolve(future: asyncio.Future[Reply]) -> Callable[[Reply], None]:
    def resolve(answer: Reply) -> None:
        if future.done():
            return
        if isinstance(answer, Refused):
            future.set_exception(refusal(answer))
        else:
            future.set_result(answer)

    return resolve
