"""Digests by which an entry is compared with its publish request and between regions.

    payload     of the payload as the application published it: decompressed, never encrypted
    attributes  of key, ordering key, event time and properties; 0 when there are none (emulator.run.history)
    bytes       of all that is equal in every region: those two, the rest of the metadata, the publish time

Replication adds two fields to the metadata, the origin region and the source position; no digest contains them.
"""

from __future__ import annotations

import base64
from hashlib import blake2b

from emulator.model.values import SOURCE_POSITION_PROPERTY
from emulator.run.history_events import attributes_digest
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import UNREADABLE, malformed

DIGEST_BYTES = 8
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


def digest_of(data: bytes) -> int:
    """Return a signed 64-bit digest, the number that `emulator.run.history.payload_digest` writes as text."""
    return int.from_bytes(blake2b(data, digest_size=DIGEST_BYTES).digest(), "big", signed=True)


def bytes_digest(payload: int, attributes: int, rest: int, publish_time_ms: int) -> int:
    """Return Python's hash of the numbers: fast, 64 bits, and equal in every process."""
    return hash((payload, attributes, rest, publish_time_ms))


def metadata_digests(metadata: bytes) -> tuple[int, int]:
    """Return the digests of an entry's attributes, and of its other metadata except the fields in `_OF_THE_REGION`."""
    try:
        message = pb.MessageMetadata.FromString(metadata)
    except UNREADABLE as problem:
        raise malformed("message metadata", problem, closes_connection=False) from None
    attributes = attributes_of(message)
    for name in _OF_THE_REGION:
        message.ClearField(name)
    kept = [pair for pair in message.properties if pair.key != SOURCE_POSITION_PROPERTY]
    if len(kept) != len(message.properties):
        del message.properties[:]
        message.properties.extend(kept)
    return attributes, digest_of(message.SerializePartialToString(deterministic=True))


def attributes_of(message: pb.MessageMetadata | pb.SingleMessageMetadata) -> int:
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


def signed(value: int) -> int:
    """Convert to a signed number, because Spark has no unsigned ones; transaction markers have sequence id -1."""
    return value if value < 2**63 else value - 2**64
