"""A Spark cluster in the network of a run in containers with logs in Kafka, and the host's tools on such a run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.config.loading import load_topology
from emulator.config.region import LogConfig
from emulator.errors import Refused
from emulator.runtimes.compose.command import compose_command
from emulator.runtimes.compose.file import SUBMITTED_PROGRAM
from emulator.runtimes.compose.run_files import render
from emulator.runtimes.compose.runtime import ComposeRuntime
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.verify import evaluate_run
from tests.cli.test_cli import complaints
from tests.drills.test_containers import perform

from .containers import ROOT, need_containers, remove
from .fixtures import small_topology, with_regions, write_topology
from .test_compose_verify import UP_SECONDS, some_load

SECONDS = 900
GEOEMU = (sys.executable, "-m", "emulator.cli")
PROGRAM = ROOT / "tests" / "spark_jobs" / "own_program.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeRuntime]:
    """A run after a load during which a region was killed. Its regions keep running."""
    need_containers("region", "kafka", "spark")
    folder = tmp_path_factory.mktemp("containers")
    topology = with_regions(small_topology(folder), log=LogConfig("kafka"))
    runtime = ComposeRuntime.create(topology, folder / "run", detached=True)
    try:
        asyncio.run(asyncio.wait_for(runtime.up(), UP_SECONDS))
        perform(some_load(runtime))
        yield runtime
    finally:
        asyncio.run(remove(folder / "run"))


@pytest.fixture(scope="module")
def on_host(run: ComposeRuntime) -> dict[str, Any]:
    report = report_of(run.run_dir)
    assert report["verdict"] == "valid"
    return report


def report_of(run_dir: Path) -> dict[str, Any]:
    """Return what the embedded engine writes to report.json."""
    report: dict[str, Any] = json.loads(json.dumps(evaluate_run(EmbeddedEngine(), run_dir).as_json()))
    return report


def comparable(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without the run's name, which is another path in a container."""
    return {name: one for name, one in report.items() if name != "run"}


def started(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def on_cluster(run: ComposeRuntime, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the service `spark-submit`, as docs/SPARK.md says; its master and workers stay for the next test."""
    compose = (*compose_command(), "--progress", "quiet", "run", "--rm", "--no-TTY")
    return started(*compose, *arguments, cwd=run.run_dir)


@pytest.mark.real
@pytest.mark.slow
def test_the_verdict_on_the_cluster_is_that_on_the_host(run: ComposeRuntime, on_host: dict[str, Any]) -> None:
    done = on_cluster(run, "spark-submit")
    assert done.returncode == 0, done.stderr
    inside = json.loads((run.run_dir / "report" / "report.json").read_text())
    assert comparable(inside) == comparable(on_host)
    assert done.stdout.startswith(f"VALID  {inside['run']}\n")


@pytest.mark.real
@pytest.mark.slow
def test_sweep_on_the_cluster(run: ComposeRuntime, on_host: dict[str, Any]) -> None:
    done = on_cluster(run, "spark-submit", SUBMITTED_PROGRAM, "sweep", "/evidence", "--in-network", "--json")
    assert done.returncode == 0, done.stderr
    (swept,) = json.loads(done.stdout)["runs"]
    assert (swept["verdict"], swept["headline"]) == ("valid", on_host["headline"])


@pytest.mark.real
@pytest.mark.slow
def test_a_program_reads_kafka_as_batches_and_streams(run: ComposeRuntime, on_host: dict[str, Any]) -> None:
    volume = ("--volume", f"{PROGRAM}:/own/program.py:ro")
    done = on_cluster(run, *volume, "spark-submit", "/own/program.py", "/evidence", "regions")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    stored = sum(number for number, _ in found["stored"].values())
    assert stored > on_host["figures"]["published"]["acknowledged"] > 400
    assert found["streamed"] == {"messages": [stored, 0], "history": [found["tables"]["history"], 0]}
    assert found["master"] == "spark://spark-master:7077"


@pytest.mark.real
@pytest.mark.slow
def test_a_run_that_the_workers_do_not_see_is_one_sentence(run: ComposeRuntime) -> None:
    volume = ("--volume", f"{run.run_dir}:/elsewhere:ro")
    options = ("--to", "/evidence/report/exported", "--in-network")
    done = on_cluster(run, *volume, "spark-submit", SUBMITTED_PROGRAM, "export", "/elsewhere", *options)
    # spark-submit prints both streams of the program on its standard output.
    (sentence,) = done.stdout.splitlines()
    assert done.returncode == 2
    assert sentence.startswith("Spark failed, so there is no result: an executor on ")
    assert "cannot read /elsewhere (No such file or directory): the directory must be on a volume" in sentence
    assert not [*(run.run_dir / "report").glob("exported*")]


@pytest.mark.real
@pytest.mark.slow
def test_the_host_exports_kafka(run: ComposeRuntime, on_host: dict[str, Any], tmp_path: Path) -> None:
    done = started(*GEOEMU, "export", run.run_dir, "--to", tmp_path / "exported", "--json", cwd=tmp_path)
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    exported = report_of(tmp_path / "exported")
    assert comparable(exported) == comparable(on_host)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_the_host_follows_kafka(
    run: ComposeRuntime, on_host: dict[str, Any], tmp_path: Path, engine: str
) -> None:
    """The regions run on, so the user ends it with Ctrl-C when the run has converged."""
    process = subprocess.Popen(
        [
            *("env", "--default-signal=INT"),  # a shell that starts the tests in the background ignores it
            *(*GEOEMU, "verify", str(run.run_dir), "--follow", "--json", "--engine", engine),
            *("--report", str(tmp_path / "report")),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        acknowledged = on_host["figures"]["published"]["acknowledged"]
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["converged"] and event["acknowledged"] == acknowledged:
                break
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    verdict = json.loads(output.splitlines()[-1])
    assert (process.returncode, verdict["event"]) == (0, "verdict"), errors
    assert comparable(verdict["report"]) == comparable(on_host)


def test_the_services_share_one_image_and_publish_no_port(tmp_path: Path) -> None:
    write_topology(tmp_path)
    done = started(*GEOEMU, "render", "--output", "containers", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load((tmp_path / "containers" / "compose.yaml").read_text())["services"]
    cluster = {name: one for name, one in services.items() if name.startswith("spark-")}
    assert set(cluster) == {"spark-master", "spark-worker", "spark-submit"}
    for one in cluster.values():
        assert (one["profiles"], one["image"]) == (["spark"], services["verify"]["image"])
        assert (one["read_only"], one["cap_drop"], "ports" in one) == (True, ["ALL"], False)
    assert cluster["spark-submit"]["volumes"] == services["verify"]["volumes"]
    assert cluster["spark-worker"]["volumes"] == services["verify"]["volumes"][:1]
    assert cluster["spark-worker"]["deploy"] == {"replicas": 2}


def test_a_region_with_the_name_of_a_service_is_refused(tmp_path: Path) -> None:
    write_topology(tmp_path)
    (tmp_path / "clusters" / "europe.yaml").write_text("regions:\n  spark-master: {}\n")
    with pytest.raises(Refused, match="region spark-master has the name of the service of a Spark cluster"):
        render(load_topology(tmp_path / "topology.yaml"), tmp_path / "containers")
