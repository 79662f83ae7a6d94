"""Helpers for protobuf: parsing, presence, and encoding by hand.

Measured: parsing a small message with protobuf's C core takes 0.25 µs, reading a number from it 0.06 µs and each nested
message 0.2 µs; a loop over the bytes in Python takes 0.15 to 0.3 µs per field. Building and serializing a message takes
several times as long as joining prepared bytes. So the package reads with protobuf (the lean forms in `pulsar.proto`),
except for acknowledgements, and writes its hot commands by hand.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType

MASK_64: Final = 2**64 - 1
VARINT_BYTES_MAX: Final = 10
new_tuple: Final = tuple.__new__
"""Creates a NamedTuple in half the time of its constructor, from values in the order of the fields."""

ABSENT_U64: Final = 2**63
"""Value of an absent u64 field in the lean forms; see pulsar.proto."""
ABSENT_I64: Final = -(2**63)
ABSENT_I32: Final = -(2**31)


def present_or_0(value: int) -> int:
    """Return one half of a transaction id; 0 if it is absent."""
    return 0 if value == ABSENT_U64 else value


# Errors.


class Malformed(ValueError):
    """Bytes that cannot be parsed. Internal to the package, which converts it to a ProtocolError (`malformed`)."""


UNREADABLE: Final = (DecodeError, ValueError)
"""Errors of parsing invalid bytes; ValueError includes invalid UTF-8 and Malformed."""


def malformed(what: str, cause: object, *, closes_connection: bool = True) -> ProtocolError:
    """Return the error for received bytes that cannot be parsed. `what` describes them, for example "SEND"."""
    return ProtocolError(
        ServerError.UnknownError, f"unreadable {what}: {cause}", closes_connection=closes_connection
    )


# Reading.

_Read = TypeVar("_Read", bound=Message)


def parse(message_type: type[_Read], data: bytes) -> _Read:
    """Parse a message. Raises one of UNREADABLE if a required field is missing or a string is not UTF-8."""
    message = message_type.FromString(data)
    if not message.IsInitialized():
        raise Malformed("a required field is missing")
    require_text(message)
    return message


_WITH_TEXT: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)


def may_have_text(message_type: Any) -> bool:
    """Whether messages of a type may contain strings, which `require_text` checks."""
    return any(field.type in _WITH_TEXT for field in message_type.fields)


class _TextFields:
    """The fields of a type of messages that may contain strings, by name."""

    __slots__ = ("messages", "repeated", "strings")

    def __init__(self, message_type: Any) -> None:
        found = [field for field in message_type.fields if field.type in _WITH_TEXT]
        single = [field for field in found if not field.is_repeated]
        self.repeated = [field.name for field in found if field.is_repeated]
        self.strings = [field.name for field in single if field.type == FieldDescriptor.TYPE_STRING]
        self.messages = [field.name for field in single if field.type == FieldDescriptor.TYPE_MESSAGE]


_text_fields: Final[dict[type[Message], _TextFields]] = {}
"""Type of messages -> its fields with text. Much quicker to visit than all fields with their descriptors."""


def require_text(message: Message) -> None:
    """Raise Malformed for a string that is not UTF-8, which protobuf returns as bytes."""
    type_ = type(message)
    text = _text_fields.get(type_)
    if text is None:
        text = _text_fields[type_] = _TextFields(type_.DESCRIPTOR)
    for name in text.strings:
        if not isinstance(getattr(message, name), str):
            raise Malformed(f"{name} is not UTF-8")
    for name in text.messages:
        if message.HasField(name):
            require_text(getattr(message, name))
    for name in text.repeated:
        for each in getattr(message, name):
            if isinstance(each, Message):
                require_text(each)
            elif not isinstance(each, str):
                raise Malformed(f"{name} is not UTF-8")


BODY_NAMES: Final = {
    number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name
    for number in pb.BaseCommand.Type.values()
    if number != pb.BaseCommand.NOT_KNOWN
}
"""Command type -> name of the field with its body."""
_TYPES_WITH_TEXT: Final = frozenset(
    number
    for number, name in BODY_NAMES.items()
    if may_have_text(pb.BaseCommand.DESCRIPTOR.fields_by_name[name].message_type)
)
_OPTIONAL_BODIES: Final = frozenset((CommandType.PING, CommandType.PONG))
"""Command types whose body may be missing, because it has no fields."""


def decode_command(command: bytes) -> pb.BaseCommand:
    """Parse any command as a protobuf object. Raises ProtocolError if its body or a required field is missing, or a
    string is not UTF-8.

    A type that is newer than this version of the protocol is read as NOT_KNOWN, which callers ignore.
    """
    try:
        decoded = pb.BaseCommand.FromString(command)
        if decoded.type != pb.BaseCommand.NOT_KNOWN:
            _require_complete(decoded)
    except UNREADABLE as problem:
        raise malformed("command", problem) from None
    return decoded


def _require_complete(command: pb.BaseCommand) -> None:
    body_name = BODY_NAMES[command.type]
    if command.type not in _OPTIONAL_BODIES and not command.HasField(body_name):
        raise Malformed(f"{body_name} is missing")
    if not command.IsInitialized():
        raise Malformed(f"a required field of {body_name} is missing")
    if command.type in _TYPES_WITH_TEXT:
        require_text(getattr(command, body_name))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint that begins at `at`, and its end. Raises IndexError when it exceeds the data. The number may be
    larger than MASK_64; callers must check it."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        if byte < 128:
            return value | byte << shift, at
        value |= (byte & 127) << shift
        shift += 7


# Writing.

_TABLE_SIZE: Final = 128 * 128
_FOUR_BYTES_END: Final = _TABLE_SIZE * _TABLE_SIZE
_LOW: Final = [bytes((value,)) for value in range(128)]
_LOW_CONTINUED: Final = [bytes((value | 128,)) for value in range(128)]
_VARINTS: Final = _LOW + [low + high for high in _LOW[1:] for low in _LOW_CONTINUED]
"""Number -> varint, for all varints of one or two bytes."""
_CONTINUED: Final = [low + high for high in _LOW_CONTINUED for low in _LOW_CONTINUED]
"""Low 14 bits of a number -> the first two bytes of a longer varint."""


def varint(value: int) -> bytes:
    """Encode a number; a negative one as its two's complement of 64 bits, in ten bytes."""
    if 0 <= value < _TABLE_SIZE:
        return _VARINTS[value]
    if 0 <= value < _FOUR_BYTES_END:
        return _CONTINUED[value & 16383] + _VARINTS[value >> 14]
    value &= MASK_64
    return _CONTINUED[value & 16383] + _CONTINUED[value >> 14 & 16383] + _high_varint(value >> 28)


