"""Every hand-written command has the bytes that protobuf would write, and is parsed as protobuf parses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.model.values import AccessMode
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import (
    AckCommand,
    AckId,
    MessageMeta,
    decode_ack,
    decode_flow,
    decode_message,
    encode_ack,
    encode_flow,
    message_header,
)
from emulator.wire.codec_hot.publishing import (
    NO_PREVIOUS_ENTRY,
    Receipt,
    SendCommand,
    _any_send,
    begin_of_send,
    decode_peer_receipt,
    decode_receipt,
    decode_send,
    encode_peer_receipt,
    encode_receipt,
    encode_receipts,
    end_of_send,
    send_frame,
)
from emulator.wire.command_types import CommandType
from emulator.wire.commands import CreateProducer
from emulator.wire.frames import PING_FRAME, PONG_FRAME, FrameBuffer, frame_of
from emulator.wire.protobuf import decode_command
from tests.wire.strategies import (
    U64_MAX,
    ack_ids,
    ack_sets,
    as_u64,
    damaged,
    i32,
    i64,
    patient,
    refusal,
    text,
    u32,
    u64,
)


def command_in(frame: bytes) -> bytes:
    [(_, command, _)] = FrameBuffer(10_000_000).feed(frame)
    return command


def base(type_: int) -> pb.BaseCommand:
    return pb.BaseCommand(type=type_)  # type: ignore[arg-type]


# Types.


def test_command_types_are_those_of_the_proto_file() -> None:
    ours = {name: value for name, value in vars(CommandType).items() if not name.startswith("_")}
    theirs = {name: value for name, value in pb.BaseCommand.Type.items() if value != pb.BaseCommand.NOT_KNOWN}
    assert ours == theirs


def test_every_body_has_the_number_of_its_type() -> None:
    fields = pb.BaseCommand.DESCRIPTOR.fields_by_number
    for type_name, number in pb.BaseCommand.Type.items():
        if number != pb.BaseCommand.NOT_KNOWN:
            assert number in fields, type_name


# SEND.

transactions = st.tuples(st.none(), st.none()) | st.tuples(u64, u64)
"""(minimum, maximum)."""
previous_entries = st.integers(NO_PREVIOUS_ENTRY, 2**63 - 1)
sends = st.builds(
    lambda numbers, txn, previous, run: SendCommand(*numbers, *txn, previous, run),
    *(st.tuples(u64, u64, u64), transactions, st.none() | previous_entries, st.integers(0, 2**32 - 1)),
)
remarks = st.fixed_dictionaries({"num_messages": i32, "is_chunk": st.booleans(), "marker": st.booleans()})
"""Other fields that clients set in a SEND; brokers use the entry's metadata."""


def encode_send_command(send: SendCommand, remark: dict[str, Any]) -> bytes:
    return command_in(send_frame(**send._asdict(), data=b"", **remark))


def send_by_protobuf(send: SendCommand, remark: dict[str, Any]) -> pb.BaseCommand:
    command = base(CommandType.SEND)
    command.send.producer_id = send.producer_id
    command.send.sequence_id = send.sequence_id
    command.send.highest_sequence_id = send.highest_sequence_id
    for name_, value in remark.items():
        setattr(command.send, name_, value)
    if send.txn_least is not None and send.txn_most is not None:
        command.send.txnid_least_bits = send.txn_least
        command.send.txnid_most_bits = send.txn_most
    if send.previous_entry is not None:
        command.send.previous_entry = send.previous_entry
    if send.run_messages:
        command.send.run_messages = send.run_messages
    return command


@patient
@given(sends, remarks)
def test_send_by_hand_can_be_read_by_protobuf(send: SendCommand, remark: dict[str, Any]) -> None:
    read = pb.BaseCommand.FromString(encode_send_command(send, remark)).send
    assert read.IsInitialized()
    assert (read.producer_id, read.sequence_id, read.highest_sequence_id) == send[:3]
    assert {name_: getattr(read, name_) for name_ in remark} == remark
    assert read.HasField("txnid_least_bits") == (send.txn_least is not None)
    assert (read.txnid_least_bits, read.txnid_most_bits) == (send.txn_least or 0, send.txn_most or 0)


