"""SEND and SEND_RECEIPT as plain values; the functions that write them return whole frames."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.frames import BEFORE_BODY_SIZE, SIZES, head_of_frame
from emulator.wire.protobuf import (
    ABSENT_I64,
    ABSENT_U64,
    UNREADABLE,
    VARINT_BYTES_MAX,
    malformed,
    new_tuple,
    present_or_0,
    read_varint,
    tag,
    varint,
)

_read: Final = pb.LeanCommand.FromString
"""Parses a command; a missing body is read as an empty one."""
_pack_sizes: Final = SIZES.pack
_PREVIOUS_ENTRY: Final = tag(103)
_RUN_MESSAGES: Final = tag(104)
NO_PREVIOUS_ENTRY: Final = -1
"""`SendCommand.previous_entry` of the first entry of a stream."""
_SEND: Final = BEFORE_BODY_SIZE[CommandType.SEND]


class SendCommand(NamedTuple):
    """A request to publish one entry, with the fields that a broker uses; the metadata contains the others."""

    producer_id: int
    sequence_id: int
    highest_sequence_id: int = 0
    """Sequence id of the last message of a batch; 0 when absent."""
    txn_least: int | None = None
    """None outside of transactions; (0, 0) is a valid transaction."""
    txn_most: int | None = None
    previous_entry: int | None = None
    """Between regions: id in the source's log of the entry that was sent before this one in the same stream, or
    `NO_PREVIOUS_ENTRY`. None: the id before this entry's own, or the sender is a client or a real Pulsar cluster."""
    run_messages: int = 0
    """Between regions: number of messages in the entry, a run (`wire.codec_hot.message_runs`); 0: it is one message or
    batch."""


def decode_send(command: bytes) -> SendCommand:
    """Read a SEND."""
    return usual_send(command) or _any_send(command)


_USUAL_BODY_BYTES_MAX: Final = 13
"""Size of the body of a SEND up to which each of its two numbers has at most `VARINT_BYTES_MAX` bytes."""


def usual_send(command: bytes) -> SendCommand | None:
    """Parse a SEND with nothing but a producer id and a sequence id by hand: in half of protobuf's time. Returns None
    for every other form, and for numbers that may be absent: `_any_send` parses and checks those."""
    size = len(command) - 4
    if size > _USUAL_BODY_BYTES_MAX or not command.startswith(_SEND):
        return None
    try:
        if command[3] != size or command[4] != 0x08:
            return None
        producer_id, at = command[5], 6
        if producer_id > 127:
            producer_id, at = read_varint(command, 5)
        if command[at] != 0x10:
            return None
        sequence_id, at = read_varint(command, at + 1)
    except IndexError:
        return None
    if at != len(command) or producer_id >= ABSENT_U64 or sequence_id >= ABSENT_U64:
        return None
    return new_tuple(SendCommand, (producer_id, sequence_id, 0, None, None, None, 0))


def _any_send(command: bytes) -> SendCommand:
    try:
        send = _read(command).send
    except UNREADABLE as problem:
        raise malformed("SEND", problem) from None
    producer_id, sequence_id = send.producer_id, send.sequence_id
    if producer_id == ABSENT_U64 or sequence_id == ABSENT_U64:
        raise malformed("SEND", "producer_id or sequence_id is missing")
    highest_sequence_id = send.highest_sequence_id
    txn_least, txn_most = send.txnid_least_bits, send.txnid_most_bits
    previous: int | None = send.previous_entry
    if previous == ABSENT_I64:
        previous = None
    numbers, run_messages = (producer_id, sequence_id, highest_sequence_id), send.run_messages
    if txn_least == txn_most == ABSENT_U64:
        return new_tuple(SendCommand, (*numbers, None, None, previous, run_messages))
    txn = present_or_0(txn_least), present_or_0(txn_most)
    return new_tuple(SendCommand, (*numbers, *txn, previous, run_messages))


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
    previous_entry: int | None = None,
    run_messages: int = 0,
) -> bytes:
    """Return the bytes of a SEND frame before the entry of `data_length` bytes. Fields with default values are
    omitted."""
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
    if previous_entry is not None:
        body += _PREVIOUS_ENTRY + varint(previous_entry)
    if run_messages:
        body += _RUN_MESSAGES + varint(run_messages)
    # The size of the body always fits into one byte.
    size = len(_SEND) + 1 + len(body)
    return _pack_sizes(size + data_length + 4, size) + _SEND + varint(len(body)) + body


class EndOfSend(NamedTuple):
    """The end of a SEND frame, which is the same for the replicators of all remote regions."""

    data: bytes
    """The last fields of the command, and the entry."""
    command_bytes: int
    """Number of bytes of these fields."""


def end_of_send(
    sequence_id: int, num_messages: int, highest_sequence_id: int, *, marker: bool, data: bytes
) -> EndOfSend:
    """Return the end of the frame that sends the entry `data` to other regions."""
    fields = b"\x10" + varint(sequence_id)
    if num_messages != 1:
        fields += b"\x18" + varint(num_messages)
    if highest_sequence_id:
        fields += b"\x30" + varint(highest_sequence_id)
    if marker:
        fields += b"\x40\x01"
    return new_tuple(EndOfSend, (fields + data, len(fields)))


