"""What a broker must know of an entry, and the few changes it may make to one.

    data = [0x0e02 size(4) broker_metadata] [0x0e01 crc32c(4)] size(4) metadata payload

An entry is stored and forwarded byte for byte as it came: its checksum is the publisher's and stays true to
the last consumer. Only replication adds to the metadata, and then the checksum is made anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c
from google.protobuf.unknown_fields import UnknownFieldSet

from emulator.errors import ProtocolError, ServerError
from emulator.model import AFTER_EVERYTHING, BEFORE_EVERYTHING, Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import (
    ABSENT_I32,
    ABSENT_I64,
    ABSENT_U64,
    UNREADABLE,
    Malformed,
    length_delimited,
    malformed,
    parse,
    present_or_0,
    tag,
    varint,
)

SOURCE_POSITION_PROPERTY: Final = "__MSG_PROP_REPL_SOURCE_POSITION"
"""Where a replicated entry stands in its origin's log, as "ledger:entry"."""

_CHECKSUM_MAGIC: Final = b"\x0e\x01"
_BROKER_METADATA_MAGIC: Final = b"\x0e\x02"
_CHECKSUM_BYTES: Final = 6
_SIZE: Final = Struct(">I")
_read_size: Final = _SIZE.unpack_from
_HEAD: Final = Struct(">HII")
"""Magic, checksum, size of the metadata: how nearly every entry begins."""
_HEAD_BYTES: Final = _HEAD.size
_read_head: Final = _HEAD.unpack_from
_SMALL_ENTRY_BYTES: Final = 4_096
"""Below this a copy is cheaper than a memoryview."""


@dataclass(slots=True)
class EntryInfo:
    """The metadata by which a broker decides what happens to an entry. Absent strings, ids and positions are None.

    Not to be changed. It has slots, so that each holds the same: what others hold would depend on which fields any
    entry ever had. Readers set each field by its name.
    """

    producer_name: str
    sequence_id: int
    publish_time_ms: int
    payload_offset: int = 0
    """Where in the stored entry the payload begins."""
    highest_sequence_id: int = 0
    """Of a batch; 0 when absent."""
    num_messages: int = 1
    is_batch: bool = False
    """Whether the field with the number of messages is there. With 1 in it, it is still a batch."""
    replicated_from: str | None = None
    replicate_to: tuple[str, ...] = ()
    """Regions its sender meant it for; empty for all."""
    marker_type: int | None = None
    """Not None makes it a marker, also with a number nobody knows."""
    source_position: Position | None = None
    """Where it stands in the log of `replicated_from`."""
    chunk_id: int | None = None
    num_chunks: int = 0
    deliver_at_time_ms: int | None = None
    """Not before, by the wall clock."""
    txn: tuple[int, int] | None = None
    """(most, least) of the transaction that it belongs to, or ends."""

    @property
    def is_chunk(self) -> bool:
        """Whether this is one of several pieces of a message."""
        return self.num_chunks > 1


@dataclass(slots=True)
class EntryDetails(EntryInfo):
    """All that clients, and those that judge a log, ask of an entry. Absent keys are None."""

    partition_key: str | None = None
    partition_key_is_base64: bool = False
    ordering_key: bytes | None = None
    compression: int = 0
    uncompressed_size: int = 0
    event_time_ms: int = 0
    schema_version: bytes | None = None
    null_value: bool = False
    is_encrypted: bool = False
    uuid: str | None = None
    """Of a chunked message: the same for all its chunks."""
    txn_least: int | None = None
    txn_most: int | None = None


