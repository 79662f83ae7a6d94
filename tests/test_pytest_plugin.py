"""The pytest plugin, as a project that tests its service uses it: pytest runs as a program of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtimes.fixtures import end_all

EXAMPLE = Path(__file__).parents[1] / "examples" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example, with its ini file."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


def run_pytest(project: Path, *options: str, expected: int) -> str:
    """Run pytest in a project and return its output. `expected`: the exit code."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", "temp", *options]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=240)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def write_test(project: Path, text: str) -> None:
    for old in project.glob("test_*.py"):
        old.unlink()
    (project / "test_it.py").write_text("import pytest\nimport pulsar\n" + text)


@pytest.mark.real
def test_the_example_loses_a_region_and_passes(project: Path) -> None:
    output = run_pytest(project, expected=0)
    assert "4 passed" in output
    assert not list((project / "temp").rglob("run.json.lock"))


@pytest.mark.real
def test_workers_have_regions_of_their_own(project: Path) -> None:
    write_test(
        project,
        """
@pytest.mark.parametrize("number", range(4))
def test_one(geo, geo_namespace, number):
    client = pulsar.Client(geo.url("ireland"))
    client.create_producer(f"persistent://{geo_namespace}/a").send(b"x")
    client.close()
    geo.kill("ireland")
""",
    )
    assert "4 passed" in run_pytest(project, "-n", "2", "--dist", "load", expected=0)
    runs = {file.parent for file in (project / "temp").rglob("run.json")}
    assert len(runs) == 2
    assert len({re.search(r'"service_port": *(\d+)', (run / "run.json").read_text())[1] for run in runs}) == 2  # type: ignore[index]


@pytest.mark.real
def test_a_failed_test_shows_verdict_and_history_and_leaves_healthy_regions(project: Path) -> None:
    write_test(
        project,
        """
def test_wrong(geo, geo_namespace):
    client = geo.recorded(pulsar.Client(geo.url("ireland")))
    client.create_producer(f"persistent://{geo_namespace}/a").send(b"x")
    geo.cut("ireland", "virginia")
    geo.pause("virginia")
    geo.skew("ireland", 250)
    geo.disk("ireland", "slow", by="1ms")
    assert False, "the service is wrong"

def test_right(geo, geo_namespace):
    client = geo.recorded(pulsar.Client(geo.url("virginia")))
    client.create_producer(f"persistent://{geo_namespace}/a").send(b"x")
    geo.await_replicated(f"persistent://{geo_namespace}/a")
    assert geo.verify(stop=False, engine="embedded").is_valid
""",
    )
    output = run_pytest(project, expected=1)
    assert "1 failed, 1 passed" in output
    verdict = output[output.index("geoemu verdict") :]
    assert re.search(r"^(valid|unknown): .*/report/report.html$", verdict, re.MULTILINE)
    assert re.search(r"^[\d:.]{12} pytest publish ok ireland persistent://", verdict, re.MULTILINE)
    assert re.search(r"^[\d:.]{12} operator cut ireland virginia both ways$", verdict, re.MULTILINE)


ASYNCHRONOUS = """
import asyncio

@pytest.fixture
def anyio_backend():
    return "asyncio"

def use(geo, topic):
    client = geo.recorded(pulsar.Client(geo.url("ireland")))
    client.create_producer(topic).send(b"x")
    client.close()

async def cut_and_use(geo, namespace, name):
    with geo.cut("ireland", "virginia"):
        await asyncio.to_thread(use, geo, f"persistent://{namespace}/{name}")
    await asyncio.to_thread(geo.await_replicated, f"persistent://{namespace}/{name}")
    assert geo.state("virginia") == "running"

@pytest.fixture
async def of_anyio(geo, geo_namespace, anyio_backend):
    await cut_and_use(geo, geo_namespace, "in-fixture")
    yield geo

def test_plain(geo, geo_namespace):
    asyncio.run(cut_and_use(geo, geo_namespace, "plain"))

@pytest.mark.anyio
async def test_anyio(of_anyio, geo, geo_namespace):
    assert of_anyio is geo
    await cut_and_use(geo, geo_namespace, "anyio")

@pytest.mark.anyio
async def test_anyio_fails(geo, geo_namespace):
    await cut_and_use(geo, geo_namespace, "anyio")
    assert False, "wrong with anyio"
"""
OF_PYTEST_ASYNCIO = """
@pytest.mark.asyncio
async def test_asyncio(geo, geo_namespace):
    await cut_and_use(geo, geo_namespace, "asyncio")

@pytest.mark.asyncio
async def test_asyncio_fails(geo, geo_namespace):
    await cut_and_use(geo, geo_namespace, "asyncio")
    assert False, "wrong with asyncio"
"""


