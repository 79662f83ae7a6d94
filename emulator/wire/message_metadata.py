"""The metadata of entries: parsing of the fields that the broker, the client or the verdict uses."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from google.protobuf.unknown_fields import UnknownFieldSet

from emulator.model.transaction_names import TxnId
from emulator.model.values import MessageChunk, Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry_layout import metadata_bounds
from emulator.wire.protobuf import (
    ABSENT_I32,
    ABSENT_I64,
    ABSENT_U64,
    UNREADABLE,
    Malformed,
    malformed,
    new_tuple,
    parse,
    present_or_0,
    tag,
)
from emulator.wire.source_position import PROPERTIES, source_position


@dataclass(slots=True)
class EntryInfo:
    """The metadata of an entry that a broker uses. Absent fields that default to None are None.

    Objects must not be changed after parsing. With slots all objects have the same size; without them it would depend
    on the fields that any entry ever had.
    """

    producer_name: str
    sequence_id: int
    publish_time_ms: int
    payload_offset: int = 0
    """Offset of the payload in the stored entry."""
    highest_sequence_id: int = 0
    """Highest sequence id of a batch; 0 when absent."""
    num_messages: int = 1
    is_batch: bool = False
    """Whether the metadata contains a number of messages; with the number 1 the entry is a batch, too."""
    replicated_from: str | None = None
    replicate_to: tuple[str, ...] = ()
    """Regions to which the producer limits the replication; empty: all."""
    marker_type: int | None = None
    """Type of the marker, even an unknown one; None: the entry is no marker."""
    source_position: Position | None = None
    """Position in the log of `replicated_from`. Without that field the property is ignored, because applications and
    dead letter producers copy it with a message's other properties."""
    chunk_id: int | None = None
    num_chunks: int = 0
    deliver_at_time_ms: int | None = None
    """Earliest time of delivery, by the wall clock."""
    txn: TxnId | None = None
    """The transaction that the entry belongs to, or ends."""

    @property
    def is_chunk(self) -> bool:
        """Whether this is one of several chunks of a message."""
        return self.num_chunks > 1


@dataclass(slots=True)
class EntryDetails(EntryInfo):
    """All fields of an entry that clients and the verdict use. Absent keys are None."""

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
    """Id of a chunked message, the same for all its chunks."""


_new_info: Final = EntryInfo.__new__
_new_details: Final = EntryDetails.__new__
"""Setting the fields of a new object one by one takes less than half the time of its constructor."""
_read_dispatch: Final = pb.LeanDispatch.FromString
_read_usual: Final = pb.LeanUsualEntry.FromString
_read_lean: Final = pb.LeanEntry.FromString
_read_all: Final = pb.LeanMetadata.FromString
_NO_KEY: Final = b"\xff"
"""Default of the lean partition_key."""
_SCHEMA_VERSION_TAG: Final = tag(16, 2)
_NUM_CHUNKS_TAG: Final = tag(27)
_PROPERTIES_TAG: Final = PROPERTIES[0]
_KEY_TAG, _VALUE_TAG = tag(1, wire_type=2)[0], tag(2, wire_type=2)[0]
_REPLICATED_FROM_TAG: Final = tag(5, 2)[0]
_REPLICATE_TO_TAG: Final = tag(7, 2)[0]
_ENCRYPTION_KEYS_TAG: Final = tag(13, 2)[0]
"""Tags to search for are numbers: a search for one byte is five times as fast as one for bytes."""


_SHARED_NAME_BYTES_MAX: Final = 4_096
"""Maximum size of names in the cache, about that of a producer's name that a region accepts. Entries are read before
they are refused, so names of any size would stay in memory."""


@lru_cache(maxsize=4096)
def _shared_name(value: bytes) -> str:
    """Return one shared string for each name: names repeat, and stay in memory with their entries."""
    return value.decode()


def _name(value: bytes) -> str:
    return _shared_name(value) if len(value) <= _SHARED_NAME_BYTES_MAX else value.decode()


def scan_entry(data: bytes, *, verify: bool = False, is_usual: bool = True) -> EntryInfo:
    """Parse the metadata that a broker uses. `verify` also checks the checksum, if the entry has one. `is_usual`: False
    if the caller expects rare fields, such as a transaction id; then they are read without looking for them first.

    Raises ProtocolError when the entry cannot be read (UnknownError) or does not match its checksum (ChecksumError).
    The error does not close the connection, because the frame was valid.
    """
    try:
        start, end = metadata_bounds(data, verify=verify)
        metadata = data[start:end]
        info = _new_info(EntryInfo)
        usual = _read_usual(metadata) if is_usual else None
        if usual is None or UnknownFieldSet(usual):
            if usual is None or may_name_a_transaction(metadata):
                whole = _read_all(metadata)
                _set_usual_fields(info, whole, metadata, end)
                _set_rare_fields(info, whole, metadata)
                info.txn = _transaction_of(whole)
            else:
                lean = _read_lean(metadata)
                _set_usual_fields(info, lean, metadata, end)
                _set_rare_fields(info, lean, metadata)
                info.txn = None
        else:
            _set_usual_fields(info, usual, metadata, end)
            info.replicate_to, info.marker_type, info.chunk_id, info.num_chunks = (), None, None, 0
            info.deliver_at_time_ms = None
            info.txn = None
        return info
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


