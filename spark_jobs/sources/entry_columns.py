"""Convert entries to columns: one row per message.

The module must be fast for logs of millions of messages. The usual entry, one message without special metadata, takes a
shortcut: a regular expression extracts producer, sequence id and publish time, and a search the source position. The
other metadata nearly always consists of bytes that were parsed before. All other entries are parsed by
`wire.message_metadata`. A test compares both paths on every kind of entry.

An entry is compared with the publish request and between regions by digests:

    payload     of the payload as the application published it: decompressed, never encrypted
    attributes  of key, ordering key, event time and properties; 0 when there are none (emulator.run.history)
    bytes       of all that is equal in every region: those two, the rest of the metadata, the publish time

Replication adds two fields to the metadata, the origin region and the source position; no digest contains them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from emulator.errors import ProtocolError, StorageError
from emulator.model import markers
from emulator.model.values import SOURCE_POSITION_PROPERTY
from emulator.run.history_events import attributes_digest, transaction_text
from emulator.storage.group import decode_group
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.markers import decode_marker
from emulator.wire.message_metadata import EntryDetails, EntryInfo, read_entry
from emulator.wire.payloads import decompress, split_batch
from emulator.wire.protobuf import UNREADABLE, malformed
from spark_jobs.engines.frames import record_batch, schema
from spark_jobs.sources.contract import Group

ROW_SCHEMA = schema(
    "region string, damage string, topic string, ledger_id bigint, entry_id bigint, batch_index int,"
    " producer_name string, sequence_id bigint, publish_time_ms bigint, replicated_from string, origin_region string,"
    " marker_type int, replicate_to array<string>, source_ledger bigint, source_entry bigint, payload_bytes int,"
    " payload_digest bigint, attributes_digest bigint, bytes_digest bigint, is_sound boolean, marker string,"
    " transaction string"
)
"""`damage` is null except in rows for unreadable data; those set only `region` besides. `batch_index` is -1 outside
batches, as in message ids. `source_ledger`, `source_entry`: the position in the origin's log that the entry contains.
The digest of a payload is null if only an encrypted or unreadable form is stored, or one chunk of several. `is_sound`:
the entry matches its checksum, or has none. `marker`: the content of a snapshot or an update as JSON, or why a marker
is unreadable.
`transaction`: `most,least` of the transaction that a message belongs to, or that a marker ends."""

_NO_BATCH = -1

NO_ATTRIBUTES = 0

_OF_THE_REGION = (
    "producer_name",
    "sequence_id",
    "publish_time",
    "replicated_from",
    "txnid_least_bits",
    "txnid_most_bits",
)
"""Fields outside the digest: other columns have them. A message leaves its region without its transaction id."""

_VARINT = rb"([\x80-\xff]*[\x00-\x7f])"
_HEAD = re.compile(
    rb"\x0e\x01.{4}"  # magic, checksum
    rb"(.{4})"  # size of the metadata
    rb"\x0a(.)(.*?)"  # 1: producer name, not longer than one length byte can say
    rb"\x10" + _VARINT + rb"\x18" + _VARINT,  # 2: sequence id, 3: publish time
    re.DOTALL,
)
"""The required fields of MessageMetadata, in the order in which every client writes them."""

_SINGLE = re.compile(rb"\x18" + _VARINT + rb"(?:\x40" + _VARINT + rb")?")
"""SingleMessageMetadata of a message without key and properties. 3: payload size, 8: sequence id."""

_KEY = SOURCE_POSITION_PROPERTY.encode()
_SOURCE = b"\x0a" + bytes([len(_KEY)]) + _KEY + b"\x12"
"""Start of the property that `with_replication` appends as the last field of the metadata. One length byte and the
position follow."""


class _Kind(NamedTuple):
    """Values that are equal for all entries with equal remaining metadata."""

    is_plain: bool
    """Whether the entry is one plain message. If not, `_add_scanned` must parse the entry."""
    route: tuple[str | None, str, int | None, tuple[str, ...] | None]
    """`replicated_from`, `origin_region`, `marker_type`, `replicate_to`."""
    attributes: int
    rest: int
    """`attributes` and `rest` are digests of the remaining metadata."""
    transaction: str | None = None


class EntryColumns:
    """Collects rows of one region until they are taken."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._rows: list[tuple[Any, ...]] = []
        self._kind_of = lru_cache(maxsize=4096)(self._read_kind)
        """Kind by remaining metadata; computed at the first entry of each kind."""

    def __len__(self) -> int:
        return len(self._rows)

    def take(self) -> pa.RecordBatch:
        """Return the collected rows as columns, and clear them."""
        rows, self._rows = self._rows, []
        return record_batch(rows, ROW_SCHEMA)

    def add_damage(self, sentence: str) -> None:
        self._rows.append((self._region, sentence, *[None] * (len(ROW_SCHEMA) - 2)))

    def add_group(self, group: Group) -> None:
        """Add all messages of a group commit that were not trimmed; unreadable data becomes a damage."""
        place = f"the log of {self._region}, topic {group.topic}, entries from {group.ledger_id}"
        try:
            entries = decode_group(group.data, f"{place}:{group.first_entry_id}")
        except StorageError as damage:
            self.add_damage(str(damage))
            return
        for entry_id, data in enumerate(entries, group.first_entry_id):
            if entry_id < group.trimmed_below:
                continue
            try:
                self._add_entry(group.topic, group.ledger_id, entry_id, data)
            except ProtocolError as damage:
                self.add_damage(f"{place}:{entry_id}: {damage}")

    def _add_entry(self, topic: str, ledger_id: int, entry_id: int, data: bytes) -> None:
        head = _HEAD.match(data)
        if head is None:
            return self._add_scanned(topic, ledger_id, entry_id, data)
        size, name_size, name, sequence_id, publish_time = head.groups()
        payload_at = 10 + int.from_bytes(size, "big")
        rest, is_replicated, position = data[head.end() : payload_at].rpartition(_SOURCE)
        if not is_replicated:
            rest, source_position = position, None
        elif rest[-2:] == bytes((0x22, len(_SOURCE) + len(position))) and position[0] == len(position) - 1:
            rest, source_position = rest[:-2], position[1:].decode(errors="replace")
        else:
            return self._add_scanned(topic, ledger_id, entry_id, data)
        kind = self._kind_of(rest)
        if len(name) != name_size[0] or not kind.is_plain or len(data) < payload_at:
            return self._add_scanned(topic, ledger_id, entry_id, data)
        if is_replicated and kind.route[0] is None:  # an application copied the property
            return self._add_scanned(topic, ledger_id, entry_id, data)
        source = _position(source_position)
        payload = digest_of(data[payload_at:])
        at_ms = _time(publish_time)
        digest = bytes_digest(payload, kind.attributes, kind.rest, at_ms)
        is_sound = int.from_bytes(data[2:6], "big") == crc32c(memoryview(data)[6:])
        identity = (_NO_BATCH, _text(name), _varint(sequence_id), at_ms)
        content = (len(data) - payload_at, payload, kind.attributes, digest, is_sound)
        self._rows.append(
            (
                *(self._region, None, topic, ledger_id, entry_id),
                *(*identity, *kind.route, *source, *content, None, kind.transaction),
            )
        )
        return None

    def _read_kind(self, rest: bytes) -> _Kind:
        """Parse the optional fields, in an entry with dummy values for the required ones."""
        metadata = b"\x0a\x01p\x10\x01\x18\x01" + rest
        try:
            return self._kind(read_entry(len(metadata).to_bytes(4, "big") + metadata), metadata)
        except ProtocolError:
            return _Kind(False, (None, "", None, None), 0, 0)

    def _kind(self, info: EntryDetails, metadata: bytes) -> _Kind:
        is_open = not (info.is_batch or info.is_chunk or info.is_encrypted or info.compression)
        return _Kind(
            is_open and info.marker_type is None and info.source_position is None,
            (
                info.replicated_from,
                info.replicated_from or self._region,
                info.marker_type,
                info.replicate_to or None,
            ),
            *metadata_digests(metadata),
            transaction_text(info.txn),
        )

    def _add_scanned(self, topic: str, ledger_id: int, entry_id: int, data: bytes) -> None:
        """Add the messages of any kind of entry, without the shortcut; none for a chunk except the last one."""
        info = read_entry(data)
        start, is_sound = _metadata_start(data)
        kind = self._kind(info, data[start : info.payload_offset])
        if info.is_chunk and info.chunk_id != info.num_chunks - 1:
            return  # a message has the position of its last chunk
        payload = data[info.payload_offset :]
        marker = _marker_text(data, info) if info.marker_type is not None else None
        at_ms = _signed(info.publish_time_ms)
        source = info.source_position or (None, None)
        for batch_index, sequence_id, size, stored, opened, attributes in _messages(
            info, payload, kind.attributes
        ):
            digest = bytes_digest(stored, attributes, kind.rest, at_ms)
            identity = (batch_index, info.producer_name, sequence_id, at_ms)
            content = (size, opened, attributes, digest, is_sound)
            self._rows.append(
                (
                    *(self._region, None, topic, ledger_id, entry_id),
                    *(*identity, *kind.route, *source, *content, marker, kind.transaction),
                )
            )


