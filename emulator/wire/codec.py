"""Commands. The hot ones as plain values, all others as protobuf objects.

Naming: `decode_x` reads BaseCommand bytes, `encode_x` writes them, `x_frame` writes a whole frame. Receipts and
message headers are only ever sent, so their functions write frames (a header lacks just the entry behind it).

Signs: protobuf says u64 for everything, and Pulsar means -1 by 2**64-1 where a position says "none". Ledgers,
entries and what comes back in a receipt are therefore signed here. Producer, consumer, request, sequence and
transaction numbers of other commands stay u64, as protobuf shows them. Encoders take either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.frames import SIZES, simple_frame
from emulator.wire.protobuf import (
    ABSENT_I32,
    ABSENT_U64,
    UNREADABLE,
    malformed,
    parse,
    present_or_0,
    read_varint,
    tag,
    varint,
)

__all__ = [
    "PING_FRAME",
    "PONG_FRAME",
    "AckCommand",
    "AckId",
    "CommandType",
    "MessageMeta",
    "Receipt",
    "SendCommand",
    "decode_ack",
    "decode_flow",
    "decode_message",
    "decode_peer_receipt",
    "decode_receipt",
    "decode_send",
    "encode_ack",
    "encode_ack_response",
    "encode_flow",
    "encode_receipt",
    "encode_receipts",
    "encode_send",
    "message_header",
    "send_frame",
    "send_header",
]

PING_FRAME: Final = simple_frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
PONG_FRAME: Final = simple_frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))

# How a command lies in bytes: type, then the body in the field of the same number.

_BEFORE_BODY_SIZE: Final = {
    number: tag(1) + varint(number) + tag(number, 2) for number in pb.BaseCommand.Type.values()
}
"""Command type -> everything before the size of its body."""


def _command(type_: int, body: bytes) -> bytes:
    return _BEFORE_BODY_SIZE[type_] + varint(len(body)) + body


_read: Final = pb.LeanCommand.FromString
"""A body that is missing reads as one that says nothing."""


# SEND.

_pack_sizes: Final = SIZES.pack


class SendCommand(NamedTuple):
    """A client's wish to publish one entry: what of it a broker acts upon. The entry's metadata says the rest."""

    producer_id: int
    sequence_id: int
    highest_sequence_id: int = 0
    """Sequence id of the last message of a batch; 0 when absent."""
    txn_least: int | None = None
    """None outside of transactions; (0, 0) is a valid transaction."""
    txn_most: int | None = None


_new_tuple: Final = tuple.__new__
"""Makes a NamedTuple in half the time of its own constructor; values in the order of the fields."""


def decode_send(command: bytes) -> SendCommand:
    """Read a SEND."""
    try:
        send = _read(command).send
    except UNREADABLE as problem:
        raise malformed("SEND", problem) from None
    producer_id, sequence_id = send.producer_id, send.sequence_id
    if producer_id == ABSENT_U64 or sequence_id == ABSENT_U64:
        raise malformed("SEND", "producer_id or sequence_id is missing")
    highest_sequence_id = send.highest_sequence_id
    txn_least, txn_most = send.txnid_least_bits, send.txnid_most_bits
    if txn_least == txn_most == ABSENT_U64:
        return _new_tuple(SendCommand, (producer_id, sequence_id, highest_sequence_id, None, None))
    txn = present_or_0(txn_least), present_or_0(txn_most)
    return _new_tuple(SendCommand, (producer_id, sequence_id, highest_sequence_id, *txn))


def encode_send(
    producer_id: int,
    sequence_id: int,
    num_messages: int = 1,
    highest_sequence_id: int = 0,
    *,
    txn_least: int | None = None,
    txn_most: int | None = None,
    is_chunk: bool = False,
    marker: bool = False,
) -> bytes:
    """The command of a SEND; what has its default value is left out."""
    body = _send_body(
        producer_id,
        sequence_id,
        num_messages,
        highest_sequence_id,
        txn_least,
        txn_most,
        is_chunk,
        marker,
    )
    return _command(CommandType.SEND, body)


_SEND: Final = _BEFORE_BODY_SIZE[CommandType.SEND]


def _send_body(
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    highest_sequence_id: int,
    txn_least: int | None,
    txn_most: int | None,
    is_chunk: bool,
    marker: bool,
) -> bytes:
    """Never so large that its size takes more than one byte."""
    body = b"\x08" + varint(producer_id) + b"\x10" + varint(sequence_id)
    if num_messages != 1:
        body += b"\x18" + varint(num_messages)
    if txn_least is not None or txn_most is not None:
        body += b"\x20" + varint(txn_least or 0) + b"\x28" + varint(txn_most or 0)
    if highest_sequence_id:
        body += b"\x30" + varint(highest_sequence_id)
    if is_chunk:
        body += b"\x38\x01"
    if marker:
        body += b"\x40\x01"
    return body


def send_header(
    producer_id: int,
    sequence_id: int,
    num_messages: int = 1,
    highest_sequence_id: int = 0,
    *,
    data_length: int,
    txn_least: int | None = None,
    txn_most: int | None = None,
    is_chunk: bool = False,
    marker: bool = False,
) -> bytes:
    """Everything of a SEND before the entry of `data_length` bytes, which follows as it is to be stored."""
    body = _send_body(
        producer_id,
        sequence_id,
        num_messages,
        highest_sequence_id,
        txn_least,
        txn_most,
        is_chunk,
        marker,
    )
    size = len(_SEND) + 1 + len(body)
    return _pack_sizes(size + data_length + 4, size) + _SEND + varint(len(body)) + body


def send_frame(
    producer_id: int,
    sequence_id: int,
    num_messages: int = 1,
    highest_sequence_id: int = 0,
    *,
    data: bytes,
    txn_least: int | None = None,
    txn_most: int | None = None,
    is_chunk: bool = False,
    marker: bool = False,
) -> bytes:
    """A whole SEND; `data` is the entry as it is to be stored."""
    header = send_header(
        producer_id,
        sequence_id,
        num_messages,
        highest_sequence_id,
        data_length=len(data),
        txn_least=txn_least,
        txn_most=txn_most,
        is_chunk=is_chunk,
        marker=marker,
    )
    return header + data


# SEND_RECEIPT.


def encode_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
) -> bytes:
    """One receipt as a whole frame. Position (-1, -1) says: a duplicate, nothing was stored."""
    return encode_receipts(producer_id, ledger_id, entry_id, ((sequence_id, highest_sequence_id),))


def encode_receipts(
    producer_id: int, ledger_id: int, first_entry_id: int, sends: Iterable[tuple[int, int]]
) -> bytes:
    """Frames of receipts for entries stored one after the other, in that order.

    `sends` are (sequence_id, highest_sequence_id) as the SENDs had them: clients match receipts by these.
    """
    before_sequence_id = b"\x08" + varint(producer_id) + b"\x10"
    id_heads = _receipt_id_heads(ledger_id)
    frames: list[bytes] = []
    for entry_id, (sequence_id, highest_sequence_id) in enumerate(sends, first_entry_id):
        entry = varint(entry_id)
        body = before_sequence_id + varint(sequence_id) + id_heads[len(entry)] + entry
        if highest_sequence_id:
            body += b"\x20" + varint(highest_sequence_id)
        frames.append(_RECEIPT_HEADS[len(body)] + body)
    return b"".join(frames)


_VARINT_BYTES_MAX: Final = 10
_RECEIPT_BYTES_MAX: Final = 5 * (1 + _VARINT_BYTES_MAX) + 2


@lru_cache(maxsize=1024)
def _receipt_id_heads(ledger_id: int) -> list[bytes]:
    """By the size of the entry id's varint: a receipt's message id up to that varint."""
    before_entry_id = b"\x08" + varint(ledger_id) + b"\x10"
    return [
        b"\x1a" + varint(len(before_entry_id) + entry_size) + before_entry_id
        for entry_size in range(_VARINT_BYTES_MAX + 1)
    ]


def _head(type_: int, body_size: int) -> bytes:
    """Everything of a simple frame before its body."""
    before_body = _BEFORE_BODY_SIZE[type_] + varint(body_size)
    command_size = len(before_body) + body_size
    return SIZES.pack(command_size + 4, command_size) + before_body


_RECEIPT_HEADS: Final = [_head(CommandType.SEND_RECEIPT, size) for size in range(_RECEIPT_BYTES_MAX + 1)]


class Receipt(NamedTuple):
    """What a broker says about one SEND. Signed: a replicator's receipts carry source positions and -1."""

    producer_id: int
    sequence_id: int
    highest_sequence_id: int
    ledger_id: int
    entry_id: int


