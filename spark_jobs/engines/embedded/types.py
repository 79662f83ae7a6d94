"""Spark's names of types, as DuckDB's: `array<struct<a: bigint>>` becomes `STRUCT("a" BIGINT)[]`."""

from __future__ import annotations

import re

_SIMPLE = {
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "double": "DOUBLE",
    "int": "INTEGER",
    "string": "VARCHAR",
}
_TOKEN = re.compile(r"\s*(\w+|[<>,:])")


def duckdb_type(spark_type: str) -> str:
    tokens = _TOKEN.findall(spark_type)
    name = _read(tokens)
    if tokens:
        raise ValueError(f"{spark_type!r} is not a type: unexpected {' '.join(tokens)!r}?")
    return name


def _read(tokens: list[str]) -> str:
    """One type off the front of `tokens`."""
    word = tokens.pop(0).lower()
    if word == "array":
        _expect(tokens, "<")
        element = _read(tokens)
        _expect(tokens, ">")
        return f"{element}[]"
    if word == "struct":
        fields = [_field(tokens, "<")]
        while tokens[:1] == [","]:
            fields.append(_field(tokens, ","))
        _expect(tokens, ">")
        return f"STRUCT({', '.join(fields)})"
    return _SIMPLE[word]


def _field(tokens: list[str], before: str) -> str:
    _expect(tokens, before)
    name = tokens.pop(0)
    _expect(tokens, ":")
    return f'"{name}" {_read(tokens)}'


def _expect(tokens: list[str], token: str) -> None:
    if tokens[:1] != [token]:
        raise ValueError(f"{token!r} expected before {' '.join(tokens)!r}")
    tokens.pop(0)
