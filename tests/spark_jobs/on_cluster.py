"""`python -m tests.spark_jobs.on_cluster MASTER FOLDER RUN...`: use a Spark cluster, and write results for tests.

It is a separate program, because a process can have one Spark session and that of the tests is local. It writes to
FOLDER

    <n>.arrow       the rows of each RUN except the last, in the order of `ordered_rows`
    verdict.json    the evaluation on the first RUN
    tasks.json      the tasks that read the last RUN: the folder of each task's executor, the path of the package
                    `spark_jobs` there, and the number of rows
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.engines.frames import use_engine
from spark_jobs.engines.session import spark_session
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.sources.region_log import read_region_logs
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verify import evaluate_run

from .spark_cluster import LOOK_SECONDS, READY_SECONDS_MAX, WORKERS

ORDER = ("region", "topic", "ledger_id", "entry_id", "batch_index")


def main(master: str, folder: Path, runs: list[Path]) -> None:
    with spark_session(master) as session, use_engine(SparkEngine(session)) as spark:
        evaluation = evaluate_run(spark, runs[0])
        (folder / "verdict.json").write_text(json.dumps(evaluation.as_json()))
        wait_for_executors(session)
        for number, run in enumerate(runs[:-1]):
            write_rows(ordered_rows(run), folder / f"{number}.arrow")
        tasks = (
            read_region_logs(open_run_folder(runs[-1])).select("region").rdd.mapPartitions(who_read).collect()
        )
    (folder / "tasks.json").write_text(json.dumps(tasks))


def ordered_rows(run: Path) -> pa.Table:
    """Return the rows in the order of the logs, as one batch."""
    return read_region_logs(open_run_folder(run)).orderBy(*ORDER).toArrow().combine_chunks()


def write_rows(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def who_read(rows: Iterable[Any]) -> Iterator[tuple[str, str, int]]:
    import spark_jobs

    # The working directory of an executor's Python is the executor's own folder.
    yield os.getcwd(), str(spark_jobs.__file__), sum(1 for _ in rows)


def wait_for_executors(spark: SparkSession) -> None:
    """Wait until every worker has an executor: otherwise the first might finish before the second starts."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    while executors().size() < 1 + WORKERS:
        assert time.monotonic() < deadline, "not every worker has an executor"
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(run) for run in sys.argv[3:]])