def decode_receipt(command: bytes) -> Receipt:
    """Read a SEND_RECEIPT. Without a message id the position is (-1, -1)."""
    try:
        receipt = _read(command).send_receipt
    except UNREADABLE as problem:
        raise malformed("SEND_RECEIPT", problem) from None
    producer_id = receipt.producer_id
    if producer_id == ABSENT_U64:
        raise malformed("SEND_RECEIPT", "producer_id is missing")
    position = receipt.message_id
    return _new_tuple(
        Receipt,
        (
            producer_id,
            receipt.sequence_id,
            receipt.highest_sequence_id,
            position.ledgerId,
            position.entryId,
        ),
    )


def decode_peer_receipt(command: bytes) -> tuple[int, int, int]:
    """Read (producer id, ledger, entry) of a SEND_RECEIPT between regions: the position in the sender's log, at the
    place of the sequence ids. -1 for both: none."""
    try:
        receipt = _read(command).send_receipt
    except UNREADABLE as problem:
        raise malformed("SEND_RECEIPT", problem) from None
    if receipt.producer_id == ABSENT_U64:
        raise malformed("SEND_RECEIPT", "producer_id is missing")
    return receipt.producer_id, receipt.sequence_id, receipt.highest_sequence_id


# MESSAGE.


def message_header(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    ack_set: Sequence[int] | None,
    consumer_epoch: int | None,
    data_length: int,
) -> bytes:
    """Everything of a MESSAGE frame before the stored entry of `data_length` bytes.

    `partition` -1 for a topic that is no partition. `ack_set` (i64 words; bits still set are not acknowledged)
    only when parts of a batch are acknowledged already. `consumer_epoch` None when the consumer never sent one.
    """
    entry = varint(entry_id)
    heads, tail = _message_parts(consumer_id, ledger_id, partition, consumer_epoch)
    body = heads[len(entry)] + entry + tail
    if redelivery_count:
        body += b"\x18" + varint(redelivery_count)
    if ack_set:
        body += b"".join([b"\x20" + varint(word) for word in ack_set])
    before_body = _MESSAGE + varint(len(body))
    command_size = len(before_body) + len(body)
    return _pack_sizes(command_size + 4 + data_length, command_size) + before_body + body