REMEMBERED_REST_BYTES_MAX: Final = 1_024
"""Maximum size of the rest of a plain message's metadata that is kept for the next message. It has the key and the
properties that a client chose, and is kept for each producer, as long as that is open."""


def is_plain_rest(rest: bytes) -> bool:
    """Whether the metadata that follows the producer name and the sequence id completes that of a plain message:
    `scan_entry` then returns this name, this sequence id, and otherwise the defaults of `EntryInfo`, except for the
    publish time and the offset of the payload."""
    try:
        usual = _read_usual(rest)
        key = usual.partition_key
        if key != _NO_KEY:
            key.decode()
        _check_pairs(rest)
    except UNREADABLE:
        return False
    return not (
        UnknownFieldSet(usual)
        or usual.publish_time == ABSENT_U64
        or usual.num_messages_in_batch != ABSENT_I32
        or usual.highest_sequence_id
        or usual.HasField("producer_name")
        or usual.HasField("sequence_id")
        or usual.HasField("replicated_from")
    )


def read_entry(data: bytes, *, verify: bool = False) -> EntryDetails:
    """Parse the metadata that clients and the verdict use, like `scan_entry`."""
    try:
        start, end = metadata_bounds(data, verify=verify)
        metadata = data[start:end]
        details = _new_details(EntryDetails)
        lean = _read_all(metadata)
        _set_usual_fields(details, lean, metadata, end)
        _set_rare_fields(details, lean, metadata)
        details.txn = _transaction_of(lean)
        _set_details(details, lean, metadata)
        return details
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


def scan_for_dispatch(data: bytes) -> tuple[int, bool, int]:
    """Return (number of messages, whether it is a marker, delivery time in ms or 0) of an entry that `scan_entry` has
    accepted."""
    try:
        start, end = metadata_bounds(data)
        lean = _read_dispatch(data[start:end])
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    num_messages = lean.num_messages_in_batch
    messages = 1 if num_messages == ABSENT_I32 else num_messages
    return messages, lean.marker_type != ABSENT_I32, lean.deliver_at_time


def chunk_of(data: bytes) -> MessageChunk | None:
    """Return the chunk in an entry that `scan_entry` has accepted; None for a whole message."""
    try:
        start, end = metadata_bounds(data)
        metadata = data[start:end]
        if _NUM_CHUNKS_TAG not in metadata:
            return None
        lean = _read_all(metadata)
        if lean.num_chunks_from_msg <= 1:
            return None
        name = lean.uuid or b"%d" % lean.sequence_id
        of = b"%s\0%s" % (lean.producer_name, name)
        return MessageChunk(of.decode(), lean.chunk_id == lean.num_chunks_from_msg - 1)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


def sticky_key(data: bytes) -> bytes:
    """Return the key that selects the consumer of an entry in a Key_Shared subscription: its ordering key, else its
    partition key, else a unique one. A batch has the key in its metadata: for Key_Shared, clients batch messages of one
    key.

    `data` is an entry that `scan_entry` has accepted. Other fields are not decoded, so none of them can stop the
    dispatch."""
    start, end = metadata_bounds(data)
    lean = _read_usual(data[start:end])
    if lean.ordering_key:
        return lean.ordering_key
    key = lean.partition_key
    if key == _NO_KEY:
        return b"%s-%d" % (lean.producer_name, lean.sequence_id)
    if not lean.partition_key_b64_encoded:
        return key
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:  # not Base64, although declared so: use the text
        return key


