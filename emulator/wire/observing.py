"""Parsing for a recording proxy between clients and regions: errors in responses, messages in entries."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import simple_frame
from emulator.wire.message_metadata import EntryDetails, read_entry, read_metadata
from emulator.wire.payloads import decompress, split_batch
from emulator.wire.protobuf import decode_command

NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class ObservedMessage:
    """One message of an entry, as its producer published it."""

    batch_index: int
    sequence_id: int
    payload: bytes
    """Payload; the stored bytes if the proxy cannot decrypt or decompress them."""
    key: str | bytes | None
    properties: dict[str, str]
    event_time_ms: int
    ordering_key: bytes | None
    is_open: bool = True
    """Whether the payload is decrypted and decompressed."""


def error_text(response: Any) -> str | None:
    """Return the error message of a response; None: the response reports success."""
    return None if response.error is None else response.message or "refused"


def lookup_answered_with(command: bytes, service_url: str) -> bytes:
    """Return the frame of a LOOKUP_RESPONSE with another service URL, if it has one with or without TLS, and without a
    TLS URL."""
    decoded = decode_command(command)
    body = decoded.lookupTopicResponse
    if body.brokerServiceUrl or body.brokerServiceUrlTls:
        body.brokerServiceUrl = service_url
        body.ClearField("brokerServiceUrlTls")
    return simple_frame(decoded)


def read_messages(entry: bytes, earlier_chunks: bytes = b"") -> tuple[EntryDetails, list[ObservedMessage]]:
    """Return the metadata and messages of an entry, without those that compaction removed. `earlier_chunks`: the bytes
    of a chunked message before its last chunk. Raises ProtocolError when the entry cannot be read."""
    info = read_entry(entry)
    payload = earlier_chunks + entry[info.payload_offset :]
    plain = _plain_payload(info, payload)
    if not info.is_batch:
        whole = read_metadata(entry)
        return info, [_message(NO_BATCH, info.sequence_id, payload if plain is None else plain, whole, plain)]
    if plain is None:
        encrypted = [
            ObservedMessage(index, info.sequence_id + index, payload, None, {}, 0, None, is_open=False)
            for index in range(info.num_messages)
        ]
        return info, encrypted
    return info, list(_of_batch(info, plain))


def read_chunk(entry: bytes) -> tuple[str, bytes, bool] | None:
    """Return (uuid of the message, bytes of the chunk, whether it is the last one); None for a whole message."""
    info = read_entry(entry)
    if not info.is_chunk:
        return None
    return info.uuid or "", entry[info.payload_offset :], info.chunk_id == info.num_chunks - 1


def _of_batch(info: EntryDetails, payload: bytes) -> Iterator[ObservedMessage]:
    for index, (single, message) in enumerate(split_batch(info, payload)):
        if single.compacted_out:
            continue  # clients drop it
        number = single.sequence_id if single.HasField("sequence_id") else info.sequence_id + index
        yield _message(index, number, message, single, message)


def _message(
    index: int,
    number: int,
    payload: bytes,
    metadata: pb.MessageMetadata | pb.SingleMessageMetadata,
    plain: bytes | None,
) -> ObservedMessage:
    text = metadata.partition_key if metadata.HasField("partition_key") else None
    key = text if text is None or not metadata.partition_key_b64_encoded else _decoded(text)
    return ObservedMessage(
        batch_index=index,
        sequence_id=number,
        payload=payload,
        key=key,
        properties={pair.key: pair.value for pair in metadata.properties},
        event_time_ms=metadata.event_time,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        is_open=plain is not None,
    )


def _decoded(key: str) -> str | bytes:
    """Return the bytes of a key in Base64. The text itself if it is none: a client may claim that it is."""
    try:
        return base64.b64decode(key)
    except ValueError:
        return key


def _plain_payload(info: EntryDetails, payload: bytes) -> bytes | None:
    """Return the decompressed payload; None: it is encrypted, or cannot be decompressed."""
    if info.is_encrypted:
        return None
    try:
        return decompress(info.compression, payload, info.uncompressed_size)
    except ProtocolError:
        return None
