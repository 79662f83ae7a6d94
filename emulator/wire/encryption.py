"""The encryption metadata of an entry: the readers' keys and the cipher of its payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.message_metadata import read_metadata


class EncryptionContext(NamedTuple):
    """Of one entry."""

    data_keys: Mapping[str, bytes]
    """Name of a reader's key -> the data key, encrypted with it."""
    nonce: bytes
    compression: int
    """Of the payload before it was encrypted, by the protocol's number; 0: none."""
    uncompressed_size: int
    messages: int
    """More than one: a batch."""


class Seal(Protocol):
    """Encrypts the payloads of a producer."""

    @property
    def more_bytes(self) -> int:
        """How much larger an entry becomes, at most."""
        ...

    def close(self, payload: bytes) -> tuple[Mapping[str, bytes], bytes, bytes]:
        """(data key by reader's key, nonce, encrypted payload)."""
        ...


def sealed(metadata: pb.MessageMetadata, payload: bytes, seal: Seal | None) -> bytes:
    """Return the payload of an entry, encrypted with `seal`, whose parameters the metadata gets. None: unencrypted."""
    if seal is None:
        return payload
    data_keys, nonce, encrypted = seal.close(payload)
    del metadata.encryption_keys[:]
    for name, value in data_keys.items():
        metadata.encryption_keys.add(key=name, value=value)
    metadata.encryption_param = nonce
    return encrypted


def encryption_context(data: bytes) -> EncryptionContext:
    """Of an entry that `read_entry` says is encrypted."""
    metadata = read_metadata(data)
    return EncryptionContext(
        {pair.key: pair.value for pair in metadata.encryption_keys},
        metadata.encryption_param,
        metadata.compression,
        metadata.uncompressed_size,
        metadata.num_messages_in_batch,
    )
