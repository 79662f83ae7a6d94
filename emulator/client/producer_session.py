"""A producer's session with a region: opened, queued for exclusive access, lost and opened again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from emulator.client.config import ProducerConfig
from emulator.client.connection import BrokerConnection, ProducerHandler, resolve, unexpected
from emulator.client.connection_pool import ConnectionPool
from emulator.client.types import ClientError, Standing, return_delay_seconds
from emulator.model.values import AccessMode
from emulator.wire.commands.producers import CloseProducer, CreateProducer, ProducerSuccess
from emulator.wire.commands.spec import Command


class SessionProducer(ProducerHandler, Protocol):
    """A producer, as its attachment sees it."""

    def stands(self, standing: Standing) -> None: ...

    def attached(self, opened: ProducerSuccess) -> None:
        """Before anything more is sent."""
        ...

    def ended(self, error: ClientError) -> None:
        """It will not be let in again."""
        ...


class ProducerSession:
    """Of one producer of one topic. It stays the same over reconnects: its id, name and epoch."""

    def __init__(
        self, producer: SessionProducer, client: ConnectionPool, topic: str, config: ProducerConfig
    ) -> None:
        self.id = client.new_id()
        self.name = config.name or ""
        self.topic_epoch: int | None = None
        self.connection: BrokerConnection | None = None
        """None: on its way, closed or fenced."""
        self._producer = producer
        self._client = client
        self._topic = topic
        self._config = config
        self._times_asked = 0
        self._turn: asyncio.Future[Command] | None = None
        """The second answer, when it waits in line."""
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_over = False

    async def open(self) -> None:
        """ClientError when it is refused, or not let in in time."""
        waits = self._config.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
        deadline = None if waits else self._client.settings.operation_timeout_seconds
        await self._client.retry(self._attempt, deadline_seconds=deadline)

    async def _attempt(self) -> None:
        connection = await self._client.connection_for(self._topic)
        await self._let_others_pass()
        request = self._create_request()
        turn: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        connection.producers[self.id] = self._producer
        self.connection = None
        self._producer.stands(Standing.ASKS)
        try:
            opened = await connection.request(request, _resolver(turn))
            self._still_wanted_by(connection)
            if isinstance(opened, ProducerSuccess) and not opened.is_ready:
                opened = await self._wait_in_line(turn)
                self._still_wanted_by(connection)
            if not isinstance(opened, ProducerSuccess):
                raise unexpected("CreateProducer", opened)
        except BaseException as reason:
            connection.producers.pop(self.id, None)
            if isinstance(reason, asyncio.CancelledError):  # In line or not yet: out of it at once.
                self._send_close(connection)
            raise
        finally:
            connection.forget_request(request.request_id)
        self._opened(connection, opened)

    def _still_wanted_by(self, connection: BrokerConnection) -> None:
        """Raises ClientError when the session ended right after the response, before this task saw either."""
        if connection.producers.get(self.id) is not self._producer or not connection.is_open:
            raise ClientError("closed again at once", definite=True)

    async def _wait_in_line(self, turn: asyncio.Future[Command]) -> Command:
        """Queued for exclusive access: the broker sends a second response when it is our turn."""
        self._turn = turn
        self._producer.stands(Standing.WAITS)
        return await turn

    async def _let_others_pass(self) -> None:
        """Delay a repeated request, so that producers with a higher priority come first (PIP-440)."""
        longest_seconds = self._client.settings.priority_delay_seconds
        asks_again = self._times_asked > 0
        if asks_again and longest_seconds and self._config.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            await asyncio.sleep(return_delay_seconds(self._config.priority, longest_seconds))

    def _create_request(self) -> CreateProducer:
        epoch, self._times_asked = self._times_asked, self._times_asked + 1
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

    def _opened(self, connection: BrokerConnection, opened: ProducerSuccess) -> None:
        self.name = opened.producer_name
        if opened.topic_epoch is not None:
            self.topic_epoch = opened.topic_epoch
        self.connection = connection
        self._producer.attached(opened)

    # Losing and finding the connection.

    def lost(self) -> None:
        """Its connection is gone, or the region closed it."""
        if self.connection is not None:
            self.connection.producers.pop(self.id, None)
        was_open, self.connection = self.connection is not None, None
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(ClientError("lost its place in the wait queue", definite=True))
        if self._is_over or not was_open or self._reconnecting is not None:
            return
        self._reconnecting = asyncio.get_running_loop().create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            await self._client.retry(self._attempt, deadline_seconds=None)
        except ClientError as error:
            self._producer.ended(error)
        finally:
            self._reconnecting = None

    def _send_close(self, connection: BrokerConnection) -> None:
        connection.producers.pop(self.id, None)
        connection.write(CloseProducer(self._client.new_id(), self.id).encode())

    async def close(self) -> None:
        """Leave the topic. A region that is gone is as good as left."""
        self._is_over = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.producers.pop(self.id, None)
            with contextlib.suppress(ClientError):
                await connection.request(CloseProducer(self._client.new_id(), self.id))


def _resolver(future: asyncio.Future[Command]) -> Callable[[Command], None]:
    def resolve_once(response: Command) -> None:
        if not future.done():
            resolve(future, response)

    return resolve_once
