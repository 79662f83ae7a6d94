"""The requests of a transaction, NEW_TXN, ADD_PARTITION_TO_TXN and END_TXN, and the responses to them.

Requests in the form in which clients send them are read by hand. Any other form, such as unknown fields, another order,
several topics or a malformed request, is left to `Command.read`, which defines the result.
"""

from __future__ import annotations

from typing import Final

from emulator.wire.command_types import CommandType
from emulator.wire.commands.transactions import AddPartitions, EndTransaction, NewTransaction
from emulator.wire.frames import BEFORE_BODY_SIZE, head_of_frame
from emulator.wire.protobuf import VARINT_BYTES_MAX, read_varint, varint

_NEW: Final = BEFORE_BODY_SIZE[CommandType.NEW_TXN]
_ADD: Final = BEFORE_BODY_SIZE[CommandType.ADD_PARTITION_TO_TXN]
_END: Final = BEFORE_BODY_SIZE[CommandType.END_TXN]
_FIRST, _SECOND, _THIRD = 0x08, 0x10, 0x18
_TOPIC: Final = 0x22
_ACTIONS: Final = {b"\x20\x00": True, b"\x20\x01": False}
"""The end of an END_TXN, and whether it commits."""
_FIELD_BYTES_MAX: Final = 10
"""Size of a field up to which its number is below 2**63. The request ids of a Java client begin at a random number."""

# Requests.


def decode_new_transaction(command: bytes) -> NewTransaction:
    """Read a NEW_TXN. ProtocolError, which closes the connection, for a malformed one."""
    found = _three_numbers(command, _NEW)
    if found is not None and found[3] == len(command):
        return NewTransaction(found[0], found[2], found[1])
    return NewTransaction.read(command)


def decode_add_partitions(command: bytes) -> AddPartitions:
    """Read an ADD_PARTITION_TO_TXN. ProtocolError, which closes the connection, for a malformed one."""
    found = _three_numbers(command, _ADD)
    if found is not None:
        request_id, least, most, at = found
        is_one_topic = len(command) > at + 2 and command[at] == _TOPIC
        if (
            is_one_topic and command[at + 1] == len(command) - at - 2
        ):  # all the rest: there is no second topic
            try:
                return AddPartitions(request_id, most, least, (command[at + 2 :].decode(),))
            except UnicodeDecodeError:
                pass
    return AddPartitions.read(command)


def decode_end_transaction(command: bytes) -> EndTransaction:
    """Read an END_TXN. ProtocolError, which closes the connection, for a malformed one."""
    found = _three_numbers(command, _END)
    if found is not None:
        request_id, least, most, at = found
        commit = _ACTIONS.get(command[at:])
        if commit is not None:
            return EndTransaction(request_id, most, least, commit)
    return EndTransaction.read(command)


def _three_numbers(command: bytes, before_size: bytes) -> tuple[int, int, int, int] | None:
    """Return the numbers of the first three fields of a request that begins with them, and the place behind them; None
    for a request in another form, and for numbers of 2**63 and more."""
    start = len(before_size) + 1
    if not command.startswith(before_size):
        return None
    try:
        if command[start - 1] != len(command) - start or command[start - 1] > 127 or command[start] != _FIRST:
            return None
        first, second_at = read_varint(command, start + 1)
        if command[second_at] != _SECOND:
            return None
        second, third_at = read_varint(command, second_at + 1)
        if command[third_at] != _THIRD:
            return None
        third, end = read_varint(command, third_at + 1)
    except IndexError:
        return None
    if max(second_at - start, third_at - second_at, end - third_at) > _FIELD_BYTES_MAX:
        return None
    return first, second, third, end


# Responses.

_RESPONSE_BYTES_MAX: Final = 3 * (1 + VARINT_BYTES_MAX)
_NEW_HEADS, _ADD_HEADS, _ADD_SUBSCRIPTION_HEADS, _END_HEADS = (
    [head_of_frame(type_, size) for size in range(_RESPONSE_BYTES_MAX + 1)]
    for type_ in (
        CommandType.NEW_TXN_RESPONSE,
        CommandType.ADD_PARTITION_TO_TXN_RESPONSE,
        CommandType.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        CommandType.END_TXN_RESPONSE,
    )
)
"""Size of the body of a successful response -> the bytes of its frame before the body."""


def encode_new_transaction_response(request_id: int, most: int, least: int) -> bytes:
    """Return the frame of a `NewTransactionResponse` without an error."""
    return _response(_NEW_HEADS, request_id, most, least)


def encode_add_partitions_response(request_id: int, most: int, least: int) -> bytes:
    """Return the frame of an `AddPartitionsResponse` without an error."""
    return _response(_ADD_HEADS, request_id, most, least)


def encode_add_subscriptions_response(request_id: int, most: int, least: int) -> bytes:
    """Return the frame of an `AddSubscriptionsResponse` without an error."""
    return _response(_ADD_SUBSCRIPTION_HEADS, request_id, most, least)


def encode_end_transaction_response(request_id: int, most: int, least: int) -> bytes:
    """Return the frame of an `EndTransactionResponse` without an error."""
    return _response(_END_HEADS, request_id, most, least)


def _response(heads: list[bytes], request_id: int, most: int, least: int) -> bytes:
    body = b"\x08" + varint(request_id) + b"\x10" + varint(least) + b"\x18" + varint(most)
    return heads[len(body)] + body
