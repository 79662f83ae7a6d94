"""No data of a run is processed on the driver: it collects counts, figures and witnesses, whose number does not depend
on the number of messages, and no task reads all rows of a stage.

The sample run has `copies` times as many messages, markers, ranges of cursors, grants, returned epochs and entries of
coordinators' journals, at the same times and of the same programs.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.stored_keys import CursorKey, GrantKey
from spark_jobs.engines.contract import PartitionedSource
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.engines.session import OPTIMISED_BYTES
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.evaluation import Evaluation, evaluate
from spark_jobs.live.follower import RunFollower
from spark_jobs.loading import load, normalise
from spark_jobs.sources.growing import GrowingRun
from spark_jobs.sources.run_folder import open_run_folder

from .sample_run import TOPIC, SampleRun, place, put_value
from .tampering.runs import (
    EAST,
    EU,
    FIRST,
    WEST,
    began,
    coordinator,
    decided,
    key_granted,
    task_begins,
    task_commits,
)

ROOT = Path(__file__).parents[2] / "spark_jobs"
TIMES = 10
COPIES = (6, 60)
"""More than the number of examples of each kind of finding."""


def write_run(path: Path, copies: int) -> Path:
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.subscribe(EAST, 0.1)
    for number in range(TIMES * copies):
        run.publish(EAST, number, 1 + number // copies)
        run.publish(EU, number, 1.5 + number // copies)
    last = len(run.logs[EAST]) - 1
    for entry in range(last + 1):
        at_s = 20 + entry // (2 * copies)
        run.receive(EAST, EAST if entry % 2 == 0 else EU, entry // 2, at_s, entry)
        run.acknowledge(EAST, entry, at_s + 0.5)
    others = ((WEST, place(WEST, last)), (EU, place(EU, last)))
    for copy in range(copies):
        run.mark(EAST, Snapshot(f"s{copy}", place(EAST, last), others), 40)
        run.mark(EAST, SubscriptionUpdate("billing", others), 41, to=(WEST, EU))
        if copy:
            opened = {"region": EAST, "topic": TOPIC, "producer": f"orders-{EAST}", "last_sequence_id": -1}
            session = f"session of orders-{EAST}"
            run.tell(f"orders-{EAST}", 42, "connect", "ok", **opened, session=session, topic_epoch=copy)
    run.change("connect", "ok", only=0, topic_epoch=0)
    task_begins(run, "task", FIRST, 43, epoch=0)
    task_commits(run, "task", FIRST, 44)
    run.fact(90, "phase", detail="nothing happened for half a minute")
    run.write(path)
    _store_values(path, copies, last)
    return path


def _store_values(path: Path, copies: int, last: int) -> None:
    # Adjacent ranges, because no reader may depend on how ranges are merged.
    single = [[entry, entry] for entry in range(last + 1)]
    _put_cursor(path, EAST, {"mark_delete": -1, "ranges": single, "leads": True})
    for region in (WEST, EU):
        _put_cursor(path, region, {"mark_delete": last, "ranges": []})
    for epoch in range(copies):
        row = {"epoch": epoch, "owner": f"orders-{EAST}", "first_entry": epoch, "end_entry": None}
        put_value(path, EAST, GrantKey.of(TOPIC, epoch).text, json.dumps(row).encode())
    journal = [
        entry
        for copy in range(copies)
        for entry in (began((0, FIRST[1] + copy), copy), decided((0, FIRST[1] + copy), "COMMITTING"))
    ]
    coordinator(instead=journal, keys=[key_granted(copy, f"task {copy}") for copy in range(copies)])(path)


def _put_cursor(path: Path, region: str, state: dict[str, object]) -> None:
    value = json.dumps({"format": 1, "replicated": True} | state).encode()
    put_value(path, region, CursorKey(TOPIC, "billing").text, value)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("driver")
    return {copies: write_run(folder / str(copies), copies) for copies in COPIES}


def size_of(value: Any) -> int:
    """Return the number of values in a collected row, those in nested arrays included."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return 1
    return sum(map(size_of, value.values() if isinstance(value, dict) else value))


