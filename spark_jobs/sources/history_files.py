"""The files of a history: whether each is complete, and its lines as columns (docs/HISTORY.md).

A file is complete if it begins with a head of this run, ends with an end or a seal, and has the number of lines and the
digest that the end records. Every line is checked against the format and the run's configuration. Each error is a
damage that names file, line, field and rule; the other lines remain evidence, which is then incomplete.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from emulator.model.values import CLIENTS
from emulator.run.history_schema import FRAME, LineCheck, Wrong
from emulator.run.json_text import parse_json
from spark_jobs.engines.frames import record_batch, schema
from spark_jobs.evidence.positions import LEDGERS, is_place
from spark_jobs.sources.history_frame import CountedLines, HistoryFrame, line_around
from spark_jobs.sources.plans import is_possible_plan
from spark_jobs.sources.run_folder import EvidenceDamage

ROW_SCHEMA = schema(
    "damage string, at_ms double, actor string, op string, outcome string, region string, other_region string,"
    " topic string, subscription string, origin_region string, producer string, session string, sequence_id bigint,"
    " last_sequence_id bigint, topic_epoch bigint, ledger_id bigint, entry_id bigint, batch_index int,"
    " payload_digest bigint, attributes_digest bigint, key string, replicate_to array<string>, replicated boolean,"
    " initial string, compacted boolean, how string, error string, detail string, transaction string, action string,"
    " transaction_key string, key_epoch bigint, plan string, history_file string"
)
"""A line of the history. `history_file` is the name of its file, without suffix.

`damage` is null except in rows for unreadable lines, which set no other column. Topics are in their full form; a
message id is three columns; digests are numbers, 0 for absent attributes; a plan is JSON."""

if TYPE_CHECKING:
    from spark_jobs.sources.history_columns import HistoryColumns

_COLUMNS = tuple(ROW_SCHEMA.names)
BATCH_ROWS = 16_384
SLICE_BYTES = 16 * 1024 * 1024
"""Approximate size of the slice that one task reads."""
COLUMNAR_BYTES_MIN = 256 * 1024
"""Smaller slices are parsed line by line, which takes less time than loading Arrow's functions."""
BLOCK_BYTES = 1024 * 1024
"""Approximate size of the lines that are converted to columns together."""
DAMAGES_MAX = 20
"""Maximum number of damages reported per slice; further ones are only counted."""

AT_MS_END = 2**53
"""The first integer after those that a column of doubles represents exactly."""
IMPOSSIBLE_CHARACTERS_MIN = len(f"{LEDGERS}:0:0")
"""Length of the shortest message id that no log can have."""

_SYSTEM_TOPIC = re.compile(r"[a-z-]+://(pulsar/system/|[^/]+/[^/]+/__)")

_PARTITION = re.compile(r"-partition-\d+$")
_UNUSUAL = (b"\\", b"null", b'"fact"', b'"plan"', b'"replicate_to"', b'"others"')
"""Parts of lines that are not converted as a block: escapes, nulls, facts, and nested values."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Complete lines of one file, which one task reads."""

    path: Path
    start: int
    stop: int
    """`start` and `stop` are byte offsets; `stop` is exclusive."""
    first_line: int
    """Number of its first line in the file, from 1."""
    torn: frozenset[int] = frozenset()
    """Numbers of lines that a seal declares torn; they are not damages."""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """Slices and damages of one history file."""

    slices: tuple[Slice, ...]
    damages: tuple[EvidenceDamage, ...]
    name: str
    digest: str | None
    """Digest in its last line; None: the file is not closed."""


def inspect_file(path: Path, run: str, present: Collection[str]) -> HistoryFile:
    """Find missing or wrong heads, ends, seals and further files of a file, and divide it into slices. `run`:
    `emulator.run.history.run_name`; `present`: names of the run's history files, without suffix."""
    frame, bounds, block = HistoryFrame(run, present), [], b""
    with path.open("rb") as stream:
        for block in _slices_in(stream):
            frame.add(block)
            bounds.append((len(block), block.count(b"\n")))
    damages = tuple(EvidenceDamage(f"history/{path.name}{problem}") for problem in frame.problems())
    slices = tuple(_slices(path, bounds, frozenset(frame.torn)))
    return HistoryFile(slices, damages, path.name, _recorded_digest(block))


def copied_files(files: Iterable[HistoryFile]) -> list[EvidenceDamage]:
    """Return a damage for each file with the lines of another one: what its program did would count twice."""
    first: dict[str, str] = {}
    damages = []
    for file in files:
        if file.digest is not None and first.setdefault(file.digest, file.name) != file.name:
            sentence = f"history/{file.name} has the same lines as history/{first[file.digest]}"
            damages.append(EvidenceDamage(sentence))
    return damages


