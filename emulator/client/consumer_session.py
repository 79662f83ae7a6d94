"""The registration of one consumer with the broker of its topic: subscribing, reconnecting, requests and permits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final, Protocol

from emulator.client.config import ConsumerConfig
from emulator.client.connection import BrokerConnection, unexpected
from emulator.client.connection_pool import ConnectionPool
from emulator.client.types import ClientError, ConsumerType
from emulator.errors import ServerError
from emulator.model.values import Position
from emulator.wire.codec_hot.consuming import MessageMeta, encode_flow
from emulator.wire.commands.consumers import (
    AUTO_SPLIT,
    STICKY,
    CloseConsumer,
    GetLastMessageId,
    LastMessageIdResponse,
    Redeliver,
    Subscribe,
)
from emulator.wire.commands.spec import Command, MessageIdData, RequestCommand
from emulator.wire.frames import frame_of

RETRIED_AFTER_LOSS: Final = frozenset({ServerError.ConsumerBusy})
"""Errors retried on a reconnect: the broker may not know yet that the former connection is lost."""


class SessionConsumer(Protocol):
    """The part of a consumer of one topic that its session uses."""

    @property
    def topic(self) -> str: ...

    @property
    def config(self) -> ConsumerConfig: ...

    def start_position(self) -> MessageIdData | None:
        """Return the start position of a reader; None for a consumer, whose subscription has a position."""
        ...

    def subscribed(self) -> None: ...

    def received(self, meta: MessageMeta, data: bytes) -> None: ...

    def ended(self, error: ClientError) -> None:
        """Handle the end of the session: the broker rejects the consumer, and it does not reconnect."""
        ...


class ConsumerSession:
    """Keeps one consumer subscribed over reconnects (`connection.ConsumerHandler`)."""

    def __init__(self, consumer: SessionConsumer, client: ConnectionPool) -> None:
        self.id = client.new_id()
        self.client = client
        self.times_opened = 0
        """Number of subscribes; above 1 after a reconnect, when the region restarts the redelivery counts."""
        self.is_active: bool | None = None
        self._consumer = consumer
        self._connection: BrokerConnection | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    # Subscribing.

    async def open(self) -> None:
        await self.client.retry(self._open, deadline_seconds=self.client.settings.operation_timeout_seconds)

    async def _open(self) -> None:
        connection = await self.client.connection_for(self._consumer.topic)
        connection.consumers[self.id] = self
        try:
            await connection.request(self._subscribe_request())
        except BaseException as reason:
            connection.consumers.pop(self.id, None)
            if isinstance(reason, asyncio.CancelledError):  # The broker may have added the consumer.
                connection.write(CloseConsumer(self.client.new_id(), self.id).encode())
            raise
        if connection.consumers.get(self.id) is not self or not connection.is_open:
            # The consumer was closed before this task resumed with the response.
            raise ClientError("closed again at once", definite=True)
        self._connection = connection
        self.times_opened += 1
        self._consumer.subscribed()

    def _subscribe_request(self) -> Subscribe:
        config, start = self._consumer.config, self._consumer.start_position()
        is_key_shared = config.type_ is ConsumerType.KEY_SHARED
        return Subscribe(
            request_id=self.client.new_id(),
            topic=self._consumer.topic,
            subscription=config.subscription,
            type_number=config.type_.value,
            consumer_id=self.id,
            consumer_name=config.name,
            priority_level=config.priority_level,
            initial_position=config.initial_position.value,
            durable=start is None,
            start_message_id=start,
            read_compacted=config.read_compacted,
            replicated=True if config.replicated else None,
            may_create_topic=config.may_create,
            key_shared_mode=(STICKY if config.key_ranges else AUTO_SPLIT) if is_key_shared else None,
            hash_ranges=tuple(config.key_ranges) if is_key_shared else (),
            may_reorder=config.out_of_order if is_key_shared else None,
            schema=config.schema,
            metadata=dict(config.properties or {}),
            subscription_properties=dict(config.subscription_properties or {}),
        )

    # Events of the connection.

    def message(self, meta: MessageMeta, data: bytes) -> None:
        self._consumer.received(meta, data)

    def active_changed(self, is_active: bool) -> None:
        self.is_active = is_active

    def connection_lost(self) -> None:
        was_open, self._connection = self._connection is not None, None
        self.is_active = None
        if self._is_closed or not was_open or self._reconnecting is not None:
            return
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    closed_by_broker = connection_lost

    async def _reconnect(self) -> None:
        try:
            await self.client.retry(self._open, deadline_seconds=None, also_retried=RETRIED_AFTER_LOSS)
        except ClientError as error:
            self._consumer.ended(error)
        finally:
            self._reconnecting = None

    async def reconnected(self) -> None:
        """Wait for the reconnect that is under way, if there is one."""
        if self._reconnecting is not None:
            await asyncio.shield(self._reconnecting)

    # Commands.

    def write(self, frame: bytes) -> None:
        """Send a command without a response; without a connection it is dropped."""
        if self._connection is not None:
            self._connection.write(frame)

    async def request(self, command: RequestCommand) -> Command:
        return await self.request_frame(command.request_id, command.encode())

    async def request_frame(self, request_id: int, frame: bytes) -> Command:
        if self._connection is None:
            raise ClientError("not connected", definite=True)
        return await self._connection.request_frame(request_id, frame)

    def redeliver(self, entries: Iterable[tuple[int, int]]) -> None:
        ids = tuple(Position(*entry) for entry in sorted(entries))
        self.write(Redeliver(self.id, ids).encode())

    async def last_message(self) -> LastMessageIdResponse:
        """Request the newest message of the topic and the mark-delete position of the subscription."""
        command = GetLastMessageId(self.client.new_id(), self.id)
        response = await self.request(command)
        if not isinstance(response, LastMessageIdResponse):
            raise unexpected(type(command).__name__, response)
        return response

    # Closing.

    def stop_reconnecting(self) -> None:
        self._is_closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()

    async def close(self) -> None:
        """Close the consumer at the broker; a lost connection closes it, too."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.consumers.pop(self.id, None)
        with contextlib.suppress(ClientError):
            await connection.request(CloseConsumer(self.client.new_id(), self.id))