def _set_usual_fields(
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
        # Clients close their connection on such an entry, so no log may contain it.
        raise Malformed("producer_name, sequence_id or publish_time is missing")
    # As `_name`, which every message would call.
    info.producer_name = (
        _shared_name(producer_name)
        if len(producer_name) <= _SHARED_NAME_BYTES_MAX
        else producer_name.decode()
    )
    info.highest_sequence_id = lean.highest_sequence_id
    num_messages = lean.num_messages_in_batch
    if num_messages == ABSENT_I32:
        info.num_messages, info.is_batch = 1, False
    else:
        if num_messages < 1:
            raise Malformed(f"a batch of {num_messages} messages")  # permits are counted in messages
        info.num_messages, info.is_batch = num_messages, True
    replicated_from = lean.replicated_from
    if replicated_from:
        info.replicated_from = _name(replicated_from)
    elif _REPLICATED_FROM_TAG in metadata and lean.HasField("replicated_from"):
        info.replicated_from = ""  # present but empty: the entry claims to be replicated
    else:
        info.replicated_from = None
    partition_key = lean.partition_key
    if partition_key != _NO_KEY:
        partition_key.decode()
    info.source_position = (
        None if info.replicated_from is None else source_position(lean.properties, metadata)
    )


def _set_rare_fields(info: EntryInfo, lean: pb.LeanEntry | pb.LeanMetadata, metadata: bytes) -> None:
    marker_type, chunk_id = lean.marker_type, lean.chunk_id
    info.replicate_to = tuple(map(_name, lean.replicate_to)) if _REPLICATE_TO_TAG in metadata else ()
    info.marker_type = None if marker_type == ABSENT_I32 else marker_type
    info.chunk_id = None if chunk_id == ABSENT_I32 else chunk_id
    info.num_chunks = lean.num_chunks_from_msg
    deliver_at_time_ms = lean.deliver_at_time
    info.deliver_at_time_ms = None if deliver_at_time_ms == ABSENT_I64 else deliver_at_time_ms
    lean.uuid.decode()


def _set_details(details: EntryDetails, lean: pb.LeanMetadata, metadata: bytes) -> None:
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


TXN_LEAST_TAG, TXN_MOST_TAG = tag(22), tag(23)
_TXN_LEAST_BYTE: Final = TXN_LEAST_TAG[0]
_TXN_MOST_BYTE: Final = TXN_MOST_TAG[0]


def may_name_a_transaction(metadata: bytes) -> bool:
    """Whether the metadata contains the tag of a transaction id, possibly within another field."""
    return (_TXN_LEAST_BYTE in metadata and TXN_LEAST_TAG in metadata) or (
        _TXN_MOST_BYTE in metadata and TXN_MOST_TAG in metadata
    )


def _transaction_of(lean: pb.LeanMetadata) -> TxnId | None:
    """Return the transaction id; if one half is absent it is 0. None: the entry has no transaction."""
    least, most = lean.txnid_least_bits, lean.txnid_most_bits
    if least == most == ABSENT_U64:
        return None
    return new_tuple(TxnId, (present_or_0(most), present_or_0(least)))


def read_metadata(data: bytes) -> pb.MessageMetadata:
    """Parse all metadata of an entry with protobuf, also fields that `read_entry` does not read."""
    try:
        start, end = metadata_bounds(data)
        return parse(pb.MessageMetadata, data[start:end])
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None


def read_properties(data: bytes) -> dict[str, str]:
    """Return only the properties of an entry, in a sixth of the time of `read_metadata`."""
    try:
        start, end = metadata_bounds(data)
        metadata = data[start:end]
        if _PROPERTIES_TAG not in metadata:
            return {}
        pairs = pb.LeanProperties.FromString(metadata).properties
        return {pair.key.decode(): pair.value.decode() for pair in pairs}
    except UNREADABLE as problem:
        raise malformed("message properties", problem, closes_connection=False) from None


def check_properties(data: bytes, payload_offset: int) -> None:
    """Raise ProtocolError for an entry that `scan_entry` has accepted and whose properties cannot be parsed: clients
    close their connection on it. Entries without properties take 100 ns."""
    if data.find(_PROPERTIES_TAG, 0, payload_offset) < 0:
        return
    try:
        start, end = metadata_bounds(data)
        _check_pairs(data[start:end])
    except UNREADABLE as problem:
        raise malformed("message properties", problem, closes_connection=False) from None


def _check_pairs(metadata: bytes) -> None:
    """Raise one of UNREADABLE for metadata whose properties cannot be parsed."""
    if _PROPERTIES_TAG not in metadata:
        return
    for pair in pb.LeanPairs.FromString(metadata).properties:
        if not _is_usual_pair(pair):
            parse(pb.KeyValue, pair)


def _is_usual_pair(pair: bytes) -> bool:
    """Whether this is a key and a value, both of ASCII and up to 127 bytes: a tenth of the time of parsing it."""
    size = len(pair)
    if size < 4 or not pair.isascii() or pair[0] != _KEY_TAG:
        return False
    value_at = 2 + pair[1]
    return value_at + 2 <= size and pair[value_at] == _VALUE_TAG and pair[value_at + 1] == size - value_at - 2


def may_have_schema(metadata: bytes) -> bool:
    """Whether the metadata contains the tag of a schema version, possibly within another field."""
    return _SCHEMA_VERSION_TAG in metadata


def schema_version(data: bytes, payload_offset: int) -> bytes:
    """Return the schema version of an entry that `scan_entry` has accepted; empty: none, which is found in 100 ns."""
    if data.find(_SCHEMA_VERSION_TAG, 0, payload_offset) < 0:
        return b""
    start, end = metadata_bounds(data)
    return _read_usual(data[start:end]).schema_version
