"""The client: opens producers, consumers, readers, table views and transactions."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Self, TypeVar, Unpack

from emulator.client.config import ConsumerConfig, ConsumerOptions, ProducerConfig, ProducerOptions
from emulator.client.connection import unexpected
from emulator.client.consumer import Consumer
from emulator.client.encryption import Decryption
from emulator.client.messages import partition_index
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.client.producer import Producer
from emulator.client.reader import MultiTopicReader, Reader, TableView, TopicReader
from emulator.client.redelivery import ConsumerClient
from emulator.client.routing import MessageRouter, Router, Routing
from emulator.client.topic_consumer import TopicConsumer
from emulator.client.topic_names import FixedTopics, PatternTopics, TopicSource
from emulator.client.topic_producer import TopicProducer
from emulator.client.transactions import Transaction, TransactionCoordinatorClient
from emulator.client.types import (
    EARLIEST,
    LATEST,
    ClientError,
    ClientSettings,
    MessageId,
    ProducerState,
)
from emulator.errors import ServerError
from emulator.model.hashing import KeyHash
from emulator.model.transaction_names import check_key
from emulator.model.values import AccessMode, Schema
from emulator.net.credentials import NO_CREDENTIALS, Credentials
from emulator.net.network import Network
from emulator.net.tls import Certificates
from emulator.wire.commands.producers import (
    GetOrCreateSchema,
    GetOrCreateSchemaResponse,
    GetSchema,
    GetSchemaResponse,
)

Opened = TypeVar("Opened", "Producer", "Consumer", "Reader")


class Client(ConsumerClient):
    """A client of one region at a time, which uses the next service URL when a connection fails."""

    def __init__(
        self,
        service_url: str | Sequence[str],
        *,
        network: Network | None = None,
        settings: ClientSettings | None = None,
        chance: random.Random | None = None,
        wall_clock_ms: Callable[[], int] | None = None,
        transaction_key: str | None = None,
        tls: Certificates | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        """`service_url`: one URL, or several in the order of fail-over.
        `tls`: the files of the trusted authorities, and of the client's own certificate, for `pulsar+ssl://` URLs.
        `transaction_key`: beginning a transaction under a key fences the former client with this key and aborts its
        transaction. Keys are per region.
        `credentials`: files of a token, or of a name and its password; they are read for each connection.
        `network`, `chance` and `wall_clock_ms` are for simulations. ValueError for an invalid URL or key."""
        super().__init__(service_url, network, settings, chance, wall_clock_ms, tls, credentials)
        self._transaction_key = transaction_key if transaction_key is None else check_key(transaction_key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Producers, consumers, readers, transactions and schemas.

    async def producer(
        self,
        topic: str,
        *,
        on_state_change: Callable[[Producer, ProducerState], None] | None = None,
        routing: Routing | Router | None = None,
        key_hash: KeyHash | None = None,
        lazy: bool = False,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """Open a producer; `ProducerConfig` describes its settings.

        WAIT_FOR_EXCLUSIVE has no deadline; cancelling the task removes the producer from the wait queue at once.
        `on_state_change` is called with each state of an attempt to open the producer. `lazy`: each partition is
        opened with its first message. `routing`: the partition of messages without a key (default: round robin), or a
        function that chooses the partition of every message. `key_hash`: how keys are mapped to partitions.
        ClientError when the region rejects the producer; ValueError for invalid settings.
        """
        config = ProducerConfig(**options)
        producer = await self._new_producer(topic, config, routing, key_hash, lazy=lazy)
        producer.on_state_change = on_state_change
        return await self._start(producer)

    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        *,
        name: str | None = None,
        decryption: Decryption | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Open a consumer; `ConsumerConfig` describes its settings.

        `topic`: one topic with all its partitions, several topics, or a pattern
        `[persistent://]tenant/namespace/<regular expression>`, which also covers topics created later. ClientError when
        a region rejects the consumer; ValueError for invalid settings.
        """
        config = ConsumerConfig(
            subscription=subscription,
            name=name or f"consumer-{self.chance.getrandbits(32):08x}",
            decryption=decryption or Decryption(),
            **options,
        )
        return await self._start(await self._new_consumer(topic, config))

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
        """Open a reader: a consumer without a durable subscription that starts after `start`, or at it if `inclusive`.
        For a partitioned topic `start` must be EARLIEST or LATEST. ClientError; ValueError."""
        name = f"reader-{self.chance.getrandbits(40):010x}"
        config = ConsumerConfig(
            subscription=name,
            name=name,
            receiver_queue_size=receiver_queue_size,
            read_compacted=read_compacted,
            decryption=decryption or Decryption(),
        )
        reader: Reader
        if await self._partitions_before_use(topic):
            reader = MultiTopicReader(self, topic, config, FixedTopics(self, [topic]), start)
        else:
            reader = TopicReader(self, topic, config, start, inclusive=inclusive)
        return await self._start(reader)

    async def table_view(self, topic: str, *, decryption: Decryption | None = None) -> TableView:
        """Open a view of the newest message of each key in all partitions, updated until it is closed. ClientError."""
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

    def pattern_topics(self, pattern: str) -> TopicSource:
        """Return the source of the topics that a consumer of a pattern reads. ValueError for an invalid pattern."""
        return PatternTopics(self, pattern)

    async def new_transaction(self, timeout_seconds: float = 60.0) -> Transaction:
        """Begin a transaction; the region aborts it after the timeout. ClientError; ExpiredTransaction when a newer
        client has the transaction key."""
        return await self.coordinators.begin(round(timeout_seconds * 1_000))

    @cached_property
    def coordinators(self) -> TransactionCoordinatorClient:
        """The connections to coordinators, created at first use because their creation draws a random number."""
        process = f"{self.chance.getrandbits(64):016x}"
        return TransactionCoordinatorClient(self, self._transaction_key, process)

    async def schema(self, topic: str, version: bytes = b"") -> tuple[Schema, bytes] | None:
        """Return a topic's schema and its version, by default the newest; None if there is none. ClientError."""
        connection = await self.connection_for(topic)
        try:
            found = await connection.ask(GetSchema(self.new_id(), topic, version), GetSchemaResponse)
        except ClientError as refused:
            if refused.code is ServerError.TopicNotFound:
                return None
            raise
        if found.schema is None:
            raise unexpected("GetSchema", found)
        return found.schema, found.version or b""

    async def schema_version(self, topic: str, schema: Schema) -> bytes:
        """Register a schema if it is new, and return its version. ClientError when the region rejects it."""
        connection = await self.connection_for(topic)
        command = GetOrCreateSchema(self.new_id(), topic, schema)
        return (await connection.ask(command, GetOrCreateSchemaResponse)).version or b""

    async def _start(self, opened: Opened) -> Opened:
        self._handles[opened] = None
        try:
            await opened.start()
        except BaseException:
            self._handles.pop(opened, None)
            raise
        return opened

    # Producers and consumers that are not opened yet, of one topic or of its partitions.

    async def _new_producer(
        self,
        topic: str,
        config: ProducerConfig,
        routing: Routing | Router | None,
        key_hash: KeyHash | None,
        *,
        lazy: bool,
    ) -> Producer:
        waits = config.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
        partitions = await self._partitions_before_use(topic, no_deadline=waits)
        if not partitions:
            return TopicProducer(self, topic, config)
        router = MessageRouter(
            routing or Routing.ROUND_ROBIN,
            key_hash or KeyHash.JAVA_STRING,
            config.batching,
            self.chance,
            asyncio.get_running_loop().time,
        )
        return PartitionedProducer(self, topic, config, partitions, router, lazy=lazy)

    async def _new_consumer(
        self, topic: str | Sequence[str] | re.Pattern[str], config: ConsumerConfig
    ) -> Consumer:
        policy = config.dead_letters
        if isinstance(topic, re.Pattern):
            if policy is not None and policy.retries:
                raise ValueError("a consumer of a pattern does not support retries: it has no retry topic")
            return MultiTopicConsumer(self, topic.pattern, config, self.pattern_topics(topic.pattern))
        topics = [topic] if isinstance(topic, str) else list(topic)
        if policy is not None and topics:
            policy = policy.named_after(topics[0], config.subscription)
            config = replace(config, dead_letters=policy)
            topics += [] if policy.retry_topic is None else [policy.retry_topic]
        is_one = isinstance(topic, str) and len(topics) == 1
        if is_one and not await self._partitions_before_use(topics[0], may_create=config.may_create):
            return TopicConsumer(self, topics[0], config)
        if not topics:
            raise ValueError("a consumer needs at least one topic")
        name = topic if isinstance(topic, str) else ", ".join(topic)
        return MultiTopicConsumer(self, name, config, FixedTopics(self, topics, may_create=config.may_create))

    async def _partitions_before_use(
        self, topic: str, *, may_create: bool = True, no_deadline: bool = False
    ) -> int:
        """Return the number of partitions of a topic, which the request may create; 0 for a partition (N3), or without
        `asks_for_partitions`. ClientError when the region does not respond in time."""
        if not self.settings.asks_for_partitions or partition_index(topic) >= 0:
            return 0
        deadline_seconds = None if no_deadline else self.settings.operation_timeout_seconds
        return await self.retry(
            lambda: self.partitions_of(topic, may_create=may_create), deadline_seconds=deadline_seconds
        )
