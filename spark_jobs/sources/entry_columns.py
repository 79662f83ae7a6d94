"""Convert entries to columns: one row per message.

Most entries are plain, and `plain_entries` converts them. All others (batches, chunks, markers, unusual metadata) are
parsed by `wire.message_metadata`. A test compares both paths on every kind of entry.
`entry_digests` describes the digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from emulator.errors import ProtocolError, StorageError
from emulator.run.history_events import transaction_text
from emulator.storage.group import ENTRY_OVERHEAD_BYTES, entry_lengths
from emulator.wire.message_metadata import EntryDetails, EntryInfo, read_entry
from emulator.wire.payloads import decompress, split_batch
from spark_jobs.engines.frames import record_batch, schema
from spark_jobs.sources.contract import Group
from spark_jobs.sources.entry_digests import (
    NO_ATTRIBUTES,
    attributes_of,
    bytes_digest,
    digest_of,
    metadata_digests,
    signed,
)
from spark_jobs.sources.marker_claims import CLAIM, read_marker
from spark_jobs.sources.plain_entries import NO_BATCH, VARINT, EntryKind, PlainEntries, varint

ROW_SCHEMA = schema(
    "region string, damage string, topic string, ledger_id bigint, entry_id bigint, batch_index int,"
    " producer_name string, sequence_id bigint, publish_time_ms bigint, replicated_from string, origin_region string,"
    " marker_type int, replicate_to array<string>, source_ledger bigint, source_entry bigint, payload_bytes int,"
    " payload_digest bigint, attributes_digest bigint, bytes_digest bigint, is_sound boolean, marker string,"
    " transaction string"
).append(pa.field("claim", CLAIM))
"""`damage` is null except in rows for unreadable data; those set only `region` besides. `batch_index` is -1 outside
batches, as in message ids. `source_ledger`, `source_entry`: the position in the origin's log that the entry contains.
The digest of a payload is null if only an encrypted or unreadable form is stored, or one chunk of several. `is_sound`:
the entry matches its checksum, or has none. `marker`: the content of a snapshot or an update as JSON, or why a marker
is unreadable; `claim`: the same as a struct (`marker_claims.CLAIM`).
`transaction`: `most,least` of the transaction that a message belongs to, or that a marker ends."""

_SINGLE = re.compile(rb"\x18" + VARINT + rb"(?:\x40" + VARINT + rb")?")
"""SingleMessageMetadata of a message without key and properties. 3: payload size, 8: sequence id."""


class EntryColumns:
    """Collects rows of one region until they are taken."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._rows: list[tuple[Any, ...]] = []
        self._kind_of = lru_cache(maxsize=4096)(self._read_kind)
        """EntryKind by remaining metadata; computed at the first entry of each kind."""
        self._plain = PlainEntries(region, ROW_SCHEMA, self._kind_of)

    def __len__(self) -> int:
        return len(self._rows) + len(self._plain)

    def take(self) -> pa.RecordBatch:
        """Return the collected rows as columns, plain entries first, and clear them."""
        rows, self._rows = self._rows, []
        others = record_batch(rows, ROW_SCHEMA)
        if not len(self._plain):
            return others
        plain = self._plain.take()
        return pa.concat_batches([plain, others]) if rows else plain

    def add_damage(self, sentence: str) -> None:
        self._rows.append((self._region, sentence, *[None] * (len(ROW_SCHEMA) - 2)))

    def add_group(self, group: Group) -> None:
        """Add all messages of a group commit that were not trimmed; unreadable data becomes a damage."""
        place = f"the log of {self._region}, topic {group.topic}, entries from {group.ledger_id}"
        try:
            lengths = entry_lengths(group.data, f"{place}:{group.first_entry_id}")
        except StorageError as damage:
            self.add_damage(str(damage))
            return
        if not group.has_places(len(lengths)):
            self.add_damage(f"{place}:{group.first_entry_id}: a position that no log can have")
            return
        bounds = accumulate(lengths, initial=(1 + len(lengths)) * ENTRY_OVERHEAD_BYTES)
        entries = enumerate(pairwise(bounds), group.first_entry_id)
        kept = [(entry_id, *of) for entry_id, of in entries if entry_id >= group.trimmed_below]
        for entry_id, start, stop in self._plain.add_group(group.topic, group.ledger_id, group.data, kept):
            try:
                self._add_scanned(group.topic, group.ledger_id, entry_id, group.data[start:stop])
            except ProtocolError as damage:
                self.add_damage(f"{place}:{entry_id}: {damage}")

    def _read_kind(self, rest: bytes) -> EntryKind:
        """Parse the optional fields, in an entry with dummy values for the required ones."""
        metadata = b"\x0a\x01p\x10\x01\x18\x01" + rest
        try:
            return self._kind(read_entry(len(metadata).to_bytes(4, "big") + metadata), metadata)
        except ProtocolError:
            return EntryKind(False, None, "", None, None, 0, 0)

    def _kind(self, info: EntryDetails, metadata: bytes) -> EntryKind:
        is_open = not (info.is_batch or info.is_chunk or info.is_encrypted or info.compression)
        return EntryKind(
            is_open and info.marker_type is None and info.source_position is None,
            info.replicated_from,
            info.replicated_from or self._region,
            info.marker_type,
            info.replicate_to or None,
            *metadata_digests(metadata),
            transaction_text(info.txn),
        )

    def _add_scanned(self, topic: str, ledger_id: int, entry_id: int, data: bytes) -> None:
        """Add the messages of any kind of entry, without the shortcut; none for a chunk except the last one."""
        info = read_entry(data)
        start, is_sound = _metadata_start(data)
        kind = self._kind(info, data[start : info.payload_offset])
        if info.is_chunk and info.chunk_id != info.num_chunks - 1:
            return  # a message has the position of its last chunk
        payload = data[info.payload_offset :]
        is_marker = info.marker_type is not None
        text, claim = read_marker(data, info, is_sound=is_sound) if is_marker else (None, None)
        at_ms = signed(info.publish_time_ms)
        source = info.source_position or (None, None)
        for batch_index, sequence_id, size, stored, opened, attributes in _messages(
            info, payload, kind.attributes_digest
        ):
            digest = bytes_digest(stored, attributes, kind.rest, at_ms)
            identity = (batch_index, info.producer_name, sequence_id, at_ms)
            content = (size, opened, attributes, digest, is_sound)
            self._rows.append(
                (
                    *(self._region, None, topic, ledger_id, entry_id),
                    *(*identity, *kind[1:5], *source, *content, text, kind.transaction, claim),
                )
            )


