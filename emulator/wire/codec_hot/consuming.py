"""MESSAGE, ACK and FLOW as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple, Protocol

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.frames import BEFORE_BODY_SIZE, SIZES, command_bytes, head_of_frame
from emulator.wire.protobuf import (
    ABSENT_I32,
    ABSENT_U64,
    UNREADABLE,
    VARINT_BYTES_MAX,
    VARINT_LOW,
    malformed,
    new_tuple,
    parse,
    present_or_0,
    read_varint,
    tag,
    varint,
    varints_from,
)

_read: Final = pb.LeanCommand.FromString
"""Parses a command; a missing body is read as an empty one."""
_pack_sizes: Final = SIZES.pack

# MESSAGE.

_MESSAGE: Final = BEFORE_BODY_SIZE[CommandType.MESSAGE]


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
    """Return the bytes of a MESSAGE frame before the stored entry of `data_length` bytes.

    `partition`: -1 for a topic that is no partition. `ack_set`: i64 words whose set bits are the unacknowledged
    messages of a partly acknowledged batch. `consumer_epoch`: None if the consumer sent none.
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


class DispatchedEntry(Protocol):
    """A stored entry that is dispatched."""

    entry_id: int
    data: bytes


def message_frames(
    consumer_id: int,
    ledger_id: int,
    partition: int,
    consumer_epoch: int | None,
    entries: Sequence[DispatchedEntry],
) -> list[bytes]:
    """Return the MESSAGE frames of whole entries that were not dispatched before, in parts: what `message_header` and
    the entries would be, in a third of the time. Nearly always the entry ids follow each other."""
    heads, tail = _message_parts(consumer_id, ledger_id, partition, consumer_epoch)
    parts: list[bytes] = []
    begins: dict[int, bytes] = {}
    next_id = end_id = -1
    for entry in entries:
        entry_id, data = entry.entry_id, entry.data
        if entry_id != next_id or entry_id == end_id:  # ids of another size, or of another part of the table
            table, rest, end_id = varints_from(entry_id)
            number = table[entry_id & VARINT_LOW]
            head = heads[len(number) + len(rest)]
            rest += tail
            body_bytes = len(head) + len(number) + len(rest)
            begins = {}
        size = len(data)
        begin = begins.get(size)
        if begin is None:
            before_body = _MESSAGE + varint(body_bytes)
            command_size = len(before_body) + body_bytes
            begin = begins[size] = _pack_sizes(command_size + 4 + size, command_size) + before_body + head
        parts += (begin, table[entry_id & VARINT_LOW] + rest, data)
        next_id = entry_id + 1
    return parts


@lru_cache(maxsize=4096)
def _message_parts(
    consumer_id: int, ledger_id: int, partition: int, consumer_epoch: int | None
) -> tuple[list[bytes], bytes]:
    """Return the bytes that the messages of a consumer share: those before the entry id (by the size of its
    varint), and those after it."""
    before_id = b"\x08" + varint(consumer_id)
    before_entry_id = b"\x08" + varint(ledger_id) + b"\x10"
    tail = b"\x18" + varint(partition) if partition >= 0 else b""
    heads = [
        before_id + b"\x12" + varint(len(before_entry_id) + entry_size + len(tail)) + before_entry_id
        for entry_size in range(VARINT_BYTES_MAX + 1)
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
    return new_tuple(
        MessageMeta,
        (
            consumer_id,
            position.ledgerId,
            position.entryId,
            position.partition,
            message.redelivery_count,
            # Access to an empty repeated field is slow; the tag's byte may also be part of another field.
            tuple(message.ack_set) or None if _may_have_ack_set(command) else None,
            None if epoch == ABSENT_U64 else epoch,
        ),
    )


_MESSAGE_ACK_SET_TAG: Final = tag(4)[0]
_MESSAGE_ACK_SET_PACKED_TAG: Final = tag(4, 2)[0]


def _may_have_ack_set(command: bytes) -> bool:
    return _MESSAGE_ACK_SET_TAG in command or _MESSAGE_ACK_SET_PACKED_TAG in command


# ACK.

AckId = tuple[int, int, tuple[int, ...] | None]
"""(ledger, entry, ack set); an ack set of None acknowledges the whole entry."""


class AckCommand(NamedTuple):
    """A consumer's acknowledgement of entries."""

    consumer_id: int
    cumulative: bool
    ids: tuple[AckId, ...]
    request_id: int | None = None
    """Present when the consumer expects a response."""
    txn_least: int | None = None
    txn_most: int | None = None
    validation_error: int | None = None
    batch_sizes: tuple[int, ...] = ()
    """Number of messages in each entry, in transactions only; 0: not given."""


_CUMULATIVE: Final = 1
_ACK_SET_TAG: Final = tag(5)[0]
_ACK_SET_PACKED_TAG: Final = tag(5, 2)[0]
"""Tags of an ack set in single words and packed; protobuf's readers accept both."""


def decode_ack(command: bytes) -> AckCommand:
    """Read an ACK."""
    return _usual_ack(command) or _any_ack(command)


_ACK: Final = BEFORE_BODY_SIZE[CommandType.ACK]


def _usual_ack(command: bytes) -> AckCommand | None:
    """Parse an ACK of one whole entry, without a request id, by hand: in half of protobuf's time for nested messages.
    Returns None for every other form, and for numbers that may be negative: `_any_ack` parses and checks those."""
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
        return new_tuple(AckCommand, (consumer_id, type_ == _CUMULATIVE, ids, None, None, None, None, ()))
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
    return new_tuple(
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
    """Return the batch sizes, which only transactions need and the lean form omits."""
    try:
        ids = parse(pb.BaseCommand, command).ack.message_id
    except UNREADABLE as problem:
        raise malformed("ACK", problem) from None
    return tuple([max(0, each.batch_size) for each in ids])


def _ack_ids(ack: pb.LeanAck, command: bytes) -> tuple[AckId, ...]:
    # Access to an empty repeated field is slow, and most acknowledgements have no ack sets.
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
    """Return the command of an ACK for `ids`: (ledger, entry, ack set or None); exactly one if `cumulative`.
    `batch_sizes`: number of messages in each entry, 0 for no batch; required in transactions."""
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
    return command_bytes(CommandType.ACK, b"".join(parts))


def encode_ack_response(consumer_id: int, request_id: int) -> bytes:
    """Return the frame of an ACK_RESPONSE, which confirms that an acknowledgement is durable."""
    body = b"\x08" + varint(consumer_id) + b"\x30" + varint(request_id)
    return head_of_frame(CommandType.ACK_RESPONSE, len(body)) + body


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
    """Return the command of a FLOW."""
    return command_bytes(CommandType.FLOW, b"\x08" + varint(consumer_id) + b"\x10" + varint(permits))