@patient
@given(sends, remarks)
@example(SendCommand(0, 0, txn_least=0, txn_most=0), {})
def test_send_of_any_encoder_is_decoded(send: SendCommand, remark: dict[str, Any]) -> None:
    assert decode_send(encode_send_command(send, remark)) == send
    assert decode_send(send_by_protobuf(send, remark).SerializeToString()) == send


@patient
@given(st.data())
def test_a_send_in_its_usual_form_is_read_as_any_other(data: st.DataObject) -> None:
    """Whatever bytes it has: with numbers of more bytes than necessary, repeated fields, or fields in another order."""
    number = st.binary(max_size=12).map(lambda bits: bytes(bit | 128 for bit in bits)) | st.just(b"")
    fields = data.draw(
        st.lists(st.tuples(st.sampled_from(b"\x08\x08\x10\x10\x18"), number, st.integers(0, 255)))
    )
    body = b"".join(bytes((tag,)) + head + bytes((last,)) for tag, head, last in fields)
    command = b"\x08\x06\x32" + bytes((data.draw(st.just(len(body) % 256) | st.integers(0, 255)),)) + body
    try:
        expected = _any_send(command)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            decode_send(command)
    else:
        assert decode_send(command) == expected


@pytest.mark.parametrize("producer_id", [0, 1, 127, 128, 2**21, 2**63 - 1, 2**63 + 1, 2**64 - 1])
@pytest.mark.parametrize("sequence_id", [0, 127, 128, 2**35, 2**63 - 1, 2**63 + 1, 2**64 - 1])
def test_a_send_of_two_numbers_is_decoded(producer_id: int, sequence_id: int) -> None:
    command = command_in(send_frame(producer_id, sequence_id, data=b""))
    assert decode_send(command) == SendCommand(producer_id, sequence_id)
    for cut in range(4, len(command)):
        with pytest.raises(ProtocolError):
            decode_send(command[:cut])


@patient
@given(sends, st.binary(max_size=100))
def test_a_send_frame_carries_its_entry_untouched(send: SendCommand, data: bytes) -> None:
    frame = send_frame(send.producer_id, send.sequence_id, 1, send.highest_sequence_id, data=data)
    [(type_, command, stored)] = FrameBuffer(1_000).feed(frame)
    assert (type_, stored) == (CommandType.SEND, data)
    assert decode_send(command)[:3] == send[:3]


def test_half_a_transaction_id_is_a_transaction_whose_other_half_is_0() -> None:
    command = base(CommandType.SEND)
    command.send.producer_id, command.send.sequence_id, command.send.txnid_most_bits = 1, 2, 7
    send = decode_send(command.SerializeToString())
    assert (send.txn_least, send.txn_most) == (0, 7)


def test_fields_of_newer_peers_are_passed_over() -> None:
    newer = b"\x08\x06" + b"\x32\x0f" + b"\x08\x01\x10\x02" + b"\xf8\x07\x05" + b"\xfa\x07\x05hello"
    assert decode_send(newer) == SendCommand(1, 2)
    assert decode_send(newer + b"\xfa\x07\x02hi") == SendCommand(1, 2)


def test_a_shadow_topics_message_id_is_passed_over() -> None:
    command = base(CommandType.SEND)
    command.send.producer_id, command.send.sequence_id = 1, 2
    command.send.message_id.ledgerId, command.send.message_id.entryId = 3, 4
    assert decode_send(command.SerializeToString()) == SendCommand(1, 2)


