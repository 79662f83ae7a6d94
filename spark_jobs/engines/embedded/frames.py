"""Frames: SQL queries with the names of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from spark_jobs.engines.embedded.columns import Column, column, in_order, quoted

Named = Column | str
Fetch = Callable[[str], list[Any]]
"""Executes a query and returns its rows."""


class ResultRow(Sequence[Any]):
    """A collected row, with values by position or by name."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {name: _value(value) for name, value in fields.items()}

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key] if isinstance(key, str) else [*self._fields.values()][key]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields.values())

    def asDict(self) -> dict[str, Any]:
        return dict(self._fields)


def _value(value: Any) -> Any:
    """Convert structs to rows. A dictionary is a struct if all of its keys are strings; a map has other keys."""
    if isinstance(value, list):
        return [_value(one) for one in value]
    is_struct = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return ResultRow(value) if is_struct else value


class QueryFrame:
    """A query, which is executed only when its rows are collected, counted or cached."""

    def __init__(self, fetch: Fetch, sql: str, columns: Sequence[str], table: str | None = None) -> None:
        assert len(set(columns)) == len(columns), f"duplicate column names: {columns}"
        self._fetch = fetch
        self.sql = sql
        self.table = table
        """The table that stores the rows; None for a query."""
        self.columns = list(columns)

    def select(self, *columns: Named) -> QueryFrame:
        names = (each for one in columns for each in (self.columns if _is_star(one) else [one]))
        return self.selected(map(column, names), f"FROM ({self.sql})")

    def withColumn(self, name: str, value: Column) -> QueryFrame:
        value = value.alias(name)
        if name not in self.columns:
            return self.select("*", value)
        return self.select(*(value if one == name else one for one in self.columns))

    def withColumnRenamed(self, name: str, new_name: str) -> QueryFrame:
        return self.select(*(column(one).alias(new_name) if one == name else one for one in self.columns))

    def drop(self, *names: str) -> QueryFrame:
        return self.select(*(one for one in self.columns if one not in names))

    def where(self, condition: Column) -> QueryFrame:
        return self._query(f"SELECT * FROM ({self.sql}) WHERE {condition.sql}")

    def distinct(self) -> QueryFrame:
        return self._query(f"SELECT DISTINCT * FROM ({self.sql})")

    def orderBy(self, *columns: Named) -> QueryFrame:
        return self._query(f"SELECT * FROM ({self.sql}) ORDER BY {', '.join(map(in_order, columns))}")

    def limit(self, rows: int) -> QueryFrame:
        return self._query(f"SELECT * FROM ({self.sql}) LIMIT {rows}")

    def hint(self, name: str) -> QueryFrame:
        """Return this frame: DuckDB's optimizer needs no hints."""
        return self

    def union(self, other: QueryFrame) -> QueryFrame:
        """Append the rows of another frame; columns are matched by position."""
        return self._query(f"({self.sql}) UNION ALL ({other.sql})")

    def unionByName(self, other: QueryFrame) -> QueryFrame:
        return self.union(other.select(*self.columns))

    def crossJoin(self, other: QueryFrame) -> QueryFrame:
        columns = [*self.columns, *other.columns]
        return QueryFrame(self._fetch, f"SELECT * FROM ({self.sql}) CROSS JOIN ({other.sql})", columns)

    def join(self, other: QueryFrame, on: str | list[str], how: str = "inner") -> QueryFrame:
        """Join on equal values of the columns `on`, which come first, once each."""
        keys = [on] if isinstance(on, str) else on
        left, right = ([one for one in frame.columns if one not in keys] for frame in (self, other))
        kind = {"inner": "JOIN", "left": "LEFT JOIN", "full_outer": "FULL JOIN"}[how]
        chosen = [
            *(Column(f"coalesce(l.{quoted(key)}, r.{quoted(key)})", key) for key in keys),
            *(Column(f"l.{quoted(name)}", name) for name in left),
            *(Column(f"r.{quoted(name)}", name) for name in right),
        ]
        equal = " AND ".join(f"l.{quoted(key)} = r.{quoted(key)}" for key in keys)
        return self.selected(chosen, f"FROM ({self.sql}) AS l {kind} ({other.sql}) AS r ON {equal}")

    def groupBy(self, *columns: Named) -> Grouped:
        return Grouped(self, [column(one) for one in columns])

    def agg(self, *columns: Column) -> QueryFrame:
        return self.groupBy().agg(*columns)

    def count(self) -> int:
        ((rows,),) = self._fetch(f"SELECT count(*) FROM ({self.sql})")
        return int(rows)

    def collect(self) -> list[ResultRow]:
        return [ResultRow(dict(zip(self.columns, row, strict=True))) for row in self._fetch(self.sql)]

    def selected(self, columns: Iterable[Column], source: str) -> QueryFrame:
        """Return the query of these columns. `source`: a FROM clause and the clauses after it."""
        columns = list(columns)
        listed = ", ".join(f"{one.sql} AS {quoted(one.name)}" for one in columns)
        return QueryFrame(self._fetch, f"SELECT {listed} {source}", [one.name for one in columns])

    def _query(self, sql: str) -> QueryFrame:
        return QueryFrame(self._fetch, sql, self.columns)


def _is_star(named: Named) -> bool:
    return isinstance(named, str) and named == "*"


class Grouped:
    """Rows with equal keys, to be aggregated."""

    def __init__(self, frame: QueryFrame, keys: Sequence[Column]) -> None:
        self._frame = frame
        self._keys = keys

    def agg(self, *columns: Column) -> QueryFrame:
        keys = ", ".join(key.sql for key in self._keys)
        source = f"FROM ({self._frame.sql})" + (f" GROUP BY {keys}" if keys else "")
        return self._frame.selected([*self._keys, *columns], source)

    def count(self) -> QueryFrame:
        return self.agg(Column("count(*)", "count"))
