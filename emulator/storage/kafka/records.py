"""Encode and decode Kafka's record batches.

Kafka stores a batch atomically, so an append is never divided between batches. The first record of a batch of entries
has a header with the bytes of all entries before it in the log: an owner that opens a log reads its size from its last
batch. Entries have no key; a record with one, such as a fence, is no entry.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from emulator.errors import StorageError
from emulator.model.crc import crc32c
from emulator.storage.contract import Entry

BYTES_BEFORE = "bytes_before"
"""Header of the first record of a batch of entries: bytes of all entries before, trimmed ones included, in decimal
digits."""
VERSION = "version"
"""Header of a value: its version, in decimal digits."""

_HEAD = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, checksum: Kafka fills in the first and the third."""
_LENGTH_END = struct.calcsize(">qi")
_CHECKED = struct.Struct(">hiqqqhii")
"""Attributes, last offset delta, first and last timestamp, producer id and epoch, sequence, count."""
_MAGIC = 2
_NO_LIMIT = 1 << 30
SEQUENCE_MASK = 0x7FFF_FFFF


class ProducerId(NamedTuple):
    """Identity of a writer in Kafka. A batch of a smaller epoch of the same id is rejected."""

    id: int
    epoch: int


class ProducedRecord(NamedTuple):
    """One record to be written. `value` None: a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class RecordBatch(NamedTuple):
    first_offset: int
    next_offset: int
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]
    """(offset, key, value, headers) of each record; Kafka's compaction may have removed some."""

    @property
    def holds_entries(self) -> bool:
        return bool(self.records) and self.records[0][1] is None

    @property
    def entries(self) -> list[Entry]:
        """Entries of the batch; empty for a fence."""
        return [Entry(offset, value or b"") for offset, key, value, _ in self.records if key is None]

    @property
    def bytes_before(self) -> int:
        """Bytes of the log's entries before this batch, which must hold entries."""
        return int(dict(self.records[0][3])[BYTES_BEFORE])


def encode_entries(producer: ProducerId, sequence: int, entries: Sequence[bytes], bytes_before: int) -> bytes:
    """Encode a batch of entries: the same bytes as kafka-python produces, in a third of the time."""
    header = _string(BYTES_BEFORE.encode()) + _string(b"%d" % bytes_before)
    parts = [_entry(0, entries[0], b"\x02" + header)]  # one header
    parts += [_entry(index, entry, b"\x00") for index, entry in enumerate(entries[1:], 1)]
    now_ms = int(time.time() * 1000)
    checked = b"".join(
        (_CHECKED.pack(0, len(entries) - 1, now_ms, now_ms, *producer, sequence, len(entries)), *parts)
    )
    return _HEAD.pack(0, _HEAD.size - _LENGTH_END + len(checked), 0, _MAGIC, crc32c(checked)) + checked


def _entry(index: int, entry: bytes, headers: bytes) -> bytes:
    # attributes, timestamp delta, offset delta, no key, value, headers
    head = b"\0\0" + _varint(index) + b"\x01" + _varint(len(entry))
    return b"".join((_varint(len(head) + len(entry) + len(headers)), head, entry, headers))


def _string(text: bytes) -> bytes:
    return _varint(len(text)) + text


@lru_cache(maxsize=8192)
def _varint(number: int) -> bytes:
    """Encode a number >= 0 as a zigzag varint."""
    number <<= 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_records(producer: ProducerId, sequence: int, records: Sequence[ProducedRecord]) -> bytes:
    """Encode a batch of records that are no entries."""
    builder = _builder(producer, sequence)
    now_ms = int(time.time() * 1000)
    for index, record in enumerate(records):
        builder.append(index, now_ms, record.key, record.value, record.headers)
    return bytes(builder.build())


def _builder(producer: ProducerId, sequence: int) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(_MAGIC, 0, False, producer.id, producer.epoch, sequence, _NO_LIMIT)


def decode_batches(data: bytes, location: str) -> Iterator[RecordBatch]:
    """Yield the complete batches of a fetch; a truncated last one is ignored. StorageError for a damaged one."""
    remaining = MemoryRecords(data)
    while True:
        try:
            batch = _decode_next(remaining)
        except Exception as damage:  # the library fails in various ways for bytes that no producer wrote
            raise StorageError(
                f"{location} holds a damaged record batch: {damage!r}", definite=True
            ) from damage
        if batch is None:
            return
        yield batch


def _decode_next(remaining: MemoryRecords) -> RecordBatch | None:
    if not remaining.has_next():
        return None
    batch = remaining.next_batch()
    if not isinstance(batch, DefaultRecordBatch) or not batch.validate_crc():
        raise ValueError("its checksum is wrong")
    first, end = batch.base_offset, batch.next_offset
    if batch.is_control_batch:  # of another program's transaction; geoemu uses none
        return RecordBatch(first, end, [])
    return RecordBatch(first, end, [(r.offset, r.key, r.value, r.headers) for r in batch])