_new_info: Final = EntryInfo.__new__
_new_details: Final = EntryDetails.__new__
"""An object whose fields are set one by one takes less than half the time of its class's constructor."""
_new_tuple: Final = tuple.__new__
_read_dispatch: Final = pb.LeanDispatch.FromString
_read_usual: Final = pb.LeanUsualEntry.FromString
_read_lean: Final = pb.LeanEntry.FromString
_read_all: Final = pb.LeanMetadata.FromString
_NO_KEY: Final = b"\xff"
"""Default of the lean partition_key."""
_SCHEMA_VERSION_TAG: Final = tag(16, 2)
_PROPERTIES: Final = tag(4, 2)
_NUM_CHUNKS_TAG: Final = tag(27)
_PROPERTIES_TAG: Final = _PROPERTIES[0]
_REPLICATED_FROM_TAG: Final = tag(5, 2)[0]
_REPLICATE_TO_TAG: Final = tag(7, 2)[0]
_ENCRYPTION_KEYS_TAG: Final = tag(13, 2)[0]
"""Tags to look for are numbers: to find one byte in bytes is five times as quick as to find bytes."""
_POSITION_KEY: Final = SOURCE_POSITION_PROPERTY.encode()


@lru_cache(maxsize=4096)
def _name(value: bytes) -> str:
    """Names come again and again, and often stay in memory with their entries: keep one of each."""
    return value.decode()


def scan_entry(data: bytes, *, verify: bool = False) -> EntryInfo:
    """Read what a broker decides by. `verify` also checks the checksum, if the entry has one.

    ProtocolError (never closing the connection: the frame was sound) when the entry cannot be read
    (UnknownError) or does not match its checksum (ChecksumError).
    """
    try:
        start, end = _metadata_bounds(data, verify=verify)
        metadata = data[start:end]
        info = _new_info(EntryInfo)
        usual = _read_usual(metadata)
        if UnknownFieldSet(usual):
            lean = _read_lean(metadata)
            _take_usual(info, lean, metadata, end)
            _take_rare(info, lean, metadata)
        else:
            _take_usual(info, usual, metadata, end)
            info.replicate_to, info.marker_type, info.chunk_id, info.num_chunks = (), None, None, 0
            info.deliver_at_time_ms = None
            info.txn = None
        return info
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


def read_entry(data: bytes, *, verify: bool = False) -> EntryDetails:
    """Like `scan_entry`, with all the details."""
    try:
        start, end = _metadata_bounds(data, verify=verify)
        metadata = data[start:end]
        details = _new_details(EntryDetails)
        lean = _read_all(metadata)
        _take_usual(details, lean, metadata, end)
        _take_rare(details, lean, metadata)
        _take_details(details, lean, metadata)
        return details
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


def scan_for_dispatch(data: bytes) -> tuple[int, bool, int]:
    """(messages in it, whether it is a marker, when it is due: 0 for at once) of an entry that `scan_entry` has
    accepted once."""
    try:
        start, end = _metadata_bounds(data)
        lean = _read_dispatch(data[start:end])
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    num_messages = lean.num_messages_in_batch
    messages = 1 if num_messages == ABSENT_I32 else num_messages
    return messages, lean.marker_type != ABSENT_I32, lean.deliver_at_time


class ChunkPiece(NamedTuple):
    """Which piece of a chunked message an entry is."""

    of: str
    """Names its message: the same for all its pieces."""
    is_last: bool


def piece_of(data: bytes) -> ChunkPiece | None:
    """Of an entry that `scan_entry` has accepted once; None for a whole message."""
    try:
        start, end = _metadata_bounds(data)
        metadata = data[start:end]
        if _NUM_CHUNKS_TAG not in metadata:
            return None
        lean = _read_all(metadata)
        if lean.num_chunks_from_msg <= 1:
            return None
        name = lean.uuid or b"%d" % lean.sequence_id
        of = b"%s\0%s" % (lean.producer_name, name)
        return ChunkPiece(of.decode(), lean.chunk_id == lean.num_chunks_from_msg - 1)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


class KeyFields(NamedTuple):
    """What says which key an entry has, as bytes: a client's text may be none."""

    producer_name: bytes
    sequence_id: int
    partition_key: bytes | None
    is_base64: bool
    ordering_key: bytes
    """Empty: none."""


def read_key_fields(data: bytes) -> KeyFields:
    """Of an entry that `scan_entry` has accepted once."""
    start, end = _metadata_bounds(data)
    lean = _read_usual(data[start:end])
    key = lean.partition_key
    return KeyFields(
        lean.producer_name,
        lean.sequence_id,
        None if key == _NO_KEY else key,
        lean.partition_key_b64_encoded,
        lean.ordering_key,
    )