Message = tuple[int, int, int, int, int | None, int]
"""Batch index, sequence id, payload size, digest of the stored payload, digest of the decompressed payload (None if
unreadable), digest of the attributes."""


def _messages(info: EntryDetails, payload: bytes, attributes: int) -> Iterator[Message]:
    """Yield the messages of an entry. Those of a batch that cannot be decoded (encrypted, or unknown compression) have
    consecutive sequence ids, and share the digest and the size of the batch.
    """
    first = _signed(info.sequence_id)
    opened = None if info.is_encrypted or info.is_chunk else _opened(info, payload)
    if not info.is_batch:
        digest = None if opened is None else digest_of(opened)
        yield _NO_BATCH, first, len(payload), digest_of(payload), digest, attributes
        return
    if opened is None:
        stored, size = digest_of(payload), len(payload) // info.num_messages
        for index in range(info.num_messages):
            yield index, first + index, size, stored, None, attributes
        return
    yield from _split(info, opened)


def _opened(info: EntryDetails, payload: bytes) -> bytes | None:
    try:
        return decompress(info.compression, payload, info.uncompressed_size)
    except ProtocolError:
        return None


def _split(info: EntryInfo, payload: bytes) -> list[Message]:
    """Return the messages of a batch. ProtocolError if it is damaged."""
    first, at = _signed(info.sequence_id), 0
    messages: list[Message] = []
    for index in range(info.num_messages):
        start = at + 4
        end = start + int.from_bytes(payload[at:start], "big")
        single = _SINGLE.fullmatch(payload, start, end)
        if single is None:
            return _split_fully(info, payload)
        size, sequence_id = single.groups()
        at = end + _varint(size)
        if at > len(payload):
            return _split_fully(info, payload)
        # A message in a batch may omit its sequence id.
        number = first + index if sequence_id is None else _varint(sequence_id)
        digest = digest_of(payload[end:at])
        messages.append((index, number, at - end, digest, digest, NO_ATTRIBUTES))
    return messages


