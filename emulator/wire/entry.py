"""Building entries, and deriving entries with changed metadata.

A broker changes the metadata of an entry only for replication, and for a transaction that is named in the SEND only. It
then computes the checksum again.
"""

from __future__ import annotations

from functools import lru_cache

from emulator.model.values import AFTER_EVERYTHING, Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry_layout import assemble, metadata_bounds, payload_from
from emulator.wire.message_metadata import TXN_LEAST_TAG, TXN_MOST_TAG, may_name_a_transaction
from emulator.wire.protobuf import UNREADABLE, length_delimited, malformed, varint
from emulator.wire.source_position import position_property


def build_entry(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
    """Return an entry with its checksum. Raises EncodeError for a missing required field, which is a bug."""
    return assemble(metadata.SerializeToString(), payload)


def plain_entry(producer_name: str, sequence_id: int, publish_time_ms: int, payload: bytes) -> bytes:
    """Return what `build_entry` returns for the three required fields, without a protobuf object."""
    metadata = (
        length_delimited(1, producer_name.encode())
        + b"\x10"
        + varint(sequence_id)
        + b"\x18"
        + varint(publish_time_ms)
    )
    return assemble(metadata, payload)


def with_replication(
    data: bytes, replicated_from: str, source_position: Position, schema_version: bytes | None = None
) -> bytes:
    """Return the entry that is sent to another region: with origin and source position, and without a transaction.

    `schema_version`: version in the other region, of the same length or empty; None: unchanged.

    No other metadata changes. The fields are appended: in protobuf a later value replaces an earlier one, such as a
    forged origin. A broker metadata block is omitted: it is only valid in this region. Raises ProtocolError when the
    entry cannot be read.
    """
    try:
        start, end = metadata_bounds(data)
        metadata = _without_transaction(data[start:end])
        if schema_version is not None:
            metadata = _with_schema(metadata, schema_version)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    metadata += _replicated_from(replicated_from) + position_property(source_position)
    return assemble(metadata, payload_from(data, end))


# Both parse no more than the gate did, and keep other fields as they are: a client may have stored an entry whose
# properties cannot be parsed, and an error here would stop the replication of the topic for ever.


def _with_schema(metadata: bytes, version: bytes) -> bytes:
    message = pb.LeanForwarded.FromString(metadata)
    message.schema_version = version
    return message.SerializePartialToString()


def _without_transaction(metadata: bytes) -> bytes:
    if not may_name_a_transaction(metadata):
        return metadata  # nearly always
    message = pb.LeanForwarded.FromString(metadata)
    message.ClearField("txnid_least_bits")
    message.ClearField("txnid_most_bits")
    return message.SerializePartialToString()


def with_transaction(data: bytes, txn: tuple[int, int]) -> bytes:
    """Return the entry with the transaction (most, least), which its sender named in the command only. Raises
    ProtocolError when the entry cannot be read."""
    try:
        start, end = metadata_bounds(data)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    most, least = txn
    metadata = b"".join((data[start:end], TXN_LEAST_TAG, varint(least), TXN_MOST_TAG, varint(most)))
    return assemble(metadata, payload_from(data, end))


@lru_cache(maxsize=256)
def _replicated_from(region: str) -> bytes:
    return length_delimited(5, region.encode())


def replication_bytes_max(replicated_from: str) -> int:
    """Return the maximum number of bytes that `with_replication` adds to an entry, for any source position."""
    return len(_replicated_from(replicated_from)) + len(position_property(AFTER_EVERYTHING))