_MESSAGE: Final = _BEFORE_BODY_SIZE[CommandType.MESSAGE]


@lru_cache(maxsize=4096)
def _message_parts(
    consumer_id: int, ledger_id: int, partition: int, consumer_epoch: int | None
) -> tuple[list[bytes], bytes]:
    """What one message of a consumer shares with the next: all before the entry id (by the size of its
    varint), and all after it."""
    before_id = b"\x08" + varint(consumer_id)
    before_entry_id = b"\x08" + varint(ledger_id) + b"\x10"
    tail = b"\x18" + varint(partition) if partition >= 0 else b""
    heads = [
        before_id + b"\x12" + varint(len(before_entry_id) + entry_size + len(tail)) + before_entry_id
        for entry_size in range(_VARINT_BYTES_MAX + 1)
    ]
    if consumer_epoch is not None:
        tail += b"\x28" + varint(consumer_epoch)
    return heads, tail


class MessageMeta(NamedTuple):
    """The command part of a MESSAGE."""

    consumer_id: int
    ledger: int
    entry: int
    partition: int
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    consumer_epoch: int | None


def decode_message(command: bytes) -> MessageMeta:
    """Read the command of a MESSAGE, as a client does."""
    try:
        message = _read(command).message
    except UNREADABLE as problem:
        raise malformed("MESSAGE", problem) from None
    consumer_id = message.consumer_id
    if consumer_id == ABSENT_U64 or not message.HasField("message_id"):
        raise malformed("MESSAGE", "consumer_id or message_id is missing")
    position = message.message_id
    epoch = message.consumer_epoch
    return _new_tuple(
        MessageMeta,
        (
            consumer_id,
            position.ledgerId,
            position.entryId,
            position.partition,
            message.redelivery_count,
            # Touching an empty repeated field is dear; the bytes may be there for other reasons.
            tuple(message.ack_set) or None if _holds_ack_set(command) else None,
            None if epoch == ABSENT_U64 else epoch,
        ),
    )