@pytest.mark.real
@pytest.mark.parametrize("mode", ["strict", pytest.param("auto", marks=pytest.mark.slow)])
def test_plain_tests_and_those_of_anyio_and_pytest_asyncio_share_regions(project: Path, mode: str) -> None:
    """In the mode `auto`, pytest-asyncio runs all asynchronous tests, but those of anyio."""
    of_pytest_asyncio = OF_PYTEST_ASYNCIO
    if mode == "auto":
        of_pytest_asyncio = of_pytest_asyncio.replace("@pytest.mark.asyncio\n", "")
    write_test(project, ASYNCHRONOUS + of_pytest_asyncio)
    output = run_pytest(project, "-o", f"asyncio_mode={mode}", expected=1)
    assert "2 failed, 3 passed" in output
    assert len(list((project / "temp").rglob("run.json"))) == 1
    assert {"wrong with anyio", "wrong with asyncio"} <= set(re.findall("AssertionError: (.*)", output))
    verdicts = re.findall(r"^(valid|unknown): .*/report/report.html$", output, re.MULTILINE)
    assert len(verdicts) == 2
    for name in ("anyio", "asyncio"):
        assert re.search(rf"publish ok ireland persistent://\S+/{name}", output)


@pytest.mark.real
def test_kept_regions_run_on_and_the_commands_to_use_them_are_printed(project: Path) -> None:
    write_test(project, "def test_one(geo): pass\n")
    output = run_pytest(project, "--geo-keep", expected=0)
    (run_dir,) = (Path(found) for found in re.findall(r"end: geoemu down --run-dir (\S+)", output))
    try:
        geoemu = Path(sys.executable).with_name("geoemu")
        status = subprocess.run([geoemu, "status", "--run-dir", run_dir], capture_output=True, text=True)
        assert status.stdout.count(" running ") == 2, status
        subprocess.run([geoemu, "down", "--run-dir", run_dir], check=True)
    finally:
        end_all(run_dir)


def test_regions_of_several_workers_are_not_kept(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--geo-keep", "-n", "2"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert "--geo-keep does not work with -n" in done.stderr


def test_seeds_of_a_scenario_run_in_virtual_time(project: Path) -> None:
    write_test(
        project,
        """
def test_one(geo_simulated):
    run = geo_simulated("outage.yaml")
    assert run.is_valid, str(run)
    assert run.seed == 7 and run.digest == geo_simulated("outage.yaml").digest
    assert run.digest != geo_simulated("outage.yaml", seed=8).digest
""",
    )
    (project / "outage.yaml").write_text(
        """
name: outage
topic: orders
actors:
  producers: [{name: shop, region: ireland, rate_per_second: 20}]
  consumers: [{name: stock, region: virginia, subscription: stock, replicated: true}]
steps:
  - begin: all
  - wait_until: {consumer: stock, received: 20}
  - kill: virginia
  - wait: 1s
  - start: virginia
  - wait_until: {consumer: stock, received: 40}
"""
    )
    assert "1 passed" in run_pytest(project, "--geo-seed", "7", expected=0)


@pytest.mark.parametrize("how", ["option", "ini", "marker", "default"])
def test_a_topology_that_does_not_exist_is_named_with_the_ways_to_name_one(project: Path, how: str) -> None:
    marker = '@pytest.mark.geo(topology="none.yaml")\n' if how == "marker" else ""
    write_test(project, f"{marker}def test_one(geo): pass\n")
    (project / "topology.yaml").rename(project / "other.yaml")
    if how == "ini":
        (project / "pytest.ini").write_text("[pytest]\ngeo_topology = none.yaml\n")
    options = ["--geo-topology", "none.yaml"] if how == "option" else []
    output = run_pytest(project, *options, expected=1)
    name = "topology.yaml" if how == "default" else "none.yaml"
    assert f"geoemu: no topology {project}/{name}: name one with --geo-topology" in output


def test_a_topology_with_errors_names_them(project: Path) -> None:
    write_test(project, "def test_one(geo): pass\n")
    (project / "topology.yaml").write_text("name: two\nclusters: [america, asia]\n")
    assert "asia" in run_pytest(project, expected=1)