class Permits:
    """Flow control of one consumer: sends permits for the free slots of its receiver queue, once half of it is free."""

    def __init__(self, session: ConsumerSession, queue_size: int, *, is_paused: bool) -> None:
        self.is_paused = is_paused
        self.expected = 0
        """Number of messages that were requested and have not arrived."""
        self._session = session
        self._queue_size = queue_size
        self._unsent_permits = 0
        """Number of free slots of the queue for which no permit was sent."""

    def reset(self) -> None:
        """Send permits for the whole queue after a subscribe, which starts without permits."""
        self._unsent_permits, self.expected = self._queue_size, 0
        self._request(self._unsent_permits)

    def release(self) -> None:
        """Count a free slot after a message has left the queue, and send permits if half of the slots are free."""
        if self._queue_size:
            self._unsent_permits += 1
            self._request(self._queue_size // 2)

    def request_one(self) -> None:
        """With queue size 0, request the message that `receive` waits for, unless it is requested already. Messages of
        a batch beyond the permits are added to the request, because the broker deducts them."""
        if not self._queue_size and self.expected <= 0:
            self._unsent_permits = 1 - self.expected
            self._request(1)

    def resume(self) -> None:
        self.is_paused = False
        self._request(1)

    def _request(self, permits_min: int) -> None:
        if self._session.is_connected and not self.is_paused and self._unsent_permits >= max(1, permits_min):
            self._session.write(frame_of(encode_flow(self._session.id, self._unsent_permits)))
            self.expected += self._unsent_permits
            self._unsent_permits = 0
