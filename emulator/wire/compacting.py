"""Parse an entry for compaction (its keys and deletions), and rebuild it without some of its messages."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from importlib import import_module
from struct import Struct
from typing import Final, NamedTuple

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import ChunkPiece, EntryDetails, piece_of, read_entry, read_metadata
from emulator.wire.payloads import decompress, split_batch

UNPACKED_BYTES_MAX: Final = 67_108_864
MESSAGES_MAX: Final = 100_000
"""Of a batch that is looked into: a larger one would take seconds, or as much memory as it says."""
_SIZE: Final = Struct(">I")


class KeyedMessage(NamedTuple):
    key: str | None
    deletes: bool
    """Its payload is null or empty."""
    is_gone: bool = False
    """A former compaction left its place in the batch, and nothing else."""


class KeyedEntry(NamedTuple):
    messages: tuple[KeyedMessage, ...] | None
    """In the order of the batch; None: the entry cannot be parsed."""
    piece: ChunkPiece | None


def read_keys(data: bytes) -> KeyedEntry:
    """Of an entry that `scan_entry` has accepted. What cannot be read any further cannot be looked into."""
    try:
        details = read_entry(data)
        if details.is_batch:
            return KeyedEntry(_of_batch(details, data), None)
    except ProtocolError:
        return KeyedEntry(None, None)
    key = _key(details.partition_key, is_base64=details.partition_key_is_base64)
    if details.is_chunk:
        return KeyedEntry((KeyedMessage(key, False),), piece_of(data))
    return KeyedEntry((KeyedMessage(key, _is_empty(details, data)),), None)


def _is_empty(details: EntryDetails, data: bytes) -> bool:
    if details.null_value or len(data) == details.payload_offset:
        return True
    return bool(details.compression) and details.uncompressed_size == 0


def _of_batch(details: EntryDetails, data: bytes) -> tuple[KeyedMessage, ...] | None:
    if (
        details.is_encrypted
        or details.num_messages > MESSAGES_MAX
        or details.uncompressed_size > UNPACKED_BYTES_MAX
    ):
        return None
    payload = decompress(details.compression, data[details.payload_offset :], details.uncompressed_size)
    return tuple([_keyed(single, message) for single, message in split_batch(details, payload)])


def _keyed(single: pb.SingleMessageMetadata, payload: bytes) -> KeyedMessage:
    key = single.partition_key if single.HasField("partition_key") else None
    deletes = single.null_value or not payload
    return KeyedMessage(
        _key(key, is_base64=single.partition_key_b64_encoded), deletes, is_gone=single.compacted_out
    )


def _key(text: str | None, *, is_base64: bool) -> str | None:
    """The same text means another key when it stands for bytes."""
    return None if text is None else f"{'b' if is_base64 else 't'}{text}"


def with_messages(data: bytes, staying: Collection[int]) -> bytes:
    """A batch, of which only these messages stay. The others leave an empty place, so that every message keeps its
    index: each has the id that it was published under. ProtocolError when the batch cannot be read."""
    details, metadata = read_entry(data), read_metadata(data)
    payload = decompress(details.compression, data[details.payload_offset :], details.uncompressed_size)
    parts: list[bytes] = []
    for index, (single, message) in enumerate(split_batch(details, payload)):
        if index in staying:
            parts += _sized(single.SerializeToString()), message
        else:
            parts.append(_GONE)
    plain = b"".join(parts)
    if details.compression:
        metadata.uncompressed_size = len(plain)
        plain = _COMPRESSORS[details.compression](plain)
    return build_entry(metadata, plain)


def last_index(data: bytes) -> int:
    """Index of the last message of a batch that is still there: of one that cannot be looked into the last of all. -1
    for an entry that is no batch."""
    details = read_entry(data)
    if not details.is_batch:
        return -1
    messages = read_keys(data).messages
    if messages is None:
        return details.num_messages - 1
    return max((index for index, message in enumerate(messages) if not message.is_gone), default=-1)


def _sized(metadata: bytes) -> bytes:
    return _SIZE.pack(len(metadata)) + metadata


_GONE: Final = _sized(pb.SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString())


def _lz4(plain: bytes) -> bytes:
    packed: bytes = import_module("lz4.block").compress(plain, store_size=False)
    return packed


def _zstd(plain: bytes) -> bytes:
    packed: bytes = import_module("zstandard").ZstdCompressor().compress(plain)
    return packed


def _snappy(plain: bytes) -> bytes:
    packed: bytes = import_module("snappy").compress(plain)
    return packed


_COMPRESSORS: Final[dict[int, Callable[[bytes], bytes]]] = {
    pb.LZ4: _lz4,
    pb.ZLIB: zlib.compress,
    pb.ZSTD: _zstd,
    pb.SNAPPY: _snappy,
}
"""The producer's compression. The library is installed, since the payload was decompressed before."""
