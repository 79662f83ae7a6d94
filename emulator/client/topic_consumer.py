"""A consumer of one topic: messages, redelivery and permits of one subscription.

A reconnect or seek empties the receiver queue, because the broker delivers the messages again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from emulator.client.acknowledgements import Acknowledgements, ack_set_from
from emulator.client.config import ConsumerConfig
from emulator.client.consumer import Consumer, ReceiveQueue
from emulator.client.consumer_session import ConsumerSession, Permits
from emulator.client.encryption import OnUnreadable, PayloadOpener, Unreadable
from emulator.client.messages import (
    ChunkAssembler,
    Message,
    encrypted_message,
    id_of,
    message_count,
    messages_in,
    partition_index,
)
from emulator.client.redelivery import ConsumerClient, RedeliveryTracker
from emulator.client.transactions import Transaction
from emulator.client.types import ClientError, InitialPosition, MessageId
from emulator.wire.codec_hot.consuming import MessageMeta
from emulator.wire.commands.consumers import Seek, Unsubscribe
from emulator.wire.commands.spec import MessageIdData

logger = logging.getLogger(__name__)


class TopicConsumer(Consumer):
    """A consumer of a topic without partitions, or of one partition."""

    def __init__(
        self,
        client: ConsumerClient,
        topic: str,
        config: ConsumerConfig,
        queue: ReceiveQueue | None = None,
        on_end: Callable[[TopicConsumer, ClientError], None] | None = None,
    ) -> None:
        """`queue`: a receiver queue shared with other consumers. `on_end` is called when the consumer cannot reconnect;
        without it, pending `receive` calls fail."""
        super().__init__(client, topic, config, queue or ReceiveQueue())
        self._on_end = on_end
        self._partition = partition_index(topic)
        self.session = ConsumerSession(self, client)
        self.permits = Permits(self.session, config.receiver_queue_size, is_paused=config.start_paused)
        if queue is None:
            self._queue.on_wait = self._request_if_awaited
        self._chunks = ChunkAssembler()
        self._acknowledgements = Acknowledgements(self.session, self._chunks)
        self._opener = PayloadOpener(config.decryption)
        self._redelivery = RedeliveryTracker(self)

    @property
    def is_active(self) -> bool | None:
        return self.session.is_active

    # The session.

    async def start(self) -> None:
        await self.session.open()

    def subscribed(self) -> None:
        self._queue.drop(self)
        self._acknowledgements.clear()
        self._chunks.clear()
        self._redelivery.clear()
        self.permits.reset()
        self._request_if_awaited()

    def ended(self, error: ClientError) -> None:
        self._fatal = error
        if self._on_end is None:
            self._queue.fail(error)
        else:
            self._on_end(self, error)

    def read_new_topic_from_start(self) -> None:
        """Start at the first message if the topic is deleted and created again: all its messages are newer than this
        consumer (INV-61)."""
        self.config = replace(self.config, initial_position=InitialPosition.EARLIEST)

    def start_position(self) -> MessageIdData | None:
        """Return the start position of a reader; None for a consumer, whose subscription has a position."""
        return None

    # Permits.

    def _request_if_awaited(self) -> None:
        if self._queue.is_awaited:
            self.permits.request_one()

    def pause(self) -> None:
        self.permits.is_paused = True

    def resume(self) -> None:
        self.permits.resume()
        self._request_if_awaited()

    def delivered_to_application(self, message: Message) -> None:
        self.permits.release()
        self._redelivery.start_timeout(message)

    # Receiving.

    def received(self, meta: MessageMeta, data: bytes) -> None:
        try:
            self._enqueue(meta, data)
        except Unreadable as problem:
            self._handle_unreadable(meta, data, problem)
        if not self.config.receiver_queue_size:
            self._request_if_awaited()

    def _enqueue(self, meta: MessageMeta, data: bytes) -> None:
        has_dead_letters = self.config.dead_letters is not None
        for message in messages_in(meta, data, self.topic, self._partition, self._chunks, self._opener):
            self.permits.expected -= 1
            if (
                message is None
                or not self._accepts(message.id)
                or (has_dead_letters and self._redelivery.send_if_over_limit(message))
            ):
                self.permits.release()
            else:
                self._queue.put(self, message)

    def _handle_unreadable(self, meta: MessageMeta, data: bytes, problem: Unreadable) -> None:
        """Apply `OnUnreadable` to an encrypted entry. An entry that cannot be decompressed stays unacknowledged."""
        messages, context = message_count(data), problem.context
        action = OnUnreadable.FAIL if context is None else self.config.decryption.on_unreadable
        self.permits.expected -= messages
        if context is not None and action is OnUnreadable.CONSUME:
            messages -= 1
            self._queue.put(self, encrypted_message(meta, data, context, self.topic, self._partition))
        elif action is OnUnreadable.DISCARD:
            self._acknowledgements.discard(MessageId(meta.ledger, meta.entry))
        else:
            logger.error(
                "message %s %d:%d is not delivered: %s", self.topic, meta.ledger, meta.entry, problem
            )
        for _ in range(messages):
            self.permits.release()

    def _accepts(self, message_id: MessageId) -> bool:
        return True

    # Acknowledging.

    async def acknowledge(
        self, *messages: Message | MessageId, confirmed: bool = False, transaction: Transaction | None = None
    ) -> None:
        """As `Consumer.acknowledge`. In a transaction, ack timeouts stop when the request is sent, as in Pulsar's Java
        client; otherwise once it has succeeded."""
        if transaction is not None:
            await transaction.will_acknowledge_at(self.topic, self.subscription)
            self._check_usable()
            self._redelivery.stop_timeouts(messages)
            ids = self._acknowledgements.all_ids(messages)
            await self._acknowledgements.send_in(transaction, ids)
            return
        if messages:
            self._check_usable()
            await self._acknowledgements.send(messages, confirmed=confirmed)
        self._redelivery.stop_timeouts(messages)

    async def acknowledge_cumulative(
        self, message: Message | MessageId, *, confirmed: bool = False, transaction: Transaction | None = None
    ) -> None:
        """As `Consumer.acknowledge_cumulative`. Ack timeouts stop when the request is sent, before the response, as in
        Pulsar's Java client: after a failure the messages are redelivered with the next reconnect."""
        message_id = id_of(message)
        if transaction is not None:
            await transaction.will_acknowledge_at(self.topic, self.subscription)
        self._check_usable()
        self._redelivery.stop_timeouts_upto(message_id)
        if transaction is not None:
            await self._acknowledgements.send_in(transaction, [message_id], cumulative=True)
            return
        await self._acknowledgements.send_cumulative(message_id, confirmed=confirmed)

    def negative_acknowledge(self, *messages: Message) -> None:
        self._redelivery.negative_acknowledge(messages)

    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        self._check_usable()
        await self._redelivery.reconsume_later(message, delay_seconds)

    def redeliver(self, messages: Sequence[Message]) -> None:
        self.session.redeliver(
            {(position.ledger, position.entry) for position in self._acknowledgements.all_ids(messages)}
        )

    def redeliver_unacknowledged(self) -> None:
        # Without the permits of the dropped messages a full queue would never request messages again.
        dropped = self._queue.drop(self)
        self.session.redeliver(())
        for _ in range(dropped):
            self.permits.release()

    # Requests.

    async def seek(self, target: MessageId | int) -> None:
        self._check_usable()
        request_id, id_ = self.client.new_id(), self.session.id
        if isinstance(target, int):
            await self.session.request(Seek(request_id, id_, publish_time_ms=target))
        else:
            position = MessageIdData(*target[:3], ack_set=ack_set_from(target))
            await self.session.request(Seek(request_id, id_, position))
        self._queue.drop(self)
        await self.session.reconnected()

    async def last_message_ids(self) -> dict[str, MessageId | None]:
        self._check_usable()
        last = (await self.session.last_message()).last
        if last.entry < 0:
            return {self.topic: None}
        return {self.topic: MessageId(last.ledger, last.entry, last.index_in_batch, self._partition)}

    async def unsubscribe(self) -> None:
        self._check_usable()
        await self.session.request(Unsubscribe(self.client.new_id(), self.session.id))
        await self.close()

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.client.forget_handle(self)
        self.session.stop_reconnecting()
        await self._redelivery.close()
        if self._on_end is None:
            self._queue.fail(ClientError("the consumer is closed", definite=True))
        else:
            self._queue.drop(self)
        await self.session.close()