@patient
@given(sends, st.integers(1, 2**31), st.booleans(), st.none() | previous_entries, st.binary(max_size=100))
def test_a_send_in_two_parts_is_the_send_as_a_whole(
    send: SendCommand, num_messages: int, marker: bool, previous: int | None, data: bytes
) -> None:
    numbers = (send.sequence_id, num_messages, send.highest_sequence_id)
    end = end_of_send(*numbers, marker=marker, data=data)
    [(type_, command, stored)] = FrameBuffer(1_000).feed(
        begin_of_send(send.producer_id, end, previous) + end.data
    )
    whole = send_frame(*(send.producer_id, *numbers), marker=marker, previous_entry=previous, data=data)
    assert (type_, stored, len(command)) == (CommandType.SEND, data, len(whole) - len(data) - 8)
    read = pb.BaseCommand.FromString(command)
    assert read == pb.BaseCommand.FromString(command_in(whole))


# SEND_RECEIPT.


@patient
@given(u64, i64, i64, st.integers(1, 2**32 - 1))
def test_a_receipt_for_several_entries_is_read_by_protobuf_and_by_us(
    producer_id: int, ledger_id: int, entry_id: int, entries: int
) -> None:
    command = command_in(encode_peer_receipt(producer_id, (ledger_id, entry_id), entries))
    receipt = pb.BaseCommand.FromString(command).send_receipt
    assert receipt.IsInitialized()
    assert (receipt.producer_id, receipt.entries) == (producer_id, entries)
    assert (receipt.sequence_id, receipt.highest_sequence_id) == (as_u64(ledger_id), as_u64(entry_id))
    assert decode_peer_receipt(command) == (producer_id, ledger_id, entry_id, entries)


def test_a_receipt_of_a_real_pulsar_confirms_one_entry() -> None:
    command = command_in(encode_receipt(1, 7, 5, 3, 4))
    assert decode_peer_receipt(command) == (1, 7, 5, 1)


@patient
@given(u64, i64, i64, i64, i64)
@example(1, 0, 0, -1, -1)
@example(1, 0, -(2**63), -1, -1)
def test_a_receipt_by_hand_is_read_by_protobuf_and_by_us(
    producer_id: int, sequence_id: int, highest: int, ledger_id: int, entry_id: int
) -> None:
    if entry_id < 0:  # a duplicate
        ledger_id = -1
    command = command_in(encode_receipt(producer_id, sequence_id, highest, ledger_id, entry_id))
    read = pb.BaseCommand.FromString(command)
    assert read.type == CommandType.SEND_RECEIPT
    receipt = read.send_receipt
    assert receipt.producer_id == producer_id
    assert (receipt.sequence_id, receipt.highest_sequence_id) == (as_u64(sequence_id), as_u64(highest))
    assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (as_u64(ledger_id), as_u64(entry_id))
    assert decode_receipt(command) == Receipt(producer_id, sequence_id, highest, ledger_id, entry_id)


@patient
@given(
    u64,
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(-1, 2**62), u64, st.just(0) | u64), max_size=20),
)
@example(1, 5, [(100 + number, number, 0) for number in range(20)])
@example(1, 5, [(number, number, 0) for number in range(16_380, 16_390)])
@example(1, 5, [(7, 1, 0), (-1, 1, 0), (9, 2, 0)])
def test_receipts_are_the_receipts_one_by_one(
    producer_id: int, ledger_id: int, receipts: list[tuple[int, int, int]]
) -> None:
    assert encode_receipts(producer_id, ledger_id, receipts) == b"".join(
        encode_receipt(producer_id, sequence_id, highest, ledger_id, entry_id)
        for entry_id, sequence_id, highest in receipts
    )


def test_a_receipt_without_a_message_id_has_the_position_of_a_duplicate() -> None:
    command = base(CommandType.SEND_RECEIPT)
    command.send_receipt.producer_id, command.send_receipt.sequence_id = 1, 2
    assert decode_receipt(command.SerializeToString()) == Receipt(1, 2, 0, -1, -1)


# MESSAGE.


