"""Returns the stored messages of a topic in the form of Pulsar's tools: payloads as bodies, metadata as headers.

A batch is one response: its whole payload, with the number of its messages in a header.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from emulator.broker.admin.parsing import MESSAGE_ID, message_id_json, whole_number
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Handler, Operation, Query, Resource, reads
from emulator.broker.admin.stats import iso_time
from emulator.broker.topic import reading
from emulator.broker.topic.topic import Topic
from emulator.core.authorization.rule import Permission
from emulator.core.cursor.cursor import Cursor
from emulator.model.values import BEFORE_EVERYTHING, Position
from emulator.net.http_server import HttpError, Response
from emulator.wire.message_metadata import read_entry, read_metadata, read_properties
from emulator.wire.payloads import decompress

PROPERTIES_BYTES_MAX: Final = 32_768
"""Maximum size of the header with the properties, because clients limit headers. Larger properties are omitted, and
another header has their size."""
UNCOMPRESSED_BYTES_MAX: Final = 67_108_864
_COMPRESSIONS: Final = {1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_OCTETS = "The payload is the body; the rest are headers `X-Pulsar-…`. A batch is one body."


async def peek(call: AdminRequest) -> Content:
    topic = await call.load_single()
    subscription = topic.subscriptions.get(call.names["subscription"])
    n = whole_number(call.names["n"], "position")
    if n < 1:
        raise HttpError(412, "position: the first message that was not acknowledged has the number 1")
    if subscription is None or subscription.closed:
        cursor = _cursor_of_a_new_subscription(call, topic)
    else:
        cursor = subscription.cursor
    return await _entry(topic, nth_unacked(topic, cursor, n))


def _cursor_of_a_new_subscription(call: AdminRequest, topic: Topic) -> Cursor:
    """Return the cursor of a new subscription that begins at the earliest message. Pulsar creates the subscription at
    the first peek; here a GET creates nothing. HttpError 412 for the name of a replicator's cursor."""
    if call.names["subscription"].startswith("pulsar.repl."):
        raise call.subscription_not_found()
    return Cursor(topic.reading.first_entry_id - 1)


def nth_unacked(topic: Topic, cursor: Cursor, n: int) -> int:
    """Return the id of the nth entry that a cursor has not acknowledged, not counting markers. HttpError 404 if there
    are fewer entries."""
    low, high = cursor.mark_delete + 1, topic.state.readable_end
    if cursor.unacked_count(high, topic.state.visibility.hidden) < n:
        raise _not_found()
    while low < high:
        middle = (low + high) // 2
        if cursor.unacked_count(middle + 1, topic.state.visibility.hidden) >= n:
            high = middle
        else:
            low = middle + 1
    return low


async def by_id(call: AdminRequest) -> Content:
    topic = await call.load_single()
    ledger, entry_id = (whole_number(call.names[what], what) for what in ("ledger", "entry"))
    if ledger != topic.ledger_id:
        raise _not_found()
    return await _entry(topic, entry_id)


async def examine(call: AdminRequest) -> Content:
    topic = await call.load_single()
    start = call.query.get("initialPosition") or "latest"
    if start not in ("earliest", "latest"):
        raise HttpError(412, "Initial position must be 'earliest' or 'latest'")
    n = max(1, call.query.get("messagePosition", 1))
    everything = Cursor(topic.reading.first_entry_id - 1)
    if start == "latest":
        n = everything.unacked_count(topic.state.readable_end, topic.state.visibility.hidden) - n + 1
        if n < 1:
            raise _not_found()
    return await _entry(topic, nth_unacked(topic, everything, n))


async def _entry(topic: Topic, entry_id: int) -> Content:
    if not topic.reading.first_entry_id <= entry_id < topic.state.readable_end:
        raise _not_found()
    found = await topic.reading.read(entry_id, 1, 1)
    if not found or found[0].entry_id != entry_id or found[0].is_aborted:
        raise _not_found()
    return as_response(topic, entry_id, found[0].data)


def _not_found() -> HttpError:
    return HttpError(404, "Message not found")


