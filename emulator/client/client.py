"""The client, and what it makes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from emulator.client.connection import answered_otherwise
from emulator.client.connections import Connections
from emulator.client.types import (
    EARLIEST,
    LATEST,
    ClientError,
    ClientSettings,
    ConsumerType,
    InitialPosition,
    MessageId,
    Standing,
)
from emulator.errors import ServerError
from emulator.model.transaction_names import check_key
from emulator.model.values import AccessMode, Schema
from emulator.net.network import Network
from emulator.wire import requests
from emulator.wire.compression import Compression
from emulator.wire.replies import SchemaFound

if TYPE_CHECKING:
    from emulator.client.batching import Batching
    from emulator.client.consumer import Consumer
    from emulator.client.dead_letters import DeadLetters
    from emulator.client.encryption import Decryption, Encryption
    from emulator.client.producer import Producer
    from emulator.client.reader import Reader
    from emulator.client.routing import Router, Routing
    from emulator.client.table_view import TableView
    from emulator.client.topic_names import TopicNames
    from emulator.client.transactions import Coordinators, Transaction
    from emulator.model.hashing import KeyHash

Made = TypeVar("Made", "Producer", "Consumer", "Reader")


class Client(Connections):
    """Talks to one region at a time; moves on to the next service URL when that one cannot be reached."""

    def __init__(
        self,
        service_url: str | Sequence[str],
        *,
        network: Network | None = None,
        settings: ClientSettings | None = None,
        chance: random.Random | None = None,
        wall_clock_ms: Callable[[], int] | None = None,
        transaction_key: str | None = None,
    ) -> None:
        """`service_url`: one, or several in the order in which they are to be tried (fail-over).
        `transaction_key`: of all clients with this key, only the one that began a transaction last goes on; the
        transaction of the one before it is aborted. In each region by itself.
        `network`, `chance` and `wall_clock_ms` are for simulations. ValueError for a URL that cannot be read, or a key
        that cannot be one."""
        super().__init__(service_url, network, settings, chance, wall_clock_ms)
        self._transaction_key = transaction_key if transaction_key is None else check_key(transaction_key)
        self._coordinators: Coordinators | None = None
        self._open: dict[Producer | Consumer, None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What it makes.

    async def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        access_mode: AccessMode = AccessMode.SHARED,
        priority: int = 0,
        initial_sequence_id: int | None = None,
        batching: Batching | None = None,
        pending_messages_max: int = 1000,
        on_standing: Callable[[Producer, Standing], None] | None = None,
        schema: Schema | None = None,
        routing: Routing | Router | None = None,
        key_hash: KeyHash | None = None,
        lazy: bool = False,
        compression: Compression = Compression.NONE,
        chunking: bool = False,
        initial_subscription: str | None = None,
        encryption: Encryption | None = None,
    ) -> Producer:
        """Open a producer; waits for ever in WAIT_FOR_EXCLUSIVE, and leaves the line at once when it is cancelled.
        `priority` (PIP-440) orders those who wait, highest first; ValueError when it is no int32.
        `on_standing` is told how each attempt goes: it asks, waits, is open.
        `schema`: the region registers it, or refuses it; payloads are bytes all the same.
        `initial_sequence_id`: the id before the first one used. ClientError when it is refused.
        Of a topic with partitions it opens all, or (`lazy`) each with the first message for it. `routing` says where
        messages without a key go, round robin unless told otherwise, or it is a function of the application for all
        of them; `key_hash` how keys become partitions.
        `compression`: of each entry; ValueError when there is no library for it. `chunking`: what the region does not
        take in one entry is sent in several, and received as one message. `initial_subscription`: is made with a topic
        that is not there yet, so that nothing is lost to whoever subscribes later. `encryption`: for whom payloads are
        encrypted; no region can read them."""
        from emulator.client.factory import producer_of
        from emulator.client.producer import ProducerWish

        wish = ProducerWish(
            name,
            access_mode,
            priority,
            initial_sequence_id,
            batching,
            pending_messages_max,
            schema,
            compression,
            chunking,
            initial_subscription,
            encryption,
        )
        producer = await producer_of(self, topic, wish, routing, key_hash, lazy=lazy)
        producer.on_standing = on_standing
        return await self._started(producer)

    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        *,
        type_: ConsumerType = ConsumerType.EXCLUSIVE,
        initial_position: InitialPosition = InitialPosition.LATEST,
        replicated: bool = False,
        name: str | None = None,
        priority_level: int = 0,
        receiver_queue_size: int = 1000,
        schema: Schema | None = None,
        read_compacted: bool = False,
        negative_ack_delay_seconds: float = 0.0,
        ack_timeout_seconds: float | None = None,
        dead_letters: DeadLetters | None = None,
        start_paused: bool = False,
        may_create: bool = True,
        key_ranges: Sequence[tuple[int, int]] = (),
        out_of_order: bool = False,
        properties: Mapping[str, str] | None = None,
        subscription_properties: Mapping[str, str] | None = None,
        decryption: Decryption | None = None,
    ) -> Consumer:
        """Open a consumer of a topic (of all its partitions, if it has some), of several, or of all that fit a pattern
        `[persistent://]tenant/namespace/<regular expression>`, those that come later included.

        `replicated`: its position is carried to the other regions (PIP-33). `schema`: what it reads by; the region
        refuses one that does not fit. `read_compacted`: of what was compacted it is given the newest message of each
        key. `receiver_queue_size`: so many messages of each topic are asked for ahead; 0: one at a time, when somebody
        waits for it (of one topic only). What is given back comes again after `negative_ack_delay_seconds`, what is not
        acknowledged by itself after `ack_timeout_seconds`; what comes too often is one of the `dead_letters`.
        `start_paused`: it asks for nothing before `Consumer.resume`. `may_create`:
        False for a topic that must be there. `key_ranges`: of hashes (0 to 65,535) that a KEY_SHARED consumer takes;
        none: the region divides them; `out_of_order`: it need not wait for former owners of a key. `properties` are
        shown with the consumer, `subscription_properties` with a subscription that is new. `decryption`: keys
        for what is encrypted, and what becomes of the rest; without it that is not delivered, and stays. ClientError;
        ValueError."""
        from emulator.client.consumer import ConsumerWish
        from emulator.client.encryption import Decryption
        from emulator.client.factory import consumer_of

        wish = ConsumerWish(
            subscription=subscription,
            name=name or f"consumer-{self.chance.getrandbits(32):08x}",
            type_=type_,
            initial_position=initial_position,
            replicated=replicated,
            priority_level=priority_level,
            receiver_queue_size=receiver_queue_size,
            schema=schema,
            read_compacted=read_compacted,
            negative_ack_delay_seconds=negative_ack_delay_seconds,
            ack_timeout_seconds=ack_timeout_seconds,
            dead_letters=dead_letters,
            start_paused=start_paused,
            may_create=may_create,
            key_ranges=key_ranges,
            out_of_order=out_of_order,
            properties=properties,
            subscription_properties=subscription_properties,
            decryption=decryption or Decryption(),
        )
        return await self._started(await consumer_of(self, topic, wish))

    async def reader(
        self,
        topic: str,
        start: MessageId = LATEST,
        *,
        inclusive: bool = False,
        receiver_queue_size: int = 1000,
        read_compacted: bool = False,
        decryption: Decryption | None = None,
    ) -> Reader:
        """Open a reader: a consumer that leaves nothing behind, starting after `start` (or at it). A topic with
        partitions is read from EARLIEST or LATEST on. ClientError; ValueError."""
        from emulator.client.consumer import ConsumerWish
        from emulator.client.encryption import Decryption
        from emulator.client.factory import reader_of

        name = f"reader-{self.chance.getrandbits(40):010x}"
        wish = ConsumerWish(
            subscription=name,
            name=name,
            receiver_queue_size=receiver_queue_size,
            read_compacted=read_compacted,
            decryption=decryption or Decryption(),
        )
        return await self._started(await reader_of(self, topic, wish, start, inclusive=inclusive))

    async def table_view(self, topic: str, *, decryption: Decryption | None = None) -> TableView:
        """The newest message of each key, of all partitions, compacted where the region has done so; kept up to date
        until it is closed. ClientError."""
        from emulator.client.table_view import TableView

        reader = await self.reader(
            topic, EARLIEST, inclusive=True, read_compacted=True, decryption=decryption
        )
        view = TableView(reader)
        try:
            await view.start()
        except BaseException:
            await view.close()
            raise
        return view

    def topics_that_fit(self, pattern: str) -> TopicNames:
        """What a consumer of a pattern follows. ValueError for what is no pattern."""
        from emulator.client.topic_names import PatternTopics

        return PatternTopics(self, pattern)

    async def new_transaction(self, timeout_seconds: float = 60.0) -> Transaction:
        """Begin a transaction; the region aborts it when it is not ended in time. ClientError when it cannot be had,
        ExpiredTransaction (under a key) when a newer client has the key."""
        return await self.coordinators.begin(round(timeout_seconds * 1_000))

    @property
    def coordinators(self) -> Coordinators:
        """The way to those of the region."""
        from emulator.client.transactions import Coordinators

        if self._coordinators is None:
            process = f"{self.chance.getrandbits(64):016x}"
            self._coordinators = Coordinators(self, self._transaction_key, process)
        return self._coordinators

    async def schema(self, topic: str, version: bytes = b"") -> tuple[Schema, bytes] | None:
        """The schema of a topic and its version; the newest, unless another is asked for. None: there is none.
        ClientError when that cannot be told now."""
        connection = await self.connection_for(topic)
        request_id = self.new_id()
        try:
            answer = await connection.request(request_id, requests.get_schema(request_id, topic, version))
        except ClientError as refused:
            if refused.code is ServerError.TopicNotFound:
                return None
            raise
        if not isinstance(answer, SchemaFound) or answer.schema is None:
            raise answered_otherwise("a request for a schema", answer)
        return answer.schema, answer.version

    async def schema_version(self, topic: str, schema: Schema) -> bytes:
        """The version of a schema, registered if it is new. ClientError when it is refused."""
        connection = await self.connection_for(topic)
        request_id = self.new_id()
        frame = requests.get_or_create_schema(request_id, topic, schema)
        answer = await connection.request(request_id, frame)
        if not isinstance(answer, SchemaFound):
            raise answered_otherwise("a request for a version", answer)
        return answer.version

    async def _started(self, made: Made) -> Made:
        self._open[made] = None
        try:
            await made.start()
        except BaseException:
            self._open.pop(made, None)
            raise
        return made

    def gone(self, made: Producer | Consumer) -> None:
        """A producer or consumer was closed."""
        self._open.pop(made, None)

    async def close(self) -> None:
        """Close everything it made. What has no receipt yet fails as unknown."""
        if self.closed:
            return
        for made in list(self._open):
            await made.close()
        self._close_connections()
