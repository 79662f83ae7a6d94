"""The Spark data source `geoemu`, as a program of a user sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import spark_jobs
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.tables.schema import TABLES

from ..sample_run import TOPIC
from .test_readers import read_arrow, read_table

pytestmark = pytest.mark.slow


def load(spark: SparkEngine, run: Path, table: str, **options: str) -> DataFrame:
    spark_jobs.register(spark.session)
    given = {"run": str(run), "table": table, **options}
    return spark.session.read.format("geoemu").options(**given).load()


def test_every_table_has_its_schema_and_rows(spark: SparkEngine, drill_template: Path) -> None:
    for name, table in TABLES.items():
        frame = load(spark, drill_template, name)
        assert [(one.name, one.dataType.simpleString()) for one in frame.schema] == [
            (one.name, one.type.replace(" ", "")) for one in table.columns
        ]
        assert frame.count() == len(read_table(drill_template, name))


def conditions() -> list[Column]:
    return [
        F.col("region") == "us-west",
        (F.col("region") != "us-west") & (F.col("entry_id") < 10),
        F.col("topic").startswith(TOPIC) & F.col("replicated_from").isNotNull(),
        F.col("entry_id").isin(1, 2, 3) & ~F.col("origin_region").isin("us-east"),
        F.col("entry_id").between(5, 9) | (F.col("sequence_id") == 0),
        F.col("producer") == F.concat(F.lit("orders-"), F.col("region")),
    ]


def test_queries_on_one_frame_do_not_affect_each_other(spark: SparkEngine, drill_template: Path) -> None:
    """Spark would reuse the filters of an earlier query on the same frame if they had been pushed down."""
    messages = load(spark, drill_template, "messages")
    copied = spark.session.createDataFrame(messages.toArrow(), messages.schema)
    for condition in conditions():
        found, expected = (sorted(map(str, one.where(condition).collect())) for one in (messages, copied))
        assert found == expected
    first, last = (messages.where(F.col("entry_id") == number).select("region") for number in (0, 1))
    assert first.join(last, "region").count() == 3


def test_filters_that_are_pushed_down_give_spark_s_result(spark: SparkEngine, drill_template: Path) -> None:
    copied = spark.session.createDataFrame(read_arrow(drill_template, "messages"))
    spark.session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition in conditions()[:4]:
            messages = load(spark, drill_template, "messages", pushdown="true").where(condition)
            expected = sorted(map(str, copied.where(condition).collect()))
            assert sorted(map(str, messages.collect())) == expected
        only = load(spark, drill_template, "messages", pushdown="true").where(conditions()[0])
        assert only.rdd.getNumPartitions() == 1
    finally:
        spark.session.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_options_leave_out_parts_and_rows(spark: SparkEngine, drill_template: Path) -> None:
    messages = load(
        spark, drill_template, "messages", region="us-west, us-east", topic="orders", entries="5:9"
    )
    assert messages.rdd.getNumPartitions() == 2
    rows = {(row["region"], row["entry_id"]) for row in messages.collect()}
    assert rows == {(region, entry) for region in ("us-west", "us-east") for entry in range(5, 10)}
    assert load(spark, drill_template, "history", history_file="scenario").rdd.getNumPartitions() == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": "nothing"}, 'option "table": must be one of entries, messages, '),
        ({"run": "/nowhere"}, 'option "run": /nowhere is neither a run directory nor an export'),
        ({"damage": "ignore"}, "option \"damage\": must be one of fail, rows, not 'ignore'"),
        ({"tables": "messages"}, 'option "tables" is unknown; known are run, table, region, topic, '),
        ({"region": "mars"}, 'option "region": the run has no region mars, but us-east, us-west, '),
        ({"entries": "1-2"}, "option \"entries\": must be FIRST:LAST, two entry ids, not '1-2'"),
        ({"table": "faults", "topic": "t"}, 'option "topic": the table faults has no column topic'),
        ({"network": "x"}, 'option "network": must be one of host, regions'),
    ],
)
def test_a_bad_option_is_one_message(
    spark: SparkEngine, drill_template: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        load(spark, **{"run": drill_template, "table": "messages"} | options).count()
    lines = [line for line in str(raised.value).splitlines() if "OptionInvalid: " in line]
    assert len(lines) == 1
    assert sentence in lines[0]


def test_a_source_without_parts_has_no_rows(spark: SparkEngine) -> None:
    """A Kafka without records, for example."""

    class Nothing:
        schema = TABLES["history"].schema
        folder = None

        def parts(self) -> list[str]:
            return []

        def size_bytes(self) -> None:
            return None

        def read(self, part: str) -> Iterator[pa.RecordBatch]:
            raise AssertionError(part)

    assert spark.read(Nothing()).count() == 0


def test_a_missing_option_is_one_message(spark: SparkEngine, drill_template: Path) -> None:
    spark_jobs.register(spark.session)
    for option, value in (("run", drill_template), ("table", "messages")):
        with pytest.raises(PySparkException, match="is missing"):
            spark.session.read.format("geoemu").option(option, str(value)).load().count()
