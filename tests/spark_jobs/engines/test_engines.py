"""Every engine gives each operation of the checks the same meaning, and finds the same on whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.judged_run import write_run
from spark_jobs.engines.contract import EngineUnavailable, QueryEngine
from spark_jobs.engines.embedded.columns import duckdb_type
from spark_jobs.engines.embedded.engine import LARGE_BYTES, EmbeddedEngine, embedded_engine
from spark_jobs.engines.frames import (
    BoundThreads,
    Column,
    DataFrame,
    F,
    Window,
    bound_engine,
    fields_of,
    selected,
    small_frame,
    use_engine,
)
from spark_jobs.engines.session import LARGE_BYTES as LARGE_FOR_SPARK
from spark_jobs.engines.session import OPTIMISED_BYTES
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.frames.history import read_history
from spark_jobs.sources.region_log import read_region_logs
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.figures.test_loss import lossy_run
from tests.spark_jobs.sample_run import SampleRun, failover_drill
from tests.spark_jobs.tampering.runs import cursor_at, small_run, two_producers
from tests.spark_jobs.test_tampering import untouched

PLACE = pa.struct({"a": pa.int64(), "b": pa.int64()})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "who": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "yes": pa.bool_(),
        "words": pa.list_(pa.string()),
        "other": pa.list_(pa.string()),
        "places": pa.list_(PLACE),
        "below": pa.map_(pa.int64(), pa.int64()),
    }
)
ROWS: list[tuple[Any, ...]] = [
    (1, "a", 1, 2.5, True, ["z", "y", "z"], ["y"], [{"a": 2, "b": 1}, {"a": 1, "b": 9}], [(1, 10)]),
    (2, "a", None, -1.5, False, ["x", "w", "x", "v"], ["w"], [{"a": 1, "b": 9}], [(2, 20)]),
    (3, "a", 3, None, None, [], [], [], []),
    (4, "b", -4, 7.25, False, None, ["q"], None, None),
    (5, "b", None, None, None, ["q"], None, [{"a": 0, "b": 3}], [(1, None)]),
    (6, None, 6, 7.5, True, ["q", "r"], ["r", "q"], [{"a": 5, "b": 5}, {"a": 5, "b": 4}], [(6, 7)]),
]


def _place() -> Column:
    return F.struct("n", F.col("x").alias("of_x"))


def _earlier() -> Any:
    return Window.partitionBy("who").orderBy("n", "id").rowsBetween(Window.unboundedPreceding, -1)


def _later() -> Any:
    order = Window.partitionBy("yes").orderBy(F.desc("x"), F.desc("id"))
    return order.rowsBetween(Window.unboundedPreceding, Window.currentRow)


OF_A_ROW: dict[str, Callable[[], Column]] = {
    "and, or, not, with nulls": lambda: ((F.col("n") > 2) | ~F.col("yes")) & (F.col("who") != "b"),
    "arithmetic": lambda: (F.col("n") * 7 + 1) / 4 - F.col("x"),
    "array": lambda: F.array("who", F.lit("c")),
    "array of nothing": lambda: F.array().cast("array<struct<a: bigint, b: string>>"),
    "array_contains": lambda: F.array_contains("words", "q"),
    "array_contains a struct": lambda: F.array_contains(
        "places", F.struct(F.lit(1).cast("bigint").alias("a"), F.lit(9).cast("bigint").alias("b"))
    ),
    "array_distinct": lambda: F.array_distinct("words"),
    "array_except": lambda: F.array_except("words", "other"),
    "array_intersect": lambda: F.array_intersect("words", "other"),
    "array_join": lambda: F.array_join("other", " and "),
    "array_max": lambda: F.array_max("words"),
    "array_min": lambda: F.array_min("words"),
    "array_min of structs": lambda: F.array_min("places"),
    "array_sort": lambda: F.array_sort("words"),
    "array_union": lambda: F.array_union("words", "other"),
    "arrays_overlap": lambda: F.arrays_overlap("words", "other"),
    "cast to number": lambda: F.col("yes").cast("bigint"),
    "cast to text": lambda: F.col("n").cast("string"),
    "cast of structs": lambda: F.col("places").cast("array<struct<a: int, b: string>>"),
    "coalesce": lambda: F.coalesce("n", "x", F.lit(-1)),
    "concat of texts": lambda: F.concat(F.lit("of "), F.col("who")),
    "concat of arrays": lambda: F.concat("words", "other"),
    "concat_ws": lambda: F.concat_ws(":", "n", "who", "id"),
    "create_map": lambda: F.create_map(F.lit("a"), F.lit(1), F.lit("c"), F.lit(2))[F.col("who")],
    "element_at": lambda: F.when(F.size("places") > 0, F.element_at("places", 1)["b"]),
    "exists": lambda: F.exists("places", lambda one: one["b"] > 4),
    "expr": lambda: F.expr("CASE WHEN n IS NULL OR SIZE(words) > 2 THEN COALESCE(CAST(n AS BIGINT), 0) END"),
    "field of a struct in an array": lambda: fields_of("places", "b"),
    "field of a struct": lambda: _place()["of_x"],
    "filter": lambda: F.filter("places", lambda one: one["a"] == F.col("n")),
    "floor": lambda: F.floor(F.col("x") / 2),
    "isin": lambda: F.col("who").isin("a", "c"),
    "least": lambda: F.least("n", "id"),
    "literals": lambda: F.array(F.lit("it's"), F.lit('"')),
    "map": lambda: F.col("below")[F.col("n")],
    "regexp_extract": lambda: F.regexp_extract("who", "^(a)?", 1),
    "size": lambda: F.size("words"),
    "slice": lambda: F.slice("words", 1, 2),
    "sort_array": lambda: F.sort_array("places"),
    "structs compared": lambda: F.struct("id", "n") < F.struct(F.lit(4).cast("bigint").alias("id"), "n"),
    "transform": lambda: F.transform("places", lambda one: F.struct(one["b"], one["a"].alias("c"))),
    "try_element_at": lambda: F.try_element_at("words", F.lit(3)),
    "when": lambda: F.when(F.col("n") > 2, "many").when(F.col("yes"), "some").otherwise(F.lit("none")),
    "a window before": lambda: F.max(F.struct(F.coalesce("n", "id").alias("n"), "id")).over(_earlier()),
    "a window with nulls": lambda: F.min(F.when(F.col("n") > 0, F.col("x"))).over(_later()),
    "row_number": lambda: F.row_number().over(Window.partitionBy("who").orderBy("n", "x", "id")),
}

OF_A_GROUP: dict[str, Callable[[], Column]] = {
    "collect_list": lambda: F.array_sort(F.collect_list("n")),
    "collect_list of structs": lambda: F.array_sort(F.collect_list(F.struct("id", "n", "x"))),
    "collect_set": lambda: F.array_sort(F.collect_set(F.when(F.col("n") > 0, F.col("who")))),
    "count of rows": lambda: F.count("*"),
    "count of values": lambda: F.count("n"),
    "count_if": lambda: F.count_if(F.col("yes")),
    "greatest truth": lambda: F.max("yes"),
    "max": lambda: F.max("words"),
    "max_by": lambda: F.max_by("n", "x"),
    "max_by of a null": lambda: F.max_by("x", "id"),
    "min": lambda: F.min("who"),
    "min of structs": lambda: F.min(F.when(F.col("n") > 0, F.struct("n", "id"))),
    "min_by": lambda: F.min_by("who", "x"),
    "percentile_approx": lambda: F.percentile_approx("x", 0.5, 10_000),
    "percentile_approx, high": lambda: F.percentile_approx("n", 0.99, 10_000),
    "sum": lambda: F.sum("n"),
    "sum of truths": lambda: F.sum(F.col("yes").cast("bigint")),
}

FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "crossJoin": lambda frame: frame.select("id").crossJoin(frame.select(F.col("n").alias("m"))),
    "distinct": lambda frame: frame.select("who", "yes").distinct(),
    "drop": lambda frame: frame.drop("words", "other", "places", "below"),
    "explode": lambda frame: frame.select("id", F.explode("words").alias("word")),
    "explode beside everything": lambda frame: frame.withColumn("other", F.explode("other")),
    "full join": lambda frame: _left(frame).join(_right(frame).drop("who"), "n", "full_outer"),
    "full join of two": lambda frame: _left(frame).join(_right(frame), ["n", "who"], "full_outer"),
    "group and count": lambda frame: frame.groupBy("who", F.col("yes").alias("really")).count(),
    "inner join": lambda frame: _left(frame).join(_right(frame).drop("who").hint("broadcast"), "n"),
    "left join": lambda frame: _left(frame).join(_right(frame), ["n", "who"], "left"),
    "limit": lambda frame: frame.select("who", "id").orderBy("who", "id").limit(4),
    "rename": lambda frame: frame.select("id", "n").withColumnRenamed("n", "number"),
    "select all and more": lambda frame: frame.select("*", F.lit(None).cast("int").alias("nothing")),
    "selected, all as text": lambda frame: selected(
        frame, {"a": "CAST(COALESCE(n, id) AS double)", "b": "CAST(NULL AS string)", "c": "'its'", "id": "id"}
    ),
    "selected, text and columns": lambda frame: selected(
        frame, {"a": "CAST(n AS string)", "b": F.lit("it's"), "c": F.col("x") + 1}
    ),
    "union by name": lambda frame: frame.select("id", "n").unionByName(frame.select("n", "id")),
    "union": lambda frame: frame.select("id", "n").union(frame.select("n", "id")),
    "where": lambda frame: frame.where(F.col("n") > 0).where(~F.col("yes")),
    "withColumn in place": lambda frame: frame.withColumn("n", F.col("n") + 1).select("id", "n"),
}


def _left(frame: DataFrame) -> DataFrame:
    return frame.select("n", "who", "x")


def _right(frame: DataFrame) -> DataFrame:
    return frame.where(F.col("id") > 2).select("who", "n", "id")


def told(engine: QueryEngine, make: Callable[[DataFrame], DataFrame]) -> list[str]:
    """Return the sorted rows of the frame that `make` derives from ROWS."""
    with use_engine(engine):
        rows = make(small_frame(ROWS, SCHEMA)).collect()
    return sorted(str(plain(row.asDict())) for row in rows)


def plain(value: Any) -> Any:
    """Remove differences between the engines' types: convert rows to dictionaries, and integers to floats."""
    if hasattr(value, "asDict"):
        return plain(value.asDict())
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize("name", OF_A_ROW)
def test_a_function_of_a_row_means_the_same(spark: SparkEngine, name: str) -> None:
    def make(frame: DataFrame) -> DataFrame:
        return frame.select("id", OF_A_ROW[name]().alias("it"))

    assert told(EmbeddedEngine(), make) == told(spark, make)


