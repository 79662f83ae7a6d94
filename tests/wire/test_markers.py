"""Markers keep upstream's wire form."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.model import markers as kinds
from emulator.model.markers import Marker, Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.values import BEFORE_EVERYTHING, Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication
from emulator.wire.markers import (
    MARKER_PRODUCER,
    decode_marker,
    encode_marker,
    encode_transaction_end,
    stored_marker,
)
from emulator.wire.message_metadata import read_metadata, scan_entry
from emulator.wire.protobuf import ABSENT_U64
from tests.wire.strategies import damaged, log_positions, patient, positions, refusal, region_positions, text

markers: st.SearchStrategy[Marker] = st.one_of(
    st.builds(SnapshotRequest, text, text, st.booleans()),
    st.builds(SnapshotResponse, text, text, positions, region_positions),
    st.builds(Snapshot, text, positions, region_positions),
    st.builds(SubscriptionUpdate, text, region_positions),
)

SNAPSHOT = Snapshot("id", Position(1, 2), (("eu", Position(3, 4)), ("ap", BEFORE_EVERYTHING)))


def decode(data: bytes) -> Marker | None:
    return decode_marker(data, scan_entry(data, verify=True))


def entry_of(marker_type: int, payload: bytes) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name=MARKER_PRODUCER, sequence_id=0, publish_time=1, marker_type=marker_type
    )
    return build_entry(metadata, payload)


@patient
@given(markers, st.integers(0, 2**63 - 1), st.lists(text, max_size=2))
def test_markers_survive_the_wire(marker: Marker, publish_time_ms: int, replicate_to: list[str]) -> None:
    data, described = encode_marker(marker, publish_time_ms, replicate_to)
    info = scan_entry(data, verify=True)
    assert described == info
    assert decode_marker(data, info) == marker
    assert (info.producer_name, info.sequence_id) == ("pulsar.marker", 0)
    assert (info.publish_time_ms, info.replicate_to) == (publish_time_ms, tuple(replicate_to))
    assert not info.is_batch


halves = st.integers(0, 2**64 - 1).filter(lambda half: half != ABSENT_U64)
"""Halves of transaction ids. Readers take this one for an absent half, and no region reaches this number."""


@given(
    txn=st.tuples(halves, halves),
    publish_time_ms=st.integers(0, 2**63 - 1),
    committed=st.booleans(),
)
def test_the_end_of_a_transaction_is_what_protobuf_writes(
    txn: tuple[int, int], publish_time_ms: int, committed: bool
) -> None:
    data, described = encode_transaction_end(txn, publish_time_ms, committed=committed)
    metadata = pb.MessageMetadata(
        producer_name="pulsar.txn.marker",
        sequence_id=2**64 - 1,
        publish_time=publish_time_ms,
        marker_type=21 if committed else 22,
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
    )
    assert data == build_entry(metadata, b"")
    assert described == scan_entry(data, verify=True)


@patient
@given(markers, log_positions)
def test_markers_survive_replication(marker: Marker, position: Position) -> None:
    data = with_replication(encode_marker(marker, 1)[0], "us", position)
    assert scan_entry(data).source_position == position
    assert decode(data) == marker


@pytest.mark.parametrize(
    ("marker", "type_", "payload"),
    [
        (
            SnapshotRequest("id", "us"),
            10,
            pb.ReplicatedSubscriptionsSnapshotRequest(snapshot_id="id", source_cluster="us"),
        ),
        (
            SnapshotResponse("id", "us", Position(1, 2)),
            11,
            pb.ReplicatedSubscriptionsSnapshotResponse(
                snapshot_id="id",
                cluster=pb.ClusterMessageId(
                    cluster="us", message_id=pb.MarkersMessageId(ledger_id=1, entry_id=2)
                ),
            ),
        ),
        (
            SNAPSHOT,
            12,
            pb.ReplicatedSubscriptionsSnapshot(
                snapshot_id="id",
                local_message_id=pb.MarkersMessageId(ledger_id=1, entry_id=2),
                clusters=[
                    pb.ClusterMessageId(
                        cluster="eu", message_id=pb.MarkersMessageId(ledger_id=3, entry_id=4)
                    ),
                    pb.ClusterMessageId(
                        cluster="ap", message_id=pb.MarkersMessageId(ledger_id=2**64 - 1, entry_id=2**64 - 1)
                    ),
                ],
            ),
        ),
        (
            SnapshotRequest("id", "us", wants_received=True),
            10,
            pb.ReplicatedSubscriptionsSnapshotRequest(
                snapshot_id="id", source_cluster="us", wants_received=True
            ),
        ),
        (
            SnapshotResponse("id", "eu", Position(3, 4), (("ap", BEFORE_EVERYTHING),)),
            11,
            pb.ReplicatedSubscriptionsSnapshotResponse(
                snapshot_id="id",
                cluster=pb.ClusterMessageId(
                    cluster="eu", message_id=pb.MarkersMessageId(ledger_id=3, entry_id=4)
                ),
                received=[
                    pb.ClusterMessageId(
                        cluster="ap",
                        message_id=pb.MarkersMessageId(ledger_id=2**64 - 1, entry_id=2**64 - 1),
                    )
                ],
            ),
        ),
        (SubscriptionUpdate("sub", ()), 13, pb.ReplicatedSubscriptionsUpdate(subscription_name="sub")),
    ],
)
def test_a_marker_has_upstreams_number_and_payload(
    marker: Marker, type_: int, payload: pb.ReplicatedSubscriptionsSnapshot
) -> None:
    data, _ = encode_marker(marker, 1)
    assert read_metadata(data).marker_type == type_
    assert data[scan_entry(data).payload_offset :] == payload.SerializeToString()


def test_the_marker_type_is_in_field_20_and_not_in_the_field_of_the_proposal() -> None:
    metadata = read_metadata(encode_marker(SNAPSHOT, 1)[0])
    assert pb.MessageMetadata.DESCRIPTOR.fields_by_number[20].name == "marker_type"
    assert metadata.HasField("marker_type")
    assert not metadata.HasField("ordering_key")


@pytest.mark.parametrize("marker_type", [0, 20, kinds.TXN_COMMIT, kinds.TXN_ABORT, 99, -5])
def test_markers_without_a_value_are_none(marker_type: int) -> None:
    assert decode(entry_of(marker_type, b"\xff\xff")) is None


def test_a_malformed_marker_in_a_log_is_ignored() -> None:
    data = entry_of(13, b"\xff\xff")
    assert stored_marker(data, scan_entry(data)) is None
    data, info = encode_marker(SNAPSHOT, 1)
    assert stored_marker(data, info) == SNAPSHOT


def test_an_entry_that_is_no_marker_is_none() -> None:
    data = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"payload")
    assert decode(data) is None


@patient
@given(damaged(markers.map(lambda marker: encode_marker(marker, 1)[0]).map(lambda data: data[30:])))
def test_damaged_markers_raise_nothing_but_protocol_errors(payload: bytes) -> None:
    for marker_type in (10, 11, 12, 13):
        data = entry_of(marker_type, payload)
        problem = refusal(partial(decode, data))
        assert problem is None or not problem.closes_connection


@pytest.mark.parametrize(
    ("marker_type", "payload"),
    [(10, b""), (11, b"\x0a\x01i"), (12, b"\x0a\x01i"), (13, b""), (13, b"\x0a\x01\xff")],
)
def test_an_incomplete_marker_is_rejected(marker_type: int, payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="marker"):
        decode(entry_of(marker_type, payload))
