"""One client's connection: bytes in, commands to whoever is meant, answers out.

Sends, flows and acknowledgements are handled where they are read, many per chunk of bytes. Everything that may have
to wait (a topic to load, a cursor to store) runs in a task of its own and answers by request id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from emulator.broker.environment import RegionServices
from emulator.broker.producer import Producer
from emulator.broker.subscription import Consumer
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model import TopicName
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import (
    PING_FRAME,
    PONG_FRAME,
    CommandType,
    decode_ack,
    decode_command,
    decode_flow,
    decode_send,
)
from emulator.wire.frames import FrameBuffer, simple_frame
from emulator.wire.metadata import ensure_checksum, scan_entry

if TYPE_CHECKING:
    from emulator.broker.topic import Topic

logger = logging.getLogger(__name__)
P = ParamSpec("P")

FRAME_PADDING_BYTES = 10_240
"""Room for command and metadata around the largest message."""
PUBLISHES_PENDING_BYTES_MAX = 33_554_432
"""More than this admitted and not yet durable, and the connection is not read from for a while."""
PROTOCOL_VERSION = 21
SERVER_VERSION = "Pulsar Server geoemu"


class Home(RegionServices, Protocol):
    """The region, as its clients' connections see it."""

    connections: dict[ClientConnection, None]

    @property
    def service_url(self) -> str: ...

    @property
    def internal_url(self) -> str: ...

    def new_producer_name(self) -> str: ...

    def check_topic(self, name: str) -> TopicName: ...

    def topic_names(self, namespace: str) -> list[str]: ...

    async def topic(self, name: str, *, create: bool = True) -> Topic: ...


Handler = Callable[["ClientConnection", pb.BaseCommand], None]


