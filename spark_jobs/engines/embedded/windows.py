"""Window, as PySpark has it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engines.embedded.columns import Column

_EVER = 1 << 62


@dataclass(frozen=True, slots=True)
class WindowSpec:
    partition: str = ""
    order: str = ""
    frame: str = ""

    @property
    def sql(self) -> str:
        return " ".join(filter(None, [self.partition, self.order, self.frame]))

    def orderBy(self, *columns: Column | str) -> WindowSpec:
        return dataclasses.replace(self, order=f"ORDER BY {', '.join(map(in_order, columns))}")

    def rowsBetween(self, start: int, end: int) -> WindowSpec:
        return dataclasses.replace(self, frame=f"ROWS BETWEEN {_bound(start)} AND {_bound(end)}")


class Window:
    unboundedPreceding = -_EVER
    unboundedFollowing = _EVER
    currentRow = 0

    @staticmethod
    def partitionBy(*columns: Column | str) -> WindowSpec:
        from spark_jobs.engines.embedded.columns import column

        return WindowSpec(f"PARTITION BY {', '.join(column(one).sql for one in columns)}")


def in_order(by: Column | str) -> str:
    """With nulls where Spark has them: they are the smallest."""
    from spark_jobs.engines.embedded.columns import column

    sql = column(by).sql
    return sql if sql.endswith("NULLS LAST") else f"{sql} ASC NULLS FIRST"


def _bound(rows: int) -> str:
    if rows in (-_EVER, _EVER):
        return "UNBOUNDED PRECEDING" if rows < 0 else "UNBOUNDED FOLLOWING"
    if rows == 0:
        return "CURRENT ROW"
    return f"{abs(rows)} {'PRECEDING' if rows < 0 else 'FOLLOWING'}"