async def id_at(call: AdminRequest) -> Content:
    topic = await call.load_single()
    entry_id = await reading.published_from(topic.reading, whole_number(call.names["timestamp"], "timestamp"))
    if entry_id < topic.state.readable_end:
        return _id(topic, Position(topic.ledger_id, entry_id))
    return _id(topic, (await reading.last_message(topic.reading))[0])


async def last_id(call: AdminRequest) -> Content:
    topic = await call.load_single()
    return _id(topic, (await reading.last_message(topic.reading))[0])


def _id(topic: Topic, position: Position) -> dict[str, int]:
    return message_id_json(position, topic.name.partition_index)


async def backlog_size(call: AdminRequest) -> Content:
    """Estimate the bytes from a position to the readable end of the log, by the topic's average entry size."""
    topic = await call.load_single()
    begin = reading.start_of(topic.reading, BEFORE_EVERYTHING if call.body is None else call.body.position)
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    behind = max(0, topic.state.readable_end - begin)
    return topic.log.size_bytes * behind // entries if entries else 0


# Entries as responses.


def as_response(topic: Topic, entry_id: int, data: bytes) -> Response:
    """Return an entry as a response. ProtocolError for an entry that cannot be decoded; HttpError 413 for one whose
    uncompressed size exceeds UNCOMPRESSED_BYTES_MAX."""
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
    yield "X-Pulsar-publish-time", iso_time(info.publish_time_ms)
    yield "X-Pulsar-producer-name", info.producer_name
    yield "X-Pulsar-sequence-id", str(info.sequence_id)
    properties = json.dumps(read_properties(data))
    if len(properties) > PROPERTIES_BYTES_MAX:
        yield "X-Pulsar-PROPERTY-omitted", str(len(properties))
    elif properties != "{}":
        yield "X-Pulsar-PROPERTY", properties
    if info.event_time_ms:
        yield "X-Pulsar-event-time", iso_time(info.event_time_ms)
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
    if info.txn is not None:
        most, least = info.txn
        yield "X-Pulsar-txnid-least-bits", str(least)
        yield "X-Pulsar-txnid-most-bits", str(most)
    if info.is_chunk:
        yield "X-Pulsar-chunk-id", str(info.chunk_id)
        yield "X-Pulsar-num-chunks-from-msg", str(info.num_chunks)
        yield "X-Pulsar-total-chunk-msg-size", str(metadata.total_chunk_msg_size)
        yield "X-Pulsar-uuid", info.uuid or ""
    yield "X-Pulsar-null-value", str(info.null_value).lower()
    yield "X-Pulsar-null-partition-key", str(metadata.null_partition_key).lower()
    yield "X-Pulsar-Is-Encrypted", str(info.is_encrypted).lower()


def _printable(value: str) -> str:
    """Return the text with `?` for each character that a header must not contain."""
    return _UNPRINTABLE.sub("?", value).strip()


def _message(run: Handler, doc: str, *query: Query) -> Operation:
    return reads(run, f"{doc} {_OCTETS}", *query, text=True, permission=Permission.CONSUME)


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

RESOURCES = (
    Resource(
        f"{_TOPIC}/subscription/{{subscription}}/position/{{n}}",
        get=_message(
            peek,
            "The nth message that the subscription has not acknowledged, from 1; 404 when there is none.",
        ),
    ),
    Resource(
        f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}",
        get=_message(by_id, "The entry with this id; 404 when there is none."),
    ),
    Resource(
        f"{_TOPIC}/examinemessage",
        get=_message(
            examine,
            "The nth message from the beginning or from the end.",
            Query("initialPosition", "earliest or latest (the default).", str),
            Query("messagePosition", "n, from 1.", int),
        ),
    ),
    Resource(
        f"{_TOPIC}/messageid/{{timestamp}}",
        get=reads(
            id_at,
            "The id of the first message published at or after a time (ms), else of the last one.",
            permission=Permission.CONSUME,
        ),
    ),
    Resource(
        f"{_TOPIC}/lastMessageId",
        get=reads(last_id, "The id of the last message.", permission=Permission.CONSUME),
    ),
    Resource(
        f"{_TOPIC}/backlogSize",
        put=reads(
            backlog_size,
            "Bytes that follow a message id, estimated from the average entry size.",
            body=MESSAGE_ID,
            permission=Permission.CONSUME,
        ),
    ),
)