@pytest.mark.parametrize("name", OF_A_GROUP)
def test_an_aggregate_means_the_same(spark: SparkEngine, name: str) -> None:
    def make(frame: DataFrame) -> DataFrame:
        return frame.groupBy("who").agg(OF_A_GROUP[name]().alias("it"))

    def of_none(frame: DataFrame) -> DataFrame:
        return frame.where(F.col("id") > 100).agg(OF_A_GROUP[name]().alias("it"))

    assert told(EmbeddedEngine(), make) == told(spark, make)
    assert told(EmbeddedEngine(), of_none) == told(spark, of_none)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_operation_means_the_same(spark: SparkEngine, name: str) -> None:
    assert told(EmbeddedEngine(), FRAMES[name]) == told(spark, FRAMES[name])


def test_columns_are_known_before_anything_is_computed(spark: SparkEngine) -> None:
    for make in FRAMES.values():
        columns = []
        for engine in (EmbeddedEngine(), spark):
            with use_engine(engine):
                columns.append(make(small_frame(ROWS, SCHEMA)).columns)
        assert columns[0] == columns[1]


def test_a_column_is_neither_true_nor_false() -> None:
    with use_engine(EmbeddedEngine()), pytest.raises(TypeError, match="of a row"):
        bool(F.col("n") == 1)