def _take_usual(
    info: EntryInfo,
    lean: pb.LeanUsualEntry | pb.LeanEntry | pb.LeanMetadata,
    metadata: bytes,
    payload_offset: int,
) -> None:
    info.payload_offset = payload_offset
    producer_name = lean.producer_name
    info.sequence_id = sequence_id = lean.sequence_id
    info.publish_time_ms = publish_time_ms = lean.publish_time
    if not producer_name or sequence_id == ABSENT_U64 or publish_time_ms == ABSENT_U64:
        # Clients drop a whole connection over such an entry, so it must not get into a log.
        raise Malformed("producer_name, sequence_id or publish_time is missing")
    info.producer_name = _name(producer_name)
    info.highest_sequence_id = lean.highest_sequence_id
    num_messages = lean.num_messages_in_batch
    if num_messages == ABSENT_I32:
        info.num_messages, info.is_batch = 1, False
    else:
        if num_messages < 1:
            raise Malformed(f"a batch of {num_messages} messages")  # consumers' permits are counted by it
        info.num_messages, info.is_batch = num_messages, True
    replicated_from = lean.replicated_from
    if replicated_from:
        info.replicated_from = _name(replicated_from)
    elif _REPLICATED_FROM_TAG in metadata and lean.HasField("replicated_from"):
        info.replicated_from = ""  # a claim all the same
    else:
        info.replicated_from = None
    partition_key = lean.partition_key
    if partition_key != _NO_KEY:
        partition_key.decode()
    # Repeated fields are dear to touch even if empty, hence the look at the bytes (which may be there for other
    # reasons). A search for 30 bytes is dear, too.
    may_have_position = _PROPERTIES_TAG in metadata and _POSITION_KEY in metadata
    info.source_position = _source_position(lean.properties) if may_have_position else None


def _take_rare(info: EntryInfo, lean: pb.LeanEntry | pb.LeanMetadata, metadata: bytes) -> None:
    marker_type, chunk_id = lean.marker_type, lean.chunk_id
    info.replicate_to = tuple(map(_name, lean.replicate_to)) if _REPLICATE_TO_TAG in metadata else ()
    info.marker_type = None if marker_type == ABSENT_I32 else marker_type
    info.chunk_id = None if chunk_id == ABSENT_I32 else chunk_id
    info.num_chunks = lean.num_chunks_from_msg
    deliver_at_time_ms = lean.deliver_at_time
    info.deliver_at_time_ms = None if deliver_at_time_ms == ABSENT_I64 else deliver_at_time_ms
    info.txn = _transaction_of(metadata)
    lean.uuid.decode()


def _take_details(details: EntryDetails, lean: pb.LeanMetadata, metadata: bytes) -> None:
    partition_key = lean.partition_key
    details.partition_key = None if partition_key == _NO_KEY else partition_key.decode()
    details.partition_key_is_base64 = lean.partition_key_b64_encoded
    details.ordering_key = lean.ordering_key or None
    details.compression = lean.compression
    details.uncompressed_size = lean.uncompressed_size
    details.event_time_ms = lean.event_time
    details.schema_version = lean.schema_version or None
    details.null_value = lean.null_value
    details.is_encrypted = _ENCRYPTION_KEYS_TAG in metadata and len(lean.encryption_keys) > 0
    details.uuid = lean.uuid.decode() or None
    details.txn_most, details.txn_least = details.txn or (None, None)


_TXN_LEAST_TAG, _TXN_MOST_TAG = tag(22), tag(23)
_TXN_LEAST_BYTE: Final = _TXN_LEAST_TAG[0]
_TXN_MOST_BYTE: Final = _TXN_MOST_TAG[0]


def _may_name_a_transaction(metadata: bytes) -> bool:
    """The bytes may also be there by chance."""
    return (_TXN_LEAST_BYTE in metadata and _TXN_LEAST_TAG in metadata) or (
        _TXN_MOST_BYTE in metadata and _TXN_MOST_TAG in metadata
    )


