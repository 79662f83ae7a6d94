"""The requests and responses of transactions that are read and written by hand are those of `commands`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.transactions import (
    decode_add_partitions,
    decode_end_transaction,
    decode_new_transaction,
    encode_add_partitions_response,
    encode_add_subscriptions_response,
    encode_end_transaction_response,
    encode_new_transaction_response,
)
from emulator.wire.commands.transactions import (
    AddPartitions,
    AddPartitionsResponse,
    AddSubscriptionsResponse,
    EndTransaction,
    EndTransactionResponse,
    NewTransaction,
    NewTransactionResponse,
)
from emulator.wire.frames import BEFORE_BODY_SIZE
from emulator.wire.protobuf import varint
from tests.wire.test_unknown_fields import UNKNOWN

Reader = Callable[[bytes], Any]
READERS: dict[int, tuple[Reader, Reader]] = {
    NewTransaction.type_: (decode_new_transaction, NewTransaction.read),
    AddPartitions.type_: (decode_add_partitions, AddPartitions.read),
    EndTransaction.type_: (decode_end_transaction, EndTransaction.read),
}
"""Command type -> (read by hand, read by the table of commands)."""

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
optional_numbers = st.none() | numbers
topics = st.one_of(st.just("persistent://public/default/orders"), st.text(max_size=150))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """The requests of any client: with any optional fields, complete or not."""
    kind = draw(st.sampled_from(["newTxn", "addPartitionToTxn", "endTxn"]))
    fields: dict[str, Any] = {"request_id": draw(numbers)}
    if kind == "newTxn":
        fields["txn_ttl_seconds"], fields["tc_id"] = draw(optional_numbers), draw(optional_numbers)
    else:
        fields["txnid_least_bits"], fields["txnid_most_bits"] = draw(optional_numbers), draw(optional_numbers)
    if kind == "addPartitionToTxn":
        fields["partitions"] = draw(st.lists(topics, max_size=2))
    if kind == "endTxn":
        fields["txn_action"] = draw(st.sampled_from([None, 0, 1]))
    type_ = pb.BaseCommand.DESCRIPTOR.fields_by_name[kind].number
    present = {name: value for name, value in fields.items() if value is not None}
    return pb.BaseCommand(type=type_, **{kind: present}).SerializeToString()


def outcome(read: Reader, command: bytes) -> object:
    """What a reader returns; of an error, its type and whether it closes the connection."""
    try:
        return read(command)
    except ProtocolError as problem:
        return ProtocolError, problem.closes_connection


def with_body(type_: int, body: bytes) -> bytes:
    return BEFORE_BODY_SIZE[type_] + varint(len(body)) + body


@given(command=requests())
def test_requests_are_read_as_by_the_table(command: bytes) -> None:
    by_hand, by_table = READERS[command[1]]
    assert by_hand(command) == by_table(command)


@given(command=requests(), data=st.data())
def test_damaged_requests_are_read_as_by_the_table(command: bytes, data: st.DataObject) -> None:
    """One byte changed, inserted or removed, or the end cut off: the same command, or an error in both readers."""
    at = data.draw(st.integers(0, len(command) - 1))
    new = data.draw(st.binary(max_size=2))
    damaged = data.draw(st.sampled_from([command[:at], command[:at] + new + command[at + 1 :]]))
    if damaged[:2] != command[:2]:
        return  # the table would not call this reader
    by_hand, by_table = READERS[command[1]]
    assert outcome(by_hand, damaged) == outcome(by_table, damaged)


@pytest.mark.parametrize("type_", READERS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x10\x05\x08\x01\x18\x02",  # another order
        b"\x08\x01\x10\x05\x18\x02\x18\x03",  # a field twice
        b"\x08\x01\x10\x05\x18\x02\x20\x07",  # an action that does not exist
        b"\x08\x01\x10\x05\x18\x02\x20\x00\x20\x01",
        b"\x08\x01\x10\x05\x18\x02\x22\x01a\x22\x01b",
        b"\x08\x01\x10\x05\x18\x02\x22\x01\xff",  # no text
        b"\x08\x01\x10\x05\x18\x02\x22\x02a",
        b"\x08\x81" + b"\x80" * 9 + b"\x00\x10\x05\x18\x02",  # a number of eleven bytes
        b"\x08" + b"\xff" * 9 + b"\x7f\x10\x05\x18\x02",  # a number of 70 bits
        b"\x08\x01\x10" + b"\xff" * 9 + b"\x01\x18" + b"\xff" * 9 + b"\x01",
        b"\x08\x01\x10\x05\x18\x02" + UNKNOWN,
        UNKNOWN + b"\x08\x01\x10\x05\x18\x02",
    ],
)
def test_unusual_requests_are_read_as_by_the_table(type_: int, body: bytes) -> None:
    by_hand, by_table = READERS[type_]
    for command in (with_body(type_, body), with_body(type_, body) + UNKNOWN, with_body(type_, body) * 2):
        assert outcome(by_hand, command) == outcome(by_table, command)


def test_the_usual_requests_do_not_need_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else shows that a request is read by hand: the result is the same. The request ids of a Java client begin
    at a random number of 63 bits."""
    topic = b"persistent://public/default/orders"
    for type_, end in (
        (NewTransaction.type_, b""),
        (AddPartitions.type_, b"\x22" + varint(len(topic)) + topic),
        (EndTransaction.type_, b"\x20\x00"),
    ):
        for request_id in (1, 300, 2**27, 2**63 - 1):
            body = b"\x08" + varint(request_id) + b"\x10" + varint(60_000) + b"\x18\x03" + end
            by_hand, by_table = READERS[type_]
            command = with_body(type_, body)
            expected = by_table(command)
            with monkeypatch.context() as patched:
                patched.delattr("emulator.wire.commands.spec.decode_command")
                assert by_hand(command) == expected


@given(request_id=numbers, most=numbers, least=numbers)
def test_responses_are_those_of_the_table(request_id: int, most: int, least: int) -> None:
    numbered = request_id, most, least
    by_table = NewTransactionResponse(*numbered).encode()
    assert encode_new_transaction_response(*numbered) == by_table
    assert encode_add_partitions_response(*numbered) == AddPartitionsResponse(*numbered).encode()
    assert encode_add_subscriptions_response(*numbered) == AddSubscriptionsResponse(*numbered).encode()
    assert encode_end_transaction_response(*numbered) == EndTransactionResponse(*numbered).encode()