@patient
@given(u64, i64, i64, st.integers(-1, 2**31 - 1), u32, ack_sets, st.none() | u64, st.binary(max_size=50))
@example(1, 2, 3, -1, 0, None, None, b"")
@example(1, 2, 3, 0, 0, None, 0, b"")
def test_a_message_by_hand_is_read_by_protobuf_and_by_us(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    ack_set: tuple[int, ...] | None,
    consumer_epoch: int | None,
    data: bytes,
) -> None:
    header = message_header(
        consumer_id, ledger_id, entry_id, partition, redelivery_count, ack_set, consumer_epoch, len(data)
    )
    [(type_, command, stored)] = FrameBuffer(1_000).feed(header + data)
    assert (type_, stored) == (CommandType.MESSAGE, data)
    message = pb.BaseCommand.FromString(command).message
    assert (message.consumer_id, message.redelivery_count) == (consumer_id, redelivery_count)
    assert message.message_id == pb.MessageIdData(
        ledgerId=as_u64(ledger_id), entryId=as_u64(entry_id), partition=partition if partition >= 0 else None
    )
    assert message.HasField("redelivery_count") == (redelivery_count > 0)
    assert tuple(message.ack_set) == (ack_set or ())
    assert (message.consumer_epoch if message.HasField("consumer_epoch") else None) == consumer_epoch
    assert decode_message(command) == MessageMeta(
        consumer_id, ledger_id, entry_id, partition, redelivery_count, ack_set, consumer_epoch
    )


# ACK.

acks = st.builds(
    lambda consumer_id, cumulative, ids, request_id, txn, error: AckCommand(
        consumer_id, cumulative, tuple(ids), request_id, txn[0], txn[1], error
    ),
    u64,
    st.booleans(),
    st.lists(ack_ids, max_size=5),
    st.none() | u64,
    transactions,
    st.none() | st.integers(0, 4),
)


def encode_ack_command(ack: AckCommand) -> bytes:
    return encode_ack(**ack._asdict())


def ack_by_protobuf(ack: AckCommand) -> pb.BaseCommand:
    command = base(CommandType.ACK)
    body = command.ack
    body.consumer_id = ack.consumer_id
    body.ack_type = pb.CommandAck.Cumulative if ack.cumulative else pb.CommandAck.Individual
    for ledger, entry, ack_set in ack.ids:
        body.message_id.add(ledgerId=as_u64(ledger), entryId=as_u64(entry), ack_set=ack_set)
    if ack.validation_error is not None:
        body.validation_error = ack.validation_error  # type: ignore[assignment]
    if ack.txn_least is not None and ack.txn_most is not None:
        body.txnid_least_bits, body.txnid_most_bits = ack.txn_least, ack.txn_most
    if ack.request_id is not None:
        body.request_id = ack.request_id
    return command


@patient
@given(acks)
def test_an_ack_by_hand_is_what_protobuf_writes(ack: AckCommand) -> None:
    assert pb.BaseCommand.FromString(encode_ack_command(ack)) == ack_by_protobuf(ack)


@patient
@given(acks)
def test_an_ack_of_any_encoder_is_decoded(ack: AckCommand) -> None:
    """Batch sizes are read in transactions only; these acknowledgements have none."""
    sizes = () if ack.txn_least is None else (0,) * len(ack.ids)
    expected = ack._replace(batch_sizes=sizes)
    assert decode_ack(encode_ack_command(ack)) == expected
    assert decode_ack(ack_by_protobuf(ack).SerializeToString()) == expected


def test_sizes_of_batches_come_across_in_a_transaction() -> None:
    ids = [(1, 2, (-2,)), (1, 3, None)]
    command = encode_ack(5, ids, txn_least=0, txn_most=1, batch_sizes=(4, 0))
    assert decode_ack(command).batch_sizes == (4, 0)


