"""Frames: queries that know the names of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_jobs.engines.embedded.columns import Column, column, quoted
from spark_jobs.engines.embedded.windows import in_order

if TYPE_CHECKING:
    from spark_jobs.engines.embedded.engine import EmbeddedEngine

Named = Column | str


class ResultRow(Sequence[Any]):
    """A collected row: by position or by name."""

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
    """Structs become rows. A map has keys that are no texts."""
    if isinstance(value, list):
        return [_value(one) for one in value]
    is_struct = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return ResultRow(value) if is_struct else value


class QueryFrame:
    """A query. Nothing is computed before rows are collected or cached."""

    def __init__(
        self, engine: EmbeddedEngine, sql: str, columns: Sequence[str], table: str | None = None
    ) -> None:
        assert len(set(columns)) == len(columns), f"two columns of one name: {columns}"
        self._engine = engine
        self.sql = sql
        self.table = table
        """Where the rows are kept; None for a query."""
        self.columns = list(columns)

    def select(self, *columns: Named) -> QueryFrame:
        chosen = [one for named in columns for one in self._all_of(named)]
        return self._made(chosen, f"FROM ({self.sql})")

    def withColumn(self, name: str, value: Column) -> QueryFrame:
        kept = [value if one == name else column(one) for one in self.columns]
        new = [] if name in self.columns else [value.alias(name)]
        named = [one.alias(each) for one, each in zip(kept, self.columns, strict=True)]
        return self.select(*named, *new)

    def withColumnRenamed(self, name: str, new_name: str) -> QueryFrame:
        return self.select(*(column(one).alias(new_name if one == name else one) for one in self.columns))

    def drop(self, *names: str) -> QueryFrame:
        return self.select(*(one for one in self.columns if one not in names))

    def where(self, condition: Column) -> QueryFrame:
        return self._rest(f"WHERE {condition.sql}")

    def distinct(self) -> QueryFrame:
        return QueryFrame(self._engine, f"SELECT DISTINCT * FROM ({self.sql})", self.columns)

    def orderBy(self, *columns: Named) -> QueryFrame:
        return self._rest(f"ORDER BY {', '.join(map(in_order, columns))}")

    def limit(self, rows: int) -> QueryFrame:
        return self._rest(f"LIMIT {rows}")

    def hint(self, name: str) -> QueryFrame:
        """DuckDB knows better."""
        return self

    def union(self, other: QueryFrame) -> QueryFrame:
        """By position."""
        return QueryFrame(self._engine, f"({self.sql}) UNION ALL ({other.sql})", self.columns)

    unionAll = union

    def unionByName(self, other: QueryFrame) -> QueryFrame:
        return self.union(other.select(*self.columns))

    def crossJoin(self, other: QueryFrame) -> QueryFrame:
        columns = [*self.columns, *other.columns]
        return QueryFrame(self._engine, f"SELECT * FROM ({self.sql}) CROSS JOIN ({other.sql})", columns)

    def join(self, other: QueryFrame, on: str | list[str], how: str = "inner") -> QueryFrame:
        """By equal columns, which come first and once."""
        keys = [on] if isinstance(on, str) else on
        left, right = ([one for one in frame.columns if one not in keys] for frame in (self, other))
        kind = {"inner": "JOIN", "left": "LEFT JOIN", "full_outer": "FULL JOIN"}[how]
        chosen = [
            *(Column(f"coalesce(l.{quoted(key)}, r.{quoted(key)})", key) for key in keys),
            *(Column(f"l.{quoted(name)}", name) for name in left),
            *(Column(f"r.{quoted(name)}", name) for name in right),
        ]
        equal = " AND ".join(f"l.{quoted(key)} = r.{quoted(key)}" for key in keys)
        return self._made(chosen, f"FROM ({self.sql}) AS l {kind} ({other.sql}) AS r ON {equal}")

    def groupBy(self, *columns: Named) -> Grouped:
        return Grouped(self, [column(one) for one in columns])

    def agg(self, *columns: Column) -> QueryFrame:
        return self.groupBy().agg(*columns)

    def count(self) -> int:
        ((rows,),) = self._engine.fetched(f"SELECT count(*) FROM ({self.sql})")
        return int(rows)

    def collect(self) -> list[ResultRow]:
        return [
            ResultRow(dict(zip(self.columns, row, strict=True))) for row in self._engine.fetched(self.sql)
        ]

    def _made(self, columns: Sequence[Column], source: str) -> QueryFrame:
        listed = ", ".join(f"{one.sql} AS {quoted(one.name)}" for one in columns)
        return QueryFrame(self._engine, f"SELECT {listed} {source}", [one.name for one in columns])

    def _rest(self, clause: str) -> QueryFrame:
        return QueryFrame(self._engine, f"SELECT * FROM ({self.sql}) {clause}", self.columns)

    def _all_of(self, named: Named) -> list[Column]:
        if isinstance(named, str) and named == "*":
            return [column(one) for one in self.columns]
        return [column(named)]


class Grouped:
    """Rows with equal keys, to be summed up."""

    def __init__(self, frame: QueryFrame, keys: Sequence[Column]) -> None:
        self._frame = frame
        self._keys = keys

    def agg(self, *columns: Column) -> QueryFrame:
        keys = ", ".join(key.sql for key in self._keys)
        source = f"FROM ({self._frame.sql})" + (f" GROUP BY {keys}" if keys else "")
        return self._frame._made([*self._keys, *columns], source)

    def count(self) -> QueryFrame:
        return self.agg(Column("count(*)", "count"))
