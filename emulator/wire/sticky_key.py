"""The key by which a message of a Key_Shared subscription finds its consumer."""

from __future__ import annotations

import base64
import binascii

from emulator.wire.metadata import read_metadata


def sticky_key(data: bytes) -> bytes:
    """Ordering key, else partition key; a message that has neither has one of its own. A batch has the key that its
    metadata says: clients gather messages of one key when they batch for Key_Shared."""
    metadata = read_metadata(data)
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = metadata.partition_key.encode()
        if not metadata.partition_key_b64_encoded:
            return key
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error:  # what a client calls Base64 and is none is a key all the same
            return key
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
