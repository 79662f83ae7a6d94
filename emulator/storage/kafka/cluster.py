"""A Kafka cluster: the leader of each topic, and requests to the leaders.

Each broker has two connections, one for writes and one for everything else, so that a large response never delays
an acknowledgement. `retry` repeats a request while Kafka is unavailable. One line is logged when Kafka stops
responding, and one when it responds again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import kafka.errors
from kafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from emulator.errors import StorageError
from emulator.storage.kafka.connection import KafkaConnection, NoResponse, connect
from emulator.storage.kafka.records import ProducerId
from emulator.storage.kafka.settings import KafkaSettings

logger = logging.getLogger(__name__)

# Version of each request. Kafka 2.8 supports all of them, and all identify topics by name.
_VERSIONS: dict[Any, int] = {
    ApiVersionsRequest: 0,
    ProduceRequest: 9,
    FetchRequest: 11,
    MetadataRequest: 7,
    FindCoordinatorRequest: 2,
    InitProducerIdRequest: 4,
    CreateTopicsRequest: 5,
    DeleteTopicsRequest: 4,
    DeleteRecordsRequest: 1,
}
_OLDEST = "2.8"

BACKOFF_SECONDS = 0.01
BACKOFF_SECONDS_MAX = 0.5
_TRANSACTION_TIMEOUT_MS = 60_000
"""Timeout of transactions, of which none is ever begun."""
_NO_BROKER_YET = ("All brokers are currently fenced", "larger than available brokers: 0")
"""Messages of Kafka with KRaft and with ZooKeeper."""
_FETCH_BYTES_MAX = 64 * 1024 * 1024

T = TypeVar("T")


class Fetched(NamedTuple):
    end: int
    """First offset that is not durable yet (the high watermark)."""
    first_offset: int
    """First offset that Kafka still has."""
    data: bytes


def is_retriable(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    # A broker that is stopping responds with UnknownError. A broker that has just started is fenced until the
    # controller has its first heartbeat; until then no topic can be created.
    if isinstance(error, kafka.errors.InvalidReplicationFactorError):
        return any(message in str(error) for message in _NO_BROKER_YET)
    return isinstance(error, (NoResponse, kafka.errors.UnknownError)) or bool(
        getattr(error, "retriable", False)
    )


def check(code: int, message: str | None = None) -> None:
    """Raise the KafkaError of an error code."""
    if code:
        raise kafka.errors.for_code(code)(*filter(None, [message]))


class KafkaCluster:
    """Connections to the brokers, and the leaders of topics. `close` when done."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._nodes: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self._leaders: dict[str, int] = {}
        self._connections: dict[tuple[str, int, str], KafkaConnection] = {}
        self._connecting: dict[tuple[str, int, str], asyncio.Lock] = {}
        self._unavailable_since: float | None = None
        self._closed = False

    # Requests

    async def retry(
        self, attempt: Callable[[], Awaitable[T]], *topics: str, timeout_seconds: float | None = None
    ) -> T:
        """Repeat `attempt` until it succeeds, and return its result. The leaders of `topics` are refreshed in between.

        Raises StorageError for an error that is not retriable, for any error once `timeout_seconds` have passed
        (None: no limit), and for any error after `close`.
        """
        deadline = None if timeout_seconds is None else _now() + timeout_seconds
        pause = BACKOFF_SECONDS
        while True:
            try:
                result = await attempt()
            except (NoResponse, kafka.errors.KafkaError) as error:
                if self._closed or not is_retriable(error):
                    raise storage_error(error) from error
                if deadline is not None and _now() >= deadline:
                    where = ", ".join(f"{host}:{port}" for host, port in self.settings.addresses)
                    what = f"no usable Kafka at {where}: {error}; is it running?"
                    raise StorageError(what, definite=True) from error
                self.note_failure(error)
            else:
                self.note_success()
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF_SECONDS_MAX)
            await self.refresh_leaders(topics)

    def note_failure(self, error: BaseException) -> None:
        """Log that Kafka does not respond, once, if that is the error."""
        if self._unavailable_since is None and isinstance(error, NoResponse):
            self._unavailable_since = _now()
            logger.warning("Kafka does not respond; retrying: %s", error)

    def note_success(self) -> None:
        """Log that Kafka responds again, if it did not before."""
        if self._unavailable_since is not None:
            logger.warning("Kafka responds again after %.1f s", _now() - self._unavailable_since)
            self._unavailable_since = None

    async def send_to_node(self, node: int, request: Any, *, purpose: str = "read", **content: Any) -> Any:
        if node not in self._nodes:
            await self._refresh([])
        if node not in self._nodes:
            raise NoResponse(f"Kafka broker {node} is unknown")
        connection = await self._connection(*self._nodes[node], purpose)
        return await connection.send(request[_VERSIONS[request]](**content))

    async def send_to_any(self, request: Any, **content: Any) -> Any:
        """Send the request to known, then configured brokers until one responds. Raises NoResponse if none does."""
        failure = NoResponse("no broker is known")
        for host, port in dict.fromkeys((*self._nodes.values(), *self.settings.addresses)):
            try:
                connection = await self._connection(host, port, "read")
                return await connection.send(request[_VERSIONS[request]](**content))
            except NoResponse as error:
                failure = error
        raise failure

    async def _connection(self, host: str, port: int, purpose: str) -> KafkaConnection:
        key = (host, port, purpose)
        async with self._connecting.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.lost is not None:
                if self._closed:
                    raise NoResponse("the store is closed")
                connection = self._connections[key] = await connect(self.settings, host, port)
            return connection

    def close(self) -> None:
        self._closed = True
        for connection in self._connections.values():
            connection.close()

    # Leaders

    def leader(self, topic: str) -> int | None:
        """Return the leader of a topic, or None when unknown."""
        return self._leaders.get(topic)

    async def refresh_leaders(self, topics: Iterable[str]) -> None:
        """Request the leaders of these topics again; after an error they are unknown."""
        for topic in topics:
            self._leaders.pop(topic, None)
        try:
            await self._refresh(list(topics))
        except (NoResponse, kafka.errors.KafkaError) as error:
            self.note_failure(error)

    async def topics(self, prefix: str) -> list[str]:
        """Return all topics whose names begin with `prefix`."""
        return [name for name in await self._refresh(None) if name.startswith(prefix)]

    async def _refresh(self, topics: list[str] | None) -> list[str]:
        wanted = (
            None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        )
        answer = await self.send_to_any(MetadataRequest, topics=wanted, allow_auto_topic_creation=False)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._controller = answer.controller_id
        for topic in answer.topics:
            if not topic.error_code and topic.partitions and topic.partitions[0].leader_id >= 0:
                self._leaders[topic.name] = topic.partitions[0].leader_id
        return [topic.name for topic in answer.topics if not topic.error_code]

    async def _leader(self, topic: str) -> int:
        if topic not in self._leaders:
            await self._refresh([topic])
        if topic not in self._leaders:
            raise kafka.errors.LeaderNotAvailableError(topic)
        return self._leaders[topic]

    # Topics

    async def check_versions(self) -> None:
        """Raise StorageError when this Kafka is too old."""
        answer = await self.send_to_any(ApiVersionsRequest)
        check(answer.error_code)
        highest = {api.api_key: api.max_version for api in answer.api_keys}
        for request, version in _VERSIONS.items():
            if highest.get(request.API_KEY, -1) < version:
                raise StorageError(
                    f"this Kafka is too old, {_OLDEST} is needed: it does not know {request.__name__} {version}",
                    definite=True,
                )

    async def create_topic(self, name: str, config: dict[str, str]) -> None:
        """Create a topic of one partition, and wait until it has a leader; no error if the topic exists."""
        kind = CreateTopicsRequest.CreatableTopic
        configs = [kind.CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
        factor = self.settings.options.replication_factor
        topic = kind(name=name, num_partitions=1, replication_factor=factor, assignments=[], configs=configs)
        answer = await self._send_to_controller(CreateTopicsRequest, topics=[topic], validate_only=False)
        result = answer.topics[0]
        if result.error_code != kafka.errors.TopicAlreadyExistsError.errno:
            check(result.error_code, result.error_message)
        await self.retry(lambda: self._leader(name))

    async def delete_topics(self, names: list[str]) -> None:
        """Delete topics; no error for missing ones."""
        answer = await self._send_to_controller(DeleteTopicsRequest, topic_names=names)
        for result in answer.responses:
            self._leaders.pop(result.name, None)
            if result.error_code != kafka.errors.UnknownTopicOrPartitionError.errno:
                check(result.error_code)

    async def _send_to_controller(self, request: Any, **content: Any) -> Any:
        timeout_ms = self.settings.options.request_timeout_ms // 2
        if self._controller not in self._nodes:
            await self._refresh([])
        try:
            return await self.send_to_node(self._controller, request, timeout_ms=timeout_ms, **content)
        except NoResponse:
            self._controller = -1
            raise

    # Records

    async def init_producer(self, transactional_id: str) -> ProducerId:
        """Return a producer id for `transactional_id`: the same as before with a larger epoch, or a new id."""
        answer = await self.send_to_any(FindCoordinatorRequest, key=transactional_id, key_type=1)
        check(answer.error_code, answer.error_message)
        answer = await self.send_to_node(
            answer.node_id,
            InitProducerIdRequest,
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        check(answer.error_code)
        return ProducerId(answer.producer_id, answer.producer_epoch)

    async def produce(self, node: int, batches: dict[str, bytes]) -> dict[str, tuple[int, str | None, int]]:
        """Send a batch for each topic to one broker; return topic -> (error code, message, first offset)."""
        kind = ProduceRequest.TopicProduceData
        answer = await self.send_to_node(
            node,
            ProduceRequest,
            transactional_id=None,
            acks=-1,
            timeout_ms=self.settings.options.request_timeout_ms // 2,
            topic_data=[
                kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=data)])
                for topic, data in batches.items()
            ],
            purpose="write",
        )
        results = {topic.name: topic.partition_responses[0] for topic in answer.responses}
        return {topic: (r.error_code, r.error_message, r.base_offset) for topic, r in results.items()}

    async def fetch(self, topic: str, offset: int, bytes_max: int) -> Fetched:
        """Fetch batches from the one that contains `offset`. The first is complete; the last may be truncated."""
        kind = FetchRequest.FetchTopic
        partition = kind.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=bytes_max,
        )
        answer = await self.send_to_node(
            await self._leader(topic),
            FetchRequest,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES_MAX,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[kind(topic=topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        check(answer.error_code)
        found = answer.responses[0].partitions[0]
        check(found.error_code)
        return Fetched(found.high_watermark, found.log_start_offset, found.records or b"")

    async def delete_records(self, topic: str, before: int) -> None:
        """Delete the records below an offset."""
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        partition = kind.DeleteRecordsPartition(partition_index=0, offset=before)
        answer = await self.send_to_node(
            await self._leader(topic),
            DeleteRecordsRequest,
            topics=[kind(name=topic, partitions=[partition])],
            timeout_ms=self.settings.options.request_timeout_ms // 2,
        )
        check(answer.topics[0].partitions[0].error_code)


def storage_error(error: BaseException) -> StorageError:
    """Return the StorageError for a failed request. It is definite unless a repetition could have succeeded: then
    the request may have had its effect, and only its response failed."""
    return StorageError(f"a request to Kafka failed: {error}", definite=not is_retriable(error))


def _now() -> float:
    return asyncio.get_running_loop().time()