@patient
@given(u64, u64, st.data())
def test_an_ack_with_a_changed_byte_reads_as_protobuf_reads_it(
    ledger: int, entry: int, data: st.DataObject
) -> None:
    """The common form, one per message, is parsed by hand; a slightly different one is not that form."""
    command = bytearray(encode_ack(1, [(ledger, entry, None)]))
    command[data.draw(st.integers(2, len(command) - 1))] = data.draw(st.integers(0, 255))
    try:
        theirs = pb.BaseCommand.FromString(bytes(command))
    except DecodeError:
        with pytest.raises(ProtocolError):
            decode_ack(bytes(command))
        return
    if theirs.ack.HasField("consumer_id"):
        try:
            ours = decode_ack(bytes(command))
        except ProtocolError:  # all fields are required only in a transaction
            assert not theirs.IsInitialized()
            return
        assert ours.consumer_id == theirs.ack.consumer_id
        assert ours.cumulative == (theirs.ack.ack_type == pb.CommandAck.Cumulative)
        if all(each.IsInitialized() for each in theirs.ack.message_id):
            assert [(as_u64(one[0]), as_u64(one[1])) for one in ours.ids] == [
                (each.ledgerId, each.entryId) for each in theirs.ack.message_id
            ]


def test_an_ack_set_may_come_packed() -> None:
    position = b"\x08\x01\x10\x02\x2a\x02\x05\x06"
    body = b"\x08\x01\x10\x00\x1a" + bytes((len(position),)) + position
    packed: AckId = (1, 2, (5, 6))
    assert decode_ack(b"\x08\x0a\x52" + bytes((len(body),)) + body).ids == (packed,)


def test_additional_fields_of_an_acknowledged_id_are_ignored() -> None:
    command = base(CommandType.ACK)
    command.ack.consumer_id, command.ack.ack_type = 1, pb.CommandAck.Individual
    command.ack.message_id.add(ledgerId=7, entryId=8, partition=-1, batch_index=-1, batch_size=0)
    command.ack.properties.add(key="k", value=1)
    assert decode_ack(command.SerializeToString()) == AckCommand(1, False, ((7, 8, None),))


# FLOW.


@patient
@given(u64, u32)
def test_a_flow_by_hand_is_read_by_protobuf_and_by_us(consumer_id: int, permits: int) -> None:
    command = encode_flow(consumer_id, permits)
    flow = pb.BaseCommand.FromString(command).flow
    assert (flow.consumer_id, flow.messagePermits) == (consumer_id, permits)
    assert decode_flow(command) == (consumer_id, permits)


# Behaviour of every decoder on garbage.

DECODERS: dict[Callable[[bytes], object], st.SearchStrategy[bytes]] = {
    decode_send: st.builds(encode_send_command, sends, remarks),
    decode_ack: acks.map(encode_ack_command),
    decode_receipt: st.builds(encode_receipt, u64, i64, i64, i64, i64).map(command_in),
    decode_peer_receipt: st.builds(encode_peer_receipt, u64, st.tuples(i64, i64), u32).map(command_in),
    decode_message: st.builds(message_header, u64, i64, i64, i32, u32, ack_sets, st.none(), st.just(0)).map(
        command_in
    ),
    decode_flow: st.builds(encode_flow, u64, u32),
    decode_command: st.builds(
        lambda topic, value: pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER,
            producer=pb.CommandProducer(topic=topic, producer_id=value, request_id=value),
        ).SerializeToString(),
        text,
        u64,
    ),
}


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@patient
@given(st.data())
def test_damaged_commands_raise_nothing_but_protocol_errors(
    decode: Callable[[bytes], object], data: st.DataObject
) -> None:
    command = data.draw(damaged(DECODERS[decode]))
    problem = refusal(lambda: decode(command))
    assert problem is None or problem.closes_connection


BODYLESS: list[tuple[Callable[[bytes], object], int]] = [
    (decode_send, CommandType.SEND),
    (decode_ack, CommandType.ACK),
    (decode_receipt, CommandType.SEND_RECEIPT),
    (decode_message, CommandType.MESSAGE),
    (decode_flow, CommandType.FLOW),
    (decode_command, CommandType.SUBSCRIBE),
]


