"""The verdict on a real standalone cluster: a master and two workers without geoemu installed."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from emulator.runtimes.kafka_server import KafkaServer
from emulator.storage.kafka import open_kafka
from spark_jobs.engines.frames import use_engine
from spark_jobs.engines.session import cluster_problem, in_a_sentence
from spark_jobs.engines.spark import SparkEngine
from spark_jobs.sources.kafka import SLICE_RECORDS
from spark_jobs.verify import evaluate_run
from tests.cli.test_cli import complaints
from tests.storage.kafka_place import new_prefix

from .on_cluster import ordered_rows, write_rows
from .sample_run import TOPIC, SampleRun, failover_drill
from .sources.test_kafka import move_to_kafka
from .spark_cluster import WORKERS, SparkCluster

pytestmark = pytest.mark.slow

HOME = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 300
BULK = SLICE_RECORDS * 3 // 2


@dataclass(frozen=True)
class Runs:
    on_sqlite: Path
    on_kafka: Path
    bulk: Path
    """Run of one region with a log in Kafka that several tasks read."""


@pytest.fixture(scope="module")
def runs(kafka_server: KafkaServer, drill_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    run = failover_drill(seconds=4.0, per_second=50)
    on_kafka = run.write(folder / "kafka")
    asyncio.run(move_to_kafka(run, on_kafka, kafka_server, new_prefix()))
    small = SampleRun({"one": ("a",)})
    small.publish("a", 0, 1.0)
    bulk = small.write(folder / "bulk")
    prefix = new_prefix()
    asyncio.run(move_to_kafka(small, bulk, kafka_server, prefix))
    asyncio.run(append(kafka_server, prefix, small.logs["a"] * BULK))
    return Runs(drill_template, on_kafka, bulk)


async def append(server: KafkaServer, prefix: str, entries: list[bytes]) -> None:
    store = await open_kafka("a", server.bootstrap_servers, {"topic_prefix": prefix})
    log = await store.open_log(TOPIC)
    assert log is not None
    for start in range(0, len(entries), 10_000):
        await log.append(entries[start : start + 10_000])
    await store.close()


def start(cluster: SparkCluster, cwd: Path, *command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env=cluster.driver_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.real
def test_rows_and_verdict_are_those_of_a_local_spark_and_made_by_all_workers(
    spark_cluster: SparkCluster, runs: Runs, spark: SparkEngine, tmp_path: Path
) -> None:
    paths = (runs.on_sqlite, runs.on_kafka, runs.bulk)
    done = start(spark_cluster, HOME, "tests.spark_jobs.on_cluster", spark_cluster.url, tmp_path, *paths)
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    for number, run in enumerate(paths[:-1]):
        with use_engine(spark):
            rows = ordered_rows(run)
        assert rows["damage"].null_count == rows.num_rows > 0
        write_rows(rows, tmp_path / "local.arrow")
        assert (tmp_path / f"{number}.arrow").read_bytes() == (tmp_path / "local.arrow").read_bytes()
    judged = evaluate_run(spark, runs.on_sqlite)
    assert judged.verdict == "valid"
    assert (tmp_path / "verdict.json").read_text() == json.dumps(judged.as_json())

    # Several tasks read the log of one region; they import the code from the driver's zip.
    executors, files, counts = zip(*json.loads((tmp_path / "tasks.json").read_text()), strict=True)
    assert len(set(executors)) == WORKERS
    assert all("/geoemu.zip/" in file for file in files)
    assert sum(counts) == BULK + 1
    assert min(counts) > SLICE_RECORDS // 3


@pytest.mark.real
def test_the_command_line_takes_a_cluster(
    spark_cluster: SparkCluster, runs: Runs, spark: SparkEngine, tmp_path: Path
) -> None:
    """The working directory has no code of geoemu, the logs are in Kafka, and one of the masters is down."""
    master = spark_cluster.url.replace("spark://", "spark://127.0.0.1:1,")
    report = tmp_path / "report"
    done = start(
        spark_cluster,
        tmp_path,
        "emulator.cli",
        "verify",
        runs.on_kafka,
        "--master",
        master,
        "--report",
        report,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    assert done.stdout.startswith(f"VALID  {runs.on_kafka}\n")
    local = evaluate_run(spark, runs.on_kafka)
    assert (report / "report.json").read_text() == json.dumps(local.as_json(), indent=1) + "\n"


@pytest.mark.real
def test_a_cluster_that_cannot_compute_fails_in_time(spark_cluster: SparkCluster, runs: Runs) -> None:
    """The workers have less memory than the session requests."""
    program = (
        "import sys; from spark_jobs import verify; from spark_jobs.engines import session;"
        "session.EXECUTOR_SECONDS_MAX = 2; sys.exit(verify.main(sys.argv[1:]))"
    )
    options = {"PYSPARK_SUBMIT_ARGS": "--conf spark.executor.memory=100g pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(runs.on_sqlite), "--master", spark_cluster.url],
        cwd=HOME,
        env={**spark_cluster.driver_environment(), **options},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"the Spark cluster at {spark_cluster.url} provided no executor within 2 s: "
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("master", "sentence"),
    [
        ("spark://127.0.0.1:{free}", "no Spark master answers at spark://127.0.0.1:{free} ("),
        ("spark://127.0.0.1", "spark://127.0.0.1 is not the address of a Spark cluster: spark://HOST:PORT"),
        ("spark://nowhere.invalid:7077", "no Spark master answers at spark://nowhere.invalid:7077 ("),
    ],
)
def test_no_master_is_unknown_with_one_sentence_and_at_once(
    drill_template: Path, tmp_path: Path, master: str, sentence: str
) -> None:
    free = unused_port()
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "emulator.cli",
            "verify",
            drill_template,
            "--master",
            master.format(free=free),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    errors = complaints(done.stderr)
    assert errors.startswith(sentence.format(free=free))
    assert errors.count("\n") == 1
    assert time.monotonic() - began < 20


def unused_port() -> int:
    with socket.socket() as candidate:
        candidate.bind(("127.0.0.1", 0))
        return int(candidate.getsockname()[1])


def test_other_masters_are_spark_s_business() -> None:
    assert cluster_problem("local[4]") is None
    assert cluster_problem("yarn") is None


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert cluster_problem(f"spark://127.0.0.1:{unused_port()},127.0.0.1:{port}") is None


PYTHON_TRACEBACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to create source: Traceback (most recent call last):
  File "/pyspark.zip/pyspark/worker.py", line 1, in main
    import pyarrow
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000"""
JAVA_TRACE = """An error occurred while calling o176.load.
: java.io.IOException: Cannot run program "/x/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory"""


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            PySparkException(PYTHON_TRACEBACK),
            "[PYTHON_DATA_SOURCE_ERROR] Failed to create source: "
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
        (
            Py4JError(JAVA_TRACE),
            'java.io.IOException: Cannot run program "/x/python": error=2, No such file or directory',
        ),
        (
            Py4JError(
                "x\n: SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_3_1 not found!"
            ),
            "the cluster lost an executor and its results; run the verification again",
        ),
        (PySparkException("one line"), "one line"),
        (Py4JError(""), "Py4JError"),
    ],
)
def test_pages_of_traceback_become_a_sentence(problem: Exception, sentence: str) -> None:
    assert in_a_sentence(problem) == sentence


def test_a_killed_parent_of_a_cluster_leaves_no_process(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from tests.spark_jobs.spark_cluster import guarded
with guarded(["sh", "-c", "sleep 1000 & echo $$ $!; wait"], pathlib.Path({str(tmp_path / "out")!r})):
    while len(pathlib.Path({str(tmp_path / "out")!r}).read_text().split()) < 2: pass
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=HOME, timeout=DEADLINE_SECONDS)
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in (tmp_path / "out").read_text().split()]
    deadline = time.monotonic() + 30
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
