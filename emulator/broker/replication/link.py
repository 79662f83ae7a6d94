"""The connection from this region to one other region, shared by the replicators of all topics.

To the remote region this is a client, authenticated as this region, that opens producers named
`pulsar.repl.<here>--><there>`. It reconnects, with back-off, until it is closed, and notifies every replicator when it
connects and disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from emulator.broker.authentication.refusals import TLS_HANDSHAKE
from emulator.broker.links.emulation import SINGLE_FRAMES, LinkCut
from emulator.broker.replication import peer_auth
from emulator.broker.replication.link_handshake import LinkHandshake
from emulator.broker.replication.link_requests import LinkRequests
from emulator.broker.replication.reconnection import Reconnection
from emulator.config.region import PeerConfig
from emulator.core.flow.failure_detector import FailureDetector
from emulator.errors import ProtocolError, ServerError
from emulator.model.reasons import NO_REASON, Cause, Reason
from emulator.model.values import Schema
from emulator.net.tls import described, is_tls_failure
from emulator.wire import commands
from emulator.wire.codec_hot.publishing import decode_peer_receipt
from emulator.wire.command_types import CommandType
from emulator.wire.commands import create_producer
from emulator.wire.frames import COMMAND_BYTES_MAX, FRAME_PADDING_BYTES, PING_FRAME, PONG_FRAME, FrameBuffer

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices

logger = logging.getLogger(__name__)

CONNECT_DEADLINE_SECONDS = 5.0
"""Maximum time of a connection attempt, including the time for which the emulated link holds it."""
ENDED_BY_PEER = (
    "it ended the connection before the first response, as for a certificate that it refuses; see its log"
)
_LASTING_CAUSES = (Cause.LINK_REFUSED, Cause.LINK_TLS_FAILED, Cause.LINK_SILENT, Cause.LINK_UNFINISHED)
"""Causes that are shown while the handshake is retried, until the link is established or lost for another reason."""


class LinkUser(Protocol):
    """A replicator, as its peer connection sees it."""

    producer_id: int

    def link_up(self) -> None: ...

    def link_down(self) -> None: ...

    def producer_ready(self, *, accepts_runs: bool) -> None:
        """Begin to send. `accepts_runs`: whether the peer accepts runs of messages."""
        ...

    def refused(self, message: str) -> None: ...

    def entry_refused(self, code: ServerError, message: str) -> None: ...

    def receipts(self, receipts: Sequence[tuple[int, int, int]]) -> None: ...

    def pump(self) -> None: ...

    def interval_over(self) -> None:
        """Check that receipts arrive; called at each keep-alive interval of an established link."""
        ...


class PeerLink(asyncio.Protocol):
    """The connection of this region to one peer."""

    def __init__(self, region: RegionServices, config: PeerConfig) -> None:
        self.region = region
        self.config = config
        self.connected = False
        """Whether the link is established: CONNECTED was received."""
        self.why_not = Cause.LINK_NOT_TRIED(region=config.region)
        """Why the link is not established; empty when it is."""
        self._refusal = NO_REASON
        """Why this connection ends: the peer rejected it, or was silent; empty when neither is the case."""
        self._ended_early = False
        """Whether the peer ended the newest connection with TLS before its first response, without a reason."""
        self.since_ms = region.environment.wall_clock_ms()
        """Time at which the link was last established or lost, by the region's clock."""
        self._users: dict[int, LinkUser] = {}
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(0)
        self.requests = LinkRequests()
        self._reconnection = Reconnection(region, self.start)
        self._failure_detector = FailureDetector()
        self._keep_alive: asyncio.TimerHandle | None = None
        self._handshake = LinkHandshake(region.config, config.region, self.write, self._handshake_timed_out)
        self._closed = False
        self._is_connecting = False
        """Whether a connection attempt is pending, so that there is never a second one."""
        self.is_removed = False
        """Whether the peer was removed for good: no connection is opened. Set by `set_removed`."""
        self.writable = True
        """Whether the transport has room; False: replicators must not send."""
        self.entry_bytes_max = region.config.settings.max_message_bytes
        """Maximum size of an entry, from the maximum message size that the peer announced."""

    @property
    def needs_single_frames(self) -> bool:
        """Whether each message must be sent in a frame of its own, so that as many pass, or are lost, as between
        regions of Pulsar."""
        return self._transport is not None and bool(self._transport.get_extra_info(SINGLE_FRAMES))

    # Users.

    def add(self, user: LinkUser) -> None:
        """Add a replicator that wants to send; `link_up` is called at once if the link is established."""
        user.producer_id = self.requests.new_id()
        self._users[user.producer_id] = user
        if self.connected:
            user.link_up()

    def remove(self, user: LinkUser) -> None:
        """Remove a replicator, and close its producer if the link is established."""
        self.requests.drop_producer_request(user.producer_id)
        if self._users.pop(user.producer_id, None) is not None and self.connected:
            self.write(commands.CloseProducer(self.requests.new_id(), user.producer_id).encode())

    def open_producer(self, user: LinkUser, topic: str) -> None:
        """Request a producer from the peer of an established link. The response calls `producer_ready` or `refused`."""
        request_id = self.requests.new_producer_request(user.producer_id)
        name = peer_auth.replicator_name(self.region.config.region, self.config.region)
        request = create_producer(request_id, topic, user.producer_id, name, is_compact_stream=True)
        self.write(request.encode())

    def request_partitions(self, topic: str) -> asyncio.Future[int]:
        """Request the number of partitions of a topic in the peer; 0: none, no such topic, or its response reports a
        failure. ProtocolError when the peer sends ERROR, or the link is down or breaks."""
        return self._request(
            lambda request_id: commands.PartitionMetadata(request_id, topic, may_create=False).encode()
        )

    def request_schema_version(self, topic: str, schema: Schema) -> asyncio.Future[bytes]:
        """Request the version of a schema in the peer, which registers a new schema. ProtocolError when it is rejected,
        or the link is down or breaks."""
        return self._request(
            lambda request_id: commands.GetOrCreateSchema(request_id, topic, schema).encode()
        )

    def _request(self, frame: Callable[[int], bytes]) -> asyncio.Future[Any]:
        if self.connected:
            return self.requests.send(lambda request_id: self.write(frame(request_id)))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(ProtocolError(ServerError.ServiceNotReady, self.why_not))
        return answer

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # Connecting.

    def start(self) -> None:
        """Connect to the peer unless there is a connection, and reconnect until the link is closed."""
        if not (self._closed or self.is_removed or self._is_connecting) and self._transport is None:
            self._is_connecting = True
            self.region.spawn(self._connect())

    def set_removed(self, why: Reason) -> None:
        """Close the link for as long as the peer is removed, and open it again when it is not (empty `why`)."""
        self.is_removed = bool(why)
        self.why_not = why or Cause.LINK_NOT_TRIED(region=self.config.region)
        if self._transport is not None:
            self._transport.abort()
        elif not why:
            self.start()

    async def _connect(self) -> None:
        network = self.region.environment.peer_network
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_SECONDS):
                await network.connect(lambda: self, *self.config.address)
        except Exception as failure:  # any, also of an invalid host name: the link must be retried
            self._attempt_failed(failure)
        finally:
            self._is_connecting = False

    def _attempt_failed(self, failure: Exception) -> None:
        self._ended_early = False
        if self.is_removed:
            return
        region = self.config.region
        if isinstance(failure, LinkCut):
            self.why_not = Cause.LINK_CUT(here=self.region.config.region, region=region)
        elif is_tls_failure(failure):
            self.why_not = self._tls_failure(failure)
        else:
            self.why_not = Cause.LINK_UNREACHABLE(region=region, failure=str(failure) or "timed out")
        self._reconnection.schedule()

    def _tls_failure(self, failure: BaseException) -> Reason:
        """Count a connection that ended because of TLS, and log it unless the former attempt ended in the same way."""
        self.region.resources.refused_authentications.note(TLS_HANDSHAKE, "peer")
        reason = Cause.LINK_TLS_FAILED(region=self.config.region, failure=described(failure))
        if str(reason) != str(self.why_not):
            logger.warning("%s", reason)
        return reason

    def _loss(self, failure: Exception | None, *, was_connected: bool) -> Reason:
        """Return why the connection ended. With TLS 1.3, the peer verifies our certificate after our side of the TLS
        handshake, and may end the connection without a reason. A peer that is killed ends it in the same way, once:
        only a peer that accepts the next connection and ends it, too, refuses our certificate."""
        if failure is not None and is_tls_failure(failure):
            return self._tls_failure(failure)
        may_be_tls = self.region.config.security.tls is not None and not (was_connected or self._refusal)
        is_repeated, self._ended_early = may_be_tls and self._ended_early, may_be_tls
        if is_repeated:
            return Cause.LINK_TLS_FAILED(region=self.config.region, failure=ENDED_BY_PEER)
        return Cause.LINK_LOST(region=self.config.region, failure=str(failure or "closed by the peer"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._closed or self.is_removed:
            transport.abort()
            return
        self._transport = transport
        if self.why_not.cause not in _LASTING_CAUSES:
            self.why_not = Cause.LINK_HANDSHAKE(region=self.config.region)
        self.writable = True
        self._frames = FrameBuffer(self.region.config.settings.max_message_bytes + FRAME_PADDING_BYTES)
        self._failure_detector.heard()
        self._schedule_keep_alive()
        self._handshake.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        was_connected, self.connected = self.connected, False
        self._transport = None
        self.requests.fail(ProtocolError(ServerError.ServiceNotReady, "the link was lost"))
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        self._handshake.end()
        lost = self._loss(exc, was_connected=was_connected)
        if not self.is_removed:
            self.why_not, self._refusal = self._refusal or lost, NO_REASON
        try:
            if was_connected:
                self.since_ms = self.region.environment.wall_clock_ms()
                logger.info("link to %s down", self.config.region)
                for user in list(self._users.values()):
                    user.link_down()
                self.region.links_changed()
        finally:  # also after an error of a replicator: the link must be retried
            self._reconnection.schedule()

    def _schedule_keep_alive(self) -> None:
        interval = self.region.config.settings.peer_keep_alive_interval_ms / 1000
        self._keep_alive = asyncio.get_running_loop().call_later(interval, self._check_alive)

    def _check_alive(self) -> None:
        """Send a PING, or abort the connection if the peer was silent for too long (a half-open connection)."""
        if self._transport is None:
            return
        if self._failure_detector.interval_over():
            self._refusal = Cause.LINK_SILENT(region=self.config.region)
            self._transport.abort()
            return
        self._transport.write(PING_FRAME)
        self._schedule_keep_alive()
        if self.connected:
            for user in list(self._users.values()):
                user.interval_over()

    def _handshake_timed_out(self, seconds: float) -> None:
        """Abort a connection whose handshake does not end, although the peer may respond to PINGs."""
        if self._transport is not None:
            self._refusal = Cause.LINK_UNFINISHED(region=self.config.region, seconds=seconds)
            self._transport.abort()

    def close(self) -> None:
        """End the link for good."""
        self._closed = True
        self._reconnection.close()
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        for user in list(self._users.values()):
            user.pump()

    # Commands of the peer.

    def data_received(self, data: bytes) -> None:
        self._failure_detector.heard()
        receipts: dict[int, list[tuple[int, int, int]]] = {}
        try:
            for type_, command, _ in self._frames.feed(data):
                if type_ == CommandType.SEND_RECEIPT:
                    producer_id, ledger_id, entry_id, entries = decode_peer_receipt(command)
                    receipts.setdefault(producer_id, []).append((ledger_id, entry_id, entries))
                else:
                    self._process_receipts(receipts)
                    self._handle(type_, command)
            if self._frames.failed is not None:
                raise self._frames.failed
        except ProtocolError as problem:
            logger.warning("link to %s: the peer violated the protocol: %s", self.config.region, problem)
            if self._transport is not None:
                self._transport.abort()
        self._process_receipts(receipts)

    def partial_frame(self) -> bytes:
        """Return the received bytes of the incomplete frame."""
        return self._frames.partial_frame

    def _process_receipts(self, receipts: dict[int, list[tuple[int, int, int]]]) -> None:
        """Pass all receipts of one read, up to the next other command, to the replicators and resume sending."""
        by_user = [(self._users.get(producer_id), group) for producer_id, group in receipts.items()]
        receipts.clear()
        for user, group in by_user:
            if user is not None:
                user.receipts(group)
                user.pump()

    def _handle(self, type_: int, data: bytes) -> None:
        if type_ == CommandType.PING:
            self.write(PONG_FRAME)
        elif type_ == CommandType.AUTH_CHALLENGE:
            self._handshake.respond(commands.AuthChallenge.read(data))
        elif type_ == CommandType.CONNECTED:
            self._establish(commands.Connected.read(data).max_message_bytes)
        elif type_ == CommandType.PRODUCER_SUCCESS:
            success = commands.ProducerSuccess.read(data)
            user = self._requester(success.request_id)
            if user is not None:
                user.producer_ready(accepts_runs=success.accepts_runs)
        elif type_ == CommandType.PARTITIONED_METADATA_RESPONSE:
            partitions = commands.PartitionMetadataResponse.read(data)
            count = 0 if partitions.is_failed else partitions.partitions or 0
            self.requests.complete(partitions.request_id, count)
        elif type_ == CommandType.GET_OR_CREATE_SCHEMA_RESPONSE:
            schema = commands.GetOrCreateSchemaResponse.read(data)
            version = schema.version or b""
            failed = None if schema.error is None else ProtocolError(schema.error, schema.message or "")
            self.requests.complete(schema.request_id, failed or version)
        elif type_ == CommandType.ERROR:
            error = commands.Error.read(data)
            if not self.connected:
                self._refusal = Cause.LINK_REFUSED(region=self.config.region, message=error.message)
                if str(self._refusal) != str(self.why_not):  # else the former attempt ended in the same way
                    logger.warning("%s", self._refusal)
            user = self._requester(error.request_id)
            if user is not None:
                user.refused(error.message)
            self.requests.complete(error.request_id, ProtocolError(error.error, error.message))
        elif type_ == CommandType.SEND_ERROR:
            failure = commands.SendError.read(data)
            user = self._users.get(failure.producer_id)
            if user is not None:
                user.entry_refused(failure.error, failure.message)
        elif type_ == CommandType.CLOSE_PRODUCER:
            user = self._users.get(commands.CloseProducer.read(data).producer_id)
            if user is not None:
                user.refused("closed by the peer")

    def _requester(self, request_id: int) -> LinkUser | None:
        """Return the replicator whose producer was requested; None when it was removed since, or the request was
        replaced or not for a producer."""
        producer_id = self.requests.pop_producer_request(request_id)
        return None if producer_id is None else self._users.get(producer_id)

    def _establish(self, max_message_bytes: int | None) -> None:
        if self.connected:  # CONNECTED was duplicated
            return
        self.connected = True
        self._handshake.end()
        if max_message_bytes is not None:
            self.entry_bytes_max = max_message_bytes + FRAME_PADDING_BYTES - COMMAND_BYTES_MAX
        self.since_ms = self.region.environment.wall_clock_ms()
        self.why_not = NO_REASON
        self._reconnection.established()
        logger.info("link to %s up", self.config.region)
        for user in list(self._users.values()):
            user.link_up()
        self.region.links_changed()
