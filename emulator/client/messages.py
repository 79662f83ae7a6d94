"""Received messages, and their parsing from entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from emulator.client.config import PARTITION_SUFFIX
from emulator.client.encryption import Decryption, PayloadOpener, Unreadable
from emulator.client.types import MessageId
from emulator.errors import ProtocolError
from emulator.wire.codec_hot.consuming import MessageMeta
from emulator.wire.message_metadata import EntryDetails, read_entry, read_properties
from emulator.wire.payloads import EncryptionContext, decompress, encryption_context, split_batch

INCOMPLETE_MAX: Final = 10
"""Maximum number of incomplete chunked messages of a consumer. One more drops the oldest, whose chunks are redelivered
after a reconnect."""
NO_KEYS: Final = PayloadOpener(Decryption())


class Message(NamedTuple):
    """One received message."""

    id: MessageId
    payload: bytes
    producer_name: str
    sequence_id: int
    publish_time_ms: int
    replicated_from: str | None
    """Region that the message was replicated from; None: it was published in the receiving region."""
    redelivery_count: int
    key: str | None
    properties: dict[str, str]
    schema_version: bytes = b""
    """Schema version in the receiving region, an argument of `Client.schema`; empty: no schema."""
    topic: str = ""
    """Topic of the message; for a partitioned topic, the partition."""
    encryption: EncryptionContext | None = None
    """None: the payload is readable. Otherwise it is the encrypted payload of an entry (`OnUnreadable.CONSUME`)."""


def partition_index(topic: str) -> int:
    """Return the partition index in a topic name; -1: the name is not that of a partition."""
    match = PARTITION_SUFFIX.search(topic)
    return int(match[1]) if match else -1


def id_of(message: Message | MessageId) -> MessageId:
    """Return the id of a message, or a given id unchanged."""
    return message.id if isinstance(message, Message) else message


@dataclass(slots=True)
class _Incomplete:
    chunks: list[bytes] = field(default_factory=list)
    ids: list[MessageId] = field(default_factory=list)


class ChunkAssembler:
    """Assembles the chunked messages of one consumer of one topic.

    Each chunk is an entry. The chunks of a message arrive in order, possibly with other entries between
    them, and share the uuid that the producer gave them."""

    def __init__(self) -> None:
        self._incomplete: dict[str, _Incomplete] = {}
        self._earlier_chunks: dict[tuple[int, int], list[MessageId]] = {}
        """Entry of the last chunk -> ids of the chunks before it, until the message is acknowledged."""

    def add(self, info: EntryDetails, chunk: bytes, id_: MessageId) -> bytes | None:
        """Add a chunk; return the whole payload with the last one, None before. A chunk out of order drops its message
        until the first chunk is redelivered."""
        uuid, index = info.uuid or "", info.chunk_id or 0
        if index == 0:
            self._begin(uuid)
        found = self._incomplete.get(uuid)
        if found is None or index != len(found.chunks):
            self._incomplete.pop(uuid, None)
            return None
        found.chunks.append(chunk)
        found.ids.append(id_)
        if len(found.chunks) < info.num_chunks:
            return None
        del self._incomplete[uuid]
        self._earlier_chunks[id_.ledger, id_.entry] = found.ids[:-1]
        return b"".join(found.chunks)

    def _begin(self, uuid: str) -> None:
        self._incomplete.pop(uuid, None)
        if len(self._incomplete) >= INCOMPLETE_MAX:
            self._incomplete.pop(next(iter(self._incomplete)))
        self._incomplete[uuid] = _Incomplete()

    def chunk_ids(self, id_: MessageId) -> list[MessageId]:
        """Return the ids of all chunks of a message; only its own id if it is not chunked."""
        return [*self._earlier_chunks.get((id_.ledger, id_.entry), ()), id_]

    def acknowledged(self, id_: MessageId) -> None:
        self._earlier_chunks.pop((id_.ledger, id_.entry), None)

    def acknowledged_upto(self, id_: MessageId) -> None:
        for entry in [entry for entry in self._earlier_chunks if entry <= (id_.ledger, id_.entry)]:
            del self._earlier_chunks[entry]

    def clear(self) -> None:
        """Drop incomplete messages: the broker redelivers them from the first chunk on. Messages that the application
        has received are still acknowledged with all their chunks."""
        self._incomplete.clear()


def messages_in(
    meta: MessageMeta,
    data: bytes,
    topic: str = "",
    partition: int = -1,
    chunks: ChunkAssembler | None = None,
    opener: PayloadOpener = NO_KEYS,
) -> Iterable[Message | None]:
    """Yield the unacknowledged messages of an entry; None for each message that compaction removed, and for a chunk of
    an incomplete message. Raises, before the first message, Unreadable when the entry cannot be decrypted or
    decompressed, and ProtocolError when it is malformed or does not match its checksum."""
    info = read_entry(data, verify=True)
    payload = data[info.payload_offset :]
    if info.is_encrypted:
        payload = opener.open(encryption_context(data), payload)
    if info.is_chunk and chunks is not None:
        whole = chunks.add(info, payload, MessageId(meta.ledger, meta.entry, partition=partition))
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


def message_count(data: bytes) -> int:
    """Return the number of messages in an entry, readable or not, which is the number of permits it used."""
    return read_entry(data).num_messages


def encrypted_message(
    meta: MessageMeta, data: bytes, context: EncryptionContext, topic: str, partition: int
) -> Message:
    """Return a message whose payload is the encrypted payload of an entry."""
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
    """Whether an ack set contains the bit of a message, which means that the message is unacknowledged."""
    word = index // WORD_BITS
    return word < len(words) and bool(words[word] >> (index % WORD_BITS) & 1)
