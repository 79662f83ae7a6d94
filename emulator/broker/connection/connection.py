"""One client's connection: bytes in, commands through the table, answers out.

Sends, flows and acknowledgements are handled where they are read, many per chunk of bytes. What may have to wait (a
topic to load, a cursor to store) runs in a task of the connection and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from emulator.broker.authorization import TrustLevel
from emulator.broker.connection.command_spec import PendingResponse
from emulator.broker.connection.confirming import confirm
from emulator.broker.connection.dispatch import (
    AnyCommandSpec,
    CommandTable,
    carry_out,
    dispatch,
    failed,
    refuse,
)
from emulator.broker.connection.flow_control import STRANGER_FRAME_BYTES_MAX, PauseReason
from emulator.broker.connection.handshake import Handshake
from emulator.broker.connection.tasks import TaskGroup
from emulator.broker.connection.topic_watchers import TopicWatcher
from emulator.broker.environment import RegionServices
from emulator.broker.memory_budgets import MemoryBudget, Reservation
from emulator.broker.subscription.consumer import Consumer, SubscriptionOfConsumer
from emulator.broker.topic.producer import Producer, ProducerHost
from emulator.core.admission import Peer
from emulator.core.dispatch import SubscriptionType
from emulator.core.policies.topics import KEEP_ALIVE_INTERVAL
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.values import TopicName
from emulator.net.addresses import in_url
from emulator.net.network import own_address
from emulator.wire import answers
from emulator.wire.codec import AckCommand, CommandType
from emulator.wire.commands import CreateProducer
from emulator.wire.consumer_commands import Subscribe
from emulator.wire.frames import FRAME_PADDING_BYTES, Frame, FrameBuffer, frame_bytes

if TYPE_CHECKING:
    from emulator.broker.metadata.policies import Policies
    from emulator.broker.topic.topic import Topic
    from emulator.broker.topic_directory.directory import TopicDirectory
    from emulator.broker.topic_directory.listing import TopicLists
    from emulator.broker.topic_directory.partitions import PartitionedTopics
    from emulator.broker.transactions.coordinators import TransactionCoordinators
    from emulator.core.transactions.journal_format import Holder

logger = logging.getLogger(__name__)

CLOSED_PRODUCERS_MAX: Final = 1_000
"""So many ids of closed producers are remembered."""


class ServingRegion(RegionServices, Protocol):
    """The region, as its clients' connections see it."""

    connections: dict[ClientConnection, None]
    client_memory: MemoryBudget
    directory: TopicDirectory
    topic_lists: TopicLists
    partitioned: PartitionedTopics
    policies: Policies
    coordinators: TransactionCoordinators

    def service_url(self, came_by: str) -> str: ...

    @property
    def internal_url(self) -> str: ...

    def new_producer_name(self) -> str: ...

    def check_topic(self, name: str) -> TopicName: ...

    def check_not_deleted(self, topic: TopicName, peer: str) -> None: ...

    def check_open_to_clients(self, topic: str, subscription: str = "") -> None: ...


