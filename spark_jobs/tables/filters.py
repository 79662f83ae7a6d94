"""Filters that a query pushes down to a table: which of them a reader can apply, and their evaluation.

A reader uses conditions three times: to leave out parts (by region or history file), to leave out commit groups before
they are decoded (by topic and first entry id), and to leave out rows before they reach the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Operator = Literal["=", "<", "<=", ">", ">=", "in", "starts with", "is null"]

_EVALUATE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "starts with": lambda values, start: pc.starts_with(values, start.as_py()),
}


@dataclass(frozen=True)
class Condition:
    """A comparison of one column with a value, or its negation."""

    column: str
    operator: Operator
    value: Any = None
    """The value; of `in`, a tuple of values; of `is null`, None."""
    negated: bool = False

    def is_applicable(self, schema: pa.Schema) -> bool:
        """Return whether `mask` gives Spark's result: the column has a simple type that can hold the value."""
        if self.column not in schema.names or pa.types.is_nested(schema.field(self.column).type):
            return False
        if self.operator == "is null":
            return True
        kind = schema.field(self.column).type
        if pa.types.is_floating(kind) and self.operator != "in" and self.value != self.value:
            return False  # Spark treats NaN as a value
        values = self.value if self.operator == "in" else (self.value,)
        return all(_is_of(value, kind) for value in values)

    def mask(self, values: pa.Array) -> pa.Array:
        """Return for each value whether it satisfies the condition; null or false if it does not."""
        if self.operator == "is null":
            found = pc.is_null(values)
        elif self.operator == "in":
            found = pc.is_in(values, pa.array(self.value, values.type))
            found = pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))
        else:
            found = _EVALUATE[self.operator](values, pa.scalar(self.value, values.type))
        return pc.invert(found) if self.negated else found

    def holds_for(self, value: Any, kind: pa.DataType) -> bool:
        return self.mask(pa.array([value], kind))[0].as_py() is True


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return False
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int if pa.types.is_integer(kind) else int | float):
        return False
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


@dataclass(frozen=True)
class RowFilter:
    """Conditions that all hold for each row that a reader yields."""

    conditions: tuple[Condition, ...] = ()

    def matches(self, column: str, value: Any, kind: pa.DataType | None = None) -> bool:
        """Return whether rows with this value in a column may satisfy all conditions."""
        kind = pa.string() if kind is None else kind
        return all(one.holds_for(value, kind) for one in self.conditions if one.column == column)

    def may_match_from(self, column: str, first: int) -> bool:
        """Return whether a value of at least `first` may satisfy all conditions on the column."""
        return not any(_is_below(one, first) for one in self.conditions if one.column == column)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for one in self.conditions:
            batch = batch.filter(one.mask(batch.column(one.column)))
        return batch

    def on(self, columns: Sequence[str]) -> RowFilter:
        """Return the conditions on some columns."""
        return RowFilter(tuple(one for one in self.conditions if one.column in columns))


EVERY_ROW = RowFilter()


def _is_below(condition: Condition, first: int) -> bool:
    """Return whether only values below `first` satisfy the condition."""
    if condition.negated:
        return False
    match condition.operator:
        case "=" | "<=":
            return bool(condition.value < first)
        case "<":
            return bool(condition.value <= first)
        case "in":
            return max(condition.value, default=first - 1) < first
    return False
