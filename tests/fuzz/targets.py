"""The input classes: the parsers of each, valid inputs to begin with, and the errors that they may raise.

A target fails by any other error, and by a violated statement about the result. Targets whose first byte selects a
parser or a split read it with `choice`, so that one corpus covers all of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

from crc32c import crc32c
from yaml import CSafeLoader

from emulator.broker.connection.commands import COMMANDS
from emulator.config import yaml_source
from emulator.config.models import TopologyFile
from emulator.config.region import RegionConfig
from emulator.config.topology import Topology
from emulator.config.yaml_source import parse_yaml
from emulator.core.schemas.compatibility import CompatibilityStrategy, check_follows, check_form
from emulator.core.schemas.json_text import BadSchema, Incompatible
from emulator.core.schemas.key_value import data_as_text, data_from_text
from emulator.errors import ConfigurationError, ProtocolError, StorageError
from emulator.model.values import Position, Schema, SchemaType
from emulator.scenarios.scenario import parse_scenario
from emulator.storage.group import decode_group, encode_group, entry_lengths, slice_group
from emulator.storage.kafka.records import decode_batches
from emulator.wire import commands as wire
from emulator.wire import message_metadata, payloads
from emulator.wire.codec_hot import consuming, publishing
from emulator.wire.entry import with_replication, with_transaction
from emulator.wire.frames import Frame, FrameBuffer
from emulator.wire.markers import decode_marker, stored_marker
from emulator.wire.observing import read_chunk, read_messages
from emulator.wire.protobuf import check_descriptors, decode_command
from spark_jobs.sources import history_files
from tests.fuzz import seeds
from tests.fuzz.served import http, session

ENTRY_BYTES_MAX: Final = 1_000_000
CHECKSUM_BYTES: Final = 4
BLOCKS_EVERY: Final = 4
"""One of this number of histories is also read by blocks: Arrow takes ten times as long as the reader of lines."""
KAFKA_CHECKED_FROM: Final = 21
"""Offset in a record batch from which its checksum counts."""


@dataclass(frozen=True, slots=True)
class Target:
    """An input class."""

    name: str
    run: Callable[[bytes], None]
    """Reads one input. Any exception is a failure."""
    seeds: Callable[[], Iterable[bytes]]
    """Valid inputs to begin with."""
    modules: tuple[str, ...]
    """The parsers: modules whose branches the kept inputs have to reach."""
    words: Callable[[], Iterable[bytes]] = tuple
    """Words of which inputs consist: a mutation may insert one."""
    input_bytes_max: int = 4_096


def choice(data: bytes) -> tuple[int, bytes]:
    """Return the first byte, which selects something, and the rest."""
    return (data[0], data[1:]) if data else (0, b"")


# Frames and commands.


def frames(data: bytes) -> None:
    """Frames are the same however a stream is divided into reads, and each command is read or refused."""
    split, stream = choice(data)
    whole, parts = FrameBuffer(ENTRY_BYTES_MAX), FrameBuffer(ENTRY_BYTES_MAX)
    assert _frames_in(whole, [stream]) == _frames_in(parts, [stream[:split], stream[split:]])
    assert (whole.failed is None) == (parts.failed is None)


def _frames_in(buffer: FrameBuffer, reads: Iterable[bytes]) -> list[Frame]:
    found: list[Frame] = []
    with contextlib.suppress(ProtocolError):
        for read in reads:
            found += buffer.feed(read)
    return found


_DECODERS: Final = (
    *(row.decode for row in COMMANDS),
    decode_command,
    consuming.decode_message,
    publishing.decode_receipt,
    publishing.decode_peer_receipt,
    wire.Connected.read,
    wire.Error.read,
    wire.SendError.read,
    wire.ProducerSuccess.read,
    wire.PartitionMetadataResponse.read,
    wire.GetOrCreateSchemaResponse.read,
    wire.CloseProducer.read,
)


def commands(data: bytes) -> None:
    """Each command that a client or another region sends is read, or refused with a protocol error."""
    number, command = choice(data)
    try:
        _DECODERS[number % len(_DECODERS)](command)
    except ProtocolError:
        return


# Entries.


def metadata(data: bytes) -> None:
    """Both readers at the gate agree, and behind it no other reader of an entry fails."""
    try:
        details = message_metadata.read_entry(data)
    except ProtocolError:
        _must_refuse(message_metadata.scan_entry, data)
        return
    scanned = message_metadata.scan_entry(data)
    for name in message_metadata.EntryInfo.__slots__:
        assert getattr(scanned, name) == getattr(details, name), name
    assert 0 <= details.payload_offset <= len(data)
    _may_refuse(lambda entry: message_metadata.read_entry(entry, verify=True), data)
    message_metadata.scan_for_dispatch(data)
    message_metadata.chunk_of(data)
    message_metadata.sticky_key(data)
    _may_refuse(
        message_metadata.read_properties, data
    )  # the broker passes properties on without reading them
    assert message_metadata.read_entry(with_transaction(data, (1, 2))).txn == (1, 2)
    replicated = message_metadata.read_entry(with_replication(data, "us", Position(1, 2)))
    assert (replicated.replicated_from, replicated.source_position) == ("us", Position(1, 2))


def _must_refuse(reader: Callable[[bytes], object], data: bytes) -> None:
    try:
        reader(data)
    except ProtocolError:
        return
    raise AssertionError("one reader accepts what another one refuses")


def _may_refuse(reader: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        reader(data)


def batches(data: bytes) -> None:
    """Batches and compressed payloads are read, or refused with a protocol error."""
    for reader in (
        read_messages,
        read_chunk,
        payloads.read_keys,
        payloads.last_index,
        payloads.encryption_context,
        _compacted,
    ):
        _may_refuse(reader, data)


def _compacted(data: bytes) -> bytes | None:
    """Return the first message of a batch, as compaction leaves it."""
    return payloads.with_messages(data, (0,)) if message_metadata.read_entry(data).is_batch else None


def compressed(data: bytes) -> None:
    """A payload is decompressed to the size that its metadata states, or refused, and never needs more memory."""
    number, payload = choice(data)
    size, compression = (number >> 3) * 4096, number % 8
    try:
        plain = payloads.decompress(compression, payload, size)
    except ProtocolError:
        return
    assert len(plain) == size or compression == payloads.Compression.NONE


def markers(data: bytes) -> None:
    """A marker of another region is read or refused; a stored one is read or ignored."""
    try:
        info = message_metadata.scan_entry(data)
    except ProtocolError:
        return
    stored_marker(data, info)
    _may_refuse(lambda entry: decode_marker(entry, info), data)


# Schemas.


def schemas(data: bytes) -> None:
    """A schema is accepted or refused, and so is its compatibility with another."""
    number, described = choice(data)
    type_ = _TYPES[number % len(_TYPES)]
    strategy = _STRATEGIES[number // len(_TYPES) % len(_STRATEGIES)]
    parts = described.split(b"\0\0\0\0\0", 2)
    new, old, types = (*parts, *(b"", b"AVRO,JSON")[len(parts) - 1 :])
    properties = _types_of_halves(types)
    schema, previous = (Schema(type_, half, properties) for half in (new, old))
    with contextlib.suppress(BadSchema, ValueError):
        data_from_text(new.decode(errors="replace"))
    with contextlib.suppress(BadSchema):
        data_as_text(new)
    try:
        check_form(schema)
        if type_ is SchemaType.PROTOBUF_NATIVE:
            check_descriptors(new)
        check_form(previous)
        check_follows(previous, schema, strategy)
    except (BadSchema, Incompatible, ValueError):
        return


_TYPES: Final = tuple(SchemaType)
_STRATEGIES: Final = tuple(CompatibilityStrategy)


def _types_of_halves(types: bytes) -> dict[str, str]:
    """Return the properties of a key/value schema."""
    key, _, value = types.decode("latin-1").partition(",")
    return {"key.schema.type": key, "value.schema.type": value}


# What users write.


class _FastLoader(CSafeLoader):
    """The product's loader with the parser in C, whose nodes are the same. It has no coverage, and takes a fifth of the
    time, so that more executions reach what reads the nodes."""

    yaml_implicit_resolvers = yaml_source._Loader.yaml_implicit_resolvers


_LOADERS: Final = (yaml_source._Loader, *[_FastLoader] * 7)


def _quickly(data: bytes) -> contextlib.AbstractContextManager[object]:
    """Read most inputs by the parser in C, and lower the limit of values, which aliases then exceed in little time."""
    return patch.multiple(yaml_source, _Loader=_LOADERS[len(data) % len(_LOADERS)], PARTS_MAX=500)


def yaml(data: bytes) -> None:
    """A file of a topology or scenario is read, or its problems name their place and rule."""
    text = data.decode("utf-8", "replace")
    with _quickly(data):
        file = parse_yaml(text, "topology.yaml")
    content = file.check(TopologyFile)
    assert content is not None or file.problems
    for problem in file.problems:
        assert problem.rule
        str(problem)


def scenarios(data: bytes) -> None:
    """A scenario is read, or refused with its problems."""
    with contextlib.suppress(ConfigurationError), _quickly(data):
        parse_scenario(data.decode("utf-8", "replace"), seeds.topology())


def configurations(data: bytes) -> None:
    """`region.json` and `topology.json` are read, or refused with a sentence."""
    number, text = choice(data)
    try:
        (RegionConfig.from_json, Topology.from_json)[number % 2](text.decode("utf-8", "replace"))
    except ValueError:
        return


# What is stored.


def groups(data: bytes) -> None:
    """A stored group is decoded, or reported as damaged, in the same way by all its readers."""
    number, stored = choice(data)
    if number % 2 and len(stored) > CHECKSUM_BYTES:
        stored = stored[:-CHECKSUM_BYTES] + crc32c(stored[:-CHECKSUM_BYTES]).to_bytes(CHECKSUM_BYTES, "big")
    try:
        entries = decode_group(stored)
    except StorageError:
        return
    assert encode_group(entries) == stored
    assert slice_group(stored, 1, number) == entries[1 : 1 + number]
    assert entry_lengths(stored) == tuple(map(len, entries))


def kafka(data: bytes) -> None:
    """A batch of records from Kafka is decoded, or reported as damaged."""
    number, stored = choice(data)
    if number % 2 and len(stored) > KAFKA_CHECKED_FROM:
        checksum = crc32c(stored[KAFKA_CHECKED_FROM:]).to_bytes(CHECKSUM_BYTES, "big")
        stored = stored[: KAFKA_CHECKED_FROM - CHECKSUM_BYTES] + checksum + stored[KAFKA_CHECKED_FROM:]
    try:
        for batch in decode_batches(stored, "topic"):
            assert len(batch.entries) <= len(batch.records)
    except StorageError:
        return


def histories(data: bytes) -> None:
    """A history file is evidence or damage, and never an error; a reader by blocks finds what one by lines finds."""
    path = _history_file()
    path.write_bytes(data)
    found = history_files.inspect_file(path, "run", ("a", "b"))
    rows = _rows(found, in_blocks=False)
    if len(data) % BLOCKS_EVERY == 0:
        assert _rows(found, in_blocks=True) == rows


@cache
def _history_file() -> Path:
    """Return a file in memory, which ends with the process."""
    return Path(f"/proc/self/fd/{os.memfd_create('history')}")


def _rows(file: history_files.HistoryFile, *, in_blocks: bool) -> list[str]:
    rows: list[str] = []
    with patch.object(history_files, "COLUMNAR_BYTES_MIN", 0 if in_blocks else 1 << 40):
        for slice_ in file.slices:
            for batch in history_files.read_rows(slice_, ("us-east", "us-west"), ("public/default",)):
                batch.validate(full=True)
                rows += (repr(row | {"at_ms": row["at_ms"] or 0}) for row in batch.to_pylist())  # -0.0 is 0
    return sorted(rows)


TARGETS: Final = {
    target.name: target
    for target in (
        Target("frames", frames, seeds.frames, ("emulator.wire.frames",)),
        Target(
            "commands",
            commands,
            lambda: seeds.commands(len(_DECODERS)),
            (
                "emulator.wire.codec_hot.publishing",
                "emulator.wire.codec_hot.consuming",
                "emulator.wire.protobuf",
            ),
        ),
        Target(
            "metadata",
            metadata,
            seeds.entries,
            ("emulator.wire.message_metadata", "emulator.wire.entry_layout", "emulator.wire.source_position"),
        ),
        Target("batches", batches, seeds.entries, ("emulator.wire.payloads", "emulator.wire.observing")),
        Target("compressed", compressed, seeds.compressed, ("emulator.wire.payloads",)),
        Target("markers", markers, seeds.markers, ("emulator.wire.markers",)),
        Target(
            "schemas",
            schemas,
            seeds.schemas,
            (
                "emulator.core.schemas.avro",
                "emulator.core.schemas.compatibility",
                "emulator.core.schemas.key_value",
            ),
        ),
        Target(
            "yaml",
            yaml,
            seeds.topologies,
            ("emulator.config.yaml_source", "emulator.config.yaml_errors"),
            lambda: seeds.words_of("topology.schema.json"),
            1_024,
        ),
        Target(
            "scenarios",
            scenarios,
            seeds.scenarios,
            ("emulator.scenarios.scenario",),
            lambda: seeds.words_of("scenario.schema.json"),
            1_024,
        ),
        Target("configurations", configurations, seeds.configurations, ("emulator.config.region",)),
        Target("groups", groups, seeds.groups, ("emulator.storage.group",)),
        Target("kafka", kafka, seeds.kafka, ("emulator.storage.kafka.records",)),
        Target("session", session, seeds.sessions, ("emulator.broker.connection.dispatch",)),
        Target("http", http, seeds.requests, ("emulator.net.http_server", "emulator.broker.admin.resource")),
        Target(
            "histories",
            histories,
            seeds.histories,
            ("spark_jobs.sources.history_files",),
            lambda: seeds.words_of("history.schema.json"),
        ),
    )
}
"""Name -> input class."""
