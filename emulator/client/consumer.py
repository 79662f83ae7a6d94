"""Consumers and readers: a bounded queue filled by permits, acknowledgements, and subscribing again when the
connection is lost.

After a reconnect the queue is emptied: the broker sends again whatever was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from emulator.client.connection import answered_otherwise
from emulator.client.vocabulary import (
    EARLIEST,
    LATEST,
    ClientError,
    ConsumerType,
    InitialPosition,
    MessageId,
)
from emulator.model import Schema
from emulator.wire import requests
from emulator.wire.codec import MessageMeta, encode_ack, encode_flow
from emulator.wire.frames import frame_of
from emulator.wire.metadata import EntryDetails, read_entry, read_properties
from emulator.wire.payloads import decompress, split_batch
from emulator.wire.replies import LastMessage, Reply

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.connection import Connection
    from emulator.client.transactions import Transaction

WORD_BITS = 64
AckId = tuple[int, int, tuple[int, ...] | None]
"""(ledger, entry, what of its batch is not acknowledged, or None)."""


class Message(NamedTuple):
    """One received message."""

    id: MessageId
    payload: bytes
    producer_name: str
    sequence_id: int
    publish_time_ms: int
    replicated_from: str | None
    """The region it came from; None when it was published in the region it was received in."""
    redelivery_count: int
    key: str | None
    properties: dict[str, str]
    schema_version: bytes = b""
    """By which `Client.schema` gives its schema, in the region it was received in; empty: it has none."""


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
        self._open_bits: dict[tuple[int, int], int] = {}
        """Batch entries acknowledged in part: their messages that are not, one bit each."""
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
        self._open_bits.clear()
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
        info = read_entry(data, verify=True)
        for message in _messages(meta, data, info):
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
            named = [_id_of(message) for message in messages]
            await self._acknowledge_in(transaction, named, [_alone(id_) for id_ in named], cumulative=False)
            return
        ids = [entry for message in messages if (entry := self._completed(_id_of(message))) is not None]
        if ids:
            await self._send_ack(ids, cumulative=False, confirmed=confirmed)

    def _completed(self, message_id: MessageId) -> tuple[int, int, tuple[int, ...] | None] | None:
        """What to tell the broker of one message: its entry, or the part of it that is left."""
        entry = (message_id.ledger, message_id.entry)
        if message_id.batch_size <= 1:
            return (*entry, None)
        bits = self._open_bits.get(entry, (1 << message_id.batch_size) - 1)
        bits &= ~(1 << message_id.batch_index)
        if not bits:
            self._open_bits.pop(entry, None)
            return (*entry, None)
        self._open_bits[entry] = bits
        return (*entry, _words(bits))

    async def acknowledge_cumulative(
        self,
        message: Message | MessageId,
        *,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        """Done with everything up to and including this one. In a transaction as `acknowledge`."""
        message_id = _id_of(message)
        ack_set = None
        if message_id.batch_index >= 0 and message_id.batch_index < message_id.batch_size - 1:
            left = ((1 << message_id.batch_size) - 1) & ~((1 << (message_id.batch_index + 1)) - 1)
            ack_set = _words(left)
        entry = (message_id.ledger, message_id.entry, ack_set)
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
        ids: Sequence[tuple[int, int, tuple[int, ...] | None]],
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
        """Have everything that is not acknowledged delivered again."""
        self._queue.clear()
        self._redeliver(())

    def _redeliver(self, entries: Iterable[tuple[int, int]]) -> None:
        if self._connection is not None:
            self._connection.write(requests.redeliver(self._id, sorted(entries)))

    # Requests.

    async def seek(self, target: MessageId | int) -> None:
        """Go on at a message id, or at the first message published at or after a time (ms). The broker drops the
        connection to the subscription; the consumer is back when this returns."""
        request_id = self.client.new_id()
        place = target if isinstance(target, int) else target[:3]
        ack_set = () if isinstance(target, int) else _from_index_on(target)
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


def _id_of(message: Message | MessageId) -> MessageId:
    return message.id if isinstance(message, Message) else message


def _alone(message_id: MessageId) -> AckId:
    """What to tell the broker of one message by itself: a transaction may fail, so nothing is added up here."""
    entry = (message_id.ledger, message_id.entry)
    if message_id.batch_size <= 1:
        return (*entry, None)
    return (*entry, _words(((1 << message_id.batch_size) - 1) & ~(1 << message_id.batch_index)))


def _words(bits: int) -> tuple[int, ...]:
    """64-bit words, lowest first, signed as the wire wants them."""
    words = []
    while bits:
        word = bits & (2**WORD_BITS - 1)
        words.append(word - 2**WORD_BITS if word >> (WORD_BITS - 1) else word)
        bits >>= WORD_BITS
    return tuple(words)


def _messages(meta: MessageMeta, data: bytes, info: EntryDetails) -> Iterable[Message | None]:
    """The messages of an entry that are not acknowledged yet; None for each that compaction left out."""
    payload = data[info.payload_offset :]
    if info.compression:
        payload = decompress(info.compression, payload, info.uncompressed_size)
    if not info.is_batch:
        message_id = MessageId(meta.ledger, meta.entry)
        properties = read_properties(data)
        yield _message(meta, info, message_id, info.sequence_id, info.partition_key, properties, payload)
        return
    for index, (single, part) in enumerate(split_batch(info, payload)):
        if meta.ack_set is not None and not _is_set(meta.ack_set, index):
            continue
        if single.compacted_out:
            yield None
            continue
        message_id = MessageId(meta.ledger, meta.entry, index, info.num_messages)
        sequence_id = single.sequence_id if single.HasField("sequence_id") else info.sequence_id + index
        key = single.partition_key if single.HasField("partition_key") else None
        properties = {pair.key: pair.value for pair in single.properties}
        yield _message(meta, info, message_id, sequence_id, key, properties, part)


def _from_index_on(message_id: MessageId) -> tuple[int, ...]:
    """A batch without the messages before one of it, as an ack set; empty when there are none."""
    if message_id.batch_index <= 0:
        return ()
    every_bit = (1 << message_id.batch_size) - 1
    return _words(every_bit & ~((1 << message_id.batch_index) - 1))


def _is_set(words: Sequence[int], index: int) -> bool:
    word = index // WORD_BITS
    return word < len(words) and bool(words[word] >> (index % WORD_BITS) & 1)


def _message(
    meta: MessageMeta,
    info: EntryDetails,
    message_id: MessageId,
    sequence_id: int,
    key: str | None,
    properties: dict[str, str],
    payload: bytes,
) -> Message:
    return Message(
        message_id,
        payload,
        info.producer_name,
        sequence_id,
        info.publish_time_ms,
        info.replicated_from,
        meta.redelivery_count,
        key,
        properties,
        info.schema_version or b"",
    )
