"""The functions of `pyspark.sql.functions` that the checks use, with Spark's names and semantics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
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
    """Return an expression in SQL that Spark and DuckDB share."""
    return Column(sql)


def when(condition: Column, value: Any) -> Case:
    return Case("").when(condition, value)


def desc(by: Named) -> Column:
    return Column(f"{column(by).sql} DESC NULLS LAST")


def _listed(columns: Iterable[Named]) -> str:
    return ", ".join(column(one).sql for one in columns)


def _call(name: str, *arguments: Named) -> Column:
    return Column(f"{name}({_listed(arguments)})")


def _function(name: str) -> Callable[..., Column]:
    """Return a function of DuckDB that differs from Spark's at most in its name."""
    return partial(_call, name)


# ---- one value ----

coalesce = _function("coalesce")
greatest = _function("greatest")
least = _function("least")


def floor(value: Named) -> Column:
    return Column(f"CAST(floor({column(value).sql}) AS BIGINT)")


def concat(*columns: Named) -> Column:
    """Concatenate texts or arrays; null if any of them is null."""
    return Column(f"({' || '.join(column(one).sql for one in columns)})")


def concat_ws(separator: str, *columns: Named) -> Column:
    """Concatenate the texts that are not null."""
    return _call("concat_ws", lit(separator), *columns)


def regexp_extract(text: Named, pattern: str, group: int) -> Column:
    return _call("regexp_extract", text, lit(pattern), lit(group))


def struct(*columns: Named) -> Column:
    named = (column(one) for one in columns)
    return Column(f"struct_pack({', '.join(f'{quoted(one.name)} := {one.sql}' for one in named)})")


def create_map(*pairs: Named) -> Column:
    return Column(f"map([{_listed(pairs[::2])}], [{_listed(pairs[1::2])}])")


# ---- arrays (structs sort by their fields; the order of null fields depends on the engine) ----

size = _function("len")
explode = _function("unnest")
arrays_overlap = _function("list_has_any")
array_min = _function("list_min")
array_max = _function("list_max")


def array(*columns: Named) -> Column:
    return Column(f"[{_listed(columns)}]")


def element_at(values: Named, position: int | Column) -> Column:
    """Return the element at a position, counted from 1; null if there is none."""
    return _call("list_extract", values, lit(position))


try_element_at = element_at


def slice(values: Named, start: int, length: int) -> Column:
    return _call("list_slice", values, lit(start), lit(start + length - 1))


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


def array_distinct(values: Named) -> Column:
    """Return each element once, at its first position."""
    sql = column(values).sql
    number = next(_arguments)
    one, at = f"each_{number}", f"at_{number}"
    return Column(f"list_filter({sql}, lambda {one}, {at}: list_position({sql}, {one}) = {at})")


def array_union(one: Named, other: Named) -> Column:
    return array_distinct(concat(one, other))


def array_intersect(one: Named, other: Named) -> Column:
    return _of_both(one, other, filter(array_distinct(one), lambda each: array_contains(other, each)))


def array_except(values: Named, others: Named) -> Column:
    """Return the elements of `values` that are not in `others`, each once, in the order of `values`."""
    return _of_both(
        values, others, filter(array_distinct(values), lambda each: ~array_contains(others, each))
    )


def _of_both(one: Named, other: Named, value: Column) -> Column:
    """Return `value`, or null if either array is null."""
    return when(column(one).isNotNull() & column(other).isNotNull(), value)


def array_sort(values: Named) -> Column:
    """Sort an array, nulls last."""
    return _call("list_sort", values, lit("ASC"), lit("NULLS LAST"))


def sort_array(values: Named) -> Column:
    """Sort an array, nulls first."""
    return _call("list_sort", values, lit("ASC"), lit("NULLS FIRST"))


def array_join(values: Named, separator: str) -> Column:
    return _call("array_to_string", values, lit(separator))


# ---- many rows ----

sum = _function("sum")
min = _function("min")
max = _function("max")
max_by = _function("arg_max_null")
min_by = _function("arg_min_null")
row_number = _function("row_number")


def count(values: Named) -> Column:
    is_every_row = isinstance(values, str) and values == "*"
    return Column("count(*)") if is_every_row else _call("count", values)


def count_if(condition: Column) -> Column:
    return Column(f"count(*) FILTER (WHERE {condition.sql})")


def collect_list(values: Named) -> Column:
    """Return the array of the values that are not null; empty if there are none."""
    return _collected("", column(values).sql)


def collect_set(values: Named) -> Column:
    return _collected("DISTINCT ", column(values).sql)


def _collected(distinct: str, sql: str) -> Column:
    return Column(f"coalesce(list({distinct}{sql}) FILTER (WHERE {sql} IS NOT NULL), [])")


def percentile_approx(values: Named, percentage: float, accuracy: int) -> Column:
    """Return the exact percentile; `accuracy` is ignored."""
    return _call("quantile_disc", values, lit(percentage))