@pytest.mark.parametrize("wrong", ["array<bigint", "struct<a bigint>", "bigint>", "array<>"])
def test_an_invalid_type_is_refused(wrong: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        duckdb_type(wrong)


def test_rows_read_by_the_driver_and_by_tasks_are_the_same(spark: SparkEngine, tmp_path: Path) -> None:
    # A name with a special meaning in Spark's file patterns.
    folder = open_run_folder(small_run().write(tmp_path / "run [1] {a,b} é"))
    read = []
    for local_bytes in (0, math.inf):
        with use_engine(SparkEngine(spark.session, local_bytes=local_bytes)):
            logs, (lines, damages) = read_region_logs(folder), read_history(folder)
            assert damages == []
            read.append([sorted(str(row.asDict()) for row in frame.collect()) for frame in (logs, lines)])
            if local_bytes == 0:
                assert logs.rdd.getNumPartitions() == len(folder.logs)
    assert read[0] == read[1]


# ---- whole runs ----


def judgements(spark: SparkEngine, path: Path) -> list[dict[str, Any]]:
    return [evaluate_run(engine, path).as_json() for engine in (EmbeddedEngine(), spark)]


@pytest.mark.parametrize("name", ["spark", "embedded"])
def test_rows_after_an_empty_batch_are_read(spark: SparkEngine, name: str) -> None:
    first, nothing, last = (
        pa.Table.from_pylist(rows, pa.schema({"n": pa.int64()})) for rows in ([{"n": 1}], [], [{"n": 2}])
    )
    engine = spark if name == "spark" else EmbeddedEngine()
    frame = engine.table(pa.concat_tables([first, nothing, last, nothing]))
    assert sorted(row["n"] for row in frame.collect()) == [1, 2]


@pytest.mark.parametrize(
    "make",
    [untouched, two_producers, lossy_run, lambda: failover_drill(seconds=4.0, per_second=20), SampleRun],
    ids=["all checks", "two producers", "a region lost", "a drill", "nothing"],
)
def test_both_engines_evaluate_a_run_alike(
    spark: SparkEngine, tmp_path: Path, make: Callable[[], SampleRun]
) -> None:
    path = make().write(tmp_path / "run")
    if make is untouched:
        cursor_at(11)(path)
    embedded, on_spark = judgements(spark, path)
    assert embedded == on_spark


@pytest.mark.slow
@pytest.mark.parametrize("make", [untouched, lossy_run])
def test_engines_agree_on_a_run_that_spark_evaluates_as_large_evidence(
    spark: SparkEngine, tmp_path: Path, make: Callable[[], SampleRun]
) -> None:
    path = make().write(tmp_path / "run")
    try:
        embedded, on_spark = judgements(SparkEngine(spark.session, evidence_bytes_min=LARGE_FOR_SPARK), path)
    finally:
        spark.tune(0)
    assert embedded == on_spark


@pytest.mark.slow
def test_parts_of_large_evidence_need_less_memory_than_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ten million messages and 2 GB, which take a quarter of an hour."""
    run = write_run(tmp_path / "run", 300_000)
    monkeypatch.setattr("spark_jobs.engines.embedded.engine.MEMORY_LIMIT", "120MB")
    with pytest.raises(EngineUnavailable, match="Out of Memory"), embedded_engine(LARGE_BYTES) as engine:
        evaluate_run(engine, run)
    monkeypatch.setattr("spark_jobs.engines.embedded.engine.PART_BYTES", 45_000_000)
    with embedded_engine(LARGE_BYTES) as engine:
        assert evaluate_run(engine, run).verdict == "valid"


@pytest.mark.slow
@pytest.mark.parametrize("evidence_bytes", [0, LARGE_FOR_SPARK, OPTIMISED_BYTES])
def test_spark_computes_a_cached_frame_once(spark: SparkEngine, evidence_bytes: int) -> None:
    spark.tune(evidence_bytes)
    try:
        with use_engine(spark):
            rows = small_frame(ROWS, SCHEMA).withColumn("random", F.rand())
            frame = spark.cached(rows)
            first = sorted(map(repr, frame.collect()))
            joined = frame.join(frame.select("id", F.col("random").alias("again")), "id")
            assert joined.where(F.col("random") == F.col("again")).count() == len(ROWS)
            assert sorted(map(repr, frame.collect())) == first
            assert {row["id"]: row["places"] for row in frame.select("id", "places").collect()} == {
                row["id"]: row["places"] for row in rows.collect()
            }
    finally:
        spark.tune(0)


@pytest.mark.slow
def test_spark_removes_the_columns_of_a_verdict_before_the_next(spark: SparkEngine) -> None:
    spark.tune(OPTIMISED_BYTES)
    held = spark.session.sparkContext._jsc.getPersistentRDDs
    with use_engine(spark):
        before = held().size()
        frame = spark.cached(small_frame(ROWS, SCHEMA))
        assert frame.count() == len(ROWS)
        assert held().size() > before
        spark.tune(OPTIMISED_BYTES)
        assert held().size() == before
        assert frame.count() == len(ROWS)
    spark.tune(0)


def test_an_error_while_the_embedded_engine_opens_makes_it_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_jobs.engines.embedded.engine.MEMORY_LIMIT", "no size")
    with pytest.raises(EngineUnavailable, match="the embedded engine failed"), embedded_engine(LARGE_BYTES):
        pass


def test_threads_use_their_own_engine_at_the_same_time() -> None:
    both = Barrier(2, timeout=10)

    def bound() -> tuple[bool, bool]:
        with use_engine(EmbeddedEngine()) as engine:
            both.wait()
            with BoundThreads(1) as workers:
                return bound_engine() is engine, workers.submit(bound_engine).result() is engine

    with ThreadPoolExecutor(2) as threads:
        assert [one.result() for one in [threads.submit(bound) for _ in range(2)]] == [(True, True)] * 2
    with pytest.raises(AssertionError, match="no engine is bound"):
        bound_engine()
