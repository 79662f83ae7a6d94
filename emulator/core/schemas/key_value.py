"""Key/value schemas: the schema of the key and the schema of the value in one.

data         size of the key's data (i32) | the key's data | size of the value's (i32) | the value's data; big-endian,
             a negative size: no data
properties   key.schema.type, key.schema.properties (JSON), value.schema.type, …; kv.encoding.type
"""

from __future__ import annotations

import json
from struct import Struct, error
from typing import Any

from emulator.core.schemas.json_text import BadSchema, read_json
from emulator.model.values import Schema, SchemaType

_LENGTH = Struct(">i")
HALVES = ("key", "value")


def halves(schema: Schema) -> tuple[Schema, Schema]:
    """Return the key's and the value's schema, without properties. Raises BadSchema when the data cannot be split, or a
    type is unknown."""
    key, value = split_data(schema.data)
    return _half("key", schema, key), _half("value", schema, value)


def split_data(data: bytes) -> tuple[bytes, bytes]:
    """Return the key's and the value's data. Raises BadSchema when the data cannot be split."""
    try:
        key, at = _part(data, 0)
        value, at = _part(data, at)
    except error:
        raise BadSchema("a key/value schema is two schemas, each behind its length") from None
    if at != len(data):
        raise BadSchema(f"{len(data) - at:,} bytes behind the value's schema")
    return key, value


def _part(data: bytes, at: int) -> tuple[bytes, int]:
    size = max(0, _LENGTH.unpack_from(data, at)[0])  # -1: no schema
    end = at + _LENGTH.size + size
    if end > len(data):
        raise BadSchema(f"a schema of {size:,} bytes in {len(data):,}")
    return data[at + _LENGTH.size : end], end


def join_data(key: bytes, value: bytes) -> bytes:
    """Inverse of `split_data`."""
    return b"".join((_LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value))


def _half(name: str, whole: Schema, data: bytes) -> Schema:
    type_name = whole.properties.get(f"{name}.schema.type", "")
    if type_name == "BYTES" or not type_name:
        return Schema(SchemaType.NONE, data)
    try:
        return Schema(SchemaType[type_name], data)
    except KeyError:
        raise BadSchema(f"{name}.schema.type: {type_name!r} is not a schema type") from None


# The form of the admin API.


def data_as_text(data: bytes) -> str:
    """Return `{"key": …, "value": …}`: each half's data as JSON, as text if it is not JSON, or empty text if there is
    none. Raises BadSchema when the data cannot be split."""
    key, value = split_data(data)
    return json.dumps({"key": _as_json(key), "value": _as_json(value)})


def _as_json(data: bytes) -> Any:
    try:
        return read_json(data) if data else ""
    except BadSchema:
        return data.decode(errors="replace")


def data_from_text(text: str) -> bytes:
    """Parse the result of `data_as_text`. Raises BadSchema for any other text."""
    document = read_json(text.encode())
    if not isinstance(document, dict) or set(document) != set(HALVES):
        raise BadSchema('a key/value schema is written {"key": …, "value": …}')
    return join_data(*(_from_json(document[name]) for name in HALVES))


def _from_json(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
