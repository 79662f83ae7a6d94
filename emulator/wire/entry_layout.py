"""The layout of an entry, and its checksum.

    data = [0x0e02 size(4) broker_metadata] [0x0e01 crc32c(4)] size(4) metadata payload

An entry is stored and dispatched byte for byte as received, so consumers receive the producer's checksum. Exceptions
are replicated entries and entries of transactions (`wire.entry`), and entries without a checksum.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from emulator.errors import ProtocolError, ServerError
from emulator.model.crc import crc32c
from emulator.wire.protobuf import UNREADABLE, Malformed, malformed

CHECKSUM_MAGIC: Final = b"\x0e\x01"
_BROKER_METADATA_MAGIC: Final = b"\x0e\x02"
CHECKSUM_BYTES: Final = 6
_SIZE: Final = Struct(">I")
read_size: Final = _SIZE.unpack_from
_HEAD: Final = Struct(">HII")
"""Magic, checksum, size of the metadata: the beginning of nearly every entry."""
HEAD_BYTES: Final = _HEAD.size
read_head: Final = _HEAD.unpack_from
USUAL_MAGIC: Final = int.from_bytes(CHECKSUM_MAGIC)
"""The first number of `read_head` if the entry begins with its checksum."""
_SMALL_ENTRY_BYTES: Final = 4_096
"""Size below which copying is faster than creating a memoryview."""


def metadata_bounds(data: bytes, *, verify: bool = False) -> tuple[int, int]:
    """Return the start and end of the metadata. `verify` also checks the checksum, if the entry has one. Raises one of
    UNREADABLE for impossible sizes, and ProtocolError(ChecksumError) for a wrong checksum."""
    start = HEAD_BYTES
    if len(data) >= start and data.startswith(CHECKSUM_MAGIC):  # nearly always; read at once
        _, checksum, size = read_head(data)
        if verify:  # as `payload_from`, which every message would call
            is_small = len(data) < _SMALL_ENTRY_BYTES
            found = crc32c(data[CHECKSUM_BYTES:] if is_small else memoryview(data)[CHECKSUM_BYTES:])
            if found != checksum:
                raise _wrong_checksum(found, checksum)
    else:
        start, size = _unusual_head(data, verify=verify)
    end = start + size
    if end > len(data):
        raise Malformed(f"metadata of {size} bytes in an entry of {len(data)}")
    return start, end


def _unusual_head(data: bytes, *, verify: bool) -> tuple[int, int]:
    """Return the start and size of the metadata, for an entry with broker metadata or without checksum."""
    at = 0
    if data.startswith(_BROKER_METADATA_MAGIC):
        at = _after_broker_metadata(data)
    if data.startswith(CHECKSUM_MAGIC, at):
        if len(data) < at + CHECKSUM_BYTES:
            raise Malformed(f"entry of {len(data)} bytes")
        if verify:
            expected, found = read_size(data, at + 2)[0], crc32c(payload_from(data, at + CHECKSUM_BYTES))
            if found != expected:
                raise _wrong_checksum(found, expected)
        at += CHECKSUM_BYTES
    if len(data) < at + 4:
        raise Malformed(f"entry of {len(data)} bytes")
    return at + 4, read_size(data, at)[0]


def _after_broker_metadata(data: bytes) -> int:
    if len(data) < 6:
        raise Malformed(f"entry of {len(data)} bytes")
    end: int = 6 + read_size(data, 2)[0]
    return end


def _wrong_checksum(found: int, expected: int) -> ProtocolError:
    return ProtocolError(
        ServerError.ChecksumError, f"the entry's checksum is {found:#010x}, it says {expected:#010x}"
    )


def payload_from(data: bytes, offset: int) -> bytes | memoryview:
    """Return data[offset:], without a copy if it may be large."""
    return data[offset:] if len(data) < _SMALL_ENTRY_BYTES else memoryview(data)[offset:]


def assemble(metadata: bytes, payload: bytes | memoryview) -> bytes:
    """Return an entry with its checksum, from serialized metadata."""
    head = _SIZE.pack(len(metadata)) + metadata
    if len(payload) < _SMALL_ENTRY_BYTES:
        body = head + payload
        return CHECKSUM_MAGIC + _SIZE.pack(crc32c(body)) + body
    checksum = crc32c(payload, crc32c(head))
    return b"".join((CHECKSUM_MAGIC, _SIZE.pack(checksum), head, payload))


def ensure_checksum(data: bytes) -> bytes:
    """Return the entry with a checksum; the same object if it has one, right or wrong. Raises ProtocolError when the
    entry cannot be read.

    Very old producers send none, and some consumers discard messages without one.
    """
    if data.startswith(CHECKSUM_MAGIC):
        return data
    at = 0
    if data.startswith(_BROKER_METADATA_MAGIC):
        try:
            at = _after_broker_metadata(data)
        except UNREADABLE as problem:
            raise malformed("broker metadata", problem, closes_connection=False) from None
        if data.startswith(CHECKSUM_MAGIC, at):
            return data
    return data[:at] + CHECKSUM_MAGIC + _SIZE.pack(crc32c(payload_from(data, at))) + data[at:]
