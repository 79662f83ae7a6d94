"""One connection of the client: requests with their answers, and bytes for producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from emulator.client.types import ClientError, ClientSettings, ExpiredTransaction
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError
from emulator.wire import replies, requests
from emulator.wire.codec import (
    PING_FRAME,
    PONG_FRAME,
    CommandType,
    MessageMeta,
    Receipt,
    decode_message,
    decode_receipt,
)
from emulator.wire.frames import FrameBuffer
from emulator.wire.replies import Refused, Reply

MESSAGE_BYTES_MAX = 5 * 1024 * 1024
"""Where the region does not say."""
FRAME_BYTES_MAX = 64 * 1024 * 1024
CLIENT_VERSION = "geoemu-client"


class Handler(Protocol):
    """A producer or consumer, as its connection sees it."""

    def connection_lost(self) -> None: ...

    def closed_by_broker(self) -> None: ...


class ProducerHandler(Handler, Protocol):
    def receipt(self, receipt: Receipt) -> None: ...

    def send_error(self, sequence_id: int, code: ServerError, message: str) -> None: ...


class ConsumerHandler(Handler, Protocol):
    def message(self, meta: MessageMeta, data: bytes) -> None: ...

    def active_changed(self, is_active: bool) -> None: ...


class WatchHandler(Handler, Protocol):
    def topics_changed(self, change: replies.TopicsChanged) -> None: ...


class BrokerConnection(asyncio.Protocol):
    """One connection to a broker; usable once `connected` has resolved."""

    def __init__(
        self,
        address: tuple[str, int],
        settings: ClientSettings,
        on_lost: Callable[[BrokerConnection], None],
    ) -> None:
        self.address = address
        self._settings = settings
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[None] = loop.create_future()
        self.max_message_bytes = MESSAGE_BYTES_MAX
        """What the region takes, which it tells when it is connected."""
        self.producers: dict[int, ProducerHandler] = {}
        self.consumers: dict[int, ConsumerHandler] = {}
        self.watchers: dict[int, WatchHandler] = {}
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._requests: dict[int, asyncio.Future[Reply]] = {}
        self._later: dict[int, Callable[[Reply], None]] = {}
        """Request id -> who hears of a second answer (a producer that waits to become exclusive)."""
        self._keep_alive: asyncio.TimerHandle | None = None
        self._heard = True

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._schedule_keep_alive()
        self.write(requests.connect(CLIENT_VERSION))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        lost = ClientError(f"connection to {self.address[0]}:{self.address[1]} lost", definite=False)
        waiting: list[asyncio.Future[Any]] = [*self._requests.values(), self.connected]
        self._requests.clear()
        self._later.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # Nobody may be waiting any more; that is no news.
        self._on_lost(self)
        for handler in [*self.producers.values(), *self.consumers.values(), *self.watchers.values()]:
            handler.connection_lost()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _schedule_keep_alive(self) -> None:
        interval = self._settings.keep_alive_interval_seconds
        self._keep_alive = asyncio.get_running_loop().call_later(interval, self._check_alive)

    def _check_alive(self) -> None:
        if not self._heard:
            self.abort()
            return
        self._heard = False
        self.write(PING_FRAME)
        self._schedule_keep_alive()

    # Requests.

    async def request(
        self, request_id: int, frame: bytes, later: Callable[[Reply], None] | None = None
    ) -> Reply:
        """Send a request and wait for its answer. ClientError when it is refused, lost or not answered in time
        (the connection is then given up, because a late answer could not be told from another's)."""
        if not self.is_open:
            raise ClientError("not connected", definite=True)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._requests[request_id] = future
        if later is not None:
            self._later[request_id] = later
        self.write(frame)
        try:
            async with asyncio.timeout(self._settings.request_timeout_seconds):
                return await future
        except TimeoutError:
            self.abort()
            raise ClientError("no response in time", definite=False) from None
        finally:
            self._requests.pop(request_id, None)

    def forget_request(self, request_id: int) -> None:
        self._later.pop(request_id, None)

    def _answered(self, answer: Reply) -> None:
        future = self._requests.pop(answer.request_id, None)
        if future is None or future.done():
            later = self._later.pop(answer.request_id, None)
            if later is not None:
                later(answer)
            return
        if isinstance(answer, Refused):
            future.set_exception(refusal(answer))
        else:
            future.set_result(answer)

    # Bytes in.

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            for type_, command, payload in self._frames.feed(data):
                self._handle(type_, command, payload)
            if self._frames.failed is not None:
                raise self._frames.failed
        except ProtocolError:
            self.abort()

    def _handle(self, type_: int, command: bytes, payload: bytes) -> None:
        if type_ == CommandType.MESSAGE:
            meta = decode_message(command)
            consumer = self.consumers.get(meta.consumer_id)
            if consumer is not None:
                consumer.message(meta, payload)
        elif type_ == CommandType.SEND_RECEIPT:
            receipt = decode_receipt(command)
            producer = self.producers.get(receipt.producer_id)
            if producer is not None:
                producer.receipt(receipt)
        elif type_ == CommandType.PING:
            self.write(PONG_FRAME)
        elif (reply := replies.read_reply(type_, command)) is not None:
            self._answered(reply)
        elif type_ != CommandType.PONG:
            self._handle_notice(replies.read_notice(type_, command))

    def _handle_notice(self, notice: replies.Notice | None) -> None:
        match notice:
            case replies.Connected(max_message_bytes):
                self.max_message_bytes = max_message_bytes or MESSAGE_BYTES_MAX
                if not self.connected.done():
                    self.connected.set_result(None)
            case replies.SendRefused(producer_id, sequence_id, code, message):
                producer = self.producers.get(producer_id)
                if producer is not None:
                    producer.send_error(sequence_id, code, message)
            case replies.ProducerClosed(producer_id):
                self._closed(self.producers.pop(producer_id, None))
            case replies.ConsumerClosed(consumer_id):
                self._closed(self.consumers.pop(consumer_id, None))
            case replies.ActiveChanged(consumer_id, is_active):
                consumer = self.consumers.get(consumer_id)
                if consumer is not None:
                    consumer.active_changed(is_active)
            case replies.TopicsChanged(watcher_id):
                watcher = self.watchers.get(watcher_id)
                if watcher is not None:
                    watcher.topics_changed(notice)

    def _closed(self, handler: Handler | None) -> None:
        if handler is not None:
            handler.closed_by_broker()


def refusal(answer: Refused) -> ClientError:
    """What somebody is told who asked for it."""
    return refused(answer.code, answer.message, definite=answer.is_definite)


def refused(code: ServerError, message: str, *, definite: bool) -> ClientError:
    """What a region said. The wire has no code for an expired transaction, but words."""
    is_expired = code is ServerError.NotAllowedError and message.startswith(EXPIRED_TRANSACTION)
    return (ExpiredTransaction if is_expired else ClientError)(message, definite=definite, code=code)


def answered_otherwise(request: str, answer: Reply) -> ClientError:
    """A region that answers with something else may have done anything."""
    return ClientError(f"unexpected response to {request}: {type(answer).__name__}", definite=False)
