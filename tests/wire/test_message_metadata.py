"""An entry's metadata is what its publisher wrote, and stays unchanged on its way through regions."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ProtocolError, ServerError
from emulator.model.values import SOURCE_POSITION_PROPERTY, Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, plain_entry, with_replication
from emulator.wire.entry_layout import assemble, ensure_checksum
from emulator.wire.message_metadata import (
    EntryDetails,
    EntryInfo,
    check_properties,
    read_entry,
    read_metadata,
    read_properties,
    scan_entry,
    scan_for_dispatch,
    sticky_key,
)
from emulator.wire.protobuf import UNREADABLE, length_delimited, parse
from tests.wire.strategies import damaged, log_positions, metadatas, name, patient, refusal

PLAIN = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1_700_000_000_000)
BROKER_METADATA = b"\x0e\x02\x00\x00\x00\x02\x10\x07"

payloads = st.binary(max_size=100) | st.integers(4_000, 6_000).map(bytes)
entries = st.builds(build_entry, metadatas, payloads)


def plain(**fields: object) -> pb.MessageMetadata:
    metadata = pb.MessageMetadata()
    metadata.CopyFrom(PLAIN)
    for key, value in fields.items():
        setattr(metadata, key, value)
    return metadata


def scan(**fields: object) -> EntryInfo:
    return scan_entry(build_entry(plain(**fields), b"payload"))


def details(**fields: object) -> EntryDetails:
    return read_entry(build_entry(plain(**fields), b"payload"))


def present(metadata: pb.MessageMetadata, field: str) -> object:
    return getattr(metadata, field) if metadata.HasField(field) else None


# Reading.


@patient
@given(metadatas, payloads)
def test_details_are_what_protobuf_finds(metadata: pb.MessageMetadata, payload: bytes) -> None:
    data = build_entry(metadata, payload)
    found = read_entry(data, verify=True)
    assert data[found.payload_offset :] == payload
    in_transaction = metadata.HasField("txnid_least_bits") or metadata.HasField("txnid_most_bits")
    assert replace(found, payload_offset=0) == EntryDetails(
        producer_name=metadata.producer_name,
        sequence_id=metadata.sequence_id,
        highest_sequence_id=metadata.highest_sequence_id,
        publish_time_ms=metadata.publish_time,
        num_messages=metadata.num_messages_in_batch,
        is_batch=metadata.HasField("num_messages_in_batch"),
        replicated_from=present(metadata, "replicated_from"),  # type: ignore[arg-type]
        replicate_to=tuple(metadata.replicate_to),
        marker_type=present(metadata, "marker_type"),  # type: ignore[arg-type]
        txn=(metadata.txnid_most_bits, metadata.txnid_least_bits) if in_transaction else None,
        partition_key=present(metadata, "partition_key"),  # type: ignore[arg-type]
        ordering_key=present(metadata, "ordering_key"),  # type: ignore[arg-type]
        deliver_at_time_ms=present(metadata, "deliver_at_time"),  # type: ignore[arg-type]
        compression=metadata.compression,
        uncompressed_size=metadata.uncompressed_size,
        uuid=present(metadata, "uuid"),  # type: ignore[arg-type]
        chunk_id=present(metadata, "chunk_id"),  # type: ignore[arg-type]
        num_chunks=metadata.num_chunks_from_msg,
        partition_key_is_base64=metadata.partition_key_b64_encoded,
        schema_version=present(metadata, "schema_version"),  # type: ignore[arg-type]
        event_time_ms=metadata.event_time,
        null_value=metadata.null_value,
        is_encrypted=len(metadata.encryption_keys) > 0,
    )
    assert read_metadata(data) == metadata


@patient
@given(metadatas, payloads)
def test_every_reader_finds_the_same(metadata: pb.MessageMetadata, payload: bytes) -> None:
    data = build_entry(metadata, payload)
    info, full = scan_entry(data, verify=True), read_entry(data, verify=True)
    assert scan_entry(data, verify=True, is_usual=False) == info
    for field in fields(EntryInfo):
        assert getattr(info, field.name) == getattr(full, field.name), field.name
    due_ms = info.deliver_at_time_ms or 0
    assert scan_for_dispatch(data) == (info.num_messages, info.marker_type is not None, due_ms)


@patient
@given(damaged(entries), st.booleans())
def test_damaged_entries_raise_nothing_but_protocol_errors_and_spare_the_connection(
    data: bytes, verify: bool
) -> None:
    for read in (
        lambda: scan_entry(data, verify=verify),
        lambda: scan_entry(data, verify=verify, is_usual=False),
        lambda: read_metadata(data),
        lambda: with_replication(data, "us", Position(1, 2)),
        lambda: ensure_checksum(data),
    ):
        problem = refusal(read)
        assert problem is None or not problem.closes_connection


@patient
@given(entries, st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_behind_the_checksum_is_noticed(data: bytes, at: int, change: int) -> None:
    damaged_entry = bytearray(data)
    damaged_entry[6 + at % (len(data) - 6)] ^= change
    with pytest.raises(ProtocolError) as caught:
        scan_entry(bytes(damaged_entry), verify=True)
    assert caught.value.code is ServerError.ChecksumError


def test_an_entry_without_checksum_passes_verification() -> None:
    assert scan_entry(build_entry(PLAIN, b"x")[6:], verify=True).producer_name == "p"


def test_broker_metadata_before_an_entry_is_passed_over() -> None:
    data = build_entry(PLAIN, b"payload")
    info = scan_entry(BROKER_METADATA + data, verify=True)
    assert (BROKER_METADATA + data)[info.payload_offset :] == b"payload"


def test_a_batch_of_one_is_a_batch() -> None:
    assert scan(num_messages_in_batch=1).is_batch
    assert not scan().is_batch
    assert scan().num_messages == 1


@pytest.mark.parametrize("number", [0, -1])
def test_a_batch_of_less_than_one_is_rejected(number: int) -> None:
    with pytest.raises(ProtocolError, match="batch"):
        scan(num_messages_in_batch=number)


@pytest.mark.parametrize("field", ["producer_name", "sequence_id", "publish_time"])
def test_an_entry_that_clients_could_not_read_is_rejected(field: str) -> None:
    metadata = plain()
    metadata.ClearField(field)
    serialized = metadata.SerializePartialToString()
    with pytest.raises(ProtocolError, match="missing"):
        scan_entry(len(serialized).to_bytes(4, "big") + serialized)


@pytest.mark.parametrize("number", [1, 5, 6, 7, 26])
def test_names_that_are_not_utf8_are_rejected(number: int) -> None:
    serialized = PLAIN.SerializeToString() + length_delimited(number, b"a\xff")
    with pytest.raises(ProtocolError):
        scan_entry(len(serialized).to_bytes(4, "big") + serialized)


def test_an_empty_key_is_a_key() -> None:
    assert details(partition_key="").partition_key == ""
    assert details().partition_key is None


def test_a_marker_is_recognised_by_the_presence_of_its_field() -> None:
    assert scan(marker_type=0).marker_type == 0
    assert scan().marker_type is None


def test_transaction_0_0_is_a_transaction() -> None:
    info = details(txnid_least_bits=0, txnid_most_bits=0)
    assert info.txn == (0, 0)
    assert details().txn is None


@pytest.mark.parametrize(("num_chunks", "is_chunk"), [(None, False), (1, False), (2, True)])
def test_a_chunk_is_one_of_several(num_chunks: int | None, is_chunk: bool) -> None:
    assert (scan() if num_chunks is None else scan(num_chunks_from_msg=num_chunks)).is_chunk is is_chunk


def test_bytes_that_look_like_a_rare_field_do_not_fool_the_scan() -> None:
    info = details(partition_key=f": j {SOURCE_POSITION_PROPERTY}")
    assert (info.replicate_to, info.is_encrypted, info.source_position) == ((), False, None)


def with_properties(*pairs: tuple[str, str], replicated_from: str | None = "eu") -> EntryInfo:
    metadata = plain() if replicated_from is None else plain(replicated_from=replicated_from)
    for key, value in pairs:
        metadata.properties.add(key=key, value=value)
    return scan_entry(build_entry(metadata, b""))


def test_the_source_position_is_read_from_its_property() -> None:
    info = with_properties(("a", "1:1"), (SOURCE_POSITION_PROPERTY, "7:-1"), ("b", "2:2"))
    assert info.source_position == Position(7, -1)


def test_of_two_source_positions_the_last_counts() -> None:
    pairs = [(SOURCE_POSITION_PROPERTY, f"1:{entry}") for entry in (1, 2)]
    assert with_properties(*pairs).source_position == Position(1, 2)


def test_the_name_of_the_property_has_no_meaning_elsewhere() -> None:
    pairs = [("x", SOURCE_POSITION_PROPERTY), (SOURCE_POSITION_PROPERTY + "2", "1:1"), ("x" * 200, "1:1")]
    assert with_properties(*pairs).source_position is None


def test_a_source_position_may_be_written_in_any_order_of_fields() -> None:
    key = SOURCE_POSITION_PROPERTY.encode()
    pair = length_delimited(2, b"3:4") + length_delimited(1, key)
    serialized = plain(replicated_from="eu").SerializeToString() + length_delimited(4, pair)
    assert scan_entry(len(serialized).to_bytes(4, "big") + serialized).source_position == Position(3, 4)


@pytest.mark.parametrize("value", ["", "7", "7:", ":7", "a:b", "1:2:3", "-2:0", f"0:{2**63}", f"{2**63}:0"])
def test_an_invalid_source_position_is_rejected(value: str) -> None:
    with pytest.raises(ProtocolError):
        with_properties((SOURCE_POSITION_PROPERTY, value))


@pytest.mark.parametrize("value", ["1:2", "nonsense", ""])
def test_without_an_origin_the_property_is_ignored(value: str) -> None:
    """Applications copy properties of received messages, and so do dead letters."""
    assert with_properties((SOURCE_POSITION_PROPERTY, value), replicated_from=None).source_position is None


# Changing.


@patient
@given(metadatas, payloads, name, log_positions)
def test_replication_adds_the_origin_and_keeps_everything_else(
    metadata: pb.MessageMetadata, payload: bytes, region: str, position: Position
) -> None:
    data = with_replication(build_entry(metadata, payload), region, position)
    info = scan_entry(data, verify=True)
    assert (info.replicated_from, info.source_position) == (region, position)
    assert data[info.payload_offset :] == payload

    expected = pb.MessageMetadata()
    expected.CopyFrom(metadata)
    expected.replicated_from = region
    expected.properties.add(key=SOURCE_POSITION_PROPERTY, value=str(position))
    expected.ClearField("txnid_least_bits")
    expected.ClearField("txnid_most_bits")
    assert read_metadata(data) == expected


def test_replication_does_not_make_a_message_a_batch() -> None:
    data = with_replication(build_entry(PLAIN, b"x"), "us", Position(1, 2))
    assert not scan_entry(data).is_batch


def test_replication_strips_a_transaction_but_not_fields_of_newer_clients() -> None:
    newer = length_delimited(500, b"new")
    serialized = plain(txnid_least_bits=3, txnid_most_bits=0).SerializeToString() + newer
    data = with_replication(len(serialized).to_bytes(4, "big") + serialized, "us", Position(1, 2))
    info = read_entry(data, verify=True)
    assert info.txn is None
    assert newer in data[: info.payload_offset]


def test_replication_drops_broker_metadata() -> None:
    data = build_entry(PLAIN, b"x")
    position = Position(1, 2)
    assert with_replication(BROKER_METADATA + data, "us", position) == with_replication(data, "us", position)


def test_replication_replaces_a_forged_origin() -> None:
    metadata = plain(replicated_from="liar")
    metadata.properties.add(key=SOURCE_POSITION_PROPERTY, value="9:9")
    info = scan_entry(with_replication(build_entry(metadata, b""), "us", Position(1, 2)))
    assert (info.replicated_from, info.source_position) == ("us", Position(1, 2))


@patient
@given(entries)
def test_a_checksum_is_added_only_where_there_is_none(data: bytes) -> None:
    assert ensure_checksum(data) is data
    assert ensure_checksum(BROKER_METADATA + data) == BROKER_METADATA + data
    assert ensure_checksum(data[6:]) == data
    assert ensure_checksum(BROKER_METADATA + data[6:]) == BROKER_METADATA + data


def test_the_checksum_covers_everything_behind_it() -> None:
    data = build_entry(PLAIN, b"payload")
    assert data[:2] == b"\x0e\x01"
    assert int.from_bytes(data[2:6], "big") == crc32c(data[6:])


# Short ways.


def test_a_plain_entry_is_what_protobuf_makes_of_its_three_fields() -> None:
    for name_, number, time_ms in (("p", 0, 1), ("größe", 300, 1_700_000_000_000), ("x" * 200, 2**40, 2**50)):
        metadata = pb.MessageMetadata(producer_name=name_, sequence_id=number, publish_time=time_ms)
        assert plain_entry(name_, number, time_ms, b"payload") == build_entry(metadata, b"payload")


@patient
@given(metadatas, payloads)
def test_properties_alone_are_those_of_the_metadata(metadata: pb.MessageMetadata, payload: bytes) -> None:
    data = build_entry(metadata, payload)
    assert read_properties(data) == {pair.key: pair.value for pair in metadata.properties}


def test_properties_that_are_not_utf8_are_rejected() -> None:
    metadata = PLAIN.SerializeToString() + length_delimited(4, b"\x0a\x01k\x12\x01\xff")
    data = b"".join((len(metadata).to_bytes(4, "big"), metadata, b"payload"))
    with pytest.raises(ProtocolError, match="properties"):
        read_properties(data)


# Keys.


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, b"p-5"),
        ({"partition_key": "k"}, b"k"),
        ({"partition_key": ""}, b""),
        ({"partition_key": "a2V5", "partition_key_b64_encoded": True}, b"key"),
        ({"partition_key": "no base64", "partition_key_b64_encoded": True}, b"no base64"),
        ({"partition_key": "k", "ordering_key": b"\xff\x00"}, b"\xff\x00"),
    ],
)
def test_the_key_of_an_entry(fields: dict[str, object], key: bytes) -> None:
    assert sticky_key(build_entry(plain(**fields), b"x")) == key


def test_an_invalid_text_elsewhere_in_the_metadata_does_not_stop_a_subscription() -> None:
    """Admission accepts such a property as it was sent: the dispatcher must not decode it."""
    metadata = plain(partition_key="k")
    metadata.properties.add(key="a", value="ZZZZ")
    data = build_entry(metadata, b"x")
    at = data.index(b"ZZZZ")
    damaged = b"\x0e\x01" + bytes(4) + data[6:at] + b"\xff\xfe\xfd\xfc" + data[at + 4 :]
    scan_entry(damaged)
    assert sticky_key(damaged) == b"k"


PAIRS = st.builds(
    lambda key, value: pb.KeyValue(key=key, value=value).SerializeToString(),
    st.text(max_size=5),
    st.text(max_size=5) | st.just("x" * 200),
)


@given(st.binary(max_size=12) | PAIRS)
def test_the_check_of_properties_accepts_what_clients_can_parse(pair: bytes) -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()
    data = assemble(metadata + length_delimited(4, pair), b"x")
    try:
        parse(pb.KeyValue, pair)
    except UNREADABLE:
        with pytest.raises(ProtocolError, match="unreadable message properties"):
            check_properties(data, scan_entry(data).payload_offset)
    else:
        check_properties(data, scan_entry(data).payload_offset)


@pytest.mark.parametrize("field", ["producer_name", "replicated_from", "replicate_to"])
def test_no_long_name_stays_in_memory(field: str) -> None:
    """Clients choose names, and an entry is read before it is refused."""
    tracemalloc.start()
    try:
        for number in range(30):
            long = field + f"{number:0100000}"
            usual = {"producer_name": "p", "sequence_id": 5, "publish_time": 1}
            of_field = {field: [long] if field == "replicate_to" else long}
            scan_entry(build_entry(pb.MessageMetadata(**(usual | of_field)), b""))
        del long, of_field
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held_bytes < 1_000_000
