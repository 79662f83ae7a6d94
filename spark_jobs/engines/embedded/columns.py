"""Columns: SQL expressions that combine like PySpark's columns; windows, and types in Spark's notation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TYPES = {
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "double": "DOUBLE",
    "int": "INTEGER",
    "string": "VARCHAR",
}
_NESTED = re.compile(r"(array|struct)\s*<(.*)>", re.IGNORECASE)
_BETWEEN_FIELDS = re.compile(r",(?![^<]*>)")
_UNBOUNDED = 1 << 62


def duckdb_type(spark_type: str) -> str:
    """Translate a type: `array<struct<a: bigint>>` becomes `STRUCT("a" BIGINT)[]`. KeyError for an unknown one.
    Fields of a struct are simple, or arrays of simple types."""
    nested = _NESTED.fullmatch(spark_type.strip())
    if nested is None:
        return _TYPES[spark_type.strip().lower()]
    kind, inner = nested.groups()
    if kind.lower() == "array":
        return f"{duckdb_type(inner)}[]"
    fields = (field.partition(":") for field in _BETWEEN_FIELDS.split(inner))
    listed = ", ".join(f"{quoted(name.strip())} {duckdb_type(of)}" for name, _, of in fields)
    return f"STRUCT({listed})"


def _operator(symbol: str) -> Callable[[Column, Any], Column]:
    def combined(left: Column, right: Any) -> Column:
        return Column(f"({left.sql} {symbol} {sql_of(right)})")

    return combined


class Column:
    """An expression, and the name of its result unless it is aliased."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sql: str, name: str | None = None) -> None:
        self.sql = sql
        self.name = sql if name is None else name

    def alias(self, name: str) -> Column:
        return Column(self.sql, name)

    def cast(self, spark_type: str) -> Column:
        return Column(f"CAST({self.sql} AS {duckdb_type(spark_type)})", self.name)

    def over(self, window: WindowSpec) -> Column:
        return Column(f"{self.sql} OVER ({window.partition} {window.order} {window.frame})")

    def isNull(self) -> Column:
        return Column(f"({self.sql} IS NULL)")

    def isNotNull(self) -> Column:
        return Column(f"({self.sql} IS NOT NULL)")

    def isin(self, *values: Any) -> Column:
        listed = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, set)) else values
        among = ", ".join(sql_of(value) for value in listed)
        return Column(f"({self.sql} IN ({among}))" if among else "FALSE")

    def __getitem__(self, key: Column | str) -> Column:
        """Return the field of a struct, or the value of a key in a map."""
        if isinstance(key, str):
            return Column(f"struct_extract({self.sql}, {literal(key)})", key)
        return Column(f"map_extract_value({self.sql}, {key.sql})")

    def __bool__(self) -> bool:
        raise TypeError(f"{self.sql} is true or false of a row, not here")

    def __invert__(self) -> Column:
        return Column(f"(NOT {self.sql})")

    __and__, __or__ = _operator("AND"), _operator("OR")
    __eq__, __ne__ = _operator("="), _operator("<>")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = (_operator(symbol) for symbol in ("<", "<=", ">", ">="))
    __add__, __sub__, __mul__, __truediv__ = (_operator(symbol) for symbol in "+-*/")


class Case(Column):
    """A CASE expression of `when` branches. Its value is null if no condition is true, unless `otherwise` follows."""

    def __init__(self, branches: str) -> None:
        super().__init__(f"CASE{branches} END")
        self._branches = branches

    def when(self, condition: Column, value: Any) -> Case:
        return Case(f"{self._branches} WHEN {condition.sql} THEN {sql_of(value)}")

    def otherwise(self, value: Any) -> Column:
        return Column(f"CASE{self._branches} ELSE {sql_of(value)} END")


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """The clauses of a window."""

    partition: str
    order: str = ""
    frame: str = ""

    def orderBy(self, *columns: Column | str) -> WindowSpec:
        return dataclasses.replace(self, order=f"ORDER BY {', '.join(map(in_order, columns))}")

    def rowsBetween(self, start: int, end: int) -> WindowSpec:
        return dataclasses.replace(self, frame=f"ROWS BETWEEN {_bound(start)} AND {_bound(end)}")


class Window:
    """The parts of `pyspark.sql.Window` that the checks use."""

    unboundedPreceding = -_UNBOUNDED
    unboundedFollowing = _UNBOUNDED
    currentRow = 0

    @staticmethod
    def partitionBy(*columns: Column | str) -> WindowSpec:
        return WindowSpec(f"PARTITION BY {', '.join(column(one).sql for one in columns)}")


def in_order(by: Column | str) -> str:
    """Return the sort expression of a column. As in Spark, nulls are the smallest values."""
    sql = column(by).sql
    return sql if sql.endswith("NULLS LAST") else f"{sql} ASC NULLS FIRST"


def _bound(rows: int) -> str:
    side = "PRECEDING" if rows < 0 else "FOLLOWING"
    if rows == 0:
        return "CURRENT ROW"
    return f"{'UNBOUNDED' if abs(rows) == _UNBOUNDED else abs(rows)} {side}"


def quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def column(name: Column | str) -> Column:
    """Return the column `a`, or the field `a.b`."""
    if isinstance(name, Column):
        return name
    return Column(".".join(map(quoted, name.split("."))), name.rpartition(".")[2])


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case float():
            return f"CAST({value!r} AS DOUBLE)"
        case str():
            escaped = value.replace("'", "''")
            return f"'{escaped}'"
    raise TypeError(f"{value!r} is not a literal of the embedded engine")


def sql_of(value: Any) -> str:
    """Return the SQL of a column, or of a Python value as a literal."""
    return value.sql if isinstance(value, Column) else literal(value)
