"""Group commits: the writes issued while one group is in flight are sent in the next, up to REQUEST_BYTES.

One group is in flight, with one batch for each topic and one produce request to each leader, which ensures S1. A batch
is encoded once and resent unchanged until Kafka returns its outcome; Kafka deduplicates it by producer id, epoch and
sequence number. So a lost response, a restart of Kafka or a new leader only cost time.

An error that is not retriable (too large, not allowed) breaks the lanes in that batch (S5); the next batch gets its
sequence number. After StorageFenced all pending writes fail, and no request is sent any more (S6).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import kafka.errors

from emulator.errors import StorageError, StorageFenced, StorageFull
from emulator.storage.kafka.cluster import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    KafkaCluster,
    check,
    is_retriable,
)
from emulator.storage.kafka.connection import NoResponse
from emulator.storage.kafka.records import (
    SEQUENCE_MASK,
    ProducedRecord,
    ProducerId,
    encode_entries,
    encode_records,
)
from emulator.storage.lanes import Lane, behind

BATCH_BYTES = 1024 * 1024
"""Size at which a batch is full. Reading one entry costs reading its batch."""
REQUEST_BYTES = 16 * 1024 * 1024
"""Size at which a group is full. Kafka accepts requests of 100 MB (`socket.request.max.bytes`)."""

_FENCED = (kafka.errors.InvalidProducerEpochError, kafka.errors.ProducerFencedError)
_TOO_LARGE = (kafka.errors.MessageSizeTooLargeError, kafka.errors.RecordListTooLargeError)


class KafkaWrite:
    """One issued write. `stored` or `failed` is called once."""

    __slots__ = ("future", "lane", "size")

    def __init__(self, lane: Lane | None, future: asyncio.Future[Any], size: int) -> None:
        self.lane = lane
        self.future = future
        self.size = size

    def stored(self, offset: int) -> Any:
        """Handle the durable write, whose first record is at `offset`; return the result of the future."""

    def failed(self, error: StorageError) -> None:
        if self.lane is not None:
            self.lane.failed(error)


class KafkaAppendLane(Lane, Protocol):
    def stored(self, first: int, count: int, size: int) -> None:
        """Handle a durable append: its first entry id, and the number and bytes of its entries."""
        ...


class KafkaAppend(KafkaWrite):
    __slots__ = ("entries",)
    lane: KafkaAppendLane

    def __init__(
        self, lane: KafkaAppendLane, future: asyncio.Future[int], entries: tuple[bytes, ...]
    ) -> None:
        super().__init__(lane, future, sum(map(len, entries)))
        self.entries = entries

    def stored(self, offset: int) -> int:
        self.lane.stored(offset, len(self.entries), self.size)
        return offset


class RecordWrite(KafkaWrite):
    """The write of one record that is no entry."""

    __slots__ = ("record",)

    def __init__(self, lane: Lane | None, future: asyncio.Future[Any], record: ProducedRecord) -> None:
        super().__init__(lane, future, len(record.value or b""))
        self.record = record

    def stored(self, offset: int) -> Any:
        return offset


class TopicPartition:
    """The only partition of a topic, with the state of its writer."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sequence = 0
        """Sequence number of the next batch; Kafka rejects one that does not follow the last."""
        self.next_offset = 0
        """Offset after the last record of this owner; 0: it has not written yet."""
        self.bytes_before = 0
        """Bytes of all entries written so far, trimmed ones included."""
        self.pending: deque[KafkaWrite] = deque()
        self.deleted: StorageError | None = None
        """Error with which all later writes fail, set when the log is deleted."""

    def next_batch(self, producer: ProducerId) -> _Batch | None:
        """Take pending writes up to BATCH_BYTES as a batch. Writes of broken lanes fail."""
        writes: list[KafkaWrite] = []
        size = 0
        while self.pending and size < BATCH_BYTES:
            write = self.pending[0]
            refusal = self.deleted or (write.lane.broken if write.lane is not None else None)
            if refusal is not None:
                fail(self.pending.popleft(), behind(refusal))
            elif writes and size + write.size > BATCH_BYTES:
                break
            else:
                writes.append(self.pending.popleft())
                size += write.size
        return self._encode(producer, writes, size) if writes else None

    def _encode(self, producer: ProducerId, writes: list[KafkaWrite], size: int) -> _Batch:
        if isinstance(writes[0], KafkaAppend):
            entries = [entry for write in writes if isinstance(write, KafkaAppend) for entry in write.entries]
            data = encode_entries(producer, self.sequence, entries, self.bytes_before)
            return _Batch(self, writes, data, len(entries), size)
        records = [write.record for write in writes if isinstance(write, RecordWrite)]
        data = encode_records(producer, self.sequence, records)
        return _Batch(self, writes, data, len(records), 0)


