"""The layout of a commit group's entries in one record.

    count u32 │ count × length u32 │ the entries │ crc32c u32          (big-endian)

The checksum covers everything before it. It protects against the disk, not the network: a record whose bytes
changed after the write is rejected, never served (S8).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from emulator.errors import StorageError
from emulator.model.crc import crc32c

RECORD_OVERHEAD_BYTES = 8
"""Bytes of the count and the checksum."""
ENTRY_OVERHEAD_BYTES = 4
"""Bytes of one length."""

_U32 = struct.Struct(">I")
_ROOM_FOR_CHECKSUM = bytes(4)


def encode_group(entries: Sequence[bytes]) -> bytearray:
    """Encode one record of at least one entry. Each byte is copied once, because entries may be large."""
    assert entries, "a group has at least one entry"
    lengths = struct.pack(f">{len(entries) + 1}I", len(entries), *map(len, entries))
    record = bytearray().join((lengths, *entries, _ROOM_FOR_CHECKSUM))
    with memoryview(record) as view:
        _U32.pack_into(record, len(record) - 4, crc32c(view[:-4]))
    return record


def decode_group(data: bytes, location: str = "commit group") -> list[bytes]:
    """Return all entries of a record. `location` names the record in errors."""
    return slice_group(data, 0, location=location)


def slice_group(
    data: bytes,
    skip: int,
    max_entries: int | None = None,
    max_bytes: int | None = None,
    location: str = "commit group",
) -> list[bytes]:
    """Return entries from index `skip` on: at most `max_entries`, ending with the one that reaches `max_bytes`.

    Only returned entries are copied; the checksum is verified over the whole record.
    """
    lengths = entry_lengths(data, location)
    if len(lengths) == 1:  # frequent with slow producers
        return [] if skip or max_entries == 0 else [data[8:-4]]
    first_start = ENTRY_OVERHEAD_BYTES * (1 + len(lengths)) + sum(lengths[:skip])
    selected = lengths[skip:] if max_entries is None else lengths[skip : skip + max_entries]
    if max_bytes is not None:
        selected = selected[: entries_within(selected, max_bytes)]
    starts = accumulate(selected, initial=first_start)
    return [data[start : start + length] for start, length in zip(starts, selected, strict=False)]


def entries_within(lengths: Sequence[int], max_bytes: int) -> int:
    """Return the number of entries that a read of `max_bytes` returns, including the one that reaches the limit."""
    for index, total in enumerate(accumulate(lengths), start=1):
        if total >= max_bytes:
            return index
    return len(lengths)


def entry_lengths(data: bytes, location: str = "commit group") -> tuple[int, ...]:
    """Return the lengths of the entries of a record. Raises StorageError if the record is damaged."""
    if len(data) < RECORD_OVERHEAD_BYTES:
        raise _damaged(location, f"{len(data)} bytes are too few for a record")
    if crc32c(memoryview(data)[:-4]) != _U32.unpack_from(data, len(data) - 4)[0]:
        raise _damaged(location, "its checksum does not match its bytes")
    (count,) = _U32.unpack_from(data)
    room = len(data) - RECORD_OVERHEAD_BYTES
    if not 0 < count <= room // ENTRY_OVERHEAD_BYTES:
        raise _damaged(location, f"{count} entries do not fit into {len(data)} bytes")
    lengths = struct.unpack_from(f">{count}I", data, 4)
    if sum(lengths) != room - count * ENTRY_OVERHEAD_BYTES:
        raise _damaged(
            location, f"its {count} lengths add up to {sum(lengths)} bytes, which differs from the record"
        )
    return lengths


def _damaged(location: str, what: str) -> StorageError:
    return StorageError(f"{location} is damaged: {what}", definite=True)
