"""What `pyspark.sql.functions` has of what the checks use. Names and meaning are Spark's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as numbers
from typing import Any

from spark_jobs.engines.embedded.columns import Case, Column, column, literal, quoted

Named = Column | str
_arguments = numbers(1)


def col(name: str) -> Column:
    return column(name)


def lit(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(literal(value))


def expr(sql: str) -> Column:
    """In the words that Spark and DuckDB share."""
    return Column(sql)


def when(condition: Column, value: Any) -> Case:
    return Case("").when(condition, value)


def desc(by: Named) -> Column:
    return Column(f"{column(by).sql} DESC NULLS LAST")


def _call(name: str, *arguments: Named) -> Column:
    return Column(f"{name}({', '.join(column(one).sql for one in arguments)})")


# ---- one value ----


def coalesce(*columns: Named) -> Column:
    return _call("coalesce", *columns)


def least(*columns: Named) -> Column:
    return _call("least", *columns)


def floor(value: Named) -> Column:
    return Column(f"CAST(floor({column(value).sql}) AS BIGINT)")


def concat(*columns: Named) -> Column:
    """Of texts or of arrays; null where one of them is."""
    return Column(f"({' || '.join(column(one).sql for one in columns)})")


def concat_ws(separator: str, *columns: Named) -> Column:
    """Without nulls."""
    return _call("concat_ws", lit(separator), *columns)


def regexp_extract(text: Named, pattern: str, group: int) -> Column:
    return _call("regexp_extract", text, lit(pattern), lit(group))


def struct(*columns: Named) -> Column:
    named = (column(one) for one in columns)
    return Column(f"struct_pack({', '.join(f'{quoted(one.name)} := {one.sql}' for one in named)})")


def create_map(*pairs: Named) -> Column:
    keys, values = (", ".join(column(one).sql for one in part) for part in (pairs[::2], pairs[1::2]))
    return Column(f"map([{keys}], [{values}])")


# ---- arrays (those of structs are in the order of their fields; where a field is null, every engine has its own) ----


def array(*columns: Named) -> Column:
    return Column(f"[{', '.join(column(one).sql for one in columns)}]")


def size(values: Named) -> Column:
    return _call("len", values)


def element_at(values: Named, position: int) -> Column:
    """From 1. Null where there is none."""
    return _call("list_extract", values, lit(position))


def try_element_at(values: Named, position: Column) -> Column:
    return _call("list_extract", values, position)


def slice(values: Named, start: int, length: int) -> Column:
    return _call("list_slice", values, lit(start), lit(start + length - 1))


def explode(values: Named) -> Column:
    return _call("unnest", values)


def transform(values: Named, made: Callable[[Column], Column]) -> Column:
    return _over_each("list_transform", values, made)


def filter(values: Named, wanted: Callable[[Column], Column]) -> Column:
    return _over_each("list_filter", values, wanted)


def exists(values: Named, wanted: Callable[[Column], Column]) -> Column:
    return Column(f"(len({filter(values, wanted).sql}) > 0)")


def _over_each(name: str, values: Named, each: Callable[[Column], Column]) -> Column:
    argument = f"each_{next(_arguments)}"
    return Column(f"{name}({column(values).sql}, lambda {argument}: {each(Column(argument)).sql})")


def array_contains(values: Named, value: Any) -> Column:
    return _call("list_contains", values, lit(value))


def arrays_overlap(one: Named, other: Named) -> Column:
    return _call("list_has_any", one, other)


def array_distinct(values: Named) -> Column:
    """Each once, where it comes first."""
    sql = column(values).sql
    number = next(_arguments)
    one, at = f"each_{number}", f"at_{number}"
    return Column(f"list_filter({sql}, lambda {one}, {at}: list_position({sql}, {one}) = {at})")


def array_union(one: Named, other: Named) -> Column:
    return array_distinct(concat(one, other))


def array_intersect(one: Named, other: Named) -> Column:
    both = filter(array_distinct(one), lambda each: array_contains(other, each))
    return _of_both(one, other, both.sql)


def array_except(values: Named, others: Named) -> Column:
    """What is only in the first, each once, in the order of the first."""
    sql = column(values).sql
    number = next(_arguments)
    one, at = f"each_{number}", f"at_{number}"
    kept = f"NOT list_contains({column(others).sql}, {one}) AND list_position({sql}, {one}) = {at}"
    return _of_both(values, others, f"list_filter({sql}, lambda {one}, {at}: {kept})")


def _of_both(one: Named, other: Named, sql: str) -> Column:
    """Null where one of them is."""
    both = (column(one).isNotNull() & column(other).isNotNull()).sql
    return Column(f"CASE WHEN {both} THEN {sql} END")


def array_min(values: Named) -> Column:
    return _call("list_min", values)


def array_max(values: Named) -> Column:
    return _call("list_max", values)


def array_sort(values: Named) -> Column:
    """Nulls last."""
    return _call("list_sort", values, lit("ASC"), lit("NULLS LAST"))


def sort_array(values: Named) -> Column:
    """Nulls first."""
    return _call("list_sort", values, lit("ASC"), lit("NULLS FIRST"))


def array_join(values: Named, separator: str) -> Column:
    return _call("array_to_string", values, lit(separator))


# ---- many rows ----


def count(values: Named) -> Column:
    is_every_row = isinstance(values, str) and values == "*"
    return Column("count(*)") if is_every_row else _call("count", values)


def count_if(condition: Column) -> Column:
    return Column(f"count(*) FILTER (WHERE {condition.sql})")


def sum(values: Named) -> Column:
    return _call("sum", values)


def min(values: Named) -> Column:
    return _call("min", values)


def max(values: Named) -> Column:
    return _call("max", values)


def max_by(value: Named, order: Named) -> Column:
    return _call("arg_max_null", value, order)


def min_by(value: Named, order: Named) -> Column:
    return _call("arg_min_null", value, order)


def collect_list(values: Named) -> Column:
    """Without nulls; empty where there is nothing."""
    return _collected("", column(values).sql)


def collect_set(values: Named) -> Column:
    return _collected("DISTINCT ", column(values).sql)


def _collected(distinct: str, sql: str) -> Column:
    return Column(f"coalesce(list({distinct}{sql}) FILTER (WHERE {sql} IS NOT NULL), [])")


def percentile_approx(values: Named, percentage: float, accuracy: int) -> Column:
    """More exact than asked."""
    return _call("quantile_disc", values, lit(percentage))


def row_number() -> Column:
    return Column("row_number()")


__all__ = [name for name in dir() if name.islower() and not name.startswith("_") and name != "sql_of"]
