"""Convert plain entries to columns: entries that contain one message without special metadata, which most entries do.

The module must be fast for logs of millions of messages. It reads the required fields of the metadata at their usual
places in the bytes of a whole commit group, without a Python object per column of an entry. The other metadata nearly
always consists of bytes that were parsed before, except for the source position, which a search finds. It accepts only
entries of which all this is certain; `entry_columns` parses all others. A test compares both on every kind of entry.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from struct import Struct
from typing import NamedTuple

import pyarrow as pa
from crc32c import crc32c

from emulator.model.values import SOURCE_POSITION_PROPERTY
from spark_jobs.sources.entry_digests import DIGEST_BYTES, bytes_digest, signed

NO_BATCH = -1

VARINT = rb"([\x80-\xff]*[\x00-\x7f])"
_HEAD = re.compile(
    rb"\x0e\x01(.{8})"  # magic, 1: checksum and size of the metadata
    rb"\x0a(.)(.*?)"  # 2: size of the producer name, not longer than one byte can say; 3: the name
    rb"\x10" + VARINT + rb"\x18" + VARINT,  # 4: sequence id, 5: publish time
    re.DOTALL,
)
"""The required fields of MessageMetadata, in the order in which every client writes them."""
_unpack = Struct(">II").unpack
_CHECKED_FROM = 6
"""Offset of the first byte that the checksum covers."""
_METADATA_AT = 10

_KEY = SOURCE_POSITION_PROPERTY.encode()
_SOURCE = b"\x0a" + bytes([len(_KEY)]) + _KEY + b"\x12"
"""Start of the property that `with_replication` appends as the last field of the metadata. One length byte and the
position follow."""
_SOURCE_PREFIXES = {size: bytes((0x22, len(_SOURCE) + size)) for size in range(1, 20)}
"""Key and size of that property, by the size of the position and its length byte. Larger positions may have numbers of
more than 64 bits."""
Source = tuple[int | None, int | None]
"""Ledger and entry of the source position."""
_NO_SOURCE: Source = (None, None)
_OTHER = -1
_OF_A_KIND = (
    "replicated_from",
    "origin_region",
    "replicate_to",
    "attributes_digest",
    "transaction",
)

Bounds = tuple[int, int, int]
"""Id of an entry, offset of its first byte, and of the byte after its last one."""


class EntryKind(NamedTuple):
    """Values that are equal for all entries with equal remaining metadata."""

    is_plain: bool
    """Whether the entry is one message without a marker, batch, chunk, encryption or compression."""
    replicated_from: str | None
    origin_region: str
    marker_type: int | None
    replicate_to: tuple[str, ...] | None
    attributes_digest: int
    rest: int
    """Digest of the remaining metadata."""
    transaction: str | None = None


class PlainEntries:
    """Collects the columns of plain entries of one region. `kind_of` parses the remaining metadata."""

    def __init__(self, region: str, schema: pa.Schema, kind_of: Callable[[bytes], EntryKind]) -> None:
        self._region = region
        self._schema = schema
        self._kind_of = kind_of
        self._clear()

    def _clear(self) -> None:
        self._topics: list[str] = []
        self._ledger_ids, self._entry_ids = array("q"), array("q")
        self._sequence_ids, self._times = array("q"), array("q")
        self._sources: list[Source] = []
        self._sizes = array("i")
        self._digests: list[bytes] = []
        self._is_sound: list[bool] = []
        self._name_codes, self._kind_codes = array("i"), array("i")
        self._names: dict[bytes, int] = {}
        """The code of each producer name, from 0 in the order of insertion."""
        self._kinds: list[EntryKind] = []
        self._codes: dict[bytes, int] = {}
        """The code of each kind by the remaining metadata; _OTHER if the entry is not plain."""
        self._replicated_codes: dict[bytes, int] = {}
        """The same of replicated entries, by the remaining metadata without the source position."""

    def __len__(self) -> int:
        return len(self._entry_ids)

    def add_group(self, topic: str, ledger_id: int, data: bytes, entries: Iterable[Bounds]) -> list[Bounds]:
        """Add the plain ones of entries in `data`, and return the others."""
        others = [one for one in entries if not self._add(data, *one)]
        added = len(self) - len(self._topics)
        self._topics += repeat(topic, added)
        self._ledger_ids.extend(repeat(ledger_id, added))
        return others

    def _add(self, data: bytes, entry_id: int, start: int, stop: int) -> bool:
        """Add an entry if it is plain."""
        head = _HEAD.match(data, start, stop)
        if head is None:
            return False
        numbers, name_size, name, sequence_id, publish_time = head.groups()
        checksum, metadata_size = _unpack(numbers)
        payload_at = start + _METADATA_AT + metadata_size
        if len(name) != name_size[0] or payload_at > stop:
            return False
        rest = data[head.end() : payload_at]
        code, source = self._codes.get(rest), _NO_SOURCE
        if code is None:
            code, source = self._code(rest)
        if code == _OTHER:
            return False
        self._entry_ids.append(entry_id)
        self._name_codes.append(self._names.setdefault(name, len(self._names)))
        self._sequence_ids.append(varint(sequence_id))
        self._times.append(_time(publish_time))
        self._kind_codes.append(code)
        self._sources.append(source)
        self._sizes.append(stop - payload_at)
        self._digests.append(blake2b(data[payload_at:stop], digest_size=DIGEST_BYTES).digest())
        self._is_sound.append(checksum == crc32c(data[start + _CHECKED_FROM : stop]))
        return True

    def _code(self, rest: bytes) -> tuple[int, Source]:
        """Return the code of the kind of unseen metadata, and the source position in it."""
        text, is_replicated, position = rest.rpartition(_SOURCE)
        if not is_replicated:
            return self._codes.setdefault(rest, self._new_code(rest)), _NO_SOURCE
        size = len(position)
        if text[-2:] != _SOURCE_PREFIXES.get(size) or position[0] != size - 1:
            return _OTHER, _NO_SOURCE
        ledger, _, entry = position[1:].partition(b":")
        if not (ledger.isdigit() and entry.isdigit()):
            return _OTHER, _NO_SOURCE
        kind = text[:-2]
        code = self._replicated_codes.get(kind)
        if code is None:
            code = self._replicated_codes[kind] = self._new_code(kind, is_replicated=True)
        return code, (int(ledger), int(entry))

    def _new_code(self, rest: bytes, *, is_replicated: bool = False) -> int:
        kind = self._kind_of(rest)
        # If no region is named, an application copied the property.
        if not kind.is_plain or (is_replicated and kind.replicated_from is None):
            return _OTHER
        self._kinds.append(kind)
        return len(self._kinds) - 1

    def take(self) -> pa.RecordBatch:
        """Return the collected entries as columns, and clear them."""
        columns = self._of_kinds() | self._of_entries()
        rows = len(self)
        self._clear()
        return pa.RecordBatch.from_arrays(
            [
                columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def _of_kinds(self) -> dict[str, pa.Array]:
        """Return the columns with few different values."""
        names = [name.decode(errors="replace") for name in self._names]
        codes = _numbers(pa.int32(), self._kind_codes)
        found = {"producer_name": pa.array(names, pa.string()).take(_numbers(pa.int32(), self._name_codes))}
        for name in _OF_A_KIND:
            values = [getattr(kind, name) for kind in self._kinds]
            found[name] = pa.array(values, self._schema.field(name).type).take(codes)
        return found

    def _of_entries(self) -> dict[str, pa.Array]:
        payloads = array("q", b"".join(self._digests))
        payloads.byteswap()
        attributes, rests = (
            [getattr(kind, name) for kind in self._kinds] for name in ("attributes_digest", "rest")
        )
        each = (map(values.__getitem__, self._kind_codes) for values in (attributes, rests))
        ledgers, entries = zip(*self._sources, strict=True) if self._sources else ((), ())
        numbers = {
            "ledger_id": self._ledger_ids,
            "entry_id": self._entry_ids,
            "sequence_id": self._sequence_ids,
            "publish_time_ms": self._times,
            "payload_digest": payloads,
            "bytes_digest": array("q", map(bytes_digest, payloads, *each, self._times)),
        }
        return {
            "region": pa.repeat(self._region, len(self)),
            "topic": pa.array(self._topics, pa.string()),
            "batch_index": pa.repeat(pa.scalar(NO_BATCH, pa.int32()), len(self)),
            "source_ledger": pa.array(ledgers, pa.int64()),
            "source_entry": pa.array(entries, pa.int64()),
            "payload_bytes": _numbers(pa.int32(), self._sizes),
            "is_sound": pa.array(self._is_sound, pa.bool_()),
            **{name: _numbers(pa.int64(), values) for name, values in numbers.items()},
        }


def _numbers(kind: pa.DataType, values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def varint(encoded: bytes) -> int:
    value = 0
    for byte in reversed(encoded):
        value = value << 7 | byte & 127
    return signed(value)


_time = lru_cache(maxsize=64)(varint)
"""Cached, because in large logs many messages share a millisecond."""
