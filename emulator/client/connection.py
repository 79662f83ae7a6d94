"""One connection of a client to a broker: matches responses to requests, passes frames to producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from emulator.client.types import ClientError, ClientSettings, ExpiredTransaction
from emulator.errors import EXPIRED_TRANSACTION, ProtocolError, ServerError
from emulator.net.credentials import NO_CREDENTIALS, Credentials
from emulator.wire.codec_hot.consuming import MessageMeta, decode_message
from emulator.wire.codec_hot.publishing import Receipt, decode_receipt
from emulator.wire.command_types import CommandType
from emulator.wire.commands.connections import (
    HANDSHAKE_REQUEST_ID,
    PROTOCOL_VERSION,
    AuthChallenge,
    AuthResponse,
    Connect,
    Connected,
    Error,
    TopicsUpdate,
)
from emulator.wire.commands.consumers import AckResponse, ActiveConsumerChange, CloseConsumer
from emulator.wire.commands.producers import CloseProducer, GetOrCreateSchemaResponse, SendError
from emulator.wire.commands.spec import COMMANDS, Command, RequestCommand
from emulator.wire.commands.transactions import COORDINATOR_RESPONSES
from emulator.wire.frames import PING_FRAME, PONG_FRAME, FrameBuffer

MESSAGE_BYTES_MAX = 5 * 1024 * 1024
"""Maximum size of a message if the CONNECTED of the region contains none."""
FRAME_BYTES_MAX = 64 * 1024 * 1024
CLIENT_VERSION = "geoemu-client"
RESPONSES: Final = frozenset(
    {
        CommandType.SUCCESS,
        CommandType.ERROR,
        CommandType.PRODUCER_SUCCESS,
        CommandType.LOOKUP_RESPONSE,
        CommandType.GET_LAST_MESSAGE_ID_RESPONSE,
        CommandType.ACK_RESPONSE,
        CommandType.PARTITIONED_METADATA_RESPONSE,
        CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        CommandType.WATCH_TOPIC_LIST_SUCCESS,
        CommandType.TC_CLIENT_CONNECT_RESPONSE,
        CommandType.NEW_TXN_RESPONSE,
        CommandType.ADD_PARTITION_TO_TXN_RESPONSE,
        CommandType.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        CommandType.END_TXN_RESPONSE,
        CommandType.GET_SCHEMA_RESPONSE,
        CommandType.GET_OR_CREATE_SCHEMA_RESPONSE,
    }
)
Response = TypeVar("Response", bound=Command)


class Handler(Protocol):
    """Events that a connection reports to a producer, consumer or watcher."""

    def connection_lost(self) -> None: ...

    def closed_by_broker(self) -> None: ...


class ProducerHandler(Handler, Protocol):
    def receipt(self, receipt: Receipt) -> None: ...

    def send_error(self, sequence_id: int, code: ServerError, message: str) -> None: ...


class ConsumerHandler(Handler, Protocol):
    def message(self, meta: MessageMeta, data: bytes) -> None: ...

    def active_changed(self, is_active: bool) -> None: ...


class WatchHandler(Handler, Protocol):
    def topics_changed(self, change: TopicsUpdate) -> None: ...


class BrokerConnection(asyncio.Protocol):
    """One connection to a broker; usable once `connected` has resolved."""

    def __init__(
        self,
        address: tuple[str, int],
        settings: ClientSettings,
        on_lost: Callable[[BrokerConnection], None],
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        """Raises OSError if the credentials cannot be read."""
        self.address = address
        self._credentials = credentials
        self._login = credentials.login()
        self._settings = settings
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[None] = loop.create_future()
        self.max_message_bytes = MESSAGE_BYTES_MAX
        """The largest message that the region accepts, from its CONNECTED."""
        self.producers: dict[int, ProducerHandler] = {}
        self.consumers: dict[int, ConsumerHandler] = {}
        self.watchers: dict[int, WatchHandler] = {}
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._requests: dict[int, asyncio.Future[Command]] = {}
        self._second_handlers: dict[int, Callable[[Command], None]] = {}
        """Request id -> handler of a second response (for a producer that waits for exclusive access)."""
        self._keep_alive: asyncio.TimerHandle | None = None
        self._received_since_ping = True

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._schedule_keep_alive()
        connect = Connect(
            CLIENT_VERSION, PROTOCOL_VERSION, *self._login, can_refresh_credentials=bool(self._login[0])
        )
        self.write(connect.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        lost = ClientError(f"connection to {self.address[0]}:{self.address[1]} lost", definite=False)
        futures: list[asyncio.Future[Any]] = [*self._requests.values(), self.connected]
        self._requests.clear()
        self._second_handlers.clear()
        for future in futures:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # Mark as retrieved: the caller may have stopped waiting.
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
        if not self._received_since_ping:
            self.abort()
            return
        self._received_since_ping = False
        self.write(PING_FRAME)
        self._schedule_keep_alive()

    # Requests.

    async def ask(self, command: RequestCommand, expected: type[Response]) -> Response:
        """Send a request and return its response. ClientError as `request_frame`, or, not definite, for a response
        of another type."""
        response = await self.request(command)
        if not isinstance(response, expected):
            raise unexpected(type(command).__name__, response)
        return response

    async def request(
        self, command: RequestCommand, on_second_response: Callable[[Command], None] | None = None
    ) -> Command:
        return await self.request_frame(command.request_id, command.encode(), on_second_response)

    async def request_frame(
        self, request_id: int, frame: bytes, on_second_response: Callable[[Command], None] | None = None
    ) -> Command:
        """Send a request and wait for its response. ClientError when it is rejected, lost or timed out; a timeout
        aborts the connection, so that its producers and consumers reconnect."""
        if not self.is_open:
            raise ClientError("not connected", definite=True)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._requests[request_id] = future
        if on_second_response is not None:
            self._second_handlers[request_id] = on_second_response
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
        self._second_handlers.pop(request_id, None)

    def _handle_response(self, response: Command, request_id: int) -> None:
        future = self._requests.pop(request_id, None)
        if future is None or future.done():
            on_second_response = self._second_handlers.pop(request_id, None)
            if on_second_response is not None:
                on_second_response(response)
            return
        resolve(future, response)

    # Bytes in.

    def data_received(self, data: bytes) -> None:
        self._received_since_ping = True
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
        elif (declared := COMMANDS.get(type_)) is not None:
            self._handle_cold(declared.read(command))

    def _handle_cold(self, command: Command) -> None:
        match command:
            case Connected():
                self.max_message_bytes = max(0, command.max_message_bytes or 0) or MESSAGE_BYTES_MAX
                if not self.connected.done():
                    self.connected.set_result(None)
            case AuthChallenge():
                self._refresh_credentials()
            case Error() if command.request_id == HANDSHAKE_REQUEST_ID and not self.connected.done():
                self.connected.set_exception(rejected(command.error, command.message, definite=True))
                self.connected.exception()  # Mark as retrieved: the caller may have stopped waiting.
            case SendError():
                producer = self.producers.get(command.producer_id)
                if producer is not None:
                    producer.send_error(command.sequence_id, command.error, command.message)
            case CloseProducer():
                self._notify_closed(self.producers.pop(command.producer_id, None))
            case CloseConsumer():
                self._notify_closed(self.consumers.pop(command.consumer_id, None))
            case ActiveConsumerChange():
                consumer = self.consumers.get(command.consumer_id)
                if consumer is not None:
                    consumer.active_changed(command.is_active)
            case TopicsUpdate():
                watcher = self.watchers.get(command.watcher_id)
                if watcher is not None:
                    watcher.topics_changed(command)
            case _ if command.type_ in RESPONSES:
                self._handle_response(command, cast(RequestCommand, command).request_id)

    def _refresh_credentials(self) -> None:
        """Present the credentials as they are now, because the former ones have expired."""
        try:
            method, data = self._credentials.login()
        except OSError:
            self.abort()
        else:
            self.write(AuthResponse(method, data).encode())

    def _notify_closed(self, handler: Handler | None) -> None:
        if handler is not None:
            handler.closed_by_broker()


def resolve(future: asyncio.Future[Command], response: Command) -> None:
    """Set the future of a request to its response, or to the error that the response reports."""
    error = _error_of(response)
    if error is None:
        future.set_result(response)
    else:
        future.set_exception(error)


def _error_of(response: Any) -> ClientError | None:
    """Return the error that a response reports; None: it reports success."""
    code: ServerError | None = getattr(response, "error", None)
    if not getattr(response, "is_failed", code is not None):
        return None
    code = code or ServerError.UnknownError
    may_have_happened = isinstance(response, AckResponse | GetOrCreateSchemaResponse) or (
        # A write of the coordinator that failed may be durable nevertheless.
        code is ServerError.PersistenceError and isinstance(response, COORDINATOR_RESPONSES)
    )
    return rejected(code, response.message or "", definite=not may_have_happened)


def rejected(code: ServerError, message: str, *, definite: bool) -> ClientError:
    """Return the error of a response. The protocol has no code for an expired transaction, only a message."""
    is_expired = code is ServerError.NotAllowedError and message.startswith(EXPIRED_TRANSACTION)
    return (ExpiredTransaction if is_expired else ClientError)(message, definite=definite, code=code)


def unexpected(request: str, response: Command) -> ClientError:
    """Return the error for a response of the wrong type: the operation may have happened."""
    return ClientError(f"unexpected response to {request}: {type(response).__name__}", definite=False)
