"""One client's connection: its lifetime, its transport, and the components that hold the state of its commands.

SEND, FLOW and ACK are handled inline as they are read (`framing.py`), many per read. A command that may have to wait
(for a topic to load, a cursor to be stored) runs in a task, which is cancelled when the connection ends, or returns a
future.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from emulator.broker.authentication.gate import ClientGate
from emulator.broker.authentication.refresh import CredentialRefresh
from emulator.broker.authorization import TrustLevel
from emulator.broker.authorizer import Authorizer
from emulator.broker.connection.attachments import ClientConsumers, ClientProducers
from emulator.broker.connection.client_limits import ConnectionCounts, PendingHandshakes
from emulator.broker.connection.dispatch import CommandTable
from emulator.broker.connection.flow_control import PauseReason
from emulator.broker.connection.framing import CommandReader
from emulator.broker.connection.pending_responses import PendingResponses
from emulator.broker.connection.service_ports import ServicePort, ServicePorts, ServiceUrls
from emulator.broker.connection.topic_watchers import TopicWatcher
from emulator.broker.environment import RegionServices
from emulator.broker.links.emulation import EmulatedLink, EmulatedProtocol, EmulatedTransport
from emulator.broker.replication.peer_auth import Handshake
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.tasks import TaskGroup
from emulator.core.admission import Peer
from emulator.errors import ProtocolError
from emulator.model.principals import NO_PRINCIPAL, Principal
from emulator.model.values import TopicName
from emulator.net.addresses import in_url
from emulator.net.network import own_address
from emulator.wire.commands import HANDSHAKE_REQUEST_ID, error_response

if TYPE_CHECKING:
    from emulator.broker.incarnation import Incarnation
    from emulator.broker.metadata.policies import Policies
    from emulator.broker.topic.topic import Topic
    from emulator.broker.topic_directory.directory import TopicDirectory
    from emulator.broker.topic_directory.partitions import PartitionedTopics
    from emulator.broker.topic_directory.topic_rules import TopicRules
    from emulator.broker.transactions.coordinators import TransactionCoordinators
    from emulator.core.transactions.journal_format import Holder

logger = logging.getLogger(__name__)


class RefusedRegions(Protocol):
    """The removed regions, as connections see them."""

    def check_accepted(self, name: str) -> None:
        """Raise ProtocolError, which ends the connection, for a removed region that connects."""
        ...


class ServingRegion(RegionServices, Protocol):
    """The region, as its clients' connections see it."""

    clients: ClientConnections
    incarnation: Incarnation
    directory: TopicDirectory
    topic_rules: TopicRules
    partitioned: PartitionedTopics
    policies: Policies
    coordinators: TransactionCoordinators

    gate: ClientGate | None
    """Authenticates clients; None if the region does not."""
    authorizer: Authorizer | None

    @property
    def removed_regions(self) -> RefusedRegions: ...

    def check_topic(self, name: str) -> TopicName: ...


class TransactionKeys:
    """The transaction keys that one connection holds."""

    def __init__(self) -> None:
        self.held: dict[int, Holder] = {}
        """Coordinator number -> the key whose epoch was granted to this connection; at most one per coordinator."""
        self.requests: dict[int, asyncio.Lock] = {}
        """Coordinator number -> the lock that is held while a key is requested from it."""