class ClientConnection(asyncio.Protocol):
    """Speaks for one client of the region, which may be a replicator of another region."""

    def __init__(self, region: ServingRegion, table: CommandTable, *, internal: bool = False) -> None:
        self.region = region
        self.table = table
        self.internal = internal
        """It came by the region's internal port, and lookups keep it on that side."""
        self.address = "?"
        self._came_by = ""
        """The address of ours that the client connected to."""
        self.client_version = ""
        self.trust = TrustLevel.UNAUTHENTICATED
        self.handshake: Handshake | None = None
        """It says that it is a region, and was asked for the proof."""
        self.peer: Peer | None = None
        """The region that it was proven to be; None for clients."""
        self.legal_rows = table.legal[self.trust]
        self.producers: dict[int, Producer] = {}
        self.claims: dict[int, Producer] = {}
        """Producers by id that wait for their topic, or are being given it."""
        self._told_to_wait: dict[int, int] = {}
        """Producer id -> the request that was answered with: not yet. It is said once."""
        self.consumers: dict[int, Consumer] = {}
        self.watchers: dict[int, TopicWatcher] = {}
        """Of lists of topics, by id."""
        self.opening: dict[tuple[str, int], CreateProducer | Subscribe] = {}
        """("producer" or "consumer", id) that are being created, and for which command. Removed when the client gives
        up meanwhile; it may ask for the same id again before the first command noticed."""
        self.closed_producers: dict[int, None] = {}
        """Ids closed a moment ago, oldest first: their late sends are ignored rather than punished. The client could
        not know yet, and upstream is as patient."""
        self.transaction_keys: dict[int, Holder] = {}
        """Coordinator -> the key that this connection was granted an epoch of. At most one each."""
        self.transaction_key_turns: dict[int, asyncio.Lock] = {}
        """Coordinator -> held while a key is asked for there."""
        self.tasks = TaskGroup()
        self.touched: dict[ProducerHost, None] = {}
        """Topics that were given entries by commands handled since the last flush."""
        self.confirmations: dict[SubscriptionOfConsumer, list[AckCommand]] = {}
        """Acknowledgements handled since the last flush that want an answer."""
        self._answers: list[bytes] = []
        """Kept for the end of this turn of the loop."""
        self._transport: asyncio.Transport | None = None
        settings = region.config.settings
        self._frames = FrameBuffer(settings.max_message_bytes + FRAME_PADDING_BYTES)
        self._unserved: Iterator[Frame] | None = None
        """What is left of a chunk in the middle of which reading stopped."""
        self._slow: asyncio.TimerHandle | None = None
        """Set while it is not read from because it publishes too fast."""
        self._read_ms: int | None = None
        self._broken = False
        """What follows in the stream is not to be looked at."""
        components = region.environment.components
        self.flow_control = components.flow_control(region.client_memory, self._stop_reading, self._go_on)
        self.liveness = components.liveness(self, settings.keep_alive_interval_ms)

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = _address(transport.get_extra_info("peername"))
        self._came_by = own_address(transport)
        self.region.connections[self] = None
        self.liveness.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self.region.connections.pop(self, None)
        self._transport = None
        self.liveness.stop()
        self.tasks.close()
        self.opening.clear()
        for producer in [*self.producers.values(), *self.claims.values()]:
            self.forget_producer(producer, "its connection was lost")
        for consumer in list(self.consumers.values()):
            self.forget_consumer(consumer)
        for watcher in self.watchers.values():
            watcher.end()
        if self._slow is not None:
            self._slow.cancel()  # it may be for years, and would keep all that the connection has
        self.flow_control.release()

    @property
    def service_url(self) -> str:
        """Where the client finds this region: on the side that it came by."""
        return self.region.internal_url if self.internal else self.region.service_url(self._came_by)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes that are bounded by what the client asked for and paid for: messages, receipts, PINGs."""
        if self._answers:
            self._send_answers()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self.liveness.written_bytes += len(data)

    def answer_soon(self, data: bytes) -> None:
        """Send an answer, in one write with what else is answered in this turn of the loop."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._send_answers)
        self._answers.append(data)

    def _send_answers(self) -> None:
        answers, self._answers = self._answers, []
        if answers:
            self.answer(b"".join(answers))

    def answer(self, data: bytes) -> None:
        """Send an answer. A client that leaves answers unread is not asked for more."""
        self.write(data)
        if self.flow_control.is_writing_paused and self._transport is not None:
            self.flow_control.unread(self._transport.get_write_buffer_size())

    @property
    def is_writing_paused(self) -> bool:
        """The client does not read what is written."""
        return self.flow_control.is_writing_paused

    @property
    def unread_bytes(self) -> int:
        """Written and still here, because the client does not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """End it in an orderly way: what was written goes out, what was asked is not carried out any more."""
        self.tasks.close()
        self._send_answers()
        if self._transport is not None:
            self._transport.close()

    def cut_off(self) -> None:
        """End it at once, as others have what it held: a client that does not read would keep its consumers until
        everything that was written has gone out (INV-91)."""
        self.close()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()

    def abort(self) -> None:
        """Drop a connection whose other side is gone."""
        if self._transport is not None:
            self._transport.abort()

    def break_off(self, problem: ProtocolError) -> None:
        """The client broke a rule that leaves nothing to say."""
        logger.warning("connection %s: %s; it is closed", self.address, problem)
        self._broken = True
        if self.trust is TrustLevel.UNAUTHENTICATED:
            self.write(answers.handshake_error(problem))
        self.close()

    def pause_writing(self) -> None:
        self.flow_control.is_writing_paused = True
        for consumer in self.consumers.values():
            consumer.subscription.set_blocked(consumer, blocked=True)

    def resume_writing(self) -> None:
        self.flow_control.is_writing_paused = False
        self.flow_control.unread(0)
        for consumer in self.consumers.values():
            consumer.subscription.set_blocked(consumer, blocked=False)
        for watcher in self.watchers.values():
            watcher.catch_up()

    async def is_alive(self) -> bool:
        """For deciding between an old connection and a new one."""
        return await self.liveness.is_alive()

    # Bytes in.

    def data_received(self, data: bytes) -> None:
        self.liveness.heard()
        try:
            frames = self._frames.feed(data)
            if self.trust is TrustLevel.UNAUTHENTICATED and frames:
                _check_first(frame_bytes(frames[0]))
        except ProtocolError as problem:
            self.break_off(problem)
            return
        self.flow_control.unfinished(self._frames.held_bytes)
        if self._unserved is None:
            self._serve(iter(frames))
        else:  # a transport may have had this under way when it was told to stop
            self._unserved = chain(self._unserved, frames)

    @property
    def read_ms(self) -> int:
        """When the commands that are being handled were taken up; the region's clock is asked once a chunk."""
        if self._read_ms is None:
            self._read_ms = self.region.environment.wall_clock_ms()
        return self._read_ms

    def _serve(self, frames: Iterator[Frame]) -> None:
        """Handle commands until reading is stopped; the rest waits."""
        flow_control = self.flow_control
        self._read_ms = None
        try:
            for type_, command, entry in frames:
                dispatch(self, type_, command, entry)
                if flow_control.is_reading_paused or self._broken:
                    self._unserved = frames
                    break
            else:
                self._unserved = None
                if self._frames.failed is not None:
                    raise self._frames.failed
                if self.trust is TrustLevel.UNAUTHENTICATED:
                    _check_first(self._frames.unfinished_bytes)
        except ProtocolError as problem:
            self.break_off(problem)
        finally:
            self._flush()

    def _flush(self) -> None:
        """What the commands of a chunk share: one append for each topic, one write of each cursor."""
        if self.touched:
            touched, self.touched = self.touched, {}
            for topic in touched:
                topic.flush()
            self.flow_control.admitted()
        if self.confirmations:
            confirmations, self.confirmations = self.confirmations, {}
            for subscription, waiting in confirmations.items():
                self.tasks.start(confirm(self, subscription, waiting))

    def _stop_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """No reason to wait is left. In a turn of its own: whoever lifted the last reason is not done yet."""
        asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self.is_open or self._broken or self.flow_control.is_reading_paused:
            return
        if self._unserved is not None:
            self._serve(self._unserved)
        if not self.flow_control.is_reading_paused and self._transport is not None and self.is_open:
            self._transport.resume_reading()

    # What the table's rows need.

    def rise(self, trust: TrustLevel) -> None:
        """More is known of the other side now."""
        assert trust >= self.trust
        self.trust = trust
        self.legal_rows = self.table.legal[trust]
        self.liveness.introduced()

    def begin(self, row: AnyCommandSpec, value: Any) -> None:
        """Carry out a request; its estimate is held until it is over. ProtocolError."""
        work = row.handle(self, value)
        charge = self.flow_control.request_began(row.estimate_bytes)
        if isinstance(work, PendingResponse):
            work.kept.add_done_callback(partial(self._kept, row, value, work.answer, charge))
        else:
            self.tasks.start(carry_out(self, row, value, work), partial(self._carried_out, work, charge))

    def _carried_out(self, work: Coroutine[Any, Any, None], charge: Reservation) -> None:
        work.close()  # it was not begun if the connection ended first
        self.flow_control.request_over(charge)

    def _kept(
        self, row: AnyCommandSpec, value: Any, answer: bytes, charge: Reservation, kept: asyncio.Future[Any]
    ) -> None:
        """What a request waited for has its outcome."""
        self.flow_control.request_over(charge)
        if not self.is_open:
            return
        failure = kept.exception()
        if failure is None:
            self.answer_soon(answer)
        else:
            assert isinstance(failure, ProtocolError | StorageError), failure
            failed(self, row, value, failure)

    # Producers and consumers of this connection.

    def hurry(self, interval_ms: int) -> None:
        """A topic that the client publishes to wants to know so often whether it lives."""
        if interval_ms:
            self.liveness.hurry(interval_ms / 1_000)

    def keep_alive_interval_ms(self) -> int | None:
        """The shortest that its topics ask for. None: none of them does."""
        topics = {producer.topic for producer in (*self.producers.values(), *self.claims.values())}
        return min(filter(None, (topic.policies[KEEP_ALIVE_INTERVAL] for topic in topics)), default=None)

    def published(self, size_bytes: int) -> None:
        """So many admitted bytes have been answered."""
        self.flow_control.answered(size_bytes)

    def slow_down(self, seconds: float) -> None:
        """A topic was published to faster than its policies allow: read on later."""
        if not self.is_open:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._slow is not None:
            until = max(until, self._slow.when())
            self._slow.cancel()
        self._slow = loop.call_at(until, self.speed_up)
        self.flow_control.pause(PauseReason.RATE)

    def speed_up(self) -> None:
        """It waited long enough, or what its topic's policies say has changed: who is still too fast is told again."""
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
            self.flow_control.resume(PauseReason.RATE)

    def no_longer_opening(self, key: tuple[str, int], command: CreateProducer | Subscribe) -> None:
        """The command is over. A later one for the same id goes on."""
        if self.opening.get(key) is command:
            del self.opening[key]

    def claim(self, producer: Producer) -> None:
        """It is about to ask for its topic. One that had its id ends: the client knows of one only. ProtocolError when
        the client has too many; then nothing is changed."""
        if not self.flow_control.has_room_for_producer(producer.held_bytes):
            raise ProtocolError(ServerError.NotAllowedError, "this connection has too many producers")
        for former in (self.producers.get(producer.producer_id), self.claims.get(producer.producer_id)):
            if former is not None:
                self.forget_producer(former, "its client opened it again")
        self.claims[producer.producer_id] = producer
        self.flow_control.producer_came(producer.held_bytes)
        self.hurry(producer.topic.policies[KEEP_ALIVE_INTERVAL])

    def producer_admitted(self, producer: Producer, epoch: int | None) -> None:
        """It publishes from now on."""
        assert self.claims.pop(producer.producer_id) is producer
        self._told_to_wait.pop(producer.producer_id, None)
        self.producers[producer.producer_id] = producer
        self.closed_producers.pop(producer.producer_id, None)
        producer.topic.attach(producer)
        name, request_id = producer.producer_name, producer.request.request_id
        last, version = producer.last_sequence_id(), producer.schema_version
        self.answer(answers.producer_success(request_id, name, last, epoch, schema_version=version))

    def producer_waits(self, producer: Producer) -> None:
        request_id = producer.request.request_id
        if self._told_to_wait.get(producer.producer_id) != request_id:
            self._told_to_wait[producer.producer_id] = request_id
            self.answer(answers.producer_waits(request_id, producer.producer_name))

    def producer_refused(self, producer: Producer, problem: ProtocolError) -> None:
        del self.claims[producer.producer_id]
        self.flow_control.producer_left(producer.held_bytes)
        self._told_to_wait.pop(producer.producer_id, None)
        refuse(self, self.table.rows[CommandType.PRODUCER], producer.request, problem)

    def forget_producer(self, producer: Producer, why: str = "its client was disconnected") -> None:
        """It sends nothing any more; what it sent stays."""
        if self.claims.get(producer.producer_id) is producer:
            del self.claims[producer.producer_id]
            self.flow_control.producer_left(producer.held_bytes)
            self._told_to_wait.pop(producer.producer_id, None)
            producer.topic.access.left(producer, why)
            return
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
            self.flow_control.producer_left(producer.held_bytes)
            self.closed_producers[producer.producer_id] = None
            if len(self.closed_producers) > CLOSED_PRODUCERS_MAX:
                del self.closed_producers[next(iter(self.closed_producers))]
        producer.topic.detach(producer, why)
        producer.detach()

    def close_producer(self, producer: Producer) -> None:
        """Send a producer away; the client reconnects and sends again what has no receipt."""
        self.forget_producer(producer)
        self.answer(answers.close_producer(producer.producer_id))

    def add_consumer(self, consumer: Consumer, type_: SubscriptionType) -> None:
        """Attach it to its subscription. ProtocolError when that cannot take it; then nothing is changed.

        Nothing is delivered before its SUCCESS: it has no permits until its client asks for messages.
        """
        consumer.subscription.attach(consumer, type_)
        self.consumers[consumer.consumer_id] = consumer
        if self.flow_control.is_writing_paused:
            consumer.subscription.set_blocked(consumer, blocked=True)

    def forget_consumer(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]
        consumer.subscription.detach(consumer)

    def close_consumer(self, consumer: Consumer) -> None:
        """Send a consumer away; the client subscribes again."""
        self.forget_consumer(consumer)
        self.answer(answers.close_consumer(consumer.consumer_id))

    def send_active_consumer_change(self, consumer_id: int, is_active: bool) -> None:
        self.answer(answers.active_consumer_change(consumer_id, is_active))

    def reached_end(self, consumer_id: int) -> None:
        self.answer(answers.reached_end_of_topic(consumer_id))

    def topic_closed(self, topic: Topic) -> None:
        """A topic is no longer served: send its producers and consumers away. For producers that wait for it we ask
        again ourselves: not every client listens to CLOSE_PRODUCER before its producer is open."""
        for producer in [p for p in self.producers.values() if p.topic is topic]:
            self.close_producer(producer)
        for claim in [p for p in self.claims.values() if p.topic is topic]:
            del self.claims[claim.producer_id]
            self.flow_control.producer_left(claim.held_bytes)
            if ("producer", claim.producer_id) in self.opening:
                continue  # its client asks for another one in its place
            request = replace(claim.request, producer_name=claim.producer_name)
            # From now on: its client may close it before we ask.
            self.opening["producer", claim.producer_id] = request
            self.begin(self.table.again[CommandType.PRODUCER], request)
        for consumer in [c for c in self.consumers.values() if c.subscription.topic is topic]:
            self.close_consumer(consumer)


def _check_first(size_bytes: int) -> None:
    """ProtocolError for a frame that is too large for somebody who did not say yet who it is."""
    if size_bytes > STRANGER_FRAME_BYTES_MAX:
        sentence = f"frame of {size_bytes} bytes before CONNECT, the limit is {STRANGER_FRAME_BYTES_MAX}"
        raise ProtocolError(ServerError.UnknownError, sentence, closes_connection=True)


def _address(peer: Any) -> str:
    """`host:port`, as people write it."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"{in_url(str(peer[0]))}:{peer[1]}"
    return str(peer or "?")