def evaluated(engine: Any, run: Path) -> Evaluation:
    """Evaluate a run with the settings that the engine has."""
    with use_engine(engine):
        loaded = load(open_run_folder(run))
        return evaluate(loaded, normalise(loaded))


def assert_everything_is_checked(evaluation: Evaluation) -> None:
    found = {one.invariant: one.verdict for one in evaluation.checks}
    wanted = (
        "INV-1",
        "INV-2",
        "INV-5",
        "INV-12",
        "INV-13",
        "INV-18",
        "INV-25",
        "INV-70",
        "INV-71",
        "INV-128",
    )
    sentences = [(one.invariant, one.verdict, one.sentence) for one in evaluation.checks]
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, "valid"), sentences


class CountingEngine(EmbeddedEngine):
    """Counts what is collected, and the rows of tables that do not come from a source."""

    def __init__(self) -> None:
        super().__init__()
        self.collected = self.pushed = 0
        self._is_reading = False

    def _fetch(self, sql: str) -> list[Any]:
        rows = super()._fetch(sql)
        self.collected += size_of(rows)
        return rows

    def table(self, rows: pa.Table) -> Any:
        self.pushed += 0 if self._is_reading else rows.num_rows
        return super().table(rows)

    def read(self, source: PartitionedSource) -> Any:
        self._is_reading = True
        try:
            return super().read(source)
        finally:
            self._is_reading = False


def test_the_driver_collects_as_much_of_ten_times_as_many_messages(runs: dict[int, Path]) -> None:
    counts = {}
    for copies, run in runs.items():
        engine = CountingEngine()
        assert_everything_is_checked(evaluated(engine, run))
        counts[copies] = (engine.collected, engine.pushed)
    assert counts[COPIES[1]] == counts[COPIES[0]]


def test_a_step_of_a_running_run_collects_as_much_of_ten_times_as_many_messages(
    runs: dict[int, Path],
) -> None:
    counts = {}
    for copies, run in runs.items():
        engine, source = CountingEngine(), GrowingRun(run)
        with use_engine(engine):
            follower = RunFollower(run)
            until = source.latest(source.start())
            grown = engine.read(
                _Fixed(source, [*source.parts(source.start(), until)])  # as EmbeddedEngine.follow reads them
            )
            follower.step(grown)
            follower.step(None)
            assert follower.progress().violations == ()
            assert follower.progress().stored[EAST] == 2 * TIMES * copies
        counts[copies] = (engine.collected, engine.pushed)
    assert counts[COPIES[1]] == counts[COPIES[0]]


class _Fixed:
    """Parts of a growing run as a source that does not grow."""

    def __init__(self, source: GrowingRun, parts: list[Any]) -> None:
        self._source, self._parts = source, parts
        self.schema, self.folder = source.schema, source.folder

    def parts(self) -> list[Any]:
        return self._parts

    def size_bytes(self) -> int | None:
        return None

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        return self._source.read(part)


# ---- plans of Spark ----


