"""One owner (S6): how a new owner fences the older one and reads all its records.

    1  InitProducerId with the region's transactional id: the same producer id as the owner before, a larger epoch.
    2  Write a fence, a record with that epoch, to every topic of the region: first to the key topic, then to all logs
       that it lists.
    3  Read the key topic up to the new fence; a log is read when it is opened. After a fence, Kafka rejects the smaller
       epoch, so no later record is missed.

Appends of the older owner between 1 and 2 lie before the fence, so they are read as valid. An owner that Kafka
rejects is the older one, and stops.

In two cases Kafka would not reject an older owner. Both are handled here:

*   The fence is forgotten. Kafka forgets a producer's epoch some time after its last record in a topic
    (`producer.id.expiration.ms`, a day; the Kafkas that geoemu starts never do). A paused owner that resumes later than
    that would be accepted. So before a write, after OWNER_RECHECK_SECONDS without an accepted one, an owner reads the
    records of the key topic after its own last one; if it finds another owner's fence or burial, it stops.
*   Another producer id. When the transactional id is forgotten (`transactional.id.expiration.ms`, 7 days) or all
    32 767 epochs are used up, the new owner gets a new producer id, and epochs of two ids are never compared. The
    last fence before its own shows this: if its id differs, the new owner first *buries* the older owner. It writes a
    record under the old id with the next epoch to every topic, before its own fence.

Of two owners that start at the same time, the one with the last fence in the key topic becomes the owner.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.errors import StorageError, StorageFenced
from emulator.storage.kafka import names
from emulator.storage.kafka.cluster import KafkaCluster
from emulator.storage.kafka.reader import read_page, read_through
from emulator.storage.kafka.records import ProducedRecord, ProducerId, RecordBatch
from emulator.storage.kafka.writer import KafkaWriter, TopicPartition

logger = logging.getLogger(__name__)

OWNER_RECHECK_SECONDS = 60.0
"""Time without an accepted write after which an owner checks for another one; well below any
`producer.id.expiration.ms`."""

Headers = list[tuple[str, bytes]]


class KeyTopicState:
    """The content of the key topic: the newest record of each key, and the fences in their order."""

    def __init__(self) -> None:
        self.records: dict[bytes, tuple[bytes, Headers]] = {}
        self.fences: list[dict[str, Any]] = []
        self.next_offset = 0

    def add(self, batch: RecordBatch) -> None:
        """Add the next batch of the topic."""
        for _, key, value, headers in batch.records:
            if key == names.FENCE_KEY:
                self.fences.append(json.loads(value or b"{}"))
            elif key is None or value is None:
                self.records.pop(key or b"", None)
            else:
                self.records[key] = value, headers
        self.next_offset = batch.next_offset


class RegionOwner:
    """This process as the owner of a region. Call `check` before a write, `write_accepted` after it."""

    def __init__(
        self, cluster: KafkaCluster, keys: TopicPartition, clock: Callable[[], float], recheck_seconds: float
    ) -> None:
        self.id = uuid.uuid4().hex
        self.producer = ProducerId(-1, -1)
        self._cluster = cluster
        self._keys = keys
        self._clock = clock
        self._recheck_seconds = recheck_seconds
        self._accepted_at = clock()

    def fence(self, region: str) -> ProducedRecord:
        """Return the record with which this owner fences older ones."""
        content = {"region": region, "owner": self.id, **self.producer._asdict()}
        return ProducedRecord(names.FENCE_KEY, json.dumps(content).encode())

    def write_accepted(self) -> None:
        self._accepted_at = self._clock()

    async def check(self) -> None:
        """After `recheck_seconds` without an accepted write, raise StorageFenced if another owner has taken over."""
        if self._clock() - self._accepted_at > self._recheck_seconds and self._keys.next_offset:
            await self.poll_owner()
            self.write_accepted()

    async def poll_owner(self) -> None:
        """Raise StorageFenced if another owner's fence or burial follows this owner's last record in the key topic."""
        await self._cluster.retry(self._read_new_fences, self._keys.topic)

    async def _read_new_fences(self) -> None:
        topic, start = self._keys.topic, self._keys.next_offset
        while start < (await self._cluster.fetch(topic, start, 1)).end:
            for batch in await read_page(self._cluster, topic, start):
                self._refuse_others(batch)
                start = batch.next_offset

    def _refuse_others(self, batch: RecordBatch) -> None:
        for _, key, value, _ in batch.records:
            content = json.loads(value or b"{}") if key in (names.FENCE_KEY, names.BURIED_KEY) else {}
            if content.get("owner", self.id) != self.id:
                raise StorageFenced(f"another process owns {self._keys.topic}: {content}")


@dataclass(slots=True)
class Takeover:
    """A region's topics after the takeover by a new owner."""

    owner: RegionOwner
    writer: KafkaWriter
    keys: TopicPartition
    content: KeyTopicState
    logs: dict[str, tuple[TopicPartition, int]]
    """Topic of each log -> its partition, and the offset of this owner's fence."""
    orphans: list[str]
    """Topics of logs that are not registered: their creation was not completed, or they were deleted."""