class ClientConnection(asyncio.Protocol):
    """Speaks for one client of the region, which may be a replicator of another region."""

    def __init__(self, region: Home, handlers: Mapping[int, Handler], *, internal: bool = False) -> None:
        self.region = region
        self._handlers = handlers
        """By command type: everything but sends, flows and acknowledgements."""
        self.internal = internal
        """It came by the region's internal port, and lookups keep it on that side."""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self.opening: set[tuple[str, int]] = set()
        """("producer" or "consumer", id) that are being created; removed when the client gives up meanwhile."""
        self.address = "?"
        self.client_version = ""
        self.connected = False
        self._closed_producers: dict[int, None] = {}
        """Ids closed a moment ago, whose late sends are ignored rather than punished (facts 4.5)."""
        self._transport: asyncio.Transport | None = None
        settings = region.config.settings
        self._frames = FrameBuffer(settings.max_message_bytes + FRAME_PADDING_BYTES)
        self._keep_alive: asyncio.TimerHandle | None = None
        self._pinged = False
        self.heard = asyncio.Event()
        """Set by every chunk that arrives; cleared by whoever wants to know whether the client is alive."""
        self._pending_bytes = 0
        self._read_paused = False

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = str(transport.get_extra_info("peername") or "?")
        self.region.connections[self] = None
        self._schedule_keep_alive()

    def connection_lost(self, exc: Exception | None) -> None:
        self.region.connections.pop(self, None)
        self._transport = None
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        self.opening.clear()
        for producer in list(self.producers.values()):
            self.forget_producer(producer)
        for consumer in list(self.consumers.values()):
            self.forget_consumer(consumer)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def send(self, command: pb.BaseCommand) -> None:
        self.write(simple_frame(command))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop a connection whose other side is gone."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        for consumer in self.consumers.values():
            consumer.subscription.set_blocked(consumer, blocked=True)

    def resume_writing(self) -> None:
        for consumer in self.consumers.values():
            consumer.subscription.set_blocked(consumer, blocked=False)

    def published(self, size_bytes: int) -> None:
        """So many admitted bytes have been answered."""
        self._pending_bytes -= size_bytes
        if self._read_paused and self._pending_bytes < PUBLISHES_PENDING_BYTES_MAX // 2:
            self._read_paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    # Keep-alive.

    def _schedule_keep_alive(self) -> None:
        interval = self.region.config.settings.keep_alive_interval_ms / 1000
        self._keep_alive = asyncio.get_running_loop().call_later(interval, self._check_alive)

    def _check_alive(self) -> None:
        if self._pinged and not self._read_paused:
            logger.info("%s does not answer: closing", self.address)
            self.abort()
            return
        self._pinged = True
        self.write(PING_FRAME)
        self._schedule_keep_alive()

    async def is_alive(self, within_seconds: float) -> bool:
        """Whether the client says anything when asked. For deciding between an old connection and a new one."""
        if not self.is_open:
            return False
        self.heard.clear()
        self.write(PING_FRAME)
        try:
            async with asyncio.timeout(within_seconds):
                await self.heard.wait()
        except TimeoutError:
            return False
        return self.is_open

    # Bytes in.

    def data_received(self, data: bytes) -> None:
        self._pinged = False
        self.heard.set()
        touched: dict[Topic, None] = {}
        try:
            for type_, command, payload in self._frames.feed(data):
                if type_ == CommandType.SEND:
                    self._send(command, payload, touched)
                elif type_ == CommandType.ACK:
                    self._ack(command)
                elif type_ == CommandType.FLOW:
                    self._flow(command)
                else:
                    self._handle(type_, command)
            if self._frames.failed is not None:
                raise self._frames.failed
        except ProtocolError as problem:
            logger.warning("%s: %s: closing", self.address, problem)
            if not self.connected:
                self.send_error(2**64 - 1, problem)
            self.close()
        finally:
            for topic in touched:
                topic.flush()

    def _send(self, command: bytes, data: bytes, touched: dict[Topic, None]) -> None:
        send = decode_send(command)
        producer = self.producers.get(send.producer_id)
        if producer is None:
            if send.producer_id in self._closed_producers:
                return
            raise ProtocolError(
                ServerError.UnknownError,
                f"send for unknown producer {send.producer_id}",
                closes_connection=True,
            )
        try:
            data = ensure_checksum(data)
            info = scan_entry(data, verify=True)
            self._check_send(send.txn_least is not None, len(data) - info.payload_offset)
            producer.topic.publish(producer, send, data, info)
        except ProtocolError as problem:
            self._send_refused(send.producer_id, send.sequence_id, problem)
            return
        touched[producer.topic] = None
        producer.pending_bytes += len(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > PUBLISHES_PENDING_BYTES_MAX and not self._read_paused:
            self._read_paused = True
            if self._transport is not None:
                self._transport.pause_reading()

    def _check_send(self, transactional: bool, payload_bytes: int) -> None:
        if transactional:
            raise ProtocolError(ServerError.NotAllowedError, "Transactions are not enabled.")
        limit = self.region.config.settings.max_message_bytes
        if payload_bytes > limit:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"message of {payload_bytes} bytes exceeds the maximum of {limit}",
            )

    def _send_refused(self, producer_id: int, sequence_id: int, problem: ProtocolError) -> None:
        answer = pb.BaseCommand(type=pb.BaseCommand.SEND_ERROR)
        answer.send_error.producer_id = producer_id
        answer.send_error.sequence_id = sequence_id
        answer.send_error.error = problem.code.value  # type: ignore[assignment]
        answer.send_error.message = str(problem)
        self.send(answer)

    def _flow(self, command: bytes) -> None:
        consumer_id, permits = decode_flow(command)
        consumer = self.consumers.get(consumer_id)
        if consumer is not None:
            consumer.subscription.flow(consumer, permits)

    def _ack(self, command: bytes) -> None:
        ack = decode_ack(command)
        consumer = self.consumers.get(ack.consumer_id)
        if consumer is None:
            return
        if ack.txn_least is not None:
            self._answer_ack(ack.consumer_id, ack.request_id, ServerError.NotAllowedError)
            return
        consumer.subscription.acknowledge(consumer, ack.ids, cumulative=ack.cumulative)
        if ack.request_id is not None:
            self.region.spawn(self._acknowledge_when_durable(consumer, ack.request_id))

    async def _acknowledge_when_durable(self, consumer: Consumer, request_id: int) -> None:
        try:
            await consumer.subscription.persisted()
        except StorageError:
            self._answer_ack(consumer.consumer_id, request_id, ServerError.PersistenceError)
        else:
            self._answer_ack(consumer.consumer_id, request_id, None)

    def _answer_ack(self, consumer_id: int, request_id: int | None, error: ServerError | None) -> None:
        if request_id is None:
            return
        answer = pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE)
        answer.ackResponse.consumer_id = consumer_id
        answer.ackResponse.request_id = request_id
        if error is not None:
            answer.ackResponse.error = error.value  # type: ignore[assignment]
            answer.ackResponse.message = error.name
        self.send(answer)

    def _handle(self, type_: int, data: bytes) -> None:
        if type_ == CommandType.PING:
            self.write(PONG_FRAME)
        elif type_ == CommandType.PONG:
            pass
        elif type_ == CommandType.CONNECT:
            self._connect(decode_command(data).connect)
        elif not self.connected:
            raise ProtocolError(
                ServerError.UnknownError, "the first command must be CONNECT", closes_connection=True
            )
        else:
            handler = self._handlers.get(type_)
            if handler is None:
                logger.info("%s: command %d is not known here: ignored", self.address, type_)
                return
            handler(self, decode_command(data))

    def _connect(self, connect: pb.CommandConnect) -> None:
        if self.connected:
            raise ProtocolError(ServerError.UnknownError, "CONNECT may be sent once", closes_connection=True)
        self.connected = True
        self.client_version = connect.client_version
        answer = pb.BaseCommand(type=pb.BaseCommand.CONNECTED)
        answer.connected.server_version = SERVER_VERSION
        answer.connected.protocol_version = min(PROTOCOL_VERSION, connect.protocol_version)
        answer.connected.max_message_size = self.region.config.settings.max_message_bytes
        flags = answer.connected.feature_flags
        flags.supports_get_partitioned_metadata_without_auto_creation = True
        flags.supports_repl_dedup_by_lid_and_eid = True
        self.send(answer)

    # Answers.

    def request(
        self, request_id: int, work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Do what a request asks for in a task; a ProtocolError becomes its ERROR answer."""
        self.region.spawn(self._answering(request_id, lambda: work(*args, **kwargs)))

    async def _answering(self, request_id: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except ProtocolError as problem:
            self.send_error(request_id, problem)
        except StorageError as failure:
            self.send_error(request_id, ProtocolError(ServerError.PersistenceError, str(failure)))

    def send_error(self, request_id: int, problem: ProtocolError) -> None:
        answer = pb.BaseCommand(type=pb.BaseCommand.ERROR)
        answer.error.request_id = request_id
        answer.error.error = problem.code.value  # type: ignore[assignment]
        answer.error.message = str(problem)
        self.send(answer)

    def send_success(self, request_id: int) -> None:
        answer = pb.BaseCommand(type=pb.BaseCommand.SUCCESS)
        answer.success.request_id = request_id
        self.send(answer)

    def send_active_consumer_change(self, consumer_id: int, is_active: bool) -> None:
        answer = pb.BaseCommand(type=pb.BaseCommand.ACTIVE_CONSUMER_CHANGE)
        answer.active_consumer_change.consumer_id = consumer_id
        answer.active_consumer_change.is_active = is_active
        self.send(answer)

    # Producers and consumers of this connection.

    def add_producer(self, producer: Producer) -> None:
        self.producers[producer.producer_id] = producer
        producer.topic.producers[producer.producer_name] = producer
        self._closed_producers.pop(producer.producer_id, None)
        if producer.source_region is not None and producer.topic.sync is not None:
            producer.topic.sync.links_changed()

    def forget_producer(self, producer: Producer) -> None:
        """It sends nothing any more; what it sent stays."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
            self._closed_producers[producer.producer_id] = None
        if producer.topic.producers.get(producer.producer_name) is producer:
            del producer.topic.producers[producer.producer_name]
            if producer.source_region is not None and producer.topic.sync is not None:
                producer.topic.sync.link_lost(producer.source_region)
        self.published(producer.pending_bytes)
        producer.pending_bytes = 0

    def close_producer(self, producer: Producer) -> None:
        """Send a producer away; the client reconnects and sends again what has no receipt."""
        self.forget_producer(producer)
        command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = producer.producer_id
        command.close_producer.request_id = 2**64 - 1
        self.send(command)

    def topic_closed(self, topic: Topic) -> None:
        """A topic is no longer served: send its producers and consumers away."""
        for producer in [p for p in self.producers.values() if p.topic is topic]:
            self.close_producer(producer)
        for consumer in [c for c in self.consumers.values() if c.subscription.topic is topic]:
            self.close_consumer(consumer)

    def forget_consumer(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]
        consumer.subscription.detach(consumer)

    def close_consumer(self, consumer: Consumer) -> None:
        """Send a consumer away; the client subscribes again."""
        self.forget_consumer(consumer)
        command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.consumer_id = consumer.consumer_id
        command.close_consumer.request_id = 2**64 - 1
        self.send(command)
