"""The storage contract on Kafka: logs, keys, and the register of logs.

All state is in Kafka. A region that opens the store takes it over (ownership.py) and reads the whole key topic. When
it opens a log, it reads the last batch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors

from emulator.errors import StorageError, StorageFenced
from emulator.storage.contract import Versioned, ledger_id_base
from emulator.storage.kafka import names
from emulator.storage.kafka.cluster import KafkaCluster
from emulator.storage.kafka.connection import NoResponse
from emulator.storage.kafka.log import KafkaLog, LogState, find_end
from emulator.storage.kafka.ownership import OWNER_RECHECK_SECONDS, Takeover, take_over
from emulator.storage.kafka.reader import Pages
from emulator.storage.kafka.records import VERSION, ProducedRecord
from emulator.storage.kafka.settings import KafkaSettings
from emulator.storage.kafka.writer import RecordWrite, TopicPartition
from emulator.storage.lanes import KeyedStore, KeyLane

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""Time for which `close` waits for issued writes, and then for deletions of topics."""
APPEND_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a batch, and so of one append: `max.message.bytes` of our topics."""
OWNER_POLL_SECONDS = 2.0
"""Interval at which a store checks whether another owner has taken it over."""

_TOPIC = {
    "max.message.bytes": str(APPEND_BYTES_MAX),
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
}
_LOG_TOPIC = {**_TOPIC, "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_KEYS_TOPIC = {
    **_TOPIC,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 * 1024 * 1024),
}


async def open_kafka(
    region: str,
    bootstrap_servers: str,
    options: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    recheck_seconds: float = OWNER_RECHECK_SECONDS,
) -> KafkaStore:
    """Take over the store of `region`, creating it if missing, and fence the previous owner.

    Raises ConfigurationError for invalid options, StorageError if Kafka rejects a request or is not available within
    `open_timeout_ms`, and StorageFenced if a newer owner takes over meanwhile. Once the key topic exists, there is no
    timeout.
    """
    settings = KafkaSettings.read(region, bootstrap_servers, options)
    cluster = KafkaCluster(settings)
    prefix = names.region_prefix(settings.options.topic_prefix, region)
    timeout = settings.options.open_timeout_ms / 1000
    try:
        await cluster.retry(cluster.check_versions, timeout_seconds=timeout)
        config = {**_KEYS_TOPIC, **settings.options.topic_config}
        await cluster.retry(
            lambda: cluster.create_topic(names.keys_topic(prefix), config), timeout_seconds=timeout
        )
        takeover = await take_over(cluster, prefix.rstrip("."), prefix, clock, recheck_seconds)
    except BaseException:
        cluster.close()
        raise
    return KafkaStore(region, prefix, takeover)


class KafkaStore(KeyedStore):
    """Implements `contract.Store`. Created by `open_kafka`."""

    def __init__(self, region: str, prefix: str, takeover: Takeover) -> None:
        values: dict[str, Versioned] = {}
        self._register: dict[str, LogState] = {}
        """Name -> state of all durable logs."""
        super().__init__(values, self._register)
        self._prefix = prefix
        self._writer = takeover.writer
        self.cluster = takeover.writer.cluster
        self._pages = Pages()
        self._key_partition = takeover.keys
        self._fences = takeover.logs
        """Topic of each log not opened yet -> its partition, and the offset of this owner's fence."""
        self._logs: dict[str, KafkaLog] = {}
        """The newest object of each log that was opened."""
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Name -> lock that serialises opening, creating and deleting a log."""
        self._closing: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.fenced: asyncio.Future[StorageFenced] = self.new_future()
        self._owner = takeover.owner
        self._watch = asyncio.get_running_loop().create_task(self._watch_owner())
        self._last_ledger_id = max(
            (names.ledger_id_of(prefix, topic) or 0 for topic in takeover.orphans),
            default=ledger_id_base(region),
        )
        for key, (value, headers) in takeover.content.records.items():
            if key.startswith(names.VALUE_PREFIX):
                name = key.removeprefix(names.VALUE_PREFIX).decode()
                values[name] = Versioned(value, int(dict(headers)[VERSION]))
            elif key.startswith(names.LOG_PREFIX):
                self._register[key.removeprefix(names.LOG_PREFIX).decode()] = LogState.decode(value)
            elif key == names.LEDGER_ID_KEY:
                self._last_ledger_id = max(self._last_ledger_id, int(value))
        if takeover.orphans:
            self._in_background(self._delete_topics(takeover.orphans))

    @property
    def commits(self) -> int:
        """Number of committed groups."""
        return self._writer.commits

    # Logs

    async def open_log(self, name: str, *, create: bool = True) -> KafkaLog | None:
        async with self._changing[name]:
            self._writer.refuse_if_closed()
            log = self._logs.get(name)
            if log is not None and log.refusal is not None:
                log = self._logs[name] = log.reopened()
            if log is None and name in self._register:
                log = self._logs[name] = await self._open(name, self._register[name])
            if log is None and create:
                log = self._logs[name] = await self._create(name)
            return log

    async def _open(self, name: str, state: LogState) -> KafkaLog:
        if state.topic not in self._fences:
            what = f"Kafka has lost the topic {state.topic} of log {name!r}"
            raise StorageError(what, definite=True)
        partition, fence = self._fences.pop(state.topic)
        await find_end(self.cluster, state, fence)
        # Saves the next owner a scan; not awaited.
        self._issue_record(state.record(name))
        return self._log(name, state, partition)

    async def _create(self, name: str) -> KafkaLog:
        self._last_ledger_id += 1
        ledger_id = self._last_ledger_id
        topic = names.log_topic(self._prefix, ledger_id, name)
        config = {**_LOG_TOPIC, **self.cluster.settings.options.topic_config}
        await self.cluster.retry(lambda: self.cluster.create_topic(topic, config))
        state = LogState(topic, ledger_id)
        # The topic is created before its record. After a crash in between, the next owner deletes it.
        self._issue_record(ProducedRecord(names.LEDGER_ID_KEY, b"%d" % self._last_ledger_id))
        await self._issue_record(state.record(name))
        self._register[name] = state
        return self._log(name, state, TopicPartition(topic))

    def _log(self, name: str, state: LogState, partition: TopicPartition) -> KafkaLog:
        return KafkaLog(name, state, partition, self._writer, self._key_partition, self._pages)

    async def delete_log(self, name: str) -> None:
        error = StorageError(f"log {name!r} was deleted", definite=True)
        if (log := self._logs.get(name)) is not None:
            log.refusal = error
        async with self._changing[name]:
            self._writer.refuse_if_closed()
            state = self._register.get(name)
            if state is None:
                return
            await self._issue_record(ProducedRecord(names.log_key(name), None))
            del self._register[name]
            self._fences.pop(state.topic, None)
            self._pages.forget(state.ledger_id)
            if (log := self._logs.pop(name, None)) is not None:
                log.refusal = log.deleted = log.partition.deleted = error
            self._in_background(self._delete_topics([state.topic]))

    def _write_key(self, lane: KeyLane, value: Versioned | None) -> asyncio.Future[Any]:
        return self._writer.issue(self._key_partition, _KafkaKeyPut(lane, self.new_future(), value))

    async def close(self) -> None:
        if self._closing is None:
            self._writer.refuse_new_writes()
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _watch_owner(self) -> None:
        """Detect a new owner every OWNER_POLL_SECONDS, also while no write is issued, and resolve `fenced`."""
        last_warning = ""
        while self._writer.ended is None:
            await asyncio.sleep(OWNER_POLL_SECONDS)
            try:
                await self._owner.poll_owner()
            except StorageFenced as fenced:
                self._writer.stop(fenced)
            except StorageError as error:  # reads fail now; writes may still succeed
                if str(error) != last_warning:
                    last_warning = str(error)
                    logger.warning("cannot check whether %s has another owner: %s", self._prefix, error)
        if isinstance(self._writer.ended, StorageFenced):
            self.fenced.set_result(self._writer.ended)

    async def _close(self) -> None:
        self._watch.cancel()
        await self._writer.close(CLOSE_SECONDS)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        self.cluster.close()

    def _issue_record(self, record: ProducedRecord) -> asyncio.Future[Any]:
        return self._writer.issue_record(self._key_partition, record)

    async def _delete_topics(self, topics: list[str]) -> None:
        """Delete the topics of logs that are no longer registered. After a failure, the next owner deletes them."""
        try:
            await self.cluster.delete_topics(topics)
        except (NoResponse, kafka.errors.KafkaError) as error:
            logger.warning("%d Kafka topics of deleted logs could not be deleted yet: %s", len(topics), error)

    def _in_background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _KafkaKeyPut(RecordWrite):
    __slots__ = ("_value",)
    lane: KeyLane

    def __init__(self, lane: KeyLane, future: asyncio.Future[Any], value: Versioned | None) -> None:
        key = names.VALUE_PREFIX + lane.key.encode()
        headers = ((VERSION, b"%d" % value.version),) if value is not None else ()
        super().__init__(lane, future, ProducedRecord(key, None if value is None else value.value, headers))
        self._value = value

    def stored(self, offset: int) -> int | None:
        return self.lane.stored(self._value)
