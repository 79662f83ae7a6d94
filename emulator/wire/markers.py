"""Markers as entries: the values of `emulator/model/markers.py` in upstream's wire form, and markers of transactions.

A marker is an entry whose metadata has `marker_type` (field 20; the PIP-33 proposal says 18, which became the ordering
key). The wire form is upstream's, so that a real Pulsar cluster can be a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from emulator.errors import ProtocolError
from emulator.model import markers as kinds
from emulator.model.markers import (
    AckedEntries,
    Marker,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionUpdate,
)
from emulator.model.transaction_names import TxnId
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from emulator.wire.entry_layout import assemble
from emulator.wire.message_metadata import TXN_LEAST_TAG, TXN_MOST_TAG, EntryInfo
from emulator.wire.protobuf import (
    MASK_64,
    UNREADABLE,
    Malformed,
    length_delimited,
    malformed,
    tag,
    varint,
)

MARKER_PRODUCER: Final = "pulsar.marker"
"""Producer name of the markers of replicated subscriptions; deduplication by producer does not apply to it."""


def encode_marker(
    marker: Marker, publish_time_ms: int, replicate_to: Sequence[str] = ()
) -> tuple[bytes, EntryInfo]:
    """Return the entry of a marker and its `EntryInfo`. `replicate_to` limits the regions that receive it; empty: all.
    A response goes to the region that requested it, a snapshot stays in its own region.
    """
    type_, payload = _to_protobuf(marker)
    metadata = pb.MessageMetadata(
        producer_name=MARKER_PRODUCER,
        sequence_id=0,
        publish_time=publish_time_ms,
        replicate_to=replicate_to,
        marker_type=type_,
    )
    body = payload.SerializeToString()
    data = build_entry(metadata, body)
    info = EntryInfo(
        MARKER_PRODUCER,
        0,
        publish_time_ms=publish_time_ms,
        replicate_to=tuple(replicate_to),
        marker_type=type_,
        payload_offset=len(data) - len(body),
    )
    return data, info


ACKED_RANGES_MAX: Final = 100_000
"""Maximum number of ranges and batches in one update of a subscription."""
TRANSACTION_MARKER_PRODUCER: Final = "pulsar.txn.marker"


def encode_transaction_end(txn: TxnId, publish_time_ms: int, *, committed: bool) -> tuple[bytes, EntryInfo]:
    """Return the entry that ends the transaction in a topic's log, and its `EntryInfo`."""
    most, least = txn
    marker_type = kinds.TXN_COMMIT if committed else kinds.TXN_ABORT
    metadata = b"".join(
        (
            _END_BEFORE_TIME,
            varint(publish_time_ms),
            _MARKER_TYPE + varint(marker_type) + TXN_LEAST_TAG + varint(least) + TXN_MOST_TAG + varint(most),
        )
    )
    data = assemble(metadata, b"")
    return data, EntryInfo(
        TRANSACTION_MARKER_PRODUCER,
        MASK_64,
        publish_time_ms,
        payload_offset=len(data),
        marker_type=marker_type,
        txn=txn,
    )


_END_BEFORE_TIME: Final = (
    length_delimited(1, TRANSACTION_MARKER_PRODUCER.encode()) + tag(2) + varint(MASK_64) + tag(3)
)
"""The metadata of every marker that ends a transaction, up to the publish time. Its sequence id is -1, as upstream."""
_MARKER_TYPE: Final = tag(20)


def decode_marker(data: bytes, info: EntryInfo) -> Marker | None:
    """Return the marker in an entry whose `scan_entry` is `info`; None: the entry is no marker, or its type has no
    value in `model.markers`.

    Raises ProtocolError for a payload that cannot be read.
    """
    reader = _READERS.get(info.marker_type) if info.marker_type is not None else None
    if reader is None:
        return None
    try:
        return reader(data[info.payload_offset :])
    except UNREADABLE as problem:
        raise malformed("marker", problem, closes_connection=False) from None


def stored_marker(data: bytes, info: EntryInfo) -> Marker | None:
    """Return the marker in a stored entry like `decode_marker`, but None for a malformed one. Admission rejects
    malformed markers; one that was stored before that check existed, or by a newer region, has no effect."""
    if info.marker_type is None:
        return None
    try:
        return decode_marker(data, info)
    except ProtocolError:
        return None


def _to_protobuf(marker: Marker) -> tuple[int, Message]:
    match marker:
        case SnapshotRequest(snapshot_id, source_region, wants_received):
            return kinds.SNAPSHOT_REQUEST, pb.ReplicatedSubscriptionsSnapshotRequest(
                snapshot_id=snapshot_id, source_cluster=source_region, wants_received=wants_received or None
            )
        case SnapshotResponse(snapshot_id, region, position, received):
            return kinds.SNAPSHOT_RESPONSE, pb.ReplicatedSubscriptionsSnapshotResponse(
                snapshot_id=snapshot_id,
                cluster=_region_position(region, position),
                received=[_region_position(*pair) for pair in received],
            )
        case Snapshot(snapshot_id, local_position, positions):
            return kinds.SNAPSHOT, pb.ReplicatedSubscriptionsSnapshot(
                snapshot_id=snapshot_id,
                local_message_id=_position(local_position),
                clusters=[_region_position(*pair) for pair in positions],
            )
        case SubscriptionUpdate(subscription, positions, individual):
            return kinds.SUBSCRIPTION_UPDATE, pb.ReplicatedSubscriptionsUpdate(
                subscription_name=subscription,
                clusters=[_region_position(*pair) for pair in positions],
                individual_acks=[_acked(entries) for entries in individual],
            )