_MESSAGE_ACK_SET_TAG: Final = tag(4)[0]
_MESSAGE_ACK_SET_PACKED_TAG: Final = tag(4, 2)[0]


def _holds_ack_set(command: bytes) -> bool:
    return _MESSAGE_ACK_SET_TAG in command or _MESSAGE_ACK_SET_PACKED_TAG in command


# ACK.

AckId = tuple[int, int, tuple[int, ...] | None]
"""(ledger, entry, ack_set); the set is None when the whole entry is meant."""


class AckCommand(NamedTuple):
    """What a consumer is done with."""

    consumer_id: int
    cumulative: bool
    ids: tuple[AckId, ...]
    request_id: int | None = None
    """Present when an answer is wanted."""
    txn_least: int | None = None
    txn_most: int | None = None
    validation_error: int | None = None
    batch_sizes: tuple[int, ...] = ()
    """In transactions: how many messages each entry has, 0 where that is not said."""


_CUMULATIVE: Final = 1
_ACK_SET_TAG: Final = tag(5)[0]
_ACK_SET_PACKED_TAG: Final = tag(5, 2)[0]
"""Single words, and packed: protobuf's readers take both."""


def decode_ack(command: bytes) -> AckCommand:
    """Read an ACK."""
    return _usual_ack(command) or _any_ack(command)


_ACK: Final = _BEFORE_BODY_SIZE[CommandType.ACK]


def _usual_ack(command: bytes) -> AckCommand | None:
    """Parse an ACK of one whole entry without a response by hand: half of protobuf's time for nested messages. None for
    every other form, and for numbers that may be negative: protobuf parses and checks those."""
    try:
        if not (command.startswith(_ACK) and command[3] == len(command) - 4 < 128 and command[4] == 0x08):
            return None
        consumer_id, at = read_varint(command, 5)
        type_ = command[at + 1]
        if command[at] != 0x10 or type_ > _CUMULATIVE or command[at + 2] != 0x1A or command[at + 4] != 0x08:
            return None
        size, at = command[at + 3], at + 4
        if size != len(command) - at:
            return None
        ledger, at = read_varint(command, at + 1)
        if command[at] != 0x10:
            return None
        entry, at = read_varint(command, at + 1)
        if at != len(command) or consumer_id >= ABSENT_U64 or ledger >= ABSENT_U64 or entry >= ABSENT_U64:
            return None
        ids = ((ledger, entry, None),)
        return _new_tuple(AckCommand, (consumer_id, type_ == _CUMULATIVE, ids, None, None, None, None, ()))
    except IndexError:
        return None