@pytest.mark.parametrize(("decode", "type_"), BODYLESS)
def test_a_command_without_its_body_is_rejected(decode: Callable[[bytes], object], type_: int) -> None:
    with pytest.raises(ProtocolError):
        decode(base(type_).SerializeToString())


# Any command.


def test_ping_and_pong_are_complete_frames() -> None:
    assert decode_command(command_in(PING_FRAME)).HasField("ping")
    assert decode_command(command_in(PONG_FRAME)).HasField("pong")


def test_a_ping_may_come_without_a_body() -> None:
    assert decode_command(b"\x08\x12").type == CommandType.PING


def test_the_type_of_a_newer_peers_command_reads_as_not_known() -> None:
    assert decode_command(b"\x08\x4b\xda\x04\x00").type == pb.BaseCommand.NOT_KNOWN


def test_a_command_without_a_required_field_is_rejected() -> None:
    command = base(CommandType.PRODUCER)
    command.producer.topic = "t"
    with pytest.raises(ProtocolError, match="required field of producer"):
        decode_command(command.SerializePartialToString())


def test_a_topic_that_is_not_utf8_is_rejected() -> None:
    body = b"\x0a\x02\xff\xfe\x10\x01\x18\x02"
    with pytest.raises(ProtocolError, match="topic is not UTF-8"):
        decode_command(b"\x08\x05\x2a" + bytes((len(body),)) + body)


def test_odd_clients_may_leave_out_what_has_a_harmless_default() -> None:
    connect = decode_command(base(CommandType.CONNECT).SerializeToString() + b"\x12\x00").connect
    assert connect.protocol_version == 0


@pytest.mark.parametrize("value", [1, -1, -(2**31), 2**31 - 1])
def test_a_waiting_producers_priority_travels_in_field_14(value: int) -> None:
    producer = pb.CommandProducer(queue_priority=value)
    assert producer.SerializePartialToString()[0] == 14 << 3
    assert pb.CommandProducer.FromString(producer.SerializePartialToString()).queue_priority == value


def producer_command(**fields: Any) -> bytes:
    body = pb.CommandProducer(topic="orders", producer_id=1, request_id=2, **fields)
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body).SerializeToString()


def test_a_producer_of_a_client_without_priorities_has_priority_0_and_no_epoch() -> None:
    read = CreateProducer.read(producer_command())
    assert (read.queue_priority, read.topic_epoch, read.access_mode) == (0, None, AccessMode.SHARED)
    waiting = CreateProducer.read(producer_command(queue_priority=-3, topic_epoch=0, producer_access_mode=2))
    assert (waiting.queue_priority, waiting.topic_epoch, waiting.access_mode) == (
        -3,
        0,
        AccessMode.WAIT_FOR_EXCLUSIVE,
    )


def test_the_fields_of_exclusive_access_have_the_numbers_of_the_proposal() -> None:
    numbers = {one.name: one.number for one in pb.CommandProducer.DESCRIPTOR.fields}
    assert (numbers["producer_access_mode"], numbers["topic_epoch"]) == (10, 11)
    assert pb.CommandProducerSuccess.DESCRIPTOR.fields_by_name["topic_epoch"].number == 5


def test_an_id_of_minus_1_takes_ten_bytes_of_ones() -> None:
    assert b"\xff" * 9 + b"\x01" in encode_receipt(1, 0, 0, -1, 0)
    assert decode_receipt(command_in(encode_receipt(1, 0, 0, U64_MAX, U64_MAX)))[3:] == (-1, -1)


def test_frames_by_hand_begin_with_their_sizes() -> None:
    assert frame_of(command_in(encode_receipt(1, 2, 3, 4, 5))) == encode_receipt(1, 2, 3, 4, 5)
