"""A stored entry as a response: its payload as the body, its metadata as headers, as Pulsar's tools read them.

A batch is one response: its whole payload, with the number of its messages in a header.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.stats import when
from emulator.broker.topic.topic import Topic
from emulator.wire.message_metadata import read_entry, read_metadata, read_properties
from emulator.wire.payloads import decompress

PROPERTIES_BYTES_MAX: Final = 32_768
"""Longer properties are left out, and a header marks that: clients limit the size of headers."""
UNCOMPRESSED_BYTES_MAX: Final = 67_108_864
_COMPRESSIONS: Final = {1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")


def as_response(topic: Topic, entry_id: int, data: bytes) -> Response:
    """ProtocolError for an entry that cannot be read, HttpError 413 for one whose declared size is enormous."""
    info = read_entry(data)
    payload = data[info.payload_offset :]
    if info.compression and not info.is_encrypted:
        if info.uncompressed_size > UNCOMPRESSED_BYTES_MAX:
            raise HttpError(
                413,
                f"{info.uncompressed_size} bytes when decompressed; here {UNCOMPRESSED_BYTES_MAX} at most",
            )
        payload = decompress(info.compression, payload, info.uncompressed_size)
    headers = [("X-Pulsar-Message-ID", f"{topic.ledger_id}:{entry_id}"), *_headers(data)]
    return Response(payload, headers=tuple((name, _printable(value)) for name, value in headers))


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    info = read_entry(data)
    metadata = read_metadata(data)
    yield "X-Pulsar-publish-time", when(info.publish_time_ms)
    yield "X-Pulsar-producer-name", info.producer_name
    yield "X-Pulsar-sequence-id", str(info.sequence_id)
    properties = json.dumps(read_properties(data))
    if len(properties) > PROPERTIES_BYTES_MAX:
        yield "X-Pulsar-PROPERTY-omitted", str(len(properties))
    elif properties != "{}":
        yield "X-Pulsar-PROPERTY", properties
    if info.event_time_ms:
        yield "X-Pulsar-event-time", when(info.event_time_ms)
    if info.deliver_at_time_ms is not None:
        yield "X-Pulsar-deliver-at-time", str(info.deliver_at_time_ms)
    if info.is_batch:
        yield "X-Pulsar-num-batch-message", str(info.num_messages)
        yield "X-Pulsar-batch-size", str(info.num_messages)
    if info.partition_key is not None:
        yield "X-Pulsar-partition-key", info.partition_key
        yield "X-Pulsar-partition-key-b64-encoded", str(info.partition_key_is_base64).lower()
    if info.replicated_from is not None:
        yield "X-Pulsar-replicated-from", info.replicated_from
    for region in info.replicate_to:
        yield "X-Pulsar-replicated-to", region
    if info.compression:
        yield "X-Pulsar-compression", _COMPRESSIONS.get(info.compression, str(info.compression))
        yield "X-Pulsar-uncompressed-size", str(info.uncompressed_size)
    if info.marker_type is not None:
        yield "X-Pulsar-marker-type", str(info.marker_type)
    if info.txn_least is not None and info.txn_most is not None:
        yield "X-Pulsar-txnid-least-bits", str(info.txn_least)
        yield "X-Pulsar-txnid-most-bits", str(info.txn_most)
    if info.is_chunk:
        yield "X-Pulsar-chunk-id", str(info.chunk_id)
        yield "X-Pulsar-num-chunks-from-msg", str(info.num_chunks)
        yield "X-Pulsar-total-chunk-msg-size", str(metadata.total_chunk_msg_size)
        yield "X-Pulsar-uuid", info.uuid or ""
    yield "X-Pulsar-null-value", str(info.null_value).lower()
    yield "X-Pulsar-null-partition-key", str(metadata.null_partition_key).lower()
    yield "X-Pulsar-Is-Encrypted", str(info.is_encrypted).lower()


def _printable(value: str) -> str:
    """Return the text with the characters that a header may have."""
    return _UNPRINTABLE.sub("?", value).strip()
