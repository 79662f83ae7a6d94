"""Digests of an entry, to compare it with the publish request and between regions.

    payload     of the payload as the application published it: decompressed, never encrypted
    attributes  of key, ordering key, event time and properties; 0 when there are none (emulator.run.history)
    bytes       of all that every region must store alike: those two, the rest of the metadata, the publish time

Replication adds two fields to the metadata, the origin region and the source position; they are left out.
"""

from __future__ import annotations

import base64
from hashlib import blake2b

from emulator.model.values import SOURCE_POSITION_PROPERTY
from emulator.run.history_events import attributes_digest
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import UNREADABLE, malformed

NO_ATTRIBUTES = 0

_OF_THE_REGION = (
    "producer_name",
    "sequence_id",
    "publish_time",
    "replicated_from",
    "txnid_least_bits",
    "txnid_most_bits",
)
"""Known by other columns; what a transaction publishes leaves its region without it."""


def digest_of(data: bytes) -> int:
    """64 bits, signed; as `emulator.run.history.payload_digest` writes them."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def bytes_digest(payload: int, attributes: int, rest: int, publish_time_ms: int) -> int:
    """Python's hash of numbers: quick, 64 bits, the same in every process."""
    return hash((payload, attributes, rest, publish_time_ms))


def metadata_digests(metadata: bytes) -> tuple[int, int]:
    """(attributes, everything else but producer, sequence id, publish time and transaction) of an entry's metadata."""
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


def single_attributes(single: pb.SingleMessageMetadata) -> int:
    """Of a message in a batch."""
    return _attributes(single)


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