def _split_fully(info: EntryInfo, payload: bytes) -> list[Message]:
    first = _signed(info.sequence_id)
    messages: list[Message] = []
    for index, (single, message) in enumerate(split_batch(info, payload)):
        number = _signed(single.sequence_id) if single.HasField("sequence_id") else first + index
        digest = digest_of(message)
        messages.append((index, number, len(message), digest, digest, _attributes(single)))
    return messages


def _metadata_start(data: bytes) -> tuple[int, bool]:
    """Return the offset of the metadata, and whether the checksum is correct or absent."""
    at = 0
    if data[:2] == b"\x0e\x02":  # broker entry metadata
        at = 6 + int.from_bytes(data[2:6], "big")
    if data[at : at + 2] != b"\x0e\x01":
        return at + 4, True
    return at + 10, int.from_bytes(data[at + 2 : at + 6], "big") == crc32c(data[at + 6 :])


def _marker_text(data: bytes, info: EntryInfo) -> str | None:
    """Return a snapshot, an update, or the problem of an unreadable marker as JSON; None for other markers."""
    try:
        marker = decode_marker(data, info)
    except ProtocolError as problem:
        return json.dumps({"unreadable": str(problem)})
    match marker:
        case markers.Snapshot(snapshot_id, local, positions):
            content: dict[str, Any] = {"snapshot": snapshot_id, "local": local, "positions": positions}
        case markers.SubscriptionUpdate(subscription, positions):
            content = {"subscription": subscription, "positions": positions}
        case _:
            return None
    return json.dumps(content)


