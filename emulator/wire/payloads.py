"""Parse the payload of entries: decompress it, and split batches into messages."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry_layout import read_size
from emulator.wire.message_metadata import EntryInfo
from emulator.wire.protobuf import UNREADABLE, malformed, parse


def split_batch(info: EntryInfo, payload: bytes) -> Iterator[tuple[pb.SingleMessageMetadata, bytes]]:
    """The messages of a batch, in order. `payload` is decompressed already."""
    assert info.is_batch, "an entry without num_messages_in_batch is one message"
    at = 0
    for _ in range(info.num_messages):
        single, at = _single_metadata(payload, at)
        end = at + single.payload_size
        if single.payload_size < 0 or end > len(payload):
            raise _bad_batch(f"message of {single.payload_size} bytes")
        yield single, payload[at:end]
        at = end


def _single_metadata(payload: bytes, at: int) -> tuple[pb.SingleMessageMetadata, int]:
    start = at + 4
    if start > len(payload):
        raise _bad_batch("fewer messages than it says")
    end = start + read_size(payload, at)[0]
    if end > len(payload):
        raise _bad_batch("metadata runs over the end")
    try:
        single = parse(pb.SingleMessageMetadata, payload[start:end])
    except UNREADABLE as problem:
        raise _bad_batch(str(problem)) from None
    return single, end


def _bad_batch(reason: str) -> ProtocolError:
    return malformed("batch", reason, closes_connection=False)


def decompress(compression: int, payload: bytes, uncompressed_size: int) -> bytes:
    """The payload as its producer had it. ProtocolError when it is damaged, or its format cannot be read
    here.
    """
    if compression == pb.NONE:
        return payload
    decompressor = _DECOMPRESSORS.get(compression)
    if decompressor is None:
        raise _unreadable_payload(f"compression {compression} is not known")
    try:
        plain = decompressor(payload, uncompressed_size)
    except ImportError as problem:
        name = pb.CompressionType.Name(compression)
        raise _unreadable_payload(f"compressed with {name}; to read it, install {problem.name}") from None
    except Exception as problem:  # every library has errors of its own
        raise _unreadable_payload(str(problem)) from None
    if len(plain) != uncompressed_size:
        raise _unreadable_payload(f"{len(plain)} bytes decompressed, the metadata says {uncompressed_size}")
    return plain


def _unreadable_payload(reason: str) -> ProtocolError:
    return malformed("payload", reason, closes_connection=False)


def _zlib(payload: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(payload, size + 1)  # no bomb gets past the size it admits to


def _lz4(payload: bytes, size: int) -> bytes:
    plain: bytes = import_module("lz4.block").decompress(payload, uncompressed_size=size)
    return plain


def _zstd(payload: bytes, size: int) -> bytes:
    plain: bytes = import_module("zstandard").ZstdDecompressor().decompress(payload, max_output_size=size)
    return plain


def _snappy(payload: bytes, _: int) -> bytes:
    plain: bytes = import_module("snappy").decompress(payload)
    return plain


_DECOMPRESSORS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    pb.LZ4: _lz4,
    pb.ZLIB: _zlib,
    pb.ZSTD: _zstd,
    pb.SNAPPY: _snappy,
}