def _transaction_of(metadata: bytes) -> tuple[int, int] | None:
    """(most, least). One of them may be left out, which is 0."""
    if not _may_name_a_transaction(metadata):
        return None
    lean = _read_all(metadata)
    least, most = lean.txnid_least_bits, lean.txnid_most_bits
    if least == most == ABSENT_U64:
        return None
    return present_or_0(most), present_or_0(least)


_POSITION_KEY_FIELD: Final = length_delimited(1, _POSITION_KEY)
_POSITION_PAIR: Final = _POSITION_KEY_FIELD + tag(2, 2)
_TEXT_AT: Final = len(_POSITION_PAIR) + 1


def _source_position(properties: Sequence[bytes]) -> Position | None:
    """The last such property, as for clients, who put properties into a map."""
    for pair in reversed(properties):
        found = _position_in(pair)
        if found is not None:
            return found
    return None


def _position_in(pair: bytes) -> Position | None:
    """The position in a serialized KeyValue; None when this is the value or a part of another key."""
    if pair.startswith(_POSITION_PAIR) and len(pair) > _TEXT_AT == len(pair) - pair[_TEXT_AT - 1]:
        return _position(pair[_TEXT_AT:])  # the only form anybody writes
    if _POSITION_KEY not in pair:
        return None
    property_ = parse(pb.KeyValue, pair)
    return _position(property_.value.encode()) if property_.key == SOURCE_POSITION_PROPERTY else None


_LEAST: Final = BEFORE_EVERYTHING.entry
_MOST: Final = AFTER_EVERYTHING.entry


def _position(text: bytes) -> Position:
    ledger_text, _, entry_text = text.partition(b":")
    ledger, entry = int(ledger_text), int(entry_text)
    if not (_LEAST <= ledger <= _MOST and _LEAST <= entry <= _MOST):
        raise Malformed(f"no position: {text!r}")
    return _new_tuple(Position, (ledger, entry))


def _metadata_bounds(data: bytes, *, verify: bool = False) -> tuple[int, int]:
    """Where the metadata begins and ends. One of UNREADABLE when the sizes cannot be true."""
    start = _HEAD_BYTES
    if len(data) >= start and data.startswith(_CHECKSUM_MAGIC):  # nearly always; read in one go
        _, checksum, size = _read_head(data)
        if verify:
            _verify(data, start - 4, checksum)
    else:
        start, size = _unusual_head(data, verify=verify)
    end = start + size
    if end > len(data):
        raise Malformed(f"metadata of {size} bytes in an entry of {len(data)}")
    return start, end


def _unusual_head(data: bytes, *, verify: bool) -> tuple[int, int]:
    """Where the metadata begins and its size, for an entry with broker metadata, without checksum, or too short."""
    at = 0
    if data.startswith(_BROKER_METADATA_MAGIC):
        at = _after_broker_metadata(data)
    if data.startswith(_CHECKSUM_MAGIC, at):
        if len(data) < at + _CHECKSUM_BYTES:
            raise Malformed(f"entry of {len(data)} bytes")
        if verify:
            _verify(data, at + _CHECKSUM_BYTES, _read_size(data, at + 2)[0])
        at += _CHECKSUM_BYTES
    if len(data) < at + 4:
        raise Malformed(f"entry of {len(data)} bytes")
    return at + 4, _read_size(data, at)[0]


def _after_broker_metadata(data: bytes) -> int:
    if len(data) < 6:
        raise Malformed(f"entry of {len(data)} bytes")
    end: int = 6 + _read_size(data, 2)[0]
    return end


def _verify(data: bytes, start: int, expected: int) -> None:
    found = _checksum(data, start)
    if found != expected:
        raise ProtocolError(
            ServerError.ChecksumError, f"the entry's checksum is {found:#010x}, it says {expected:#010x}"
        )


def _checksum(data: bytes, start: int) -> int:
    """CRC32C of data[start:]."""
    if len(data) < _SMALL_ENTRY_BYTES:
        return crc32c(data[start:])
    return crc32c(memoryview(data)[start:])


# Making and changing entries.


