"""Messages as a consumer receives them, and how they are parsed from entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from emulator.client.chunks import ChunkAssembler
from emulator.client.encryption import Decryption, PayloadOpener, Unreadable
from emulator.client.types import MessageId
from emulator.errors import ProtocolError
from emulator.wire.codec import MessageMeta
from emulator.wire.encryption import EncryptionContext, encryption_context
from emulator.wire.message_metadata import EntryDetails, read_entry, read_properties
from emulator.wire.payloads import decompress, split_batch

_PARTITION: Final = re.compile(r"-partition-(\d+)$")
OPENS_NOTHING: Final = PayloadOpener(Decryption())


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
    encryption: EncryptionContext | None = None
    """None: the payload is readable. Otherwise it is a whole entry's as it came (`OnUnreadable.CONSUME`)."""


def partition_index(topic: str) -> int:
    """Which partition a topic is by its name; -1: none."""
    match = _PARTITION.search(topic)
    return int(match[1]) if match else -1


def id_of(message: Message | MessageId) -> MessageId:
    """Of a message, or of what names one already."""
    return message.id if isinstance(message, Message) else message


def messages_in(
    meta: MessageMeta,
    data: bytes,
    topic: str = "",
    partition: int = -1,
    pieces: ChunkAssembler | None = None,
    opener: PayloadOpener = OPENS_NOTHING,
) -> Iterable[Message | None]:
    """The messages of an entry that are not acknowledged yet; None for each that compaction left out, and for a piece
    of a message of which there is more to come. Before the first: Unreadable when it cannot be decrypted or
    decompressed; ProtocolError when it is no entry, or does not match its checksum."""
    info = read_entry(data, verify=True)
    payload = data[info.payload_offset :]
    if info.is_encrypted:
        payload = opener.open(encryption_context(data), payload)
    if info.is_chunk and pieces is not None:
        whole = pieces.add(info, payload, MessageId(meta.ledger, meta.entry, partition=partition))
        if whole is None:
            yield None
            return
        payload = whole
    if info.compression:
        payload = _decompressed(info, payload)
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


def _decompressed(info: EntryDetails, payload: bytes) -> bytes:
    try:
        return decompress(info.compression, payload, info.uncompressed_size)
    except ProtocolError as problem:
        raise Unreadable(str(problem)) from None


def messages_of(data: bytes) -> int:
    """Return the number of messages in an entry, readable or not: the permits that it used."""
    return read_entry(data).num_messages


def encrypted_message(
    meta: MessageMeta, data: bytes, context: EncryptionContext, topic: str, partition: int
) -> Message:
    """An entry that cannot be decrypted, as it is."""
    info = read_entry(data)
    message_id = MessageId(meta.ledger, meta.entry, partition=partition)
    payload, properties = data[info.payload_offset :], read_properties(data)
    message = _message(
        meta, info, message_id, info.sequence_id, info.partition_key, properties, payload, topic
    )
    return message._replace(encryption=context)


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


WORD_BITS = 64


def is_set(words: Sequence[int], index: int) -> bool:
    """Whether a message of a batch is left."""
    word = index // WORD_BITS
    return word < len(words) and bool(words[word] >> (index % WORD_BITS) & 1)
