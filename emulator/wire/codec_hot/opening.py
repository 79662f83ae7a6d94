"""The requests and responses with which a client opens and closes a producer: PARTITIONED_METADATA, LOOKUP, PRODUCER
and CLOSE_PRODUCER.

Requests in the form in which clients send them are read by hand. Any other form, such as unknown fields, another order
or a malformed request, is left to `Command.read`, which defines the result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.commands.connections import Lookup, PartitionMetadata
from emulator.wire.commands.producers import CloseProducer, CreateProducer
from emulator.wire.frames import BEFORE_BODY_SIZE, head_of_frame
from emulator.wire.protobuf import read_varint, tag, varint

_TOPIC, _SECOND = tag(1, 2)[0], tag(2)[0]
_ONE_BYTE_MAX: Final = 127
"""Largest number whose varint is one byte."""
_FIELD_BYTES_MAX: Final = 10
"""Size of a field up to which its number is below 2**63. The request ids of a Java client begin at a random number."""

# Requests.

_LOOKUP, _PARTITIONS = (
    BEFORE_BODY_SIZE[CommandType.LOOKUP],
    BEFORE_BODY_SIZE[CommandType.PARTITIONED_METADATA],
)
_PRODUCER: Final = BEFORE_BODY_SIZE[CommandType.PRODUCER]
_PRODUCER_REQUEST_ID: Final = tag(3)
_OPTIONS_BYTES_MAX: Final = 32
"""Maximum size of the remembered fields of a PRODUCER: long ones contain a name, a schema or properties."""
_ACCEPTS_RUNS: Final = tag(103) + b"\x01"
_CLOSE_PRODUCER: Final = BEFORE_BODY_SIZE[CommandType.CLOSE_PRODUCER]
_FALSE, _TRUE = b"\x00", b"\x01"
_AUTHORITATIVE: Final = frozenset((b"", tag(3) + _FALSE, tag(3) + _TRUE))
"""The ends of a LOOKUP that names no listener; a region has no use for this field."""
_MAY_CREATE: Final = {b"": True, tag(6) + _FALSE: False, tag(6) + _TRUE: True}
"""The ends of a PARTITIONED_METADATA, and whether the topic may be created."""


def decode_lookup(command: bytes) -> Lookup:
    """Read a LOOKUP. ProtocolError, which closes the connection, for a malformed one."""
    found = _read_request(command, _LOOKUP)
    if found is not None and found[2] in _AUTHORITATIVE:
        return Lookup(found[1], found[0])
    return Lookup.read(command)


def decode_partition_metadata(command: bytes) -> PartitionMetadata:
    """Read a PARTITIONED_METADATA. ProtocolError, which closes the connection, for a malformed one."""
    found = _read_request(command, _PARTITIONS)
    if found is not None and (may_create := _MAY_CREATE.get(found[2])) is not None:
        return PartitionMetadata(found[1], found[0], may_create)
    return PartitionMetadata.read(command)


def _read_request(command: bytes, before_size: bytes) -> tuple[str, int, bytes] | None:
    """Return the topic, the number in the second field and the other fields of a request that begins with these two
    and is at most 127 bytes long; None for any other one."""
    at, size = len(before_size), len(command)
    if not command.startswith(before_size) or size < at + 3 or command[at] != size - at - 1:
        return None
    if command[at] > _ONE_BYTE_MAX or command[at + 1] != _TOPIC:
        return None
    start = at + 3
    end = start + command[at + 2]
    if end + 2 > size or command[end] != _SECOND:
        return None
    try:
        number, rest = read_varint(command, end + 1)
        topic = command[start:end].decode()
    except (IndexError, UnicodeDecodeError):
        return None
    return (topic, number, command[rest:]) if rest - end <= _FIELD_BYTES_MAX else None


def decode_create_producer(command: bytes) -> CreateProducer:
    """Read a PRODUCER. ProtocolError, which closes the connection, for a malformed one."""
    found = _read_request(command, _PRODUCER)
    if found is not None and len(found[2]) <= _OPTIONS_BYTES_MAX and found[2][:1] == _PRODUCER_REQUEST_ID:
        try:
            request_id, end = read_varint(found[2], 1)
        except IndexError:
            return CreateProducer.read(command)
        options = _options_of(found[2][end:]) if end <= _FIELD_BYTES_MAX else None
        if options is not None:
            return CreateProducer(request_id, found[0], found[1], *options)
    return CreateProducer.read(command)


@lru_cache(maxsize=64)
def _options_of(rest: bytes) -> tuple[Any, ...] | None:
    """Return the values of all other fields of a PRODUCER, whose bytes are usually the same for all producers of a
    program; None if they cannot be read, or contain one of the first three fields again."""
    body = b"\x0a\x00\x10\x00\x18\x00" + rest
    try:
        read = CreateProducer.read(_PRODUCER + varint(len(body)) + body)
    except ProtocolError:
        return None
    request_id, topic, producer_id, *options = (getattr(read, name) for name in read.__dataclass_fields__)
    return tuple(options) if (request_id, topic, producer_id) == (0, "", 0) else None


def decode_close_producer(command: bytes) -> CloseProducer:
    """Read a CLOSE_PRODUCER. ProtocolError, which closes the connection, for a malformed one."""
    at = len(_CLOSE_PRODUCER)
    if command.startswith(_CLOSE_PRODUCER) and len(command) > at + 4 and command[at] == len(command) - at - 1:
        try:
            producer_id, middle = read_varint(command, at + 2)
            request_id, end = read_varint(command, middle + 1)
        except IndexError:
            return CloseProducer.read(command)
        is_short = middle - at - 1 <= _FIELD_BYTES_MAX and end - middle <= _FIELD_BYTES_MAX
        if is_short and end == len(command) and command[at + 1] == 0x08 and command[middle] == _SECOND:
            return CloseProducer(request_id, producer_id)
    return CloseProducer.read(command)


# Responses.


def encode_lookup_connect(
    request_id: int, service_url: str, service_url_tls: str, *, proxy_through_service_url: bool
) -> bytes:
    """Return the frame of `lookup_connect`."""
    before, after = _connect_parts(service_url, service_url_tls, proxy_through_service_url)
    number = varint(request_id)
    return (
        head_of_frame(CommandType.LOOKUP_RESPONSE, len(before) + len(number) + len(after))
        + before
        + number
        + after
    )


@lru_cache(maxsize=64)
def _connect_parts(service_url: str, service_url_tls: str, proxied: bool) -> tuple[bytes, bytes]:
    """Return the bytes that the responses to all lookups share: those before and after the request id."""
    connect = pb.CommandLookupTopicResponse.Connect
    before = pb.CommandLookupTopicResponse(response=connect)
    if service_url:
        before.brokerServiceUrl = service_url
    if service_url_tls:
        before.brokerServiceUrlTls = service_url_tls
    after = pb.CommandLookupTopicResponse(authoritative=True, proxy_through_service_url=proxied)
    return before.SerializePartialToString() + tag(4), after.SerializePartialToString()


def encode_partitions(request_id: int, count: int) -> bytes:
    """Return the frame of `partitions_response`."""
    body = b"\x08" + varint(count) + b"\x10" + varint(request_id) + b"\x18\x00"
    return head_of_frame(CommandType.PARTITIONED_METADATA_RESPONSE, len(body)) + body


def encode_producer_ready(
    request_id: int,
    name: str,
    last_sequence_id: int,
    schema_version: bytes,
    topic_epoch: int | None,
    *,
    accepts_runs: bool = False,
) -> bytes:
    """Return the frame of the ProducerSuccess of a producer that is open."""
    name_bytes = name.encode()
    body = b"\x08" + varint(request_id) + b"\x12" + varint(len(name_bytes)) + name_bytes
    body += _producer_tail(last_sequence_id, schema_version, topic_epoch, accepts_runs)
    return head_of_frame(CommandType.PRODUCER_SUCCESS, len(body)) + body


@lru_cache(maxsize=64)
def _producer_tail(
    last_sequence_id: int, schema_version: bytes, topic_epoch: int | None, accepts_runs: bool
) -> bytes:
    """Return the bytes of a ProducerSuccess after the name, which are the same for most new producers."""
    epoch = b"" if topic_epoch is None else b"\x28" + varint(topic_epoch)
    sequence_id = b"\x18" + varint(last_sequence_id)
    version = b"\x22" + varint(len(schema_version)) + schema_version
    return sequence_id + version + epoch + b"\x30\x01" + (_ACCEPTS_RUNS if accepts_runs else b"")


def encode_success(request_id: int) -> bytes:
    """Return the frame of Success."""
    number = varint(request_id)
    return head_of_frame(CommandType.SUCCESS, 1 + len(number)) + b"\x08" + number