def build_entry(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
    """A whole entry with checksum. A missing required field is a bug of ours (EncodeError)."""
    return _assemble(metadata.SerializeToString(), payload)


def plain_entry(producer_name: str, sequence_id: int, publish_time_ms: int, payload: bytes) -> bytes:
    """What `build_entry` makes of the three fields every message has, without an object for them."""
    metadata = (
        length_delimited(1, producer_name.encode())
        + b"\x10"
        + varint(sequence_id)
        + b"\x18"
        + varint(publish_time_ms)
    )
    return _assemble(metadata, payload)


def _assemble(metadata: bytes, payload: bytes | memoryview) -> bytes:
    head = _SIZE.pack(len(metadata)) + metadata
    checksum = crc32c(payload, crc32c(head))
    return b"".join((_CHECKSUM_MAGIC, _SIZE.pack(checksum), head, payload))


def ensure_checksum(data: bytes) -> bytes:
    """The same entry with a checksum, and the same object if it has one (right or wrong).

    Very old clients send none, and some clients drop every message that comes without.
    """
    if data.startswith(_CHECKSUM_MAGIC):
        return data
    at = 0
    if data.startswith(_BROKER_METADATA_MAGIC):
        try:
            at = _after_broker_metadata(data)
        except UNREADABLE as problem:
            raise malformed("broker metadata", problem, closes_connection=False) from None
        if data.startswith(_CHECKSUM_MAGIC, at):
            return data
    return data[:at] + _CHECKSUM_MAGIC + _SIZE.pack(_checksum(data, at)) + data[at:]


def read_metadata(data: bytes) -> pb.MessageMetadata:
    """All of an entry's metadata, by protobuf; for where `read_entry` does not say enough."""
    try:
        start, end = _metadata_bounds(data)
        return parse(pb.MessageMetadata, data[start:end])
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


def read_properties(data: bytes) -> dict[str, str]:
    """An entry's properties alone, which is a sixth of the work of `read_metadata`."""
    try:
        start, end = _metadata_bounds(data)
        metadata = data[start:end]
        if _PROPERTIES_TAG not in metadata:
            return {}
        pairs = pb.LeanProperties.FromString(metadata).properties
        return {pair.key.decode(): pair.value.decode() for pair in pairs}
    except UNREADABLE as problem:
        raise malformed("message properties", problem, closes_connection=False) from None


def schema_version(data: bytes, payload_offset: int) -> bytes:
    """What an entry that was scanned once says of its schema; empty: nothing. Those that say nothing cost a search of
    some 100 ns."""
    if data.find(_SCHEMA_VERSION_TAG, 0, payload_offset) < 0:
        return b""
    start, end = _metadata_bounds(data)
    return _read_usual(data[start:end]).schema_version


def with_replication(
    data: bytes, replicated_from: str, source_position: Position, schema_version: bytes | None = None
) -> bytes:
    """The entry as it travels to other regions: it says where it comes from and belongs to no transaction.

    `schema_version`: what it says there of its schema, as long as what it says here, or empty. None: the same.

    Nothing else changes. Fields are appended, which protobuf allows: a later value replaces an earlier one, so
    an entry that lied about its origin does so no more. A broker metadata block is dropped: it was never
    anything but this region's.
    """
    try:
        start, end = _metadata_bounds(data)
        metadata = _without_transaction(data[start:end])
        if schema_version is not None:
            metadata = _with_schema(metadata, schema_version)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    metadata += _replicated_from(replicated_from) + _position_property(source_position)
    return _assemble(metadata, memoryview(data)[end:])


def _with_schema(metadata: bytes, version: bytes) -> bytes:
    message = pb.MessageMetadata.FromString(metadata)
    message.schema_version = version
    return message.SerializePartialToString()


def _without_transaction(metadata: bytes) -> bytes:
    if not _may_name_a_transaction(metadata):
        return metadata  # nearly always
    message = pb.MessageMetadata.FromString(metadata)
    message.ClearField("txnid_least_bits")
    message.ClearField("txnid_most_bits")
    return message.SerializePartialToString()


def with_transaction(data: bytes, txn: tuple[int, int]) -> bytes:
    """The entry as it is stored when its sender named the transaction (most, least) only beside it. ProtocolError when
    it cannot be read."""
    try:
        start, end = _metadata_bounds(data)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    most, least = txn
    metadata = b"".join((data[start:end], _TXN_LEAST_TAG, varint(least), _TXN_MOST_TAG, varint(most)))
    return _assemble(metadata, memoryview(data)[end:])


@lru_cache(maxsize=256)
def _replicated_from(region: str) -> bytes:
    return length_delimited(5, region.encode())


_POSITION_HEADS: Final = [
    _PROPERTIES + varint(len(_POSITION_PAIR) + 1 + size) + _POSITION_PAIR + varint(size)
    for size in range(len(str(AFTER_EVERYTHING)) + 1)
]
"""By the size of the position's text: the property up to that text."""


def _position_property(position: Position) -> bytes:
    text = b"%d:%d" % position
    return _POSITION_HEADS[len(text)] + text


def replication_bytes_max(replicated_from: str) -> int:
    """By how much `with_replication` may make an entry larger, whatever its place in the log will be."""
    return len(_replicated_from(replicated_from)) + len(_position_property(AFTER_EVERYTHING))


# Reading payloads.


def split_batch(info: EntryInfo, payload: bytes) -> Iterator[tuple[pb.SingleMessageMetadata, bytes]]:
    """The messages of a batch, in order. `payload` is decompressed already."""
    assert info.is_batch, "an entry without num_messages_in_batch is one message"
    at = 0
    for _ in range(info.num_messages):
        single, at = _single_metadata(payload, at)
        end = at + single.payload_size
        if single.payload_size < 0 or end > len(payload):
            raise _bad_batch(f"message of {single.payload_size} bytes")
        yield single, payload[at:end]
        at = end


def _single_metadata(payload: bytes, at: int) -> tuple[pb.SingleMessageMetadata, int]:
    start = at + 4
    if start > len(payload):
        raise _bad_batch("fewer messages than it says")
    end = start + _read_size(payload, at)[0]
    if end > len(payload):
        raise _bad_batch("metadata runs over the end")
    try:
        single = parse(pb.SingleMessageMetadata, payload[start:end])
    except UNREADABLE as problem:
        raise _bad_batch(str(problem)) from None
    return single, end


def _bad_batch(reason: str) -> ProtocolError:
    return malformed("batch", reason, closes_connection=False)


def decompress(compression: int, payload: bytes, uncompressed_size: int) -> bytes:
    """The payload as its producer had it. ProtocolError when it is damaged, or its format cannot be read
    here.
    """
    if compression == pb.NONE:
        return payload
    decompressor = _DECOMPRESSORS.get(compression)
    if decompressor is None:
        raise _unreadable_payload(f"compression {compression} is not known")
    try:
        plain = decompressor(payload, uncompressed_size)
    except ImportError as problem:
        name = pb.CompressionType.Name(compression)
        raise _unreadable_payload(f"compressed with {name}; to read it, install {problem.name}") from None
    except Exception as problem:  # every library has errors of its own
        raise _unreadable_payload(str(problem)) from None
    if len(plain) != uncompressed_size:
        raise _unreadable_payload(f"{len(plain)} bytes decompressed, the metadata says {uncompressed_size}")
    return plain


def _unreadable_payload(reason: str) -> ProtocolError:
    return malformed("payload", reason, closes_connection=False)


def _zlib(payload: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(payload, size + 1)  # no bomb gets past the size it admits to


def _lz4(payload: bytes, size: int) -> bytes:
    plain: bytes = import_module("lz4.block").decompress(payload, uncompressed_size=size)
    return plain


def _zstd(payload: bytes, size: int) -> bytes:
    plain: bytes = import_module("zstandard").ZstdDecompressor().decompress(payload, max_output_size=size)
    return plain


def _snappy(payload: bytes, _: int) -> bytes:
    plain: bytes = import_module("snappy").decompress(payload)
    return plain


_DECOMPRESSORS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    pb.LZ4: _lz4,
    pb.ZLIB: _zlib,
    pb.ZSTD: _zstd,
    pb.SNAPPY: _snappy,
}
