"""Columns: pieces of SQL that can be put together as PySpark's are."""

from __future__ import annotations

from typing import Any

from spark_jobs.engines.embedded.types import duckdb_type
from spark_jobs.engines.embedded.windows import WindowSpec


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
        return Column(f"{self.sql} OVER ({window.sql})")

    def isNull(self) -> Column:
        return Column(f"({self.sql} IS NULL)")

    def isNotNull(self) -> Column:
        return Column(f"({self.sql} IS NOT NULL)")

    def isin(self, *values: Any) -> Column:
        listed = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, set)) else values
        among = ", ".join(sql_of(value) for value in listed)
        return Column(f"({self.sql} IN ({among}))" if among else "FALSE")

    def __getitem__(self, key: Column | str) -> Column:
        """The field of a struct, or what a map has under a key."""
        if isinstance(key, str):
            return Column(f"struct_extract({self.sql}, {literal(key)})", key)
        return Column(f"map_extract_value({self.sql}, {key.sql})")

    def __bool__(self) -> bool:
        raise TypeError(f"{self.sql} is true or false of a row, not here")

    def __invert__(self) -> Column:
        return Column(f"(NOT {self.sql})")

    def __and__(self, other: Any) -> Column:
        return self._with("AND", other)

    def __or__(self, other: Any) -> Column:
        return self._with("OR", other)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: Any) -> Column:
        return self._with("<", other)

    def __le__(self, other: Any) -> Column:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> Column:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Column:
        return self._with(">=", other)

    def __add__(self, other: Any) -> Column:
        return self._with("+", other)

    def __sub__(self, other: Any) -> Column:
        return self._with("-", other)

    def __mul__(self, other: Any) -> Column:
        return self._with("*", other)

    def __truediv__(self, other: Any) -> Column:
        return self._with("/", other)

    def _with(self, operator: str, other: Any) -> Column:
        return Column(f"({self.sql} {operator} {sql_of(other)})")


class Case(Column):
    """What `when` begins: goes on with `when`, ends with `otherwise` or with null."""

    def __init__(self, branches: str) -> None:
        super().__init__(f"CASE{branches} END")
        self._branches = branches

    def when(self, condition: Column, value: Any) -> Case:
        return Case(f"{self._branches} WHEN {condition.sql} THEN {sql_of(value)}")

    def otherwise(self, value: Any) -> Column:
        return Column(f"CASE{self._branches} ELSE {sql_of(value)} END")


def quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def column(name: Column | str) -> Column:
    """`a`, or the field `a.b`."""
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
    """Of a column, or of a Python value as a literal."""
    return value.sql if isinstance(value, Column) else literal(value)
