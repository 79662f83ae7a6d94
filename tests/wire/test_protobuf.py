"""Helpers for protobuf: encoding by hand, and checks of messages and descriptors."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import (
    Malformed,
    check_descriptors,
    length_delimited,
    parse,
    require_text,
    varint,
    varints,
)
from tests.schemas_made import native
from tests.wire.strategies import U64_MAX, as_u64, patient


@patient
@given(st.integers(-(2**63), U64_MAX))
@example(127)
@example(128)
@example(16_383)
@example(16_384)
@example(2**21)
@example(-1)
@example(U64_MAX)
def test_varint_is_what_protobuf_writes(value: int) -> None:
    expected = pb.BrokerEntryMetadata(index=as_u64(value)).SerializeToString()
    assert b"\x10" + varint(value) == expected


@patient
@given(
    st.sampled_from([0, 1, 100, 127, 128, 16_000, 16_383, 16_384, 30_000, 2**21 - 2, 2**28 - 2, 2**63 - 1]),
    st.integers(1, 20_000),
)
@example(0, 1)
@example(127, 5)
@example(16_383, 5)
@example(U64_MAX - 2, 2)
def test_varints_are_successive_ones_of_one_length(first: int, count: int) -> None:
    found = varints(first, count)
    assert found == [varint(number) for number in range(first, first + len(found))]
    assert 1 <= len(found) <= count
    assert len({len(one) for one in found}) == 1
    if len(found) < count:
        assert first < 128 <= first + len(found) or (first + len(found)) % 16_384 == 0, "as many as possible"


@patient
@given(st.binary(max_size=300))
def test_length_delimited_is_what_protobuf_writes(value: bytes) -> None:
    assert length_delimited(2, value) == pb.AuthData(auth_data=value).SerializeToString()


def test_a_message_without_a_required_field_is_rejected() -> None:
    with pytest.raises(Malformed, match="required"):
        parse(pb.KeyValue, b"\x0a\x01k")


def test_text_that_is_not_utf8_is_rejected_at_any_depth() -> None:
    hidden = pb.CommandProducer.FromString(length_delimited(6, b"\x0a\x01\xff"))
    with pytest.raises(Malformed, match="key is not UTF-8"):
        require_text(hidden)


def test_bytes_need_not_be_text() -> None:
    require_text(pb.AuthData(auth_data=b"\xff"))


def test_a_message_that_a_file_describes_is_found() -> None:
    check_descriptors(native("Order", "Order").data)
    check_descriptors(native("shop.Order", "Item", "Order", package="shop").data)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rootMessageTypeName": "Item"}, "no file describes 'Item'"),
        ({"rootFileDescriptorName": "other.proto"}, "not among the files"),
        ({"fileDescriptorSet": "%%%"}, "not Protobuf descriptors"),
        ({"fileDescriptorSet": 5}, "not Protobuf descriptors"),
        ({"fileDescriptorSet": "//8="}, "not Protobuf descriptors"),
        ({"rootMessageTypeName": []}, "no file describes"),
        ({"rootFileDescriptorName": {}}, "not among the files"),
    ],
)
def test_descriptors_without_their_message_are_rejected(change: dict[str, object], why: str) -> None:
    schema = json.loads(native("Order", "Order").data) | change
    with pytest.raises(ValueError, match=why):
        check_descriptors(json.dumps(schema).encode())