class InspectedSpark(SparkEngine):
    """An engine for large evidence: tasks read all sources. Keeps the plan of each query."""

    def __init__(self, spark: SparkEngine) -> None:
        super().__init__(spark.session, local_bytes=-1)
        self.plans: list[str] = []
        self.pushed = 0

    def cached(self, frame: Any) -> Any:
        self.inspect(frame)
        return super().cached(frame)

    def table(self, rows: pa.Table) -> Any:
        self.pushed += rows.num_rows
        return super().table(rows)

    def inspect(self, frame: Any) -> None:
        self.plans.append(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def inspected(spark: SparkEngine) -> Iterator[InspectedSpark]:
    before = spark.session.conf.get(PLAN_LENGTH)
    spark.session.conf.set(PLAN_LENGTH, str(2**20))  # the session of verdicts prints no plans
    yield InspectedSpark(spark)
    spark.session.conf.set(PLAN_LENGTH, before or "0")
    spark.tune(0)


@pytest.fixture
def large(inspected: InspectedSpark, monkeypatch: pytest.MonkeyPatch) -> tuple[InspectedSpark, list[int]]:
    engine = inspected
    engine.tune(OPTIMISED_BYTES)
    engine.session.conf.set("spark.sql.shuffle.partitions", "3")
    frame = type(engine.session.range(1))
    collect: Callable[[Any], list[Any]] = frame.collect
    collected: list[int] = []

    def counting(self: Any) -> list[Any]:
        engine.inspect(self)
        rows = collect(self)
        collected.append(size_of(rows))
        return rows

    monkeypatch.setattr(frame, "collect", counting)
    for name in ("toPandas", "toArrow", "toLocalIterator", "take", "head", "foreach"):
        monkeypatch.delattr(frame, name)
    return engine, collected


PLAN_LENGTH = "spark.sql.maxPlanStringLength"
SINGLE = re.compile(r"Exchange SinglePartition")
AGGREGATE = re.compile(r"(Hash|ObjectHash|Sort)Aggregate\(keys=\[\]")
FEW_ROWS = ("LocalLimit", "GlobalLimit", "TakeOrderedAndProject", "LocalTableScan", "Scan OneRowRelation")


def single_stages(plan: str) -> list[str]:
    """Return the operators below an exchange to one partition, except partial aggregates and limits, which yield one
    row, or a few, per task; and coalescing to one partition, and functions of pandas."""
    lines = [line.lstrip(" :+-*()0123456789") for line in plan.splitlines()]
    found = [
        below
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if SINGLE.match(line) and not (AGGREGATE.match(below) or below.startswith(FEW_ROWS))
    ]
    return found + [line for line in lines if re.match(r"Coalesce 1\b|.*(InPandas|EvalPython|InArrow)", line)]


@pytest.mark.slow
def test_spark_collects_as_much_of_ten_times_as_many_messages_and_has_no_single_task(
    large: tuple[InspectedSpark, list[int]], runs: dict[int, Path]
) -> None:
    engine, collected = large
    counts = {}
    for copies, run in runs.items():
        collected.clear()
        engine.pushed = 0
        assert_everything_is_checked(evaluated(engine, run))
        counts[copies] = (sum(collected), engine.pushed)
    assert counts[COPIES[1]] == counts[COPIES[0]]
    assert len(engine.plans) > 20
    assert all("Truncated" not in plan for plan in engine.plans)
    assert [found for plan in engine.plans for found in single_stages(plan)] == []


@pytest.mark.slow
def test_the_inspection_finds_single_tasks(inspected: InspectedSpark) -> None:
    from pyspark.sql import Window, functions

    rows = inspected.session.range(100).repartition(4).withColumn("one", functions.lit(1))
    unpartitioned = functions.row_number().over(Window.orderBy("id"))
    wrong = [
        rows.coalesce(1),
        rows.repartition(1),
        rows.withColumn("n", unpartitioned),
    ]
    right = [rows, rows.groupBy("one").count(), rows.agg(functions.max("id")), rows.orderBy("id").limit(3)]
    for frame in (*wrong, *right):
        inspected.inspect(frame)
    # Functions of pandas cannot be planned here: pandas is not installed.
    assert single_stages("+- FlatMapGroupsInPandas [one#4], same(id#2L, one#4)#7, [id#8L, one#9]")
    assert [bool(single_stages(plan)) for plan in inspected.plans] == [True] * len(wrong) + [False] * len(
        right
    )


FORBIDDEN = (
    *("toPandas", "toArrow", "toLocalIterator", "applyInPandas", "applyInArrow", "mapInPandas", "mapInArrow"),
    *("pandas_udf", "udf", "repartition", "foreachPartition", "cogroup"),
)


def test_no_query_names_a_function_that_collects_rows_or_runs_python_on_them() -> None:
    """The engines themselves are inspected by their plans."""
    files = [file for file in ROOT.rglob("*.py") if "engines" not in file.parts]
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN
    ]
    assert len(files) > 50
    assert found == []