async def take_over(
    cluster: KafkaCluster,
    transactional_id: str,
    region_prefix: str,
    clock: Callable[[], float],
    recheck_seconds: float,
) -> Takeover:
    """Become the owner. The key topic must exist. StorageFenced if a newer owner takes over meanwhile."""
    keys = TopicPartition(names.keys_topic(region_prefix))
    owner = RegionOwner(cluster, keys, clock, recheck_seconds)
    owner.producer = await cluster.retry(lambda: cluster.init_producer(transactional_id))
    writer = KafkaWriter(cluster, owner.producer, owner)
    try:
        fence = owner.fence(cluster.settings.region)
        content = KeyTopicState()
        await _read_keys(cluster, keys.topic, content, await writer.issue_record(keys, fence))
        old_writer = await _bury_predecessor(cluster, keys.topic, owner, content)
        registered = [
            json.loads(v)["topic"] for k, (v, _) in content.records.items() if k.startswith(names.LOG_PREFIX)
        ]
        found = set(await cluster.retry(lambda: cluster.topics(region_prefix)))
        partitions = [TopicPartition(topic) for topic in registered if topic in found]
        if old_writer is not None:
            burial = _burial(owner)
            await asyncio.gather(
                *(old_writer.issue_record(TopicPartition(p.topic), burial) for p in partitions)
            )
            await old_writer.close(1)
        offsets = await asyncio.gather(*(writer.issue_record(partition, fence) for partition in partitions))
    except BaseException:
        writer.stop(StorageError("the store could not be opened", definite=True))
        raise
    logs = {
        partition.topic: (partition, offset) for partition, offset in zip(partitions, offsets, strict=True)
    }
    of_logs = {topic for topic in found if names.ledger_id_of(region_prefix, topic) is not None}
    return Takeover(owner, writer, keys, content, logs, sorted(of_logs - set(registered)))


async def _read_keys(cluster: KafkaCluster, topic: str, content: KeyTopicState, last_offset: int) -> None:
    async for batch in read_through(cluster, topic, content.next_offset, last_offset + 1):
        content.add(batch)


async def _bury_predecessor(
    cluster: KafkaCluster, topic: str, owner: RegionOwner, content: KeyTopicState
) -> KafkaWriter | None:
    """Bury the previous owner in the key topic if it had another producer id. Return the writer with the old id, or
    None."""
    before = [fence for fence in content.fences if fence["owner"] != owner.id]
    if not before or before[-1]["id"] == owner.producer.id:
        return None
    old = ProducerId(before[-1]["id"], before[-1]["epoch"] + 1)
    logger.warning(
        "Kafka topic %s: the previous owner had producer id %d, this process has %d",
        topic,
        old.id,
        owner.producer.id,
    )
    old_writer = KafkaWriter(cluster, old)
    await _read_keys(
        cluster, topic, content, await old_writer.issue_record(TopicPartition(topic), _burial(owner))
    )
    return old_writer


def _burial(owner: RegionOwner) -> ProducedRecord:
    return ProducedRecord(names.BURIED_KEY, json.dumps({"owner": owner.id, "by": owner.producer.id}).encode())
