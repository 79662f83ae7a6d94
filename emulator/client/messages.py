"""Messages as they are received, and how they are read out of entries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from emulator.client.ack_sets import is_set
from emulator.client.pieces import Pieces
from emulator.client.vocabulary import MessageId
from emulator.wire.codec import MessageMeta
from emulator.wire.metadata import EntryDetails, read_entry, read_properties
from emulator.wire.payloads import decompress, split_batch

_PARTITION: Final = re.compile(r"-partition-(\d+)$")


class Message(NamedTuple):
    """One received message."""

    id: MessageId
    payload: bytes
    producer_name: str
    sequence_id: int
    publish_time_ms: int
    replicated_from: str | None
    """The region it came from; None when it was published in the region it was received in."""
    redelivery_count: int
    key: str | None
    properties: dict[str, str]
    schema_version: bytes = b""
    """By which `Client.schema` gives its schema, in the region it was received in; empty: it has none."""
    topic: str = ""
    """That it was received from: of a topic with partitions, the partition."""


def partition_index(topic: str) -> int:
    """Which partition a topic is by its name; -1: none."""
    match = _PARTITION.search(topic)
    return int(match[1]) if match else -1


def id_of(message: Message | MessageId) -> MessageId:
    """Of a message, or of what names one already."""
    return message.id if isinstance(message, Message) else message


def messages_in(
    meta: MessageMeta, data: bytes, topic: str = "", partition: int = -1, pieces: Pieces | None = None
) -> Iterable[Message | None]:
    """The messages of an entry that are not acknowledged yet; None for each that compaction left out, and for a piece
    of a message of which there is more to come. ProtocolError when the entry cannot be read, or does not match its
    checksum."""
    info = read_entry(data, verify=True)
    payload = data[info.payload_offset :]
    if info.is_chunk and pieces is not None:
        whole = pieces.add(info, payload, MessageId(meta.ledger, meta.entry, partition=partition))
        if whole is None:
            yield None
            return
        payload = whole
    if info.compression:
        payload = decompress(info.compression, payload, info.uncompressed_size)
    if not info.is_batch:
        message_id = MessageId(meta.ledger, meta.entry, partition=partition)
        properties = read_properties(data)
        key = info.partition_key
        yield _message(meta, info, message_id, info.sequence_id, key, properties, payload, topic)
        return
    for index, (single, part) in enumerate(split_batch(info, payload)):
        if meta.ack_set is not None and not is_set(meta.ack_set, index):
            continue
        if single.compacted_out:
            yield None
            continue
        message_id = MessageId(meta.ledger, meta.entry, index, partition, info.num_messages)
        sequence_id = single.sequence_id if single.HasField("sequence_id") else info.sequence_id + index
        key = single.partition_key if single.HasField("partition_key") else None
        properties = {pair.key: pair.value for pair in single.properties}
        yield _message(meta, info, message_id, sequence_id, key, properties, part, topic)


def _message(
    meta: MessageMeta,
    info: EntryDetails,
    message_id: MessageId,
    sequence_id: int,
    key: str | None,
    properties: dict[str, str],
    payload: bytes,
    topic: str,
) -> Message:
    return Message(
        message_id,
        payload,
        info.producer_name,
        sequence_id,
        info.publish_time_ms,
        info.replicated_from,
        meta.redelivery_count,
        key,
        properties,
        info.schema_version or b"",
        topic,
    )
