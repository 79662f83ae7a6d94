"""The connection from this region to one other region, shared by the replicators of all topics.

To the other side this is an ordinary client that opens producers named `pulsar.repl.<here>--><there>`. It reconnects
for ever, with back-off, and tells every replicator when it is up and when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from emulator.errors import ProtocolError
from emulator.region_config import PeerConfig
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import PING_FRAME, PONG_FRAME, CommandType, decode_command, decode_receipt
from emulator.wire.frames import FrameBuffer, simple_frame

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices

logger = logging.getLogger(__name__)

FRAME_PADDING_BYTES = 10_240
CONNECT_DEADLINE_SECONDS = 5.0


class PeerUser(Protocol):
    """A replicator, as its peer connection sees it."""

    producer_id: int

    def link_up(self) -> None: ...

    def link_down(self) -> None: ...

    def producer_ready(self) -> None: ...

    def refused(self, message: str) -> None: ...

    def receipt(self, ledger_id: int, entry_id: int) -> None: ...

    def pump(self) -> None: ...


class PeerLink(asyncio.Protocol):
    """Keeps one region's connection to one peer."""

    def __init__(self, region: RegionServices, config: PeerConfig) -> None:
        self.region = region
        self.config = config
        self.connected = False
        """CONNECTED was received: the link is established."""
        self.why_not = "not tried yet"
        self._users: dict[int, PeerUser] = {}
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(0)
        self._requests: dict[int, PeerUser] = {}
        self._next_id = 0
        self._backoff_ms = region.config.settings.peer_reconnect_backoff_ms
        self._heard = True
        self._keep_alive: asyncio.TimerHandle | None = None
        self._closed = False
        self.writable = True

    # Users.

    def add(self, user: PeerUser) -> None:
        """A replicator wants to send; it hears `link_up` at once when there is a link."""
        self._next_id += 1
        user.producer_id = self._next_id
        self._users[user.producer_id] = user
        if self.connected:
            user.link_up()

    def remove(self, user: PeerUser) -> None:
        if self._users.pop(user.producer_id, None) is not None and self.connected:
            command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
            command.close_producer.producer_id = user.producer_id
            command.close_producer.request_id = self._new_request_id()
            self.write(simple_frame(command))

    def open_producer(self, user: PeerUser, topic: str) -> None:
        """Ask the peer for a producer; the answer comes as `producer_ready` or `refused`."""
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        producer = command.producer
        producer.topic = topic
        producer.producer_id = user.producer_id
        producer.request_id = self._new_request_id()
        producer.producer_name = f"pulsar.repl.{self.region.config.region}-->{self.config.region}"
        producer.user_provided_producer_name = True
        self._requests[producer.request_id] = user
        self.write(simple_frame(command))

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _new_request_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # Connecting.

    def start(self) -> None:
        """Connect now and for ever after."""
        self.region.spawn(self._connect())

    async def _connect(self) -> None:
        network = self.region.environment.peer_network
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_SECONDS):
                await network.connect(lambda: self, self.config.host, self.config.port)
        except (OSError, TimeoutError) as failure:
            self.why_not = f"cannot connect to {self.config.region}: {failure or 'timed out'}"
            self._try_again()

    def _try_again(self) -> None:
        if self._closed:
            return
        settings = self.region.config.settings
        jitter = self.region.environment.random.uniform(0.8, 1.2)
        asyncio.get_running_loop().call_later(self._backoff_ms / 1000 * jitter, self._reconnect)
        self._backoff_ms = min(self._backoff_ms * 2, settings.peer_reconnect_backoff_ms_max)

    def _reconnect(self) -> None:
        if not self._closed:
            self.start()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._closed:
            transport.abort()
            return
        self._transport = transport
        self.writable = True
        self._frames = FrameBuffer(self.region.config.settings.max_message_bytes + FRAME_PADDING_BYTES)
        self._heard = True
        self._schedule_keep_alive()
        command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        command.connect.client_version = "geoemu-replicator"
        command.connect.protocol_version = 21
        command.connect.feature_flags.supports_repl_dedup_by_lid_and_eid = True
        transport.write(simple_frame(command))

    def connection_lost(self, exc: Exception | None) -> None:
        was_connected, self.connected = self.connected, False
        self._transport = None
        self._requests.clear()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        self.why_not = f"connection to {self.config.region} lost: {exc or 'closed by the peer'}"
        if was_connected:
            logger.info("link to %s down", self.config.region)
            for user in list(self._users.values()):
                user.link_down()
            self.region.links_changed()
        self._try_again()

    def _schedule_keep_alive(self) -> None:
        interval = self.region.config.settings.peer_keep_alive_interval_ms / 1000
        self._keep_alive = asyncio.get_running_loop().call_later(interval, self._check_alive)

    def _check_alive(self) -> None:
        """Half-open connections are only found by asking."""
        if self._transport is None:
            return
        if not self._heard:
            self.why_not = f"{self.config.region} does not answer"
            self._transport.abort()
            return
        self._heard = False
        self._transport.write(PING_FRAME)
        self._schedule_keep_alive()

    def close(self) -> None:
        """End the link for good."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._pump(self._users.values())

    # What the peer says.

    def data_received(self, data: bytes) -> None:
        self._heard = True
        moved: dict[int, PeerUser] = {}
        try:
            for type_, command, _ in self._frames.feed(data):
                if type_ == CommandType.SEND_RECEIPT:
                    self._receipt(command, moved)
                else:
                    self._handle(type_, command)
            if self._frames.failed is not None:
                raise self._frames.failed
        except ProtocolError as problem:
            logger.warning("peer %s broke the protocol: %s", self.config.region, problem)
            if self._transport is not None:
                self._transport.abort()
        self._pump(moved.values())

    def _receipt(self, command: bytes, moved: dict[int, PeerUser]) -> None:
        # Between our brokers a receipt names the source position (facts 5.6, V2).
        producer_id, source_ledger_id, source_entry_id, _, _ = decode_receipt(command)
        user = self._users.get(producer_id)
        if user is not None:
            user.receipt(source_ledger_id, source_entry_id)
            moved[producer_id] = user

    def _pump(self, users: Iterable[PeerUser]) -> None:
        """Let them send on: once per chunk of receipts, not once per receipt."""
        for user in list(users):
            user.pump()

    def _handle(self, type_: int, data: bytes) -> None:
        if type_ == CommandType.PING:
            self.write(PONG_FRAME)
        elif type_ == CommandType.CONNECTED:
            self._connected()
        elif type_ == CommandType.PRODUCER_SUCCESS:
            user = self._requests.pop(decode_command(data).producer_success.request_id, None)
            if user is not None and user.producer_id in self._users:
                user.producer_ready()
        elif type_ == CommandType.ERROR:
            error = decode_command(data).error
            user = self._requests.pop(error.request_id, None)
            if user is not None:
                user.refused(error.message)
        elif type_ == CommandType.SEND_ERROR:
            failure = decode_command(data).send_error
            self._refuse(failure.producer_id, failure.message)
        elif type_ == CommandType.CLOSE_PRODUCER:
            self._refuse(decode_command(data).close_producer.producer_id, "closed by the peer")

    def _refuse(self, producer_id: int, message: str) -> None:
        user = self._users.get(producer_id)
        if user is not None:
            user.refused(message)

    def _connected(self) -> None:
        self.connected = True
        self.why_not = ""
        self._backoff_ms = self.region.config.settings.peer_reconnect_backoff_ms
        logger.info("link to %s up", self.config.region)
        for user in list(self._users.values()):
            user.link_up()
        self.region.links_changed()
