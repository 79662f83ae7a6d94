"""Payloads of entries: compressed, encrypted, split into the messages of a batch, and rebuilt for compaction."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import IntEnum
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from emulator.errors import ProtocolError
from emulator.model.values import KeyedEntry, KeyedMessage
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from emulator.wire.entry_layout import read_size
from emulator.wire.message_metadata import (
    EntryDetails,
    EntryInfo,
    chunk_of,
    read_entry,
    read_metadata,
)
from emulator.wire.protobuf import UNREADABLE, malformed, parse

# Compression.


class Compression(IntEnum):
    """Compression types, with the protocol's numbers."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4

    def check(self) -> None:
        """Raise ValueError when the library of this compression is not installed."""
        try:
            self.compress(b"")
        except ImportError as problem:
            raise ValueError(f"to compress with {self.name}, install {problem.name}") from None

    def compress(self, payload: bytes) -> bytes:
        """Return the compressed payload. Raises ImportError when the library is not installed."""
        return _COMPRESSORS[self](payload)


def _library(name: str) -> Any:
    return import_module(name)


def _unzip(payload: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(payload, size + 1)  # bounds the output of a forged payload


_COMPRESSORS: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.NONE: lambda payload: payload,
    Compression.LZ4: lambda payload: _library("lz4.block").compress(payload, store_size=False),
    Compression.ZLIB: zlib.compress,
    Compression.ZSTD: lambda payload: _library("zstandard").ZstdCompressor().compress(payload),
    Compression.SNAPPY: lambda payload: _library("snappy").compress(payload),
}
_DECOMPRESSORS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    Compression.LZ4: lambda payload, size: _library("lz4.block").decompress(payload, uncompressed_size=size),
    Compression.ZLIB: _unzip,
    Compression.ZSTD: lambda payload, size: (
        _library("zstandard").ZstdDecompressor().decompress(payload, max_output_size=size)
    ),
    Compression.SNAPPY: lambda payload, _: _library("snappy").decompress(payload),
}


def decompress(compression: int, payload: bytes, uncompressed_size: int) -> bytes:
    """Return the decompressed payload. Raises ProtocolError when it is damaged, the compression is unknown, or its
    library is not installed."""
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


# Encryption.


class EncryptionContext(NamedTuple):
    """Encryption parameters of one entry."""

    data_keys: Mapping[str, bytes]
    """Name of a consumer's key -> the data key, encrypted with that key."""
    nonce: bytes
    compression: int
    """Compression of the payload before its encryption, by the protocol's number; 0: none."""
    uncompressed_size: int
    messages: int
    """Number of messages in the batch, or 1."""


class Seal(Protocol):
    """Encrypts the payloads of a producer."""

    @property
    def more_bytes(self) -> int:
        """Maximum number of bytes that encryption adds to an entry."""
        ...

    def close(self, payload: bytes) -> tuple[Mapping[str, bytes], bytes, bytes]:
        """Encrypt a payload; return (encrypted data keys by name, nonce, encrypted payload)."""
        ...


def encrypt_payload(metadata: pb.MessageMetadata, payload: bytes, seal: Seal | None) -> bytes:
    """Return the payload encrypted by `seal`, and set the parameters in the metadata; the payload itself if `seal` is
    None."""
    if seal is None:
        return payload
    data_keys, nonce, encrypted = seal.close(payload)
    del metadata.encryption_keys[:]
    for name, value in data_keys.items():
        metadata.encryption_keys.add(key=name, value=value)
    metadata.encryption_param = nonce
    return encrypted


def encryption_context(data: bytes) -> EncryptionContext:
    """Return the encryption parameters of an encrypted entry."""
    metadata = read_metadata(data)
    return EncryptionContext(
        {pair.key: pair.value for pair in metadata.encryption_keys},
        metadata.encryption_param,
        metadata.compression,
        metadata.uncompressed_size,
        metadata.num_messages_in_batch,
    )


# Batches.


def split_batch(info: EntryInfo, payload: bytes) -> Iterator[tuple[pb.SingleMessageMetadata, bytes]]:
    """Yield the messages of a batch, in order, from its decompressed payload. Raises ProtocolError for a malformed
    batch."""
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


# Compaction: the keys of an entry, and a batch without some of its messages.

UNPACKED_BYTES_MAX: Final = 67_108_864
MESSAGES_MAX: Final = 100_000
"""Limits of a batch whose keys are read: a larger one would take seconds, or as much memory as it claims to need."""


def read_keys(data: bytes) -> KeyedEntry:
    """Return the messages and keys of an entry that `scan_entry` has accepted. `messages` is None for a batch that is
    encrypted, malformed or too large."""
    try:
        details = read_entry(data)
        if details.is_batch:
            return KeyedEntry(_of_batch(details, data), None)
    except ProtocolError:
        return KeyedEntry(None, None)
    key = _key(details.partition_key, is_base64=details.partition_key_is_base64)
    if details.is_chunk:
        return KeyedEntry((KeyedMessage(key, False),), chunk_of(data))
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
    """Return a key with a prefix for its form: the same text is another key if it is Base64."""
    return None if text is None else f"{'b' if is_base64 else 't'}{text}"


def with_messages(data: bytes, staying: Collection[int]) -> bytes:
    """Return a batch with only the messages at the indexes `staying`. Each removed message is replaced by an empty one,
    so that all others keep their message ids. Raises ProtocolError when the batch cannot be read."""
    details, metadata = read_entry(data), read_metadata(data)
    payload = decompress(details.compression, data[details.payload_offset :], details.uncompressed_size)
    parts: list[bytes] = []
    for index, (single, message) in enumerate(split_batch(details, payload)):
        if index in staying:
            parts += _sized(single.SerializeToString()), message
        else:
            parts.append(_REMOVED_MESSAGE)
    plain = b"".join(parts)
    if details.compression:
        metadata.uncompressed_size = len(plain)
        plain = Compression(details.compression).compress(plain)
    return build_entry(metadata, plain)


def last_index(data: bytes) -> int:
    """Return the index of the last message of a batch that compaction has not removed, or of the last message if the
    batch cannot be parsed; -1: the entry is no batch, or all its messages are removed."""
    details = read_entry(data)
    if not details.is_batch:
        return -1
    messages = read_keys(data).messages
    if messages is None:
        return details.num_messages - 1
    return max((index for index, message in enumerate(messages) if not message.is_gone), default=-1)


def _sized(metadata: bytes) -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata


_REMOVED_MESSAGE: Final = _sized(
    pb.SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
)
