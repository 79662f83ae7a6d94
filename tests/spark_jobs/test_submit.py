"""`spark-submit` on a real standalone cluster: verify, sweep, export, and a program of a user with the data source.

The driver runs what `python -m spark_jobs.pack` wrote, in a folder without geoemu; executors have only the packages
that docs/SPARK.md lists.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_jobs import pack
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.sweep import overall_exit_code, sweep
from spark_jobs.tables.export import export_run
from spark_jobs.verify import evaluate_run
from tests.cli.test_cli import complaints

from .spark_cluster import SparkCluster
from .tables.test_readers import read_table

pytestmark = [pytest.mark.slow, pytest.mark.real]

DEADLINE_SECONDS = 600
PROGRAM = Path(__file__).with_name("own_program.py")
QUICK = (
    *("--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    *("--conf", "spark.log.level=ERROR"),
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    assert pack.main([str(folder)]) == 0
    return folder


def submit(
    cluster: SparkCluster, packed: Path, program: Path, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run a program by pyspark's own spark-submit, as docs/SPARK.md describes it."""
    home = Path(pyspark.__file__).parent
    return subprocess.run(
        [
            *(str(home / "bin" / "spark-submit"), "--master", cluster.url, *QUICK),
            *("--py-files", str(packed / "geoemu.zip"), str(program), *map(str, arguments)),
        ],
        cwd=packed,
        env={**cluster.driver_environment(), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_the_verdict_is_that_of_the_embedded_engine(
    spark_cluster: SparkCluster, packed: Path, drill_template: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    done = submit(spark_cluster, packed, packed / pack.PROGRAM, "verify", drill_template, "--report", report)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"VALID  {drill_template}\n")
    embedded = evaluate_run(EmbeddedEngine(), drill_template)
    assert (report / "report.json").read_text() == json.dumps(embedded.as_json(), indent=1) + "\n"
    assert (report / "report.html").stat().st_size > 10_000


def test_sweep_reports_the_worst_first_with_its_exit_code(
    spark_cluster: SparkCluster, packed: Path, drill_template: Path, tmp_path: Path
) -> None:
    tampered = tmp_path / "tampered"
    shutil.copytree(drill_template, tampered)
    (tampered / "regions" / "us-west" / "log.sqlite").unlink()
    runs = [drill_template, tampered]
    done = submit(spark_cluster, packed, packed / pack.PROGRAM, "sweep", *runs, "--json")
    expected = sweep("embedded", runs)
    assert done.returncode == overall_exit_code(expected) != 0, done.stderr
    assert json.loads(done.stdout)["runs"] == [one.as_json() for one in expected]


def test_executors_write_the_export(
    spark_cluster: SparkCluster, packed: Path, drill_template: Path, tmp_path: Path
) -> None:
    by_tasks, here = tmp_path / "by tasks", tmp_path / "here"
    done = submit(
        spark_cluster, packed, packed / pack.PROGRAM, "export", drill_template, "--to", by_tasks, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == export_run(drill_template, here).rows
    names = [{str(one.relative_to(folder)) for one in folder.rglob("*")} for folder in (by_tasks, here)]
    assert names[0] == names[1]
    exported, run = (evaluate_run(EmbeddedEngine(), folder) for folder in (by_tasks, drill_template))
    assert exported.verdict == run.verdict == "valid"
    assert exported.checks == run.checks


def test_a_program_reads_tables_as_batches_and_streams(
    spark_cluster: SparkCluster, packed: Path, drill_template: Path
) -> None:
    done = submit(spark_cluster, packed, PROGRAM, drill_template)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {name: len(read_table(drill_template, name)) for name in ("messages", "history", *found["tables"])}
    assert found["master"] == spark_cluster.url
    assert sum(number for number, _ in found["stored"].values()) == rows["messages"] > 0
    assert found["tables"] == {name: rows[name] for name in found["tables"]}
    # A stream that continues at its checkpoint reads nothing twice.
    assert found["streamed"] == {name: [rows[name], 0] for name in ("messages", "history")}


def test_a_second_master_is_refused(spark_cluster: SparkCluster, packed: Path, drill_template: Path) -> None:
    done = submit(
        spark_cluster, packed, packed / pack.PROGRAM, "verify", drill_template, "--master", "local[2]"
    )
    # spark-submit prints both streams of the program on its standard output.
    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert done.stdout.startswith("--master local[2] contradicts spark-submit")


def test_a_configured_master_computes_what_a_run_gains(
    spark_cluster: SparkCluster, drill_template: Path, tmp_path: Path
) -> None:
    """Without `--master`, in a folder without geoemu; the tasks of the stream run the code that the session sent."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "emulator.cli", "verify", str(drill_template), "--follow"),
            *("--report", str(tmp_path / "report")),
        ],
        cwd=tmp_path,
        env={**spark_cluster.driver_environment(), "SPARK_MASTER": spark_cluster.url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    assert f"VALID  {drill_template}\n" in done.stdout
    embedded = evaluate_run(EmbeddedEngine(), drill_template)
    assert (tmp_path / "report" / "report.json").read_text() == json.dumps(
        embedded.as_json(), indent=1
    ) + "\n"
    assert re.search(r"^ +[\d.]+ s [\d,]+ acknowledged", done.stdout, re.MULTILINE)


def test_the_command_line_exports_by_a_cluster(
    spark_cluster: SparkCluster, drill_template: Path, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "emulator.cli", "export", str(drill_template))
    done = subprocess.run(
        [*command, "--to", str(tmp_path / "exported"), "--master", spark_cluster.url, "--json"],
        cwd=tmp_path,
        env=spark_cluster.driver_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    assert json.loads(done.stdout)["rows"]["messages"] == len(read_table(drill_template, "messages"))
    assert evaluate_run(EmbeddedEngine(), tmp_path / "exported").verdict == "valid"