def begin_of_send(producer_id: int, end: EndOfSend, previous_entry: int | None) -> bytes:
    """Return the bytes of a SEND frame before its end."""
    data, command_bytes = end
    if previous_entry is None:  # nearly always
        before = _before_end(producer_id)[command_bytes]
    else:
        body = b"\x08" + varint(producer_id) + _PREVIOUS_ENTRY + varint(previous_entry)
        before = _SEND + varint(len(body) + command_bytes) + body
    size = len(before)
    return _pack_sizes(size + len(data) + 4, size + command_bytes) + before


_END_OF_SEND_BYTES_MAX: Final = 3 * (1 + VARINT_BYTES_MAX) + 2


@lru_cache(maxsize=1024)
def _before_end(producer_id: int) -> list[bytes]:
    """Size of the fields of an `EndOfSend` -> the bytes of the command before them."""
    producer = b"\x08" + varint(producer_id)
    return [_SEND + varint(len(producer) + size) + producer for size in range(_END_OF_SEND_BYTES_MAX + 1)]


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
    previous_entry: int | None = None,
    run_messages: int = 0,
) -> bytes:
    """Return a whole SEND frame; `data` is the entry that the broker stores."""
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
        previous_entry=previous_entry,
        run_messages=run_messages,
    )
    return header + data


# SEND_RECEIPT.


def encode_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
) -> bytes:
    """Return the frame of one receipt, as `encode_receipts` does. Entry id -1: the entry is a duplicate and was not
    stored."""
    entry = varint(entry_id)
    heads = _receipt_id_heads(ledger_id if entry_id >= 0 else -1)
    body = b"\x08" + varint(producer_id) + b"\x10" + varint(sequence_id) + heads[len(entry)] + entry
    if highest_sequence_id:
        body += b"\x20" + varint(highest_sequence_id)
    return _RECEIPT_HEADS[len(body)] + body


def encode_receipts(producer_id: int, ledger_id: int, receipts: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the frames of receipts, in order.

    `receipts`: the id of each entry, and (sequence_id, highest_sequence_id) of its SEND, by which clients match
    receipts. The receipt of a duplicate, which was not stored and has the entry id -1, contains the position -1:-1.
    """
    before_sequence_id = b"\x08" + varint(producer_id) + b"\x10"
    id_heads, duplicate_heads = _receipt_id_heads(ledger_id), _receipt_id_heads(-1)
    frames: list[bytes] = []
    for entry_id, sequence_id, highest_sequence_id in receipts:
        entry = varint(entry_id)
        heads = id_heads if entry_id >= 0 else duplicate_heads
        body = before_sequence_id + varint(sequence_id) + heads[len(entry)] + entry
        if highest_sequence_id:
            body += b"\x20" + varint(highest_sequence_id)
        frames.append(_RECEIPT_HEADS[len(body)] + body)
    return b"".join(frames)


_RECEIPT_BYTES_MAX: Final = 5 * (1 + VARINT_BYTES_MAX) + 2


@lru_cache(maxsize=1024)
def _receipt_id_heads(ledger_id: int) -> list[bytes]:
    """Size of the entry id's varint -> the bytes of a receipt's message id before it."""
    before_entry_id = b"\x08" + varint(ledger_id) + b"\x10"
    return [
        b"\x1a" + varint(len(before_entry_id) + entry_size) + before_entry_id
        for entry_size in range(VARINT_BYTES_MAX + 1)
    ]


_RECEIPT_HEADS: Final = [
    head_of_frame(CommandType.SEND_RECEIPT, size) for size in range(_RECEIPT_BYTES_MAX + 1)
]


class Receipt(NamedTuple):
    """The receipt of one SEND, with signed numbers: a replicator's receipts contain source positions and -1."""

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
    return new_tuple(
        Receipt,
        (producer_id, receipt.sequence_id, receipt.highest_sequence_id, position.ledgerId, position.entryId),
    )


_ENTRIES: Final = tag(103)


def encode_peer_receipt(producer_id: int, position: tuple[int, int], entries: int) -> bytes:
    """Return the frame of one receipt between regions for several entries, which were sent one after the other.

    `position`: the last one's in the sender's log."""
    body = b"\x08" + varint(producer_id) + b"\x10" + varint(position[0]) + b"\x20" + varint(position[1])
    if entries != 1:
        body += _ENTRIES + varint(entries)
    return _RECEIPT_HEADS[len(body)] + body


def decode_peer_receipt(command: bytes) -> tuple[int, int, int, int]:
    """Read (producer id, ledger, entry, number of entries) of a SEND_RECEIPT between regions: its sequence id fields
    contain the position of the last of the entries in the sender's log; -1 in both: none."""
    try:
        receipt = _read(command).send_receipt
    except UNREADABLE as problem:
        raise malformed("SEND_RECEIPT", problem) from None
    if receipt.producer_id == ABSENT_U64:
        raise malformed("SEND_RECEIPT", "producer_id is missing")
    return receipt.producer_id, receipt.sequence_id, receipt.highest_sequence_id, receipt.entries
