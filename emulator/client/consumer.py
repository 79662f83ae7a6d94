"""Consumers: a bounded queue filled by permits, acknowledgements, and subscribing again when the
connection is lost.

After a reconnect the queue is emptied: the broker sends again whatever was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from emulator.client.ack_sets import AckId, OpenBatches, alone, from_index_on, up_to
from emulator.client.connection import answered_otherwise
from emulator.client.messages import Message, id_of, messages_in
from emulator.client.vocabulary import ClientError, ConsumerType, InitialPosition, MessageId
from emulator.model import Schema
from emulator.wire import requests
from emulator.wire.codec import MessageMeta, encode_ack, encode_flow
from emulator.wire.frames import frame_of
from emulator.wire.replies import LastMessage, Reply

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.connection import Connection
    from emulator.client.transactions import Transaction


class Consumer:
    """Made by `Client.subscribe`."""

    def __init__(
        self,
        client: Client,
        topic: str,
        subscription: str,
        *,
        type_: ConsumerType,
        initial_position: InitialPosition,
        replicated: bool,
        name: str,
        priority_level: int,
        receiver_queue_size: int,
        schema: Schema | None = None,
        read_compacted: bool = False,
    ) -> None:
        self.client = client
        self.topic = topic
        self.subscription = subscription
        self.type = type_
        self.name = name
        self.is_active: bool | None = None
        """FAILOVER: whether this is the active consumer, as far as the broker has told."""
        self.closed = False
        self._initial_position = initial_position
        self._replicated = replicated
        self._priority_level = priority_level
        self._read_compacted = read_compacted
        self._queue_size = receiver_queue_size
        self._schema = schema
        self._id = client.new_id()
        self._connection: Connection | None = None
        self._queue: deque[Message] = deque()
        self._wanted: deque[asyncio.Future[Message]] = deque()
        self._taken = 0
        """Messages handed out since permits were last given."""
        self._open_batches = OpenBatches()
        self._reconnecting: asyncio.Task[None] | None = None
        self._fatal: ClientError | None = None

    # Opening.

    async def start(self) -> None:
        """Called by the client."""
        await self.client.persist(self._open, deadline_seconds=self.client.settings.operation_timeout_seconds)

    async def _open(self) -> None:
        connection = await self.client.connection_for(self.topic)
        request_id = self.client.new_id()
        connection.consumers[self._id] = self
        try:
            await connection.request(request_id, self._subscribe_request(request_id))
        except BaseException:
            connection.consumers.pop(self._id, None)
            raise
        if connection.consumers.get(self._id) is not self or not connection.is_open:
            # It ended in the same breath in which it was granted: before this task heard of either.
            raise ClientError("closed again at once", definite=True)
        self._connection = connection
        self._queue.clear()
        self._open_batches.clear()
        self._taken = 0
        self._flow(self._queue_size)

    def _subscribe_request(self, request_id: int) -> bytes:
        return requests.subscribe(
            request_id,
            self._id,
            self.topic,
            self.subscription,
            type_=self.type.value,
            name=self.name,
            initial_position=self._initial_position.value,
            priority_level=self._priority_level,
            replicated=self._replicated,
            is_key_shared=self.type is ConsumerType.KEY_SHARED,
            start=self._start_place(),
            schema=self._schema,
            read_compacted=self._read_compacted,
        )

    def _start_place(self) -> requests.Place | None:
        """Where a reader begins; None: a subscription knows that itself."""
        return None

    def _flow(self, permits: int) -> None:
        if self._connection is not None:
            self._connection.write(frame_of(encode_flow(self._id, permits)))

    # Receiving.

    async def receive(self) -> Message:
        """The next message. ClientError once the consumer is closed or cannot come back."""
        if self._queue:
            return self._take(self._queue.popleft())
        self._check_usable()
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._wanted.append(future)
        try:
            return self._take(await future)
        except asyncio.CancelledError:
            # A deadline that passes in the breath in which a message came must not cost the message.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._queue.appendleft(future.result())
            raise

    def _take(self, message: Message) -> Message:
        self._give_back_permit()
        return message

    def _give_back_permit(self) -> None:
        self._taken += 1
        if self._taken >= max(1, self._queue_size // 2):
            self._flow(self._taken)
            self._taken = 0

    def _check_usable(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ClientError("the consumer is closed", definite=True)

    def message(self, meta: MessageMeta, data: bytes) -> None:
        """The broker sent an entry."""
        for message in messages_in(meta, data):
            if message is None or not self._wants(message.id):
                self._give_back_permit()
            else:
                self._deliver(message)

    def _wants(self, message_id: MessageId) -> bool:
        return True

    def _deliver(self, message: Message) -> None:
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_result(message)
                return
        self._queue.append(message)

    def active_changed(self, is_active: bool) -> None:
        self.is_active = is_active

    # Acknowledging.

    async def acknowledge(
        self,
        *messages: Message | MessageId,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        """Done with these. `confirmed`: return only when the broker has made it durable. In a transaction they are done
        once that commits, and it is always confirmed; ClientError TransactionConflict when another has them,
        ExpiredTransaction when it was fenced."""
        if transaction is not None:
            named = [id_of(message) for message in messages]
            await self._acknowledge_in(transaction, named, [alone(id_) for id_ in named], cumulative=False)
            return
        ids = [self._open_batches.without(id_of(message)) for message in messages]
        if ids:
            await self._send_ack(ids, cumulative=False, confirmed=confirmed)

    async def acknowledge_cumulative(
        self,
        message: Message | MessageId,
        *,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        """Done with everything up to and including this one. In a transaction as `acknowledge`."""
        message_id = id_of(message)
        entry = up_to(message_id)
        if transaction is not None:
            await self._acknowledge_in(transaction, [message_id], [entry], cumulative=True)
            return
        await self._send_ack([entry], cumulative=True, confirmed=confirmed)

    async def _acknowledge_in(
        self,
        transaction: Transaction,
        messages: Sequence[MessageId],
        ids: Sequence[AckId],
        *,
        cumulative: bool,
    ) -> None:
        await transaction.will_acknowledge_at(self.topic, self.subscription)
        request_id = self.client.new_id()
        most, least = transaction.id
        command = encode_ack(
            self._id,
            ids,
            cumulative=cumulative,
            request_id=request_id,
            txn_least=least,
            txn_most=most,
            batch_sizes=[message.batch_size for message in messages],
        )
        await self._request(request_id, frame_of(command))

    async def _send_ack(
        self,
        ids: Sequence[AckId],
        *,
        cumulative: bool,
        confirmed: bool,
    ) -> None:
        self._check_usable()
        connection = self._connection
        if connection is None:
            if confirmed:
                raise ClientError("not connected: not acknowledged", definite=True)
            return  # It will be delivered again.
        if not confirmed:
            connection.write(frame_of(encode_ack(self._id, ids, cumulative=cumulative)))
            return
        request_id = self.client.new_id()
        frame = frame_of(encode_ack(self._id, ids, cumulative=cumulative, request_id=request_id))
        await connection.request(request_id, frame)

    def negative_acknowledge(self, *messages: Message) -> None:
        """Have these delivered again (SHARED), or everything that is not acknowledged (other types)."""
        self._redeliver({(message.id.ledger, message.id.entry) for message in messages})

    def redeliver_unacknowledged(self) -> None:
        """Have everything that is not acknowledged delivered again. What was not taken is thrown away, and its room is
        given back: a full queue would stay empty for ever."""
        thrown_away = len(self._queue)
        self._queue.clear()
        self._redeliver(())
        for _ in range(thrown_away):
            self._give_back_permit()

    def _redeliver(self, entries: Iterable[tuple[int, int]]) -> None:
        if self._connection is not None:
            self._connection.write(requests.redeliver(self._id, sorted(entries)))

    # Requests.

    async def seek(self, target: MessageId | int) -> None:
        """Go on at a message id, or at the first message published at or after a time (ms). The broker drops the
        connection to the subscription; the consumer is back when this returns."""
        request_id = self.client.new_id()
        place = target if isinstance(target, int) else target[:3]
        ack_set = () if isinstance(target, int) else from_index_on(target)
        await self._request(request_id, requests.seek(request_id, self._id, place, ack_set))
        self._queue.clear()
        if self._reconnecting is not None:
            await asyncio.shield(self._reconnecting)

    async def last_message_id(self) -> MessageId | None:
        """Of the newest message in the topic; None when there is none."""
        request_id = self.client.new_id()
        answer = await self._request(request_id, requests.last_message_id(request_id, self._id))
        if not isinstance(answer, LastMessage):
            raise answered_otherwise("a question for the last message id", answer)
        return None if answer.place is None else MessageId(*answer.place)

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close."""
        request_id = self.client.new_id()
        await self._request(request_id, requests.unsubscribe(request_id, self._id))
        await self.close()

    async def _request(self, request_id: int, frame: bytes) -> Reply:
        self._check_usable()
        if self._connection is None:
            raise ClientError("not connected", definite=True)
        return await self._connection.request(request_id, frame)

    # Losing and finding the connection.

    def connection_lost(self) -> None:
        self._reconnect()

    def closed_by_broker(self) -> None:
        self._reconnect()

    def _reconnect(self) -> None:
        was_open, self._connection = self._connection is not None, None
        self.is_active = None
        if self.closed or not was_open or self._reconnecting is not None:
            return
        self._reconnecting = asyncio.get_running_loop().create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            await self.client.persist(self._open, deadline_seconds=None)
        except ClientError as error:
            self._fatal = error
            self._fail_waiting(error)
        finally:
            self._reconnecting = None

    def _fail_waiting(self, error: ClientError) -> None:
        for future in self._wanted:
            if not future.done():
                future.set_exception(error)
        self._wanted.clear()

    async def close(self) -> None:
        """Leave; the subscription stays. Harmless when called twice."""
        if self.closed:
            return
        self.closed = True
        self.client.gone(self)
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        connection, self._connection = self._connection, None
        self._fail_waiting(ClientError("the consumer is closed", definite=True))
        if connection is None:
            return
        connection.consumers.pop(self._id, None)
        request_id = self.client.new_id()
        with contextlib.suppress(ClientError):  # Gone is as good as closed.
            await connection.request(request_id, requests.close_consumer(request_id, self._id))
