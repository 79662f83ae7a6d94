"""The Spark data source `geoemu`: the public tables of a run as DataFrames.

    import spark_jobs
    spark_jobs.register(spark)
    spark.read.format("geoemu").option("run", ".geoemu/runs/1").option("table", "messages").load()
    spark.readStream.format("geoemu").option("run", ".geoemu/runs/1").option("table", "messages").load()

docs/SPARK.md lists the options.

Filters of queries are pushed down on request only (option `pushdown`). Spark 4.3 stores what was pushed down with the
DataFrame and not with the query (`PythonScanBuilder.pushFilters`, `ds.setReadInfo`): a second query on the same
DataFrame, or a join of it with itself, may get the rows of the first one's filter.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark_api
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.engines.contract import PartitionedSource
from spark_jobs.engines.evidence_readers import GrowingReader, PartReader
from spark_jobs.engines.masters import is_local, is_submitted
from spark_jobs.engines.shipped_code import ship_code
from spark_jobs.sources.history_files import full_topic
from spark_jobs.sources.run_folder import RunFolder, looks_like_a_run, open_run_folder
from spark_jobs.tables.filters import Condition, Operator, RowFilter
from spark_jobs.tables.readers import OnDamage, table_source
from spark_jobs.tables.schema import TABLES
from spark_jobs.tables.table_stream import STREAMED, TableStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Opened = Callable[[Sequence[Condition]], PartitionedSource]
"""A function that returns a table with these conditions."""
FORMAT = "geoemu"
ON_DAMAGE: Mapping[str, OnDamage] = {"fail": "fail", "rows": "rows"}
LISTED = ("region", "topic", "history_file")
"""Options that name the wanted values of a column, separated by commas."""
OPTIONS = ("run", "table", *LISTED, "entries", "damage", "network", "pushdown")

_OPERATORS: Mapping[type[Filter], Operator] = {
    spark_api.EqualTo: "=",
    spark_api.LessThan: "<",
    spark_api.LessThanOrEqual: "<=",
    spark_api.GreaterThan: ">",
    spark_api.GreaterThanOrEqual: ">=",
    spark_api.In: "in",
    spark_api.StringStartsWith: "starts with",
    spark_api.IsNull: "is null",
}


class OptionInvalid(ValueError):
    """An option of the data source is missing or invalid; the message names it, its value and the rule."""


def register(spark: SparkSession) -> None:
    """Make the format `geoemu` available in a session. On a cluster, the code of the readers is sent to the executors,
    which need the packages that docs/SPARK.md lists."""
    # Before the registration, which notes the code that its workers need.
    if is_submitted() or not is_local(str(spark.sparkContext.master)):
        ship_code(spark, _code_folder())
    spark.dataSource.register(GeoemuSource)


@cache
def _code_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="geoemu-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class GeoemuSource(DataSource):
    """The tables of one run."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(TABLES[self._table].schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        folder, table, on_damage = self._folder, self._table, self._on_damage

        def opened(conditions: Sequence[Condition]) -> PartitionedSource:
            return table_source(folder, table, RowFilter(tuple(conditions)), on_damage)

        conditions = self._conditions(folder)
        if self._choice("pushdown", ("false", "true"), "false") == "true":
            return PushdownScan(opened, table, conditions)
        return PartReader(opened(conditions))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._table not in STREAMED:
            raise OptionInvalid(f'option "table": {self._table} has no stream, but {", ".join(STREAMED)}')
        if "pushdown" in self.options:
            raise OptionInvalid('option "pushdown": Spark pushes no filters down to streams')
        folder = self._folder
        if folder.export is not None:
            raise OptionInvalid(f'option "run": {folder.path} is an export, which never grows')
        only = RowFilter(tuple(self._conditions(folder)))
        return GrowingReader(TableStream.of(folder, self._table, only, self._on_damage))

    @property
    def _table(self) -> str:
        self._refuse_unknown()
        return self._choice("table", TABLES)

    @property
    def _on_damage(self) -> OnDamage:
        return ON_DAMAGE[self._choice("damage", ON_DAMAGE, "fail")]

    @property
    def _folder(self) -> RunFolder:
        if "run" not in self.options:
            raise OptionInvalid('option "run" is missing: .option("run", RUN_DIR)')
        path = Path(self.options["run"]).absolute()
        if not looks_like_a_run(path):
            raise OptionInvalid(f'option "run": {path} is neither a run directory nor an export')
        return open_run_folder(
            path, in_network=self._choice("network", ("host", "regions"), "host") == "regions"
        )

    def _conditions(self, folder: RunFolder) -> list[Condition]:
        """Return the conditions that options state."""
        found = []
        for name in LISTED:
            if name in self.options:
                self._require_column(name, name)
                values = tuple(filter(None, (one.strip() for one in self.options[name].split(","))))
                values = tuple(map(full_topic, values)) if name == "topic" else values
                if name == "region" and (unknown := [one for one in values if one not in folder.regions]):
                    known = ", ".join(folder.regions)
                    raise OptionInvalid(f'option "region": the run has no region {unknown[0]}, but {known}')
                found.append(Condition(name, "in", values))
        if "entries" in self.options:
            self._require_column("entries", "entry_id")
            first, colon, last = self.options["entries"].partition(":")
            if not colon or not all(end == "" or end.isdecimal() for end in (first, last)):
                raise OptionInvalid(
                    f'option "entries": must be FIRST:LAST, two entry ids, not {self.options["entries"]!r}'
                )
            found += [Condition("entry_id", ">=", int(first))] if first else []
            found += [Condition("entry_id", "<=", int(last))] if last else []
        return found

    def _require_column(self, option: str, column: str) -> None:
        if column not in TABLES[self._table].schema.names:
            raise OptionInvalid(f'option "{option}": the table {self._table} has no column {column}')

    def _choice(self, option: str, values: Iterable[str], default: str | None = None) -> str:
        value = self.options.get(option, default)
        names = ", ".join(values)
        if value is None:
            raise OptionInvalid(f'option "{option}" is missing: one of {names}')
        if value not in values:
            raise OptionInvalid(f'option "{option}": must be one of {names}, not {value!r}')
        return str(value)

    def _refuse_unknown(self) -> None:
        for name in self.options:
            if name.lower() not in OPTIONS:
                raise OptionInvalid(f'option "{name}" is unknown; known are {", ".join(OPTIONS)}')


class PushdownScan(PartReader):
    """A reader that also applies the filters of the query."""

    def __init__(self, opened: Opened, table: str, conditions: Sequence[Condition]) -> None:
        super().__init__(opened(conditions))
        self._opened, self._table, self._conditions = opened, table, tuple(conditions)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        schema = TABLES[self._table].schema
        left = []
        for one in filters:
            condition = condition_of(one)
            if condition is not None and condition.is_applicable(schema):
                self._conditions += (condition,)
            else:
                left.append(one)
        super().__init__(self._opened(self._conditions))
        return left


def condition_of(given: Filter) -> Condition | None:
    """Translate a filter of Spark; None if it has no equivalent."""
    negated = isinstance(given, spark_api.Not)
    inner: Any = given.child if isinstance(given, spark_api.Not) else given
    if isinstance(inner, spark_api.IsNotNull):
        operator: Operator | None = "is null"
        negated = not negated
    else:
        operator = _OPERATORS.get(type(inner))
    if operator is None or len(inner.attribute) != 1:
        return None
    value: Any = getattr(inner, "value", None)
    return Condition(inner.attribute[0], operator, tuple(value) if operator == "in" else value, negated)