def _position(position: Position) -> pb.MarkersMessageId:
    return pb.MarkersMessageId(ledger_id=position.ledger & MASK_64, entry_id=position.entry & MASK_64)


def _region_position(region: str, position: Position) -> pb.ClusterMessageId:
    return pb.ClusterMessageId(cluster=region, message_id=_position(position))


def _acked(entries: AckedEntries) -> pb.AckedEntries:
    ranges: list[int] = []
    batches: list[int] = []
    end = 0
    for first, last in entries.ranges:
        ranges += (first - end, last - first)
        end = last + 1
    end = 0
    for entry_id, _ in entries.batches:
        batches.append(entry_id - end)
        end = entry_id + 1
    return pb.AckedEntries(
        cluster=entries.region,
        ledger_id=entries.ledger & MASK_64,
        ranges=ranges,
        batches=batches,
        open_messages=[bits.to_bytes((bits.bit_length() + 7) // 8, "little") for _, bits in entries.batches],
    )


# Reading.

Read = TypeVar("Read", bound=Message)

_INT64_MAX: Final = 2**63 - 1


def _signed(value: int) -> int:
    """Return the signed value of a u64: 2**64-1 is -1."""
    return value if value <= _INT64_MAX else value - 2**64


def _read_position(message_id: pb.MarkersMessageId) -> Position:
    return Position(_signed(message_id.ledger_id), _signed(message_id.entry_id))


def _read_positions(clusters: Iterable[pb.ClusterMessageId]) -> tuple[tuple[str, Position], ...]:
    return tuple([(_text(each.cluster), _read_position(each.message_id)) for each in clusters])


def _text(value: str) -> str:
    """Return a string unchanged. Raises Malformed if it is not UTF-8, which protobuf returns as bytes. Strings of
    markers are checked one by one: `parse`, which searches for them, would take three times as long."""
    if not isinstance(value, str):
        raise Malformed("a name that is not UTF-8")
    return value


def _complete(message: Read) -> Read:
    if not message.IsInitialized():
        raise Malformed("a required field is missing")
    return message


def _read_request(payload: bytes) -> SnapshotRequest:
    message = _complete(pb.ReplicatedSubscriptionsSnapshotRequest.FromString(payload))
    return SnapshotRequest(_text(message.snapshot_id), _text(message.source_cluster), message.wants_received)


def _read_response(payload: bytes) -> SnapshotResponse:
    message = _complete(pb.ReplicatedSubscriptionsSnapshotResponse.FromString(payload))
    if not message.HasField("cluster"):
        raise Malformed("a snapshot response without a position")
    cluster = message.cluster
    return SnapshotResponse(
        _text(message.snapshot_id),
        _text(cluster.cluster),
        _read_position(cluster.message_id),
        _read_positions(message.received),
    )


def _read_snapshot(payload: bytes) -> Snapshot:
    message = _complete(pb.ReplicatedSubscriptionsSnapshot.FromString(payload))
    if not message.HasField("local_message_id"):
        raise Malformed("a snapshot without its local position")
    return Snapshot(
        _text(message.snapshot_id),
        _read_position(message.local_message_id),
        _read_positions(message.clusters),
    )


def _read_update(payload: bytes) -> SubscriptionUpdate:
    message = _complete(pb.ReplicatedSubscriptionsUpdate.FromString(payload))
    numbers = sum(len(each.ranges) // 2 + len(each.batches) for each in message.individual_acks)
    if numbers > ACKED_RANGES_MAX:
        raise Malformed(f"{numbers} ranges of acknowledged entries: {ACKED_RANGES_MAX} are the maximum")
    return SubscriptionUpdate(
        _text(message.subscription_name),
        _read_positions(message.clusters),
        tuple([_read_acked(each) for each in message.individual_acks]),
    )


def _read_acked(acked: pb.AckedEntries) -> AckedEntries:
    if len(acked.ranges) % 2 or len(acked.batches) != len(acked.open_messages):
        raise Malformed("a range or a batch of acknowledged entries is incomplete")
    ranges, end = [], 0
    for skipped, more in zip(acked.ranges[::2], acked.ranges[1::2], strict=True):
        first = end + skipped
        end = _within_log(first + more) + 1
        ranges.append((first, end - 1))
    batches, end = [], 0
    for skipped, messages in zip(acked.batches, acked.open_messages, strict=True):
        entry_id = _within_log(end + skipped)
        batches.append((entry_id, int.from_bytes(messages, "little")))
        end = entry_id + 1
    return AckedEntries(_text(acked.cluster), _signed(acked.ledger_id), tuple(ranges), tuple(batches))


def _within_log(entry_id: int) -> int:
    if entry_id > _INT64_MAX:
        raise Malformed(f"an acknowledged entry {entry_id}: entry ids have at most 63 bits")
    return entry_id


_READERS: Final[dict[int, Callable[[bytes], Marker]]] = {
    kinds.SNAPSHOT_REQUEST: _read_request,
    kinds.SNAPSHOT_RESPONSE: _read_response,
    kinds.SNAPSHOT: _read_snapshot,
    kinds.SUBSCRIPTION_UPDATE: _read_update,
}