class ClientConnection(asyncio.Protocol):
    """The connection of one client, which may be a replicator of another region."""

    def __init__(
        self, region: ServingRegion, table: CommandTable, *, internal: bool = False, secured: bool = False
    ) -> None:
        self.region = region
        self.table = table
        self.internal = internal
        """True for a client of the region's internal port, whose lookups return internal addresses."""
        self.secured = secured
        """True for a client of a port with TLS."""
        self.address = "?"
        self.local_address = ""
        """The region's address to which the client connected."""
        self.client_version = ""
        self.trust = TrustLevel.UNAUTHENTICATED
        self.handshake: Handshake | None = None
        """The handshake of a client that claims to be a region and has not proved it yet; None otherwise."""
        self.peer: Peer | None = None
        """The region or declared Pulsar cluster as which the client is authenticated; None for ordinary clients."""
        self.credential_refresh: CredentialRefresh | None = None
        """The expiry of the client's credentials; None if the region does not authenticate it."""
        self.principal = NO_PRINCIPAL
        """The roles of the client. Set once, when its handshake is complete."""
        self.authorizer = region.authorizer
        self.legal_rows = table.legal[self.trust]
        self.watchers: dict[int, TopicWatcher] = {}
        """Watchers of topic lists, by id."""
        self.transaction_keys = TransactionKeys()
        self.tasks = TaskGroup()
        self.responses: list[bytes] = []
        """Encoded responses. Those to the commands of a read are sent at its end, others in the next
        iteration of the event loop; in any case before the next write."""
        self._are_receipts_only = True
        """Whether all of `responses` are receipts, whose number the publishes bound."""
        self._transport: asyncio.Transport | None = None
        settings, components = region.config.settings, region.environment.components.connections
        self.flow_control = components.flow_control(
            region.resources.clients,
            self._stop_reading,
            # In the next iteration of the event loop: the code that removes the last pause reason has to finish first.
            lambda: asyncio.get_running_loop().call_soon(self._resume_reading),
            self._free_memory,
        )
        self.pending_responses = PendingResponses(self)
        self.producers = ClientProducers(self, settings.producers_per_connection_max)
        self.consumers = ClientConsumers(self, settings.consumers_per_connection_max)
        self.reader = CommandReader(self, settings.max_message_bytes)
        self.liveness = components.liveness(self, settings.keep_alive_interval_ms)

    @cached_property
    def service_urls(self) -> ServiceUrls:
        """The addresses of the region in responses to the client's lookups."""
        ports = self.region.clients.ports
        return ports.internal_urls if self.internal else ports.service_urls(self.local_address)

    @property
    def handshakes(self) -> PendingHandshakes:
        """The limits of handshakes of TLS."""
        return self.region.clients.handshakes

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = _address(transport.get_extra_info("peername"))
        self.local_address = own_address(transport)
        self.region.clients.connections[self] = None
        self.liveness.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self.region.clients.connections.pop(self, None)
        if self.trust is TrustLevel.CLIENT:
            self.region.clients.counts.release(self.address)
        self._transport = None
        self.liveness.stop()
        if self.credential_refresh is not None:
            self.credential_refresh.stop()
        self.tasks.close()
        self.producers.connection_lost()
        self.consumers.connection_lost()
        for watcher in self.watchers.values():
            watcher.end()
        self.region.resources.slow_senders.end_pause(self)
        self.flow_control.release()

    def emulate(self, link: EmulatedLink) -> None:
        """Pass all bytes through the link from now on. No effect if they do so already, or the connection ends."""
        if self.is_open and not isinstance(self._transport, EmulatedTransport):
            assert self._transport is not None
            flow_control = self.flow_control
            self._transport = EmulatedProtocol(self, link).adopt(
                self._transport,
                reading_paused=flow_control.is_reading_paused,
                writing_paused=flow_control.is_writing_paused,
            )

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes whose amount is bounded by the client's requests and permits: messages, receipts, PINGs."""
        if self.responses:
            self.send_responses(data)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self.liveness.written_bytes += len(data)

    def answer_soon(self, data: bytes) -> None:
        """Send a response, in one write with the other responses of the same read or iteration of the event loop."""
        self._write_soon(data)
        self._are_receipts_only = False

    def send_receipts(self, data: bytes) -> None:
        """Send the receipts of one producer, in one write with those of the connection's other producers whose messages
        became durable in the same commit, and with responses to transaction requests. The receipts of a lone producer
        need not wait for others."""
        if len(self.producers.open) == 1 and not self.pending_responses.is_waiting:
            self.write(data)
        else:
            self._write_soon(data)

    def _write_soon(self, data: bytes) -> None:
        if not self.responses and not self.reader.is_reading:
            asyncio.get_running_loop().call_soon(self.send_responses)
        self.responses.append(data)

    def send_responses(self, last: bytes = b"") -> None:
        """Send the encoded responses, and `last` behind them in the same write."""
        responses, self.responses = self.responses, []
        are_receipts_only, self._are_receipts_only = self._are_receipts_only, True
        if responses:
            (self.write if are_receipts_only else self.answer)(b"".join((*responses, last)))

    def answer(self, data: bytes) -> None:
        """Send a response. Reading pauses while the client leaves more than `ANSWERS_BYTES_MAX` unread."""
        self.write(data)
        if self.flow_control.is_writing_paused and self._transport is not None:
            self.flow_control.unread(self._transport.get_write_buffer_size())

    @property
    def host(self) -> str:
        """The address of the client, without its port."""
        return self.address.rpartition(":")[0]

    @property
    def unread_bytes(self) -> int:
        """Number of written bytes in the transport's buffer, because the client does not read them."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection in an orderly way: written bytes are sent, pending requests are cancelled."""
        self.tasks.close()
        self.send_responses()
        if self._transport is not None:
            self._transport.close()

    def close_at_once(self) -> None:
        """Close the connection without waiting for unread bytes, because another one was granted its transaction key.
        After `close`, a client that does not read would keep its consumers until all bytes have been sent (INV-91)."""
        self.close()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()

    def abort(self) -> None:
        """Abort the connection of a client that is gone."""
        if self._transport is not None:
            self._transport.abort()

    def close_with_error(self, problem: ProtocolError) -> None:
        """Close the connection after a protocol violation; before authentication, send ERROR first."""
        level = logging.DEBUG if problem.is_repeated else logging.WARNING
        logger.log(level, "connection %s: %s; it is closed", self.address, problem)
        self.reader.is_broken = True
        if self.trust is TrustLevel.UNAUTHENTICATED:
            self.write(error_response(HANDSHAKE_REQUEST_ID, problem).encode())
        self.close()

    def _free_memory(self) -> None:
        logger.warning("connection %s: closed, because it holds the region's memory", self.address)
        self.abort()

    def pause_writing(self) -> None:
        self.flow_control.is_writing_paused = True
        self.flow_control.unsent(self.unread_bytes)
        self.consumers.set_blocked(blocked=True)

    def resume_writing(self) -> None:
        self.flow_control.is_writing_paused = False
        self.flow_control.unread(0)
        self.consumers.set_blocked(blocked=False)
        for watcher in self.watchers.values():
            watcher.catch_up()

    async def is_alive(self) -> bool:
        """Return whether the client responds to a PING, to decide between this connection and a newer one."""
        return await self.liveness.is_alive()

    # Bytes in.

    def data_received(self, data: bytes) -> None:
        self.liveness.heard()
        self.reader.feed(data)

    def coalesce_reads(self) -> None:
        """Pause reading from a client that sends a command in small parts, until more of them have arrived. Other
        regions are always read."""
        if not self.flow_control.is_exempt:
            self.flow_control.pause(PauseReason.SMALL_READS)
            self.region.resources.slow_senders.pause(self)

    def read_again(self) -> None:
        self.flow_control.resume(PauseReason.SMALL_READS)

    def read_at_once(self) -> bool:
        """End the pause of a client that sends a command in small parts. Return whether there was one."""
        was_paused = self.region.resources.slow_senders.end_pause(self)
        if was_paused:
            self.read_again()
        return was_paused

    def partial_frame(self) -> bytes:
        """Return the received bytes of the incomplete frame."""
        return self.reader.partial_frame()

    @property
    def read_ms(self) -> int:
        """Wall clock time in ms at which the present commands were read; the clock is read once per read."""
        reader = self.reader
        if reader.read_ms is None:
            reader.read_ms = self.region.environment.wall_clock_ms()
        return reader.read_ms

    def _stop_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        """Resume reading, unless there is a new pause reason."""
        if not self.is_open or self.reader.is_broken or self.flow_control.is_reading_paused:
            return
        self.reader.resume()
        if not self.flow_control.is_reading_paused and self._transport is not None and self.is_open:
            self._transport.resume_reading()

    # Interface for commands and topics.

    @property
    def certificate(self) -> Any:
        """The client's verified certificate, as `ssl.SSLSocket.getpeercert` describes it; None or empty: it has
        none."""
        return None if self._transport is None else self._transport.get_extra_info("peercert")

    def raise_trust(self, trust: TrustLevel, principal: Principal = NO_PRINCIPAL) -> None:
        """End the handshake, which established this trust level and these roles."""
        assert trust >= self.trust
        self.trust = trust
        self.principal = principal
        self.legal_rows = self.table.legal[trust]
        self.liveness.end_handshake()

    def forget_consumer(self, consumer: ConnectedConsumer) -> None:
        self.consumers.forget(consumer)

    def close_consumer(self, consumer: ConnectedConsumer) -> None:
        self.consumers.close(consumer)


