"""Building the entries of a client: a message, a batch, or the chunks of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, plain_entry
from emulator.wire.payloads import Compression, Seal, encrypt_payload

CHUNK_OVERHEAD_BYTES: Final = 1_024
"""Maximum size, together, of the fields that only a chunk has, the schema version, the checksum and the sizes."""


class Outgoing(Protocol):
    """A message to be published."""

    sequence_id: int
    payload: bytes
    key: str | None
    properties: Mapping[str, str]
    event_time_ms: int | None
    deliver_at_ms: int | None
    """Time of delivery; only for a message outside of batches."""
    replicate_to: Sequence[str]
    """Regions to replicate to; empty: all."""


def single_entry(
    producer_name: str,
    publish_time_ms: int,
    message: Outgoing,
    schema_version: bytes = b"",
    *,
    txn: tuple[int, int] | None = None,
    compression: Compression = Compression.NONE,
    seal: Seal | None = None,
) -> bytes:
    """Return an entry with one message. `txn`: (most, least) of its transaction."""
    is_plain = txn is None and not schema_version and not compression and seal is None
    if is_plain and _has_only_a_payload(message):
        return plain_entry(producer_name, message.sequence_id, publish_time_ms, message.payload)
    metadata = _metadata(producer_name, publish_time_ms, message, schema_version)
    _set_message_fields(metadata, message)
    _set_single_message_fields(metadata, message)
    if txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = txn
    payload = encrypt_payload(metadata, _compressed(metadata, message.payload, compression), seal)
    return build_entry(metadata, payload)


def chunk_entries(
    producer_name: str,
    publish_time_ms: int,
    message: Outgoing,
    schema_version: bytes = b"",
    *,
    entry_bytes_max: int,
    compression: Compression = Compression.NONE,
    seal: Seal | None = None,
) -> list[bytes]:
    """Return the entries of a message that is too large for one entry, all with its sequence id and one uuid. Each is
    encrypted separately."""
    metadata = _metadata(producer_name, publish_time_ms, message, b"")
    _set_message_fields(metadata, message)
    _set_single_message_fields(metadata, message)
    payload = _compressed(metadata, message.payload, compression)
    # The schema version may differ when the chunks are encoded again; it must not change their number.
    overhead_bytes = CHUNK_OVERHEAD_BYTES + (0 if seal is None else seal.more_bytes)
    chunk_bytes = max(1, entry_bytes_max - metadata.ByteSize() - overhead_bytes)
    if schema_version:
        metadata.schema_version = schema_version
    begins = range(0, len(payload), chunk_bytes)
    metadata.uuid = f"{producer_name}-{message.sequence_id}"
    metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = len(begins), len(payload)
    entries = []
    for number, begin in enumerate(begins):
        metadata.chunk_id = number
        entries.append(
            build_entry(metadata, encrypt_payload(metadata, payload[begin : begin + chunk_bytes], seal))
        )
    return entries


def batch_entry(
    producer_name: str,
    publish_time_ms: int,
    messages: Sequence[Outgoing],
    schema_version: bytes = b"",
    *,
    compression: Compression = Compression.NONE,
    seal: Seal | None = None,
) -> bytes:
    """Return an entry with a batch of at least one message. `messages` is in ascending order of sequence ids."""
    metadata = _metadata(producer_name, publish_time_ms, messages[0], schema_version)
    metadata.num_messages_in_batch = len(messages)
    metadata.highest_sequence_id = messages[-1].sequence_id
    payload = b"".join(map(_batched, messages))
    metadata.uncompressed_size = len(payload)
    return build_entry(metadata, encrypt_payload(metadata, _compressed(metadata, payload, compression), seal))


def _compressed(metadata: pb.MessageMetadata, payload: bytes, compression: Compression) -> bytes:
    if not compression:
        return payload
    metadata.compression = compression.value  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return compression.compress(payload)


def _has_only_a_payload(message: Outgoing) -> bool:
    """Whether a message has no key, properties or times, is for all regions, and has a valid sequence id."""
    return (
        message.key is None
        and message.event_time_ms is None
        and message.deliver_at_ms is None
        and not message.properties
        and not message.replicate_to
        and message.sequence_id >= 0
    )


def _metadata(
    producer_name: str, publish_time_ms: int, first: Outgoing, schema_version: bytes
) -> pb.MessageMetadata:
    metadata = pb.MessageMetadata(
        producer_name=producer_name, sequence_id=first.sequence_id, publish_time=publish_time_ms
    )
    if schema_version:
        metadata.schema_version = schema_version
    return metadata


def _set_single_message_fields(metadata: pb.MessageMetadata, message: Outgoing) -> None:
    """Set the fields that only a message outside of batches has."""
    metadata.replicate_to.extend(message.replicate_to)
    if message.deliver_at_ms is not None:
        metadata.deliver_at_time = message.deliver_at_ms


def _batched(message: Outgoing) -> bytes:
    metadata = pb.SingleMessageMetadata(payload_size=len(message.payload), sequence_id=message.sequence_id)
    _set_message_fields(metadata, message)
    head = metadata.SerializeToString()
    return len(head).to_bytes(4, "big") + head + message.payload


def _set_message_fields(metadata: pb.MessageMetadata | pb.SingleMessageMetadata, message: Outgoing) -> None:
    """Set the fields that a message has inside and outside of batches."""
    if message.key is not None:
        metadata.partition_key = message.key
    if message.event_time_ms is not None:
        metadata.event_time = message.event_time_ms
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
