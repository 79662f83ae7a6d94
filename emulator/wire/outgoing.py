"""Entries as a client makes them: one message, or a batch of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry_building import build_entry, plain_entry


class Outgoing(Protocol):
    """A message that somebody wants to publish."""

    sequence_id: int
    payload: bytes
    key: str | None
    properties: Mapping[str, str]
    event_time_ms: int | None
    deliver_at_ms: int | None
    """Of a single entry."""
    replicate_to: Sequence[str]
    """Regions; none: all."""


def single_entry(
    producer_name: str,
    publish_time_ms: int,
    message: Outgoing,
    schema_version: bytes = b"",
    *,
    txn: tuple[int, int] | None = None,
) -> bytes:
    """An entry with one message. `txn`: (most, least) of the transaction that it belongs to."""
    if txn is None and not schema_version and _says_nothing_else(message):
        return plain_entry(producer_name, message.sequence_id, publish_time_ms, message.payload)
    metadata = _metadata(producer_name, publish_time_ms, message, schema_version)
    _describe(metadata, message)
    metadata.replicate_to.extend(message.replicate_to)
    if txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = txn
    if message.deliver_at_ms is not None:
        metadata.deliver_at_time = message.deliver_at_ms
    return build_entry(metadata, message.payload)


def batch_entry(
    producer_name: str, publish_time_ms: int, messages: Sequence[Outgoing], schema_version: bytes = b""
) -> bytes:
    """An entry with several messages, uncompressed. At least one; its sequence ids rise."""
    metadata = _metadata(producer_name, publish_time_ms, messages[0], schema_version)
    metadata.num_messages_in_batch = len(messages)
    metadata.highest_sequence_id = messages[-1].sequence_id
    payload = b"".join(map(_in_a_batch, messages))
    metadata.uncompressed_size = len(payload)
    return build_entry(metadata, payload)


def _says_nothing_else(message: Outgoing) -> bool:
    """No key, no properties, no times, for all regions; and a number that can be one."""
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
    made = pb.MessageMetadata(
        producer_name=producer_name, sequence_id=first.sequence_id, publish_time=publish_time_ms
    )
    if schema_version:
        made.schema_version = schema_version
    return made


def _in_a_batch(message: Outgoing) -> bytes:
    metadata = pb.SingleMessageMetadata(payload_size=len(message.payload), sequence_id=message.sequence_id)
    _describe(metadata, message)
    head = metadata.SerializeToString()
    return len(head).to_bytes(4, "big") + head + message.payload


def _describe(metadata: pb.MessageMetadata | pb.SingleMessageMetadata, message: Outgoing) -> None:
    if message.key is not None:
        metadata.partition_key = message.key
    if message.event_time_ms is not None:
        metadata.event_time = message.event_time_ms
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
