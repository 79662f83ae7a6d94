"""The key by which a message of a Key_Shared subscription finds its consumer."""

from __future__ import annotations

import base64
import binascii

from emulator.wire.message_metadata import KeyFields, read_key_fields


def sticky_key(data: bytes) -> bytes:
    """Ordering key, else partition key; a message that has neither has one of its own. A batch has the key that its
    metadata says: clients gather messages of one key when they batch for Key_Shared. Of an entry that `scan_entry` has
    accepted; nothing else in its metadata is looked at, so nothing else can keep it from its consumer."""
    fields = read_key_fields(data)
    if fields.ordering_key:
        return fields.ordering_key
    if fields.partition_key is None:
        return b"%s-%d" % (fields.producer_name, fields.sequence_id)
    return _decoded(fields)


def _decoded(fields: KeyFields) -> bytes:
    assert fields.partition_key is not None
    if not fields.is_base64:
        return fields.partition_key
    try:
        return base64.b64decode(fields.partition_key, validate=True)
    except binascii.Error:  # what a client calls Base64 and is none is a key all the same
        return fields.partition_key