@lru_cache(maxsize=1024)
def _high_varint(value: int) -> bytes:
    """Encode a number above the low 28 bits of another one. Times, and the request ids of a Java client, which begin at
    a random number of 63 bits, share them for long."""
    return varint(value)


VARINT_LOW: Final = _TABLE_SIZE - 1
"""The bits of a number that select an entry of the table of `varints_from`."""


def varints_from(number: int) -> tuple[list[bytes], bytes, int]:
    """Return (table, rest, end): the varint of each n from `number` to end - 1 is table[n & VARINT_LOW] + rest, and all
    have the same size. For loops over numbers that follow each other, at a quarter of the costs of calls."""
    if number < _TABLE_SIZE:
        return _VARINTS, b"", _TABLE_SIZE if number > 127 else 128
    return _CONTINUED, varint(number >> 14), (number | VARINT_LOW) + 1


def varints(first: int, count: int) -> list[bytes]:
    """Encode `count` numbers from `first` on, up to the first one whose varint is longer, or differs in more than its
    first two bytes. At least one."""
    low = first & 16383
    if first >= _TABLE_SIZE:
        high = varint(first >> 14)
        return [begin + high for begin in _CONTINUED[low : low + count]]
    return _VARINTS[first : min(first + count, 128)] if first < 128 else _VARINTS[first : first + count]


def tag(number: int, wire_type: int = 0) -> bytes:
    """Return the tag of a field. Wire type 0 is a varint, 2 a length-delimited value."""
    return varint(number << 3 | wire_type)


def length_delimited(number: int, value: bytes) -> bytes:
    """Return a field of text, bytes or a nested message."""
    return tag(number, 2) + varint(len(value)) + value


def check_descriptors(data: bytes) -> None:
    """Check the Protobuf descriptors in a client's schema, a JSON object.

    {"fileDescriptorSet": base64, "rootMessageTypeName": full name, "rootFileDescriptorName": file}

    Raises ValueError when the files do not describe the root message."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    schema = json.loads(data)
    root = schema.get("rootMessageTypeName")
    try:
        files = FileDescriptorSet.FromString(
            base64.b64decode(schema["fileDescriptorSet"], validate=True)
        ).file
    except (KeyError, TypeError, ValueError, DecodeError):
        raise ValueError("fileDescriptorSet: these are not Protobuf descriptors") from None
    names = [file.name for file in files]
    root_file = schema.get("rootFileDescriptorName")
    if root_file not in names:
        raise ValueError(f"rootFileDescriptorName: {root_file!r} is not among the files")
    messages = (name for file in files for name in _names(file.message_type, file.package))
    if root not in messages:
        raise ValueError(f"rootMessageTypeName: no file describes {root!r}")


def _names(messages: Any, inside: str) -> Iterator[str]:
    """Yield the full names of messages and of nested ones."""
    for message in messages:
        name = f"{inside}.{message.name}" if inside else message.name
        yield name
        yield from _names(message.nested_type, name)
