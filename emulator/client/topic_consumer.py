"""A consumer of one topic: a bounded queue filled by permits, acknowledgements, and subscribing again when the
connection is lost.

After a reconnect the queue is emptied: the broker sends again whatever was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.client.ack_sets import AckId, OpenBatches, alone, from_index_on, up_to
from emulator.client.chunks import Pieces
from emulator.client.connection import answered_otherwise
from emulator.client.consumer import Consumer, ConsumerWish
from emulator.client.encryption import OnUnreadable, PayloadOpener, Unreadable
from emulator.client.inbox import Inbox
from emulator.client.messages import (
    Message,
    encrypted_message,
    id_of,
    messages_in,
    messages_of,
    partition_index,
)
from emulator.client.redelivery import GivingBack
from emulator.client.types import ClientError, ConsumerType, InitialPosition, MessageId
from emulator.errors import ServerError
from emulator.wire import requests
from emulator.wire.codec import MessageMeta, encode_ack, encode_flow
from emulator.wire.frames import frame_of
from emulator.wire.replies import LastMessage, Reply

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.connection import Connection
    from emulator.client.transactions import Transaction

logger = logging.getLogger(__name__)

PASSES = frozenset({ServerError.ConsumerBusy})
"""For one that was attached before: the region may not know yet that its former connection is gone. Other clients ask
again, too."""


class TopicConsumer(Consumer):
    """Of one topic, or of one partition."""

    def __init__(
        self,
        client: Client,
        topic: str,
        wish: ConsumerWish,
        inbox: Inbox | None = None,
        on_end: Callable[[TopicConsumer, ClientError], None] | None = None,
    ) -> None:
        """`inbox`: shared with others. `on_end` is told when it cannot come back, instead of who waits."""
        super().__init__(client, topic, wish, inbox or Inbox())
        self._on_end = on_end
        if inbox is None:
            self._inbox.on_wanted = self._want
        self._partition = partition_index(topic)
        self._is_active: bool | None = None
        self._id = client.new_id()
        self._connection: Connection | None = None
        self._paused = wish.start_paused
        self._room = 0
        """Messages that there is room for, and that were not asked for yet."""
        self._expected = 0
        """Messages that were asked for and have not come."""
        self._open_batches = OpenBatches()
        self._pieces = Pieces()
        self._opener = PayloadOpener(wish.decryption)
        self._giving_back = GivingBack(self)
        self._minds_time = wish.ack_timeout_seconds is not None
        self._reconnecting: asyncio.Task[None] | None = None
        self.times_opened = 0
        """More than once: it was lost and found. The region then begins to count anew how often messages come."""

    @property
    def is_paused(self) -> bool:
        return self._paused

    @property
    def is_active(self) -> bool | None:
        return self._is_active

    # Opening.

    async def start(self) -> None:
        await self.client.persist(self._open, deadline_seconds=self.client.settings.operation_timeout_seconds)

    async def _open(self) -> None:
        connection = await self.client.connection_for(self.topic)
        request_id = self.client.new_id()
        connection.consumers[self._id] = self
        try:
            await connection.request(request_id, self._subscribe_request(request_id))
        except BaseException as reason:
            connection.consumers.pop(self._id, None)
            if isinstance(reason, asyncio.CancelledError):  # The region may have let it in all the same.
                connection.write(requests.close_consumer(self.client.new_id(), self._id))
            raise
        if connection.consumers.get(self._id) is not self or not connection.is_open:
            # It ended in the same breath in which it was granted: before this task heard of either.
            raise ClientError("closed again at once", definite=True)
        self._connection = connection
        self.times_opened += 1
        self._inbox.drop(self)
        self._open_batches.clear()
        self._pieces.clear()
        self._giving_back.clear()
        self._room, self._expected = self.wish.receiver_queue_size, 0
        self._ask_for(self._room)
        self._want()

    def has_lived(self) -> None:
        """If its topic is deleted and another one comes under its name, that is read from its first message on: all of
        it is newer than this consumer (INV-61)."""
        self.wish = replace(self.wish, initial_position=InitialPosition.EARLIEST)

    def _subscribe_request(self, request_id: int) -> bytes:
        wish = self.wish
        return requests.subscribe(
            request_id,
            self._id,
            self.topic,
            wish.subscription,
            type_=wish.type_.value,
            name=wish.name,
            initial_position=wish.initial_position.value,
            priority_level=wish.priority_level,
            replicated=wish.replicated,
            is_key_shared=wish.type_ is ConsumerType.KEY_SHARED,
            key_ranges=wish.key_ranges,
            out_of_order=wish.out_of_order,
            start=self._start_place(),
            schema=wish.schema,
            read_compacted=wish.read_compacted,
            may_create=wish.may_create,
            properties=wish.properties,
            subscription_properties=wish.subscription_properties,
        )

    def _start_place(self) -> requests.Place | None:
        """Where a reader begins; None: a subscription knows that itself."""
        return None

    # Permits.

    def _ask_for(self, least: int) -> None:
        """Ask for as many messages as there is room for, if those are so many."""
        if self._connection is not None and not self._paused and self._room >= max(1, least):
            self._connection.write(frame_of(encode_flow(self._id, self._room)))
            self._expected += self._room
            self._room = 0

    def _room_for_one_more(self) -> None:
        if self.wish.receiver_queue_size:
            self._room += 1
            self._ask_for(self.wish.receiver_queue_size // 2)

    def _want(self) -> None:
        """Without a queue a message is asked for when somebody waits for one, and only then. A batch may have brought
        more than was asked for, which the region counts."""
        if not self.wish.receiver_queue_size and self._expected <= 0 and self._inbox.is_awaited:
            self._room = 1 - self._expected
            self._ask_for(1)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._ask_for(1)
        self._want()

    # Receiving.

    def taken(self, message: Message) -> None:
        self._room_for_one_more()
        if self._minds_time:
            self._giving_back.taken(message)

    def message(self, meta: MessageMeta, data: bytes) -> None:
        """The broker sent an entry."""
        try:
            self._messages(meta, data)
        except Unreadable as problem:
            self._unreadable(meta, data, problem)
        if not self.wish.receiver_queue_size:
            self._want()

    def _messages(self, meta: MessageMeta, data: bytes) -> None:
        buries = self.wish.dead_letters is not None
        for message in messages_in(meta, data, self.topic, self._partition, self._pieces, self._opener):
            self._expected -= 1
            if (
                message is None
                or not self._wants(message.id)
                or (buries and self._giving_back.buries(message))
            ):
                self._room_for_one_more()
            else:
                self._inbox.put(self, message)

    def _unreadable(self, meta: MessageMeta, data: bytes, problem: Unreadable) -> None:
        """As the application wants it for encrypted ones. What cannot be decompressed stays, and others go on."""
        messages, context = messages_of(data), problem.context
        action = OnUnreadable.FAIL if context is None else self.wish.decryption.on_unreadable
        self._expected -= messages
        if context is not None and action is OnUnreadable.CONSUME:
            messages -= 1
            self._inbox.put(self, encrypted_message(meta, data, context, self.topic, self._partition))
        elif action is OnUnreadable.DISCARD and self._connection is not None:
            place = alone(MessageId(meta.ledger, meta.entry))
            self._connection.write(frame_of(encode_ack(self._id, [place], cumulative=False)))
        else:
            logger.error(
                "message %s %d:%d is not delivered: %s", self.topic, meta.ledger, meta.entry, problem
            )
        for _ in range(messages):
            self._room_for_one_more()

    def _wants(self, message_id: MessageId) -> bool:
        return True

    def active_changed(self, is_active: bool) -> None:
        self._is_active = is_active

    # Acknowledging.

    async def acknowledge(
        self,
        *messages: Message | MessageId,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        if transaction is not None:
            named = self._all_places(messages)
            self._giving_back.settled(messages)
            await self._acknowledge_in(transaction, named, [alone(id_) for id_ in named], cumulative=False)
            return
        ids = [self._open_batches.without(id_) for id_ in self._all_places(messages)]
        if ids:
            await self._send_ack(ids, cumulative=False, confirmed=confirmed)
        self._giving_back.settled(messages)
        for message in messages:
            self._pieces.acknowledged(id_of(message))

    def _all_places(self, messages: Iterable[Message | MessageId]) -> list[MessageId]:
        """Of one in pieces: all of them."""
        return [place for message in messages for place in self._pieces.all_of(id_of(message))]

    async def acknowledge_cumulative(
        self,
        message: Message | MessageId,
        *,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        message_id = id_of(message)
        entry = up_to(message_id)
        self._giving_back.settled_upto(message_id)
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
        self._giving_back.give_back(messages)

    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        self._check_usable()
        await self._giving_back.put_off(message, delay_seconds)

    def redeliver(self, messages: Sequence[Message]) -> None:
        self._redeliver({(place.ledger, place.entry) for place in self._all_places(messages)})

    def redeliver_unacknowledged(self) -> None:
        # The room of what is thrown away is given back: a full queue would stay empty for ever.
        thrown_away = self._inbox.drop(self)
        self._redeliver(())
        for _ in range(thrown_away):
            self._room_for_one_more()

    def _redeliver(self, entries: Iterable[tuple[int, int]]) -> None:
        if self._connection is not None:
            self._connection.write(requests.redeliver(self._id, sorted(entries)))

    # Requests.

    async def seek(self, target: MessageId | int) -> None:
        request_id = self.client.new_id()
        place = target if isinstance(target, int) else target[:3]
        ack_set = () if isinstance(target, int) else from_index_on(target)
        await self._request(request_id, requests.seek(request_id, self._id, place, ack_set))
        self._inbox.drop(self)
        if self._reconnecting is not None:
            await asyncio.shield(self._reconnecting)

    async def last_message(self) -> LastMessage:
        """And how far the consumer is done, as the region has it."""
        request_id = self.client.new_id()
        answer = await self._request(request_id, requests.last_message_id(request_id, self._id))
        if not isinstance(answer, LastMessage):
            raise answered_otherwise("a request for the last message id", answer)
        return answer

    async def last_message_ids(self) -> dict[str, MessageId | None]:
        answer = await self.last_message()
        if answer.place is None:
            return {self.topic: None}
        return {self.topic: MessageId(*answer.place, partition=self._partition)}

    async def unsubscribe(self) -> None:
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
        self._is_active = None
        if self.closed or not was_open or self._reconnecting is not None:
            return
        self._reconnecting = asyncio.get_running_loop().create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            await self.client.persist(self._open, deadline_seconds=None, passes=PASSES)
        except ClientError as error:
            self._fatal = error
            self._end(error)
        finally:
            self._reconnecting = None

    def _end(self, error: ClientError) -> None:
        if self._on_end is None:
            self._inbox.fail(error)
        else:
            self._on_end(self, error)

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.client.gone(self)
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        await self._giving_back.close()
        connection, self._connection = self._connection, None
        if self._on_end is None:
            self._inbox.fail(ClientError("the consumer is closed", definite=True))
        else:
            self._inbox.drop(self)
        if connection is None:
            return
        connection.consumers.pop(self._id, None)
        request_id = self.client.new_id()
        with contextlib.suppress(ClientError):  # Gone is as good as closed.
            await connection.request(request_id, requests.close_consumer(request_id, self._id))
