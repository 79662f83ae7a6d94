"""One connection of the client: requests with their answers, and bytes for producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from emulator.client.vocabulary import ClientError
from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import (
    PING_FRAME,
    PONG_FRAME,
    CommandType,
    decode_command,
    decode_message,
    decode_receipt,
)
from emulator.wire.commands import PROTOCOL_VERSION
from emulator.wire.frames import FrameBuffer, simple_frame

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.wire.codec import MessageMeta, Receipt

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


_REQUEST_ANSWERS: dict[int, str] = {
    CommandType.SUCCESS: "success",
    CommandType.ERROR: "error",
    CommandType.PRODUCER_SUCCESS: "producer_success",
    CommandType.LOOKUP_RESPONSE: "lookupTopicResponse",
    CommandType.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    CommandType.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    CommandType.ACK_RESPONSE: "ackResponse",
    CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
}
"""Answers that carry a request id, by the field that holds it."""


class Connection(asyncio.Protocol):
    """Made by `Client.connect`; usable once `connected` has resolved."""

    def __init__(self, client: Client, address: tuple[str, int]) -> None:
        self.client = client
        self.address = address
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[pb.CommandConnected] = loop.create_future()
        self.producers: dict[int, ProducerHandler] = {}
        self.consumers: dict[int, ConsumerHandler] = {}
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._later: dict[int, Callable[[Any], None]] = {}
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
        command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        command.connect.client_version = CLIENT_VERSION
        command.connect.protocol_version = PROTOCOL_VERSION
        self.send(command)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        lost = ClientError(f"connection to {self.address[0]}:{self.address[1]} lost", definite=False)
        waiting = [*self._requests.values(), self.connected]
        self._requests.clear()
        self._later.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # Nobody may be waiting any more; that is no news.
        self.client.forget(self)
        for handler in [*self.producers.values(), *self.consumers.values()]:
            handler.connection_lost()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def send(self, command: pb.BaseCommand) -> None:
        self.write(simple_frame(command))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _schedule_keep_alive(self) -> None:
        interval = self.client.settings.keep_alive_interval_seconds
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
        self, request_id: int, command: pb.BaseCommand, later: Callable[[Any], None] | None = None
    ) -> Any:
        """Send a request and wait for its answer. ClientError when it is refused, lost or not answered in time
        (the connection is then given up, because a late answer could not be told from another's)."""
        return await self.request_bytes(request_id, simple_frame(command), later)

    async def request_bytes(
        self, request_id: int, frame: bytes, later: Callable[[Any], None] | None = None
    ) -> Any:
        """`request`, with the frame already made."""
        if not self.is_open:
            raise ClientError("not connected", definite=True)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[request_id] = future
        if later is not None:
            self._later[request_id] = later
        self.write(frame)
        try:
            async with asyncio.timeout(self.client.settings.request_timeout_seconds):
                return await future
        except TimeoutError:
            self.abort()
            raise ClientError("no answer in time", definite=False) from None
        finally:
            self._requests.pop(request_id, None)

    def forget_request(self, request_id: int) -> None:
        self._later.pop(request_id, None)

    def _answered(self, type_: int, answer: Any) -> None:
        future = self._requests.pop(answer.request_id, None)
        if future is None or future.done():
            later = self._later.pop(answer.request_id, None)
            if later is not None:
                later(answer)
            return
        if type_ == CommandType.ERROR:
            code = ServerError(answer.error)
            future.set_exception(ClientError(answer.message, definite=True, code=code))
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
        elif type_ in _REQUEST_ANSWERS:
            self._answered(type_, getattr(decode_command(command), _REQUEST_ANSWERS[type_]))
        else:
            self._handle_rare(type_, command)

    def _handle_rare(self, type_: int, data: bytes) -> None:
        if type_ == CommandType.PONG:
            return
        command = decode_command(data)
        if type_ == CommandType.CONNECTED and not self.connected.done():
            self.connected.set_result(command.connected)
        elif type_ == CommandType.SEND_ERROR:
            error = command.send_error
            producer = self.producers.get(error.producer_id)
            if producer is not None:
                producer.send_error(error.sequence_id, ServerError(error.error), error.message)
        elif type_ == CommandType.CLOSE_PRODUCER:
            self._closed(self.producers.pop(command.close_producer.producer_id, None))
        elif type_ == CommandType.CLOSE_CONSUMER:
            self._closed(self.consumers.pop(command.close_consumer.consumer_id, None))
        elif type_ == CommandType.ACTIVE_CONSUMER_CHANGE:
            change = command.active_consumer_change
            consumer = self.consumers.get(change.consumer_id)
            if consumer is not None:
                consumer.active_changed(change.is_active)

    def _closed(self, handler: Handler | None) -> None:
        if handler is not None:
            handler.closed_by_broker()