def _recorded_digest(data: bytes) -> str | None:
    """Return the digest in the last of these lines."""
    try:
        fields = parse_json(line_around(data, len(data) - 1)[1])
    except ValueError:
        return None
    digest = fields.get("digest") if isinstance(fields, dict) else None
    return digest if isinstance(digest, str) else None


def _slices_in(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the complete lines of each slice. What is appended meanwhile is not read."""
    size = os.fstat(stream.fileno()).st_size
    while block := stream.read(min(SLICE_BYTES, size - stream.tell())):
        yield block + stream.readline(size - stream.tell())


def _slices(path: Path, bounds: Iterable[tuple[int, int]], torn: frozenset[int]) -> Iterator[Slice]:
    """Yield slices of these numbers of bytes and lines."""
    start, first_line = 0, 1
    for size, lines in bounds:
        yield Slice(path, start, start + size, first_line, torn)
        start, first_line = start + size, first_line + lines


def read_rows(
    slice_: Slice, regions: Collection[str], namespaces: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield a slice's lines as columns in ROW_SCHEMA, unreadable ones as damages, without torn lines and those in
    `FRAME`."""
    with slice_.path.open("rb") as stream:
        stream.seek(slice_.start)
        data = stream.read(slice_.stop - slice_.start)
    reader = _Reader(slice_.path, regions, namespaces)
    for first_line, block in _blocks(data, slice_.first_line):
        if len(data) >= COLUMNAR_BYTES_MIN and not slice_.torn:
            yield from reader.add_block(first_line, block)
        else:
            reader.add_lines(first_line, block, slice_.torn)
        if len(reader.rows) >= BATCH_ROWS:
            yield reader.take()
    reader.count_unnamed()
    yield reader.take()


def _blocks(data: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines in blocks, each with the number of its first line."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + BLOCK_BYTES)
        stop = len(data) if end < 0 else end + 1
        block = data[start:stop]
        yield first_line, block
        first_line += block.count(b"\n")
        start = stop


def _without_unusual(block: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Return the usual lines of a block, each with its end, and the others with their numbers from 0."""
    counted, at = CountedLines(block), 0
    usual: list[bytes] = []
    unusual: list[tuple[int, bytes]] = []
    for found in sorted(found for part in _UNUSUAL for found in _occurrences(block, part)):
        if found >= at:  # otherwise in the same line as the previous one
            start, line = line_around(block, found)
            usual.append(block[at:start])
            unusual.append((counted.before(start), line))
            at = start + len(line) + 1
    usual.append(block[at:])
    text = b"".join(usual)
    return (text if not text or text.endswith(b"\n") else text + b"\n"), unusual


def _occurrences(block: bytes, part: bytes) -> Iterator[int]:
    at = block.find(part)
    while at >= 0:
        yield at
        at = block.find(part, at + len(part))


class _Reader:
    def __init__(self, file: Path, regions: Collection[str], namespaces: Collection[str]) -> None:
        known = frozenset(regions)
        rule = f"must be a region of this run ({', '.join(sorted(known))})"
        self.rows: list[tuple[Any, ...]] = []
        self._place = f"history/{file.name}"
        self._file = file.stem
        names = dict.fromkeys(("region", "origin_region"), (known, rule))
        self._check = LineCheck({**names, "other_region": (known | {CLIENTS}, rule)})
        self._namespaces = frozenset(namespaces)
        self._topics: dict[str, str | Wrong] = {}
        self._damages = 0
        self._columns: HistoryColumns | None = None

    def take(self) -> pa.RecordBatch:
        rows, self.rows = self.rows, []
        return record_batch(rows, ROW_SCHEMA)

    def add(self, number: int, line: bytes) -> None:
        try:
            fields = parse_json(line)
        except ValueError as problem:
            self._damage(number, f"cannot be parsed: {problem}")
            return
        wrong = self._check.problem(fields) or self._problem_in_run(fields)
        if wrong is not None:
            self._damage(number, str(wrong))
        elif fields["op"] not in FRAME:
            topic = fields.get("topic")
            self.rows.append(row_of(fields, None if topic is None else str(self._topics[topic]), self._file))

    def add_block(self, first_line: int, block: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the usual lines of a block as columns, and add the others one by one; or all, if a usual line may be
        wrong."""
        usual, unusual = _without_unusual(block)
        if usual:
            columns = self._converter().convert(usual, AT_MS_END)
            if columns is None:
                self.add_lines(first_line, block)
                return
            yield columns
        for number, line in unusual:
            self.add(first_line + number, line)

    def _converter(self) -> HistoryColumns:
        if self._columns is None:
            # Imported late: small histories need none of Arrow's functions.
            from spark_jobs.sources.history_columns import HistoryColumns

            self._columns = HistoryColumns(
                ROW_SCHEMA, self._file, self._check, self._problem_in_run, self._topic
            )
        return self._columns

    def add_lines(self, first_line: int, block: bytes, torn: Collection[int] = ()) -> None:
        for number, line in enumerate(block.split(b"\n"), first_line):
            if line and number not in torn:
                self.add(number, line)

    def count_unnamed(self) -> None:
        unnamed = self._damages - DAMAGES_MAX
        if unnamed > 0:
            self._add_damage(f"{self._place}: {unnamed:,} more lines are wrong")

    def _damage(self, number: int, rule: str) -> None:
        self._damages += 1
        if self._damages <= DAMAGES_MAX:
            self._add_damage(f"{self._place}:{number}: {rule}")

    def _add_damage(self, sentence: str) -> None:
        self.rows.append((sentence, *[None] * (len(_COLUMNS) - 1)))

    def _problem_in_run(self, fields: Mapping[str, Any]) -> Wrong | None:
        """Return an error that depends on several fields, or on the run; every omission is one."""
        topic = fields.get("topic")
        if topic is not None and isinstance(known := self._topic(topic), Wrong):
            return known
        if fields["at_ms"] >= AT_MS_END:
            return Wrong("at_ms", "must be less than 2^53")
        message_id = fields.get("message_id", "")
        if len(message_id) >= IMPOSSIBLE_CHARACTERS_MIN and not _is_message_id(message_id):
            return Wrong("message_id", f"must be a position that a log can have, not {message_id}")
        if "plan" in fields and not is_possible_plan(fields["plan"]):
            return Wrong("plan", "must have positions that a log can have")
        op = fields["op"]
        if op == "omission":
            return Wrong(None, f"the program did not record what followed: {fields['detail']}")
        if op == "publish" and fields.get("origin_region", fields["region"]) != fields["region"]:
            return Wrong("origin_region", "must be the region of the publish")
        if op in ("receive", "read"):
            named = [name in fields for name in ("origin_region", "producer", "sequence_id")]
            if any(named) and not all(named):
                return Wrong(
                    "origin_region",
                    "origin_region, producer and sequence_id are required together or not at all",
                )
        return None

    def _topic(self, topic: str) -> str | Wrong:
        """Return the full name of a topic, or its error; each is checked once."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = self._check_topic(topic)
        return known

    def _check_topic(self, topic: str) -> str | Wrong:
        full = full_topic(topic)
        namespace = full.split("://", 1)[1].rpartition("/")[0]
        if namespace in self._namespaces or not self._namespaces:  # a missing topology is reported elsewhere
            return full
        rule = f"must be in a namespace of this run ({', '.join(sorted(self._namespaces))}), not {topic}"
        return Wrong("topic", rule)


def _is_message_id(message_id: str) -> bool:
    ledger, entry, _ = map(int, message_id.split(":"))
    return is_place(ledger, entry)


def row_of(fields: dict[str, Any], topic: str | None, file: str | None = None) -> tuple[Any, ...]:
    """Return a valid line as a row in ROW_SCHEMA. `topic`: in its full form. `file`: name of its history file."""
    message_id, payload, attributes = map(fields.get, ("message_id", "payload_digest", "attributes_digest"))
    ledger, entry, batch = (None, None, None) if message_id is None else map(int, message_id.split(":"))
    row = fields | {
        "damage": None,
        "topic": topic,
        "ledger_id": ledger,
        "entry_id": entry,
        "batch_index": batch,
        "payload_digest": None if payload is None else digest_number(payload),
        "attributes_digest": 0 if attributes is None else digest_number(attributes),
        "plan": json.dumps(fields["plan"]) if "plan" in fields else None,
        "history_file": file,
    }
    return tuple(map(row.get, _COLUMNS))


def full_topic(topic: str) -> str:
    """Convert `topic`, `tenant/ns/topic` or a full name to the full name, as clients do."""
    if "://" in topic:
        return topic
    return f"persistent://{topic}" if "/" in topic else f"persistent://public/default/{topic}"


def digest_number(digest: str) -> int:
    """Convert 16 hexadecimal digits to a signed 64-bit number."""
    number = int(digest, 16)
    return number if number < 2**63 else number - 2**64


def history_topic(log_topic: str, history_topics: Collection[str]) -> str | None:
    """Return the history's name of a stored topic: for a partition the partitioned topic, unless the history names
    partitions itself. None for system topics, which are not checked."""
    if _SYSTEM_TOPIC.match(log_topic):
        return None
    whole = _PARTITION.sub("", log_topic)
    return whole if whole in history_topics else log_topic
