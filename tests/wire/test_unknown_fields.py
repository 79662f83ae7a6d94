"""Protobuf fields and enum values of newer clients are ignored by every reader, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import decode_ack, decode_flow, decode_message
from emulator.wire.codec_hot.publishing import decode_receipt, decode_send
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import (
    read_entry,
    read_metadata,
    scan_entry,
    scan_for_dispatch,
    sticky_key,
)
from emulator.wire.protobuf import decode_command, length_delimited, tag, varint

NUMBERS = (200, 1_000, 536_870_911)
"""A field number that neither Pulsar nor a proposal uses; the last one is the largest possible."""
UNKNOWN = b"".join(
    tag(number, 0)
    + varint(2**64 - 1)
    + tag(number, 1)
    + bytes(8)
    + length_delimited(number, b"abc")
    + tag(number, 5)
    + bytes(4)
    + tag(number, 3)
    + tag(1)
    + varint(1)
    + tag(number, 4)
    for number in NUMBERS
)
"""One field of every wire type, groups too."""
LEAN: dict[int, Callable[[bytes], Any]] = {
    pb.BaseCommand.SEND: decode_send,
    pb.BaseCommand.ACK: decode_ack,
    pb.BaseCommand.FLOW: decode_flow,
    pb.BaseCommand.MESSAGE: decode_message,
    pb.BaseCommand.SEND_RECEIPT: decode_receipt,
}
BODIES = {
    field.number: field.name
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.type == FieldDescriptor.TYPE_MESSAGE
}


def fill(message: Message, depth: int = 3) -> None:
    """Set every required field, and every message in it down to `depth`: a message id holds a message id."""
    for field in message.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not depth and not field.is_required:
                continue
            inner = getattr(message, field.name)
            fill(inner.add() if field.is_repeated else inner, max(0, depth - 1))
            if not field.is_repeated:
                inner.SetInParent()
        elif field.is_required:
            text_or_number = {FieldDescriptor.CPPTYPE_STRING: "x", FieldDescriptor.CPPTYPE_BOOL: True}
            if field.type == FieldDescriptor.TYPE_ENUM:
                setattr(message, field.name, field.enum_type.values[0].number)
            elif field.type == FieldDescriptor.TYPE_BYTES:
                setattr(message, field.name, b"x")
            else:
                setattr(message, field.name, text_or_number.get(field.cpp_type, 1))


def with_unknown(message: Message, extra: bytes) -> bytes:
    """The message with `extra` before and after the fields of each message in it."""
    parts = [extra]
    for field, value in message.ListFields():
        for one in value if field.is_repeated else (value,):
            alone = type(message)()
            if isinstance(one, Message):
                parts.append(length_delimited(field.number, with_unknown(one, extra)))
            elif field.is_repeated:
                getattr(alone, field.name).append(one)
                parts.append(alone.SerializePartialToString())
            else:
                setattr(alone, field.name, one)
                parts.append(alone.SerializePartialToString())
    return b"".join([*parts, extra])


def command_of(type_: int) -> pb.BaseCommand:
    command = pb.BaseCommand(type=type_)  # type: ignore[arg-type]
    body = getattr(command, BODIES[type_])
    fill(body)
    body.SetInParent()
    return command


@pytest.mark.parametrize("type_", [one for one in pb.BaseCommand.Type.values() if one in BODIES])
def test_a_command_is_read_as_if_they_were_not_there(type_: int) -> None:
    command = command_of(type_)
    newer = with_unknown(command, UNKNOWN)
    read = decode_command(newer)
    read.DiscardUnknownFields()
    assert read.SerializeToString(deterministic=True) == command.SerializeToString(deterministic=True)
    if type_ in LEAN:
        assert LEAN[type_](newer) == LEAN[type_](command.SerializeToString())


def test_an_entry_is_read_as_if_they_were_not_there() -> None:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=5, publish_time=7, partition_key="k", replicated_from="eu"
    )
    metadata.properties.add(key="a", value="b")
    newer = pb.MessageMetadata.FromString(with_unknown(metadata, UNKNOWN))
    old, new = build_entry(metadata, b"payload"), build_entry(newer, b"payload")
    assert len(new) > len(old)
    for reader in (read_entry, scan_entry):
        assert _fields(reader(new)) == _fields(reader(old))  # type: ignore[operator]
    assert sticky_key(new) == sticky_key(old)
    assert scan_for_dispatch(new)[:2] == scan_for_dispatch(old)[:2]
    assert read_metadata(new).producer_name == "p"


def _fields(read: Any) -> dict[str, Any]:
    names = [name for kind in type(read).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(read, name) for name in names if name != "payload_offset"}


def test_an_optional_enum_of_a_newer_client_is_its_default() -> None:
    command = command_of(pb.BaseCommand.SUBSCRIBE)
    command.subscribe.initialPosition = pb.CommandSubscribe.Earliest
    newer = command.SerializeToString()
    body = tag(pb.CommandSubscribe.DESCRIPTOR.fields_by_name["initialPosition"].number)
    assert newer.count(body + b"\x01") == 1
    read = decode_command(newer.replace(body + b"\x01", body + b"\x63"))
    assert read.subscribe.initialPosition == pb.CommandSubscribe.Latest