Message = tuple[int, int, int, int, int | None, int]
"""Batch index, sequence id, payload size, digest of the stored payload, digest of the decompressed payload (None if
unreadable), digest of the attributes."""


def _messages(info: EntryDetails, payload: bytes, attributes: int) -> Iterator[Message]:
    """Yield the messages of an entry. Those of a batch that cannot be decoded (encrypted, or unknown compression) have
    consecutive sequence ids, and share the digest and the size of the batch.
    """
    first = signed(info.sequence_id)
    opened = None if info.is_encrypted or info.is_chunk else _opened(info, payload)
    if not info.is_batch:
        digest = None if opened is None else digest_of(opened)
        yield NO_BATCH, first, len(payload), digest_of(payload), digest, attributes
        return
    if opened is None:
        stored, size = digest_of(payload), len(payload) // info.num_messages
        for index in range(info.num_messages):
            yield index, first + index, size, stored, None, attributes
        return
    yield from _split(info, opened)


def _opened(info: EntryDetails, payload: bytes) -> bytes | None:
    try:
        return decompress(info.compression, payload, info.uncompressed_size)
    except ProtocolError:
        return None


def _split(info: EntryInfo, payload: bytes) -> list[Message]:
    """Return the messages of a batch. ProtocolError if it is damaged."""
    first, at = signed(info.sequence_id), 0
    messages: list[Message] = []
    for index in range(info.num_messages):
        start = at + 4
        end = start + int.from_bytes(payload[at:start], "big")
        single = _SINGLE.fullmatch(payload, start, end)
        if single is None:
            return _split_fully(info, payload)
        size, sequence_id = single.groups()
        at = end + varint(size)
        if at > len(payload):
            return _split_fully(info, payload)
        # A message in a batch may omit its sequence id.
        number = first + index if sequence_id is None else varint(sequence_id)
        digest = digest_of(payload[end:at])
        messages.append((index, number, at - end, digest, digest, NO_ATTRIBUTES))
    return messages


def _split_fully(info: EntryInfo, payload: bytes) -> list[Message]:
    first = signed(info.sequence_id)
    messages: list[Message] = []
    for index, (single, message) in enumerate(split_batch(info, payload)):
        number = signed(single.sequence_id) if single.HasField("sequence_id") else first + index
        digest = digest_of(message)
        messages.append((index, number, len(message), digest, digest, attributes_of(single)))
    return messages


def _metadata_start(data: bytes) -> tuple[int, bool]:
    """Return the offset of the metadata, and whether the checksum is correct or absent."""
    at = 0
    if data[:2] == b"\x0e\x02":  # broker entry metadata
        at = 6 + int.from_bytes(data[2:6], "big")
    if data[at : at + 2] != b"\x0e\x01":
        return at + 4, True
    return at + 10, int.from_bytes(data[at + 2 : at + 6], "big") == crc32c(data[at + 6 :])
