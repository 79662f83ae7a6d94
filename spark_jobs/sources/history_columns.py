"""Convert a block of history lines to columns at once, without a Python object per line.

Arrow parses the block. Each different value of a field that repeats is validated once; the other fields are validated
as whole columns. A block that cannot be proven valid in this way is rejected: `history_files` then parses its lines one
by one, finds the wrong one and names its error. The rows are equal either way; a test compares both.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from emulator.run.history_schema import COMMON, FIELDS, LineCheck, Wrong
from spark_jobs.evidence.positions import LEDGER, LEDGERS

_ARROW_TYPES = {"number": pa.float64(), "integer": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
COLUMNS: Mapping[str, pa.DataType] = dict.fromkeys(("op", "outcome"), pa.string()) | {
    name: _ARROW_TYPES[form.schema.get("type", "string")]
    for name, form in FIELDS.items()
    if form.schema.get("type", "string") in _ARROW_TYPES
}
_DIGESTS = ("payload_digest", "attributes_digest")
_HEX_DIGITS = b"0123456789abcdef"
_DIGEST_CHARACTERS = 16
_PLACE = ("ledger_id", "entry_id", "batch_index")
_MESSAGE_ID = (
    r"^(?P<ledger_id>0|[1-9]\d{0,18}):(?P<entry_id>0|[1-9]\d{0,18}):(?P<batch_index>-1|0|[1-9]\d{0,8})$"
)
_FREE_TEXT = ("error", "detail")
_OUTCOMES_MAX = 7
# Arrow would infer the types of Python's values at each call, which takes longer than the operation on a block.
_ZERO, _ONE, _TWO = (pa.scalar(number, pa.int64()) for number in range(3))
_START = pa.scalar(0.0, pa.float64())
_OUTCOME_CODES = pa.scalar(_OUTCOMES_MAX + 1, pa.int64())
_DIGEST_SIZE = pa.scalar(_DIGEST_CHARACTERS, pa.int32())
_PUBLISH = pa.scalar("publish", pa.string())


class _NotProven(Exception):
    """A block contains a line that is wrong, or that these operations cannot validate."""


FullTopic = Callable[[str], str | Wrong]
Rules = Callable[[Mapping[str, Any]], Wrong | None]


class HistoryColumns:
    """Converts blocks of one history file. `check`: the rules of the format; `rules`: those of the run that depend on
    the presence of fields; `full_topic` validates a topic."""

    def __init__(
        self, schema: pa.Schema, file: str, check: LineCheck, rules: Rules, full_topic: FullTopic
    ) -> None:
        self._schema = schema
        self._file = file
        self._check = check
        self._rules = rules
        self._full_topic = full_topic
        self._present: Mapping[str, pa.DataType] = {}
        """The fields of the previous block: most blocks of a file have the same."""

    def convert(self, block: bytes, end_ms: float) -> pa.RecordBatch | None:
        """Return complete lines as columns in the schema; None if any of them may be wrong. `end_ms`: the first time
        that is too late."""
        try:
            columns = self._parsed(block)
            self._validate_shapes(columns)
            for name, column in columns.items():
                self._validate_values(name, column, end_ms)
            _validate_origins(columns)
            return self._converted(columns)
        except (_NotProven, pa.ArrowException, UnicodeDecodeError):
            return None

    def _parsed(self, block: bytes) -> dict[str, pa.Array]:
        """Return the fields that occur in the block."""
        lines = block.count(b"\n")
        # Otherwise a line may contain two objects, or an object two lines.
        _require(block.startswith(b"{") and block.count(b"\n{") == lines - 1 and b"\0" not in block)
        block.decode()  # Arrow does not validate it
        try:
            parsed = _parse_json(block, self._present)
        except pa.ArrowInvalid:
            self._present = {name: kind for name, kind in COLUMNS.items() if b'"%b"' % name.encode() in block}
            parsed = _parse_json(block, self._present)
        _require(parsed.num_rows == lines)
        columns = {name: parsed[name].combine_chunks() for name in self._present}
        return {name: column for name, column in columns.items() if column.null_count < lines}

    def _validate_shapes(self, columns: Mapping[str, pa.Array]) -> None:
        """Validate one line of each combination of operation, outcome and present fields."""
        _require(all(name in columns and not columns[name].null_count for name in COMMON))
        outcomes = columns["outcome"].dictionary_encode()
        _require(len(outcomes.dictionary) <= _OUTCOMES_MAX)
        shape = pc.add(
            pc.multiply(_codes(columns["op"].dictionary_encode()), _OUTCOME_CODES), _codes(outcomes)
        )
        for column in columns.values():
            if column.null_count:
                shape = pc.add(pc.multiply(shape, _TWO), column.is_valid().cast(pa.int64()))
        for code in shape.unique():
            row = pc.index(shape, code).as_py()
            fields = {name: column[row].as_py() for name, column in columns.items()}
            fields = {name: value for name, value in fields.items() if value is not None}
            _require(self._check.problem(fields) is None and self._rules(fields) is None)

    def _validate_values(self, name: str, column: pa.Array, end_ms: float) -> None:
        form = FIELDS.get(name)
        if form is None or name in _FREE_TEXT or pa.types.is_boolean(column.type):
            return
        if pa.types.is_int64(column.type):
            _require(pc.min(column).as_py() >= form.schema["minimum"])
        elif pa.types.is_floating(column.type):
            end = pa.scalar(end_ms, pa.float64())
            _require(pc.all(pc.and_(pc.greater_equal(column, _START), pc.less(column, end))).as_py())
        elif form.repeats:
            values = column.unique().to_pylist()
            _require(not any(self._check.value_problem(name, one) for one in values if one is not None))
        elif name in _DIGESTS:
            _require(pc.all(pc.equal(pc.binary_length(column), _DIGEST_SIZE)).as_py())
            _require(not _text_of(column).translate(None, _HEX_DIGITS))
        elif name == "key":
            _require(pc.min(pc.binary_length(column)).as_py() > 0)
        else:
            _require(name == "message_id")  # validated when it is split

    def _converted(self, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        columns = dict(columns)
        rows = len(columns["op"])
        if "topic" in columns:
            columns["topic"] = self._full_topics(columns["topic"])
        if "message_id" in columns:
            columns |= _places(columns.pop("message_id"))
        for name in _DIGESTS:
            if name in columns:
                columns[name] = _digest_numbers(columns[name])
        columns["history_file"] = pa.repeat(pa.scalar(self._file, pa.string()), rows)
        columns["attributes_digest"] = (
            pc.fill_null(columns["attributes_digest"], _ZERO)
            if "attributes_digest" in columns
            else pa.repeat(_ZERO, rows)
        )
        return pa.RecordBatch.from_arrays(
            [
                columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def _full_topics(self, topics: pa.Array) -> pa.Array:
        coded = topics.dictionary_encode()
        full = [self._full_topic(one) for one in coded.dictionary.to_pylist()]
        _require(not any(isinstance(one, Wrong) for one in full))
        return pa.DictionaryArray.from_arrays(coded.indices, pa.array(full, pa.string())).cast(pa.string())


def _parse_json(block: bytes, fields: Mapping[str, pa.DataType]) -> pa.Table:
    """Parse lines. Raises ArrowInvalid if one has another field, or is wrong."""
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(fields.items()), unexpected_field_behavior="error"
        ),
    )


def _require(is_proven: bool) -> None:
    if not is_proven:
        raise _NotProven


def _codes(column: pa.DictionaryArray) -> pa.Array:
    return column.indices.cast(pa.int64())


def _validate_origins(columns: Mapping[str, pa.Array]) -> None:
    """Validate that a publish names no origin region except its own region."""
    origin = columns.get("origin_region")
    if origin is not None:
        other = pc.and_(pc.equal(columns["op"], _PUBLISH), pc.not_equal(origin, columns["region"]))
        _require(not pc.any(other).as_py())


def _places(message_ids: pa.Array) -> dict[str, pa.Array]:
    """Return the numbers of message ids, which logs can have."""
    parts = pc.extract_regex(message_ids, _MESSAGE_ID)
    _require(parts.null_count == message_ids.null_count)
    types = (pa.int64(), pa.int64(), pa.int32())
    found = {name: pc.struct_field(parts, name).cast(kind) for name, kind in zip(_PLACE, types, strict=True)}
    _require((pc.max(found["ledger_id"]).as_py() or 0) < LEDGERS)
    _require((pc.max(found["entry_id"]).as_py() or 0) < LEDGER)
    return found


def _text_of(column: pa.Array) -> bytes:
    """Return the concatenated texts of a column."""
    kept = column.drop_null()
    _, offsets, data = kept.buffers()
    ends = memoryview(offsets).cast("i")
    return bytes(memoryview(data)[ends[kept.offset] : ends[kept.offset + len(kept)]])


def _digest_numbers(column: pa.Array) -> pa.Array:
    """Convert hexadecimal digits to signed 64-bit numbers. The column is valid."""
    numbers = array("q", bytes.fromhex(_text_of(column).decode()))
    numbers.byteswap()
    values = pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
    if not column.null_count:
        return values
    places = pc.subtract(pc.cumulative_sum(column.is_valid().cast(pa.int64())), _ONE)
    return values.take(pc.if_else(column.is_valid(), places, pa.scalar(None, pa.int64())))