def _position(text: str | None) -> tuple[int | None, int | None]:
    """Parse `ledger:entry`; return (None, None) for any other text."""
    if text is None:
        return None, None
    ledger, _, entry = text.partition(":")
    if not (ledger.isdecimal() and entry.isdecimal()):
        return None, None
    return int(ledger), int(entry)


@lru_cache(maxsize=4096)
def _text(value: bytes) -> str:
    """Decode a producer name; cached, because there are few names."""
    return value.decode(errors="replace")


def _signed(value: int) -> int:
    """Convert to a signed number, because Spark has no unsigned ones; transaction markers have sequence id -1."""
    return value if value < 2**63 else value - 2**64


def _varint(encoded: bytes) -> int:
    value = 0
    for byte in reversed(encoded):
        value = value << 7 | byte & 127
    return _signed(value)


_time = lru_cache(maxsize=64)(_varint)
"""Cached, because in large logs many messages share a millisecond."""


def digest_of(data: bytes) -> int:
    """Return a signed 64-bit digest, the number that `emulator.run.history.payload_digest` writes as text."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def bytes_digest(payload: int, attributes: int, rest: int, publish_time_ms: int) -> int:
    """Return Python's hash of the numbers: fast, 64 bits, and equal in every process."""
    return hash((payload, attributes, rest, publish_time_ms))


def metadata_digests(metadata: bytes) -> tuple[int, int]:
    """Return the digests of an entry's attributes, and of its other metadata except the fields in `_OF_THE_REGION`."""
    try:
        message = pb.MessageMetadata.FromString(metadata)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    attributes = _attributes(message)
    for name in _OF_THE_REGION:
        message.ClearField(name)
    kept = [pair for pair in message.properties if pair.key != SOURCE_POSITION_PROPERTY]
    if len(kept) != len(message.properties):
        del message.properties[:]
        message.properties.extend(kept)
    return attributes, digest_of(message.SerializePartialToString(deterministic=True))


def _attributes(message: pb.MessageMetadata | pb.SingleMessageMetadata) -> int:
    key: str | bytes | None = message.partition_key if message.HasField("partition_key") else None
    if key is not None and message.partition_key_b64_encoded:
        try:
            key = base64.b64decode(key, validate=True)
        except ValueError as problem:
            raise malformed("key", problem, closes_connection=False) from None
    properties = {pair.key: pair.value for pair in message.properties}
    ordering_key = message.ordering_key if message.HasField("ordering_key") else None
    digest = attributes_digest(key, properties, message.event_time, ordering_key)
    return NO_ATTRIBUTES if digest is None else int.from_bytes(bytes.fromhex(digest), "big", signed=True)
