"""A producer's session with a region: opening, waiting for exclusive access and reconnecting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from emulator.client.config import ProducerConfig
from emulator.client.connection import BrokerConnection, ProducerHandler, resolve, unexpected
from emulator.client.connection_pool import ConnectionPool
from emulator.client.types import ClientError, ProducerState, return_delay_seconds
from emulator.model.values import AccessMode
from emulator.wire.commands.producers import CloseProducer, CreateProducer, ProducerSuccess
from emulator.wire.commands.spec import Command


class SessionProducer(ProducerHandler, Protocol):
    """The part of a producer that its session uses."""

    def report(self, state: ProducerState) -> None: ...

    def opened(self, response: ProducerSuccess) -> None:
        """Handle the response to a successful open, before any message is sent."""
        ...

    def ended(self, error: ClientError) -> None:
        """Handle the end of the session: the region rejects the producer, and it does not reconnect."""
        ...


class ProducerSession:
    """The registration of one producer of one topic, over reconnects: its id, name and epoch."""

    def __init__(
        self, producer: SessionProducer, client: ConnectionPool, topic: str, config: ProducerConfig
    ) -> None:
        self.id = client.new_id()
        self.name = config.name or ""
        self.topic_epoch: int | None = None
        self.connection: BrokerConnection | None = None
        """None unless the producer is open: before the first response, while it reconnects, and once it has ended."""
        self._producer = producer
        self._client = client
        self._topic = topic
        self._config = config
        self._times_requested = 0
        self._promotion: asyncio.Future[Command] | None = None
        """Future of the second response, while the producer is in the wait queue."""
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Open the session. ClientError when the region rejects the producer, or does not respond in time."""
        waits = self._config.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
        deadline = None if waits else self._client.settings.operation_timeout_seconds
        await self._client.retry(self._attempt, deadline_seconds=deadline)

    async def _attempt(self) -> None:
        connection = await self._client.connection_for(self._topic)
        await self._delay_by_priority()
        request = self._create_request()
        promotion: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        connection.producers[self.id] = self._producer
        self.connection = None
        self._producer.report(ProducerState.REQUESTING)
        try:
            opened = await connection.request(request, _resolve_once(promotion))
            self._check_open(connection)
            if isinstance(opened, ProducerSuccess) and not opened.is_ready:
                opened = await self._wait_for_promotion(promotion)
                self._check_open(connection)
            if not isinstance(opened, ProducerSuccess):
                raise unexpected("CreateProducer", opened)
        except BaseException as reason:
            connection.producers.pop(self.id, None)
            if isinstance(reason, asyncio.CancelledError):  # Leave the wait queue at once.
                connection.write(CloseProducer(self._client.new_id(), self.id).encode())
            raise
        finally:
            connection.forget_request(request.request_id)
        self._complete_open(connection, opened)

    def _check_open(self, connection: BrokerConnection) -> None:
        """Raise ClientError if the session ended after the response, before this task resumed."""
        if connection.producers.get(self.id) is not self._producer or not connection.is_open:
            raise ClientError("closed again at once", definite=True)

    async def _wait_for_promotion(self, promotion: asyncio.Future[Command]) -> Command:
        """Wait in the wait queue for the second response, which the broker sends when it grants exclusive access."""
        self._promotion = promotion
        self._producer.report(ProducerState.WAITING)
        return await promotion

    async def _delay_by_priority(self) -> None:
        """Delay a repeated request, so that producers with a higher priority come first (PIP-440)."""
        longest_seconds = self._client.settings.priority_delay_seconds
        is_repeated = self._times_requested > 0
        if is_repeated and longest_seconds and self._config.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            await asyncio.sleep(return_delay_seconds(self._config.priority, longest_seconds))

    def _create_request(self) -> CreateProducer:
        epoch, self._times_requested = self._times_requested, self._times_requested + 1
        config = self._config
        return CreateProducer(
            request_id=self._client.new_id(),
            topic=self._topic,
            producer_id=self.id,
            epoch=epoch,
            access_mode=config.access_mode,
            is_name_given=config.name is not None,
            producer_name=self.name,
            topic_epoch=self.topic_epoch,
            queue_priority=config.priority,
            schema=config.schema,
            initial_subscription_name=config.initial_subscription or "",
            encrypts=config.encryption is not None,
        )

    def _complete_open(self, connection: BrokerConnection, opened: ProducerSuccess) -> None:
        self.name = opened.producer_name
        if opened.topic_epoch is not None:
            self.topic_epoch = opened.topic_epoch
        self.connection = connection
        self._producer.opened(opened)

    # Reconnecting.

    def lost(self) -> None:
        """End the wait in the queue, or reconnect, after the connection was lost or the region closed the producer."""
        if self.connection is not None:
            self.connection.producers.pop(self.id, None)
        was_open, self.connection = self.connection is not None, None
        if self._promotion is not None and not self._promotion.done():
            self._promotion.set_exception(ClientError("lost its place in the wait queue", definite=True))
        if self._is_closed or not was_open or self._reconnecting is not None:
            return
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        try:
            await self._client.retry(self._attempt, deadline_seconds=None)
        except ClientError as error:
            self._producer.ended(error)
        finally:
            self._reconnecting = None

    async def close(self) -> None:
        """Close the producer at the region; a lost connection closes it, too."""
        self._is_closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.producers.pop(self.id, None)
            with contextlib.suppress(ClientError):
                await connection.request(CloseProducer(self._client.new_id(), self.id))


def _resolve_once(future: asyncio.Future[Command]) -> Callable[[Command], None]:
    def resolve_once(response: Command) -> None:
        if not future.done():
            resolve(future, response)

    return resolve_once