def _any_ack(command: bytes) -> AckCommand:
    try:
        ack = _read(command).ack
    except UNREADABLE as problem:
        raise malformed("ACK", problem) from None
    consumer_id = ack.consumer_id
    if consumer_id == ABSENT_U64:
        raise malformed("ACK", "consumer_id is missing")
    txn_least, txn_most = ack.txnid_least_bits, ack.txnid_most_bits
    no_txn = txn_least == txn_most == ABSENT_U64
    request_id = ack.request_id
    validation_error = ack.validation_error
    return _new_tuple(
        AckCommand,
        (
            consumer_id,
            ack.ack_type == _CUMULATIVE,
            _ack_ids(ack, command),
            None if request_id == ABSENT_U64 else request_id,
            None if no_txn else present_or_0(txn_least),
            None if no_txn else present_or_0(txn_most),
            None if validation_error == ABSENT_I32 else validation_error,
            () if no_txn else _batch_sizes(command),
        ),
    )


def _batch_sizes(command: bytes) -> tuple[int, ...]:
    """Only transactions need them, so the lean form does not have them."""
    try:
        ids = parse(pb.BaseCommand, command).ack.message_id
    except UNREADABLE as problem:
        raise malformed("ACK", problem) from None
    return tuple([max(0, each.batch_size) for each in ids])


def _ack_ids(ack: pb.LeanAck, command: bytes) -> tuple[AckId, ...]:
    # Touching an empty repeated field is dear, and most acknowledgments have no ack sets.
    if _ACK_SET_TAG in command or _ACK_SET_PACKED_TAG in command:
        return tuple([(each.ledgerId, each.entryId, tuple(each.ack_set) or None) for each in ack.message_id])
    return tuple([(each.ledgerId, each.entryId, None) for each in ack.message_id])


def encode_ack(
    consumer_id: int,
    ids: Iterable[tuple[int, int, Sequence[int] | None]],
    *,
    cumulative: bool = False,
    request_id: int | None = None,
    txn_least: int | None = None,
    txn_most: int | None = None,
    validation_error: int | None = None,
    batch_sizes: Iterable[int] = (),
) -> bytes:
    """The command of an ACK for (ledger, entry, ack_set or None) each. Cumulative takes exactly one. `batch_sizes`: of
    each entry, 0 for no batch; transactions need them."""
    parts = [b"\x08", varint(consumer_id), b"\x10\x01" if cumulative else b"\x10\x00"]
    for (ledger, entry, ack_set), batch_size in zip(ids, chain(batch_sizes, repeat(0)), strict=False):
        message_id = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
        if ack_set:
            message_id += b"".join([b"\x28" + varint(word) for word in ack_set])
        if batch_size:
            message_id += b"\x30" + varint(batch_size)
        parts += (b"\x1a", varint(len(message_id)), message_id)
    if validation_error is not None:
        parts += (b"\x20", varint(validation_error))
    if txn_least is not None or txn_most is not None:
        parts += (b"\x30", varint(txn_least or 0), b"\x38", varint(txn_most or 0))
    if request_id is not None:
        parts += (b"\x40", varint(request_id))
    return _command(CommandType.ACK, b"".join(parts))


def encode_ack_response(consumer_id: int, request_id: int) -> bytes:
    """The frame of an ACK_RESPONSE: the acknowledgement is durable."""
    body = b"\x08" + varint(consumer_id) + b"\x30" + varint(request_id)
    return _head(CommandType.ACK_RESPONSE, len(body)) + body


# FLOW.


def decode_flow(command: bytes) -> tuple[int, int]:
    """Read a FLOW: (consumer_id, permits)."""
    try:
        flow = _read(command).flow
    except UNREADABLE as problem:
        raise malformed("FLOW", problem) from None
    if flow.consumer_id == ABSENT_U64:
        raise malformed("FLOW", "consumer_id is missing")
    return flow.consumer_id, flow.messagePermits


def encode_flow(consumer_id: int, permits: int) -> bytes:
    """The command of a FLOW."""
    return _command(CommandType.FLOW, b"\x08" + varint(consumer_id) + b"\x10" + varint(permits))