class ClientConnections:
    """The connections of one region's clients."""

    def __init__(self, region: ServingRegion, table: CommandTable) -> None:
        self._region = region
        self._table = table
        self.connections: dict[ClientConnection, None] = {}
        self.counts = ConnectionCounts(region.config.settings)
        self.handshakes = PendingHandshakes(region.config.settings, self.counts)
        self._link = region.environment.client_link
        """The link to ordinary clients, not to peers. Connections pass through it from the first fault on."""
        self._link.adopt_connections = self._emulate_link
        self.ports = ServicePorts(region.config, region.environment)

    async def listen(self) -> None:
        """Accept clients. OSError when a port is not available."""
        await self.ports.listen(self._connection)

    def _connection(self, port: ServicePort) -> ClientConnection:
        return ClientConnection(self._region, self._table, internal=port.internal, secured=port.secured)

    def client_admitted(self, connection: ClientConnection) -> None:
        """Emulate the link for a client whose CONNECT was accepted, if the link has a fault. Only now is it known that
        the client is no peer; so TCP connects over a cut link, too, and the client waits for CONNECTED."""
        if not self._link.is_transparent:
            connection.emulate(self._link)

    def _emulate_link(self) -> None:
        for connection in list(self.connections):
            if connection.trust is TrustLevel.CLIENT:
                connection.emulate(self._link)

    def close(self) -> None:
        """Close all connections in an orderly way."""
        for connection in list(self.connections):
            connection.close()

    def topic_closed(self, topic: Topic) -> None:
        """Disconnect the producers and consumers of a topic that is no longer served."""
        for connection in list(self.connections):
            connection.producers.topic_closed(topic)
            connection.consumers.topic_closed(topic)


def _address(peer: Any) -> str:
    """Return `host:port`."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"{in_url(str(peer[0]))}:{peer[1]}"
    return str(peer or "?")