class _Batch(NamedTuple):
    partition: TopicPartition
    writes: list[KafkaWrite]
    data: bytes
    records: int
    entry_bytes: int

    def stored(self, offset: int) -> None:
        partition = self.partition
        partition.sequence = (partition.sequence + self.records) & SEQUENCE_MASK
        partition.next_offset = offset + self.records
        partition.bytes_before += self.entry_bytes
        for write in self.writes:
            outcome = write.stored(offset)
            offset += len(write.entries) if isinstance(write, KafkaAppend) else 1
            if not write.future.done():  # the wait may have been cancelled
                write.future.set_result(outcome)

    def failed(self, error: StorageError) -> None:
        """Fail the batch and break its lanes, so that no later write of these is stored."""
        for write in self.writes:
            if write.lane is not None:
                write.lane.broken = error
            fail(write, error)


def fail(write: KafkaWrite, error: StorageError) -> None:
    write.failed(error)
    if not write.future.done():
        write.future.set_exception(error)


class OwnerCheck(Protocol):
    """A check that this process is still the owner."""

    async def check(self) -> None:
        """Raise StorageFenced if another owner is found. Called before each produce request."""

    def write_accepted(self) -> None:
        """Note that Kafka has accepted a write."""


class KafkaWriter:
    """Sends the issued writes of one producer id, in groups."""

    def __init__(self, cluster: KafkaCluster, producer: ProducerId, owner: OwnerCheck | None = None) -> None:
        self.producer = producer
        self.commits = 0
        """Number of committed groups."""
        self.cluster = cluster
        self.ended: StorageError | None = None
        """Error with which the writer has stopped; None: it still sends requests."""
        self.closed: StorageError | None = None
        """Error with which new writes are refused after `refuse_new_writes`."""
        self._owner = owner
        self._dirty: dict[TopicPartition, None] = {}
        """Partitions with pending writes, in the order of their turns."""
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def issue(self, partition: TopicPartition, write: KafkaWrite) -> asyncio.Future[Any]:
        refusal = self.closed or self.ended
        if refusal is not None:
            fail(write, refusal)
        else:
            partition.pending.append(write)
            self._dirty[partition] = None
            self._wake.set()
        return write.future

    def issue_record(self, partition: TopicPartition, record: ProducedRecord) -> asyncio.Future[int]:
        """Issue the write of a record that is no entry. The future resolves to its offset."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return self.issue(partition, RecordWrite(None, future, record))

    def refuse_new_writes(self) -> None:
        """Refuse new writes. `close` still sends the issued ones."""
        self.closed = self.closed or StorageError("the store is closed", definite=True)
        self._wake.set()

    def refuse_if_closed(self) -> None:
        if self.closed is not None:
            raise self.closed

    async def close(self, timeout_seconds: float) -> None:
        """Refuse new writes and send the issued ones. Those not acknowledged in time fail, but may have been stored."""
        self.refuse_new_writes()
        done, _ = await asyncio.wait([self._task], timeout=timeout_seconds)
        if not done:
            self.stop(StorageError("the store was closed before Kafka acknowledged it", definite=False))
        self.ended = self.ended or self.closed

    def stop(self, error: StorageError) -> None:
        """Send no more requests, and fail all pending writes."""
        self.ended = self.ended or error
        self._task.cancel()
        for partition in self._dirty:
            while partition.pending:
                fail(partition.pending.popleft(), error)
        self._dirty.clear()

    async def _run(self) -> None:
        while self.closed is None or self._dirty:
            await self._wake.wait()
            self._wake.clear()
            while batches := self._next_batches():
                await self._commit(batches)
                if self.ended is not None:
                    return

    def _next_batches(self) -> list[_Batch]:
        batches: list[_Batch] = []
        size = 0
        for partition in list(self._dirty):
            if size >= REQUEST_BYTES:
                break
            batch = partition.next_batch(self.producer)
            del self._dirty[partition]
            if partition.pending:  # its next turn is after all other partitions
                self._dirty[partition] = None
            if batch is not None:
                batches.append(batch)
                size += len(batch.data)
        return batches

    async def _commit(self, batches: Sequence[_Batch]) -> None:
        pause = 0.0
        unacknowledged = list(batches)
        try:
            while unacknowledged:
                if self._owner is not None:
                    await self._owner.check()
                unacknowledged = await self._send(unacknowledged)
                if unacknowledged:
                    pause = min(2 * pause or BACKOFF_SECONDS, BACKOFF_SECONDS_MAX)
                    await asyncio.sleep(pause)
                    await self.cluster.refresh_leaders([batch.partition.topic for batch in unacknowledged])
        except StorageFenced as fenced:
            self._end(unacknowledged, fenced)
        except BaseException as error:  # every future must resolve
            failure = self.ended or StorageError(f"writing to Kafka ended: {error!r}", definite=False)
            self._end(unacknowledged, failure)
            raise
        self.commits += 1

    def _end(self, batches: Sequence[_Batch], error: StorageError) -> None:
        for batch in batches:
            batch.failed(error)
        self.stop(error)

    async def _send(self, batches: Sequence[_Batch]) -> list[_Batch]:
        """Send batches once; return those to be resent. Raises StorageFenced."""
        retriable: list[_Batch] = []
        by_leader: dict[int, list[_Batch]] = {}
        for batch in batches:
            leader = self.cluster.leader(batch.partition.topic)
            (retriable if leader is None else by_leader.setdefault(leader, [])).append(batch)
        for unsent in await asyncio.gather(
            *(self._send_to(node, of_node) for node, of_node in by_leader.items())
        ):
            retriable += unsent
        if self.ended is not None:
            raise self.ended
        to_resend = []
        for batch in retriable:
            if batch.partition.deleted is not None:
                batch.failed(behind(batch.partition.deleted))
            else:
                to_resend.append(batch)
        return to_resend

    async def _send_to(self, node: int, batches: list[_Batch]) -> list[_Batch]:
        try:
            results = await self.cluster.produce(
                node, {batch.partition.topic: batch.data for batch in batches}
            )
        except (NoResponse, kafka.errors.KafkaError) as error:
            self.cluster.note_failure(error)
            return batches
        self.cluster.note_success()
        retriable = []
        for batch in batches:
            code, message, offset = results[batch.partition.topic]
            try:
                check(code, message)
            except _FENCED as error:
                self.ended = StorageFenced(f"another process owns {batch.partition.topic}: {error}")
                retriable.append(batch)
            except kafka.errors.KafkaError as error:
                if is_retriable(error):
                    retriable.append(batch)
                else:
                    batch.failed(_rejection(error, batch))
            else:
                batch.stored(offset)
                if self._owner is not None:
                    self._owner.write_accepted()
        return retriable


def _rejection(error: kafka.errors.KafkaError, batch: _Batch) -> StorageError:
    what = f"{batch.partition.topic}: Kafka refused {len(batch.data)} bytes: {error}"
    return StorageFull(what) if isinstance(error, _TOO_LARGE) else StorageError(what, definite=True)
